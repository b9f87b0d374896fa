"""A dataset directory as `rudder import` writes it: mapped arrays, nothing read ahead."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._native import Manifest
from .errors import DatasetError, RowError

__all__ = ["Dataset", "Split", "Table"]

Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Table:
    """A feature table: `rows` rows of `dim` elements of `dtype`."""

    name: str
    index: int
    dim: int
    #: numpy's name of the element type; `bfloat16`, which numpy lacks, is held as uint16 in numpy arrays.
    dtype: str
    #: `row_offsets[p]` to `row_offsets[p + 1]` are the rows of part p.
    row_offsets: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.row_offsets[-1]

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)

    @property
    def row_bytes(self) -> int:
        return self.dim * self.numpy_dtype.itemsize


class Dataset:
    """An opened dataset directory. All vertex ids in it are dataset ids; `original_id` leads back.

    Raises `DatasetError` if the directory is no dataset.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._manifest = Manifest(self.path)
        self.name = self._manifest.name
        self.digest = self._manifest.digest
        #: Number of vertices.
        self.vertices = self._manifest.vertices
        #: `part_offsets[p]` to `part_offsets[p + 1]` are the vertices of part p.
        self.part_offsets: tuple[int, ...] = tuple(self._manifest.part_offsets)
        #: Feature tables by name, in the manifest's order.
        self.tables: dict[str, Table] = {
            name: Table(name, index, dim, dtype, tuple(offsets))
            for index, (name, dim, dtype, offsets) in enumerate(self._manifest.tables)
        }
        #: Number of edges of each graph by its name.
        self.graphs: dict[str, int] = dict(self._manifest.graphs)

    def __reduce__(self) -> tuple[type[Dataset], tuple[Path]]:
        return Dataset, (self.path,)

    def __repr__(self) -> str:
        return f"Dataset({str(self.path)!r}: {self.vertices} vertices, tables {list(self.tables)})"

    def table(self, name: str | None = None) -> Table:
        """A table by its name; the first if none is given."""
        if name is None:
            return next(iter(self.tables.values()))
        if name not in self.tables:
            raise DatasetError(f"{self.path}: no table {name!r}; there are {list(self.tables)}")
        return self.tables[name]

    def csc(self, graph: str | None = None) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
        """The graph's `indptr` (uint64 `[vertices + 1]`) and `indices` (uint32 `[edges]`): the in-neighbours of
        each vertex. Mapped, read-only."""
        name = next(iter(self.graphs)) if graph is None else graph
        if name not in self.graphs:
            raise DatasetError(f"{self.path}: no graph {name!r}; there are {list(self.graphs)}")
        return self._map(f"graph/{name}.indptr.npy"), self._map(f"graph/{name}.indices.npy")

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """int64 `[vertices]` by dataset id, -1 for none; None if the dataset has no labels. Mapped, read-only."""
        return self._map("labels.npy") if self._manifest.has("labels.npy") else None

    def split(self, which: Split) -> NDArray[np.int64]:
        """Dataset ids of a split, int64 `[n]`."""
        name = f"split_{which}.npy"
        if not self._manifest.has(name):
            raise DatasetError(f"{self.path} has no split {which!r}")
        return np.asarray(self._map(name), dtype=np.int64)

    @cached_property
    def original_id(self) -> NDArray[np.uint64]:
        """Original id of each dataset id, uint64 `[vertices]`. Mapped, read-only."""
        return self._map("original_id.npy")

    @cached_property
    def dataset_id(self) -> NDArray[np.uint32]:
        """Dataset id of each original id, uint32 `[vertices]`. Mapped, read-only."""
        return self._map("dataset_id.npy")

    def rows(self, ids: Any, table: str | None = None) -> NDArray[Any]:
        """Rows straight from this directory's files, `[len(ids), dim]`, by dataset id: for checks and for runs
        without a node. Raises `RowError` for an id that the table does not have."""
        spec = self.table(table)
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and (ids.min() < 0 or ids.max() >= spec.rows):
            raise RowError(f"table {spec.name!r}: ids are 0 to {spec.rows - 1}")
        out = np.empty((len(ids), spec.dim), dtype=spec.numpy_dtype)
        offsets = np.asarray(spec.row_offsets)
        parts = np.searchsorted(offsets, ids, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            out[here] = self._map(f"parts/{part}/{spec.name}.npy")[ids[here] - offsets[part]]
        return out

    def _map(self, relative: str) -> NDArray[Any]:
        path = self.path / relative
        try:
            # Never unpickles: such a file is refused.
            return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
        except FileNotFoundError:
            raise DatasetError(
                f"{path} is not here: this directory holds only a share of the dataset; give the one that "
                f"`rudder import` wrote"
            ) from None
        except ValueError as error:
            raise DatasetError(f"{path}: {error}; import the dataset again") from None
