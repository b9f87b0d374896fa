"""Vertex and edge types of a dataset, as the names of its tables and graphs say."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .errors import DatasetError

__all__ = ["Types", "edge_type_of", "original_csc"]


def edge_type_of(name: Any) -> tuple[str, str, str] | None:
    """`a__r__b` as (a, r, b); None for any other name."""
    pieces = name.split("__") if isinstance(name, str) else []
    return (pieces[0], pieces[1], pieces[2]) if len(pieces) == 3 else None


def original_csc(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, colptr) of the first graph with its vertices in the source's order."""
    indptr, indices = dataset.csc()
    starts = indptr[:-1].astype(np.int64)[dataset.dataset_id]
    degrees = np.diff(indptr).astype(np.int64)[dataset.dataset_id]
    colptr = np.concatenate([[0], np.cumsum(degrees)])
    positions = np.repeat(starts - colptr[:-1], degrees) + np.arange(len(indices))
    return dataset.original_id[indices[positions]].astype(np.int64), colptr


class Types:
    """A heterogeneous dataset numbers its vertices part by part, in each part type by type. A type's own ids (rows of
    its tables) count through the parts."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        #: Row offsets of each vertex type by part; `{None: ...}` for a homogeneous dataset.
        self._offsets: dict[str | None, NDArray[np.int64]] = {}
        self.typed = any("." in name for name in dataset.tables)
        if not self.typed:
            self._offsets[None] = np.asarray(dataset.part_offsets)
            return
        for name, table in dataset.tables.items():
            group = name.partition(".")[0]
            if edge_type_of(group) is None:
                self._offsets[group] = np.asarray(table.row_offsets)
        if sum(int(offsets[-1]) for offsets in self._offsets.values()) != dataset.vertices:
            raise DatasetError(f"{dataset.path}: the tables of the vertex types do not cover all vertices")

    def place(self, table: str) -> tuple[Any, str]:
        """(group, attribute) of a table."""
        if self.typed:
            group, _, attribute = table.partition(".")
            return group, attribute
        return None, "x" if table == self.dataset.table().name else table

    def count(self, group: Any) -> int:
        """Vertices of a type."""
        return int(self._offsets[group][-1]) if group in self._offsets else 0

    def labelled(self) -> list[Any]:
        """Types that have labels."""
        labels = self.dataset.labels
        if labels is None:
            return []
        if not self.typed:
            return [None]
        return [group for group in self._offsets if (labels[self._vertices(group)] >= 0).any()]

    def vertices(self, group: Any, ids: NDArray[np.int64], speak: str) -> NDArray[np.int64]:
        """Dataset ids of a type's ids."""
        if self.typed:
            return self._vertices(group)[ids]
        return self.dataset.dataset_id[ids].astype(np.int64) if speak == "original" else ids

    def locals(self, group: Any, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Of these dataset ids, those of the type, as its own ids."""
        if not self.typed:
            return vertices
        local = np.full(self.dataset.vertices, -1)
        own = self._vertices(group)
        local[own] = np.arange(len(own))
        found = local[vertices]
        return found[found >= 0]

    def _vertices(self, group: Any) -> NDArray[np.int64]:
        """Dataset id of each id of a type."""
        starts = np.asarray(self.dataset.part_offsets[:-1])
        for before, offsets in self._offsets.items():
            counts = np.diff(offsets)
            if before == group:
                shift = np.repeat(starts - offsets[:-1], counts)
                return shift + np.arange(int(offsets[-1]))
            starts = starts + counts
        raise DatasetError(f"{self.dataset.path}: no vertex type {group!r}; there are {list(self._offsets)}")

    @property
    def names(self) -> list[Any]:
        """The vertex types, in the order in which a part numbers them."""
        return list(self._offsets)

    def of(self, vertices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of these dataset ids, the type of each, as a position in `names`, and its id in that type."""
        at = np.searchsorted(self._ranges[0], vertices, side="right") - 1
        starts, types, firsts = self._ranges
        return types[at], vertices - starts[at] + firsts[at]

    @cached_property
    def _ranges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """For each type in each part, in the order of dataset ids: where it starts, which it is, its first own id.
        Those of which a part has none are left out."""
        found = []
        for part, start in enumerate(self.dataset.part_offsets[:-1]):
            for at, offsets in enumerate(self._offsets.values()):
                count = int(offsets[part + 1] - offsets[part])
                if count:
                    found.append((start, at, int(offsets[part])))
                start += count
        starts, types, firsts = np.array(found, dtype=np.int64).reshape(-1, 3).T
        return starts, types, firsts

    def csc(self, edge_type: tuple[str, str, str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(row, colptr) of an edge type, in its types' own ids."""
        indptr, indices = self.dataset.csc("__".join(edge_type))
        columns = self._vertices(edge_type[2])
        starts, ends = indptr[columns].astype(np.int64), indptr[columns + 1].astype(np.int64)
        colptr = np.concatenate([[0], np.cumsum(ends - starts)])
        positions = np.repeat(starts - colptr[:-1], ends - starts) + np.arange(int(colptr[-1]))
        local = np.full(self.dataset.vertices, -1)
        sources = self._vertices(edge_type[0])
        local[sources] = np.arange(len(sources))
        return local[indices[positions]], colptr
