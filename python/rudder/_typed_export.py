"""Heterogeneous graphs as a finished dataset: a table for each feature of each type, a graph for each edge type.

Each type is cut into the same number of equal ranges; a part holds its range of every type. Vertex ids within a type
stay as they are in the source. Rows of edge features stand in the order of the graph: by target, then as given.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._native import block_checksums, file_digest, sealed_manifest
from .errors import ArgumentError

__all__ = ["Typed", "write"]

#: Feature data starts here in its file, so that blocks can be read past the page cache.
_DATA_OFFSET = 4096


@dataclass
class Typed:
    """A heterogeneous graph as arrays."""

    #: Number of vertices by type.
    counts: dict[str, int] = field(default_factory=dict)
    #: Sources and targets `[2, E]`, in their types' ids, by edge type.
    edges: dict[tuple[str, str, str], NDArray[np.int64]] = field(default_factory=dict)
    #: `[rows, columns]` by (type, name).
    features: dict[tuple[Any, str], NDArray[Any]] = field(default_factory=dict)
    #: Element types that numpy does not tell, by (type, name).
    dtypes: dict[tuple[Any, str], str] = field(default_factory=dict)
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    #: Ids of a type by (split, type).
    splits: dict[tuple[str, str], NDArray[np.int64]] = field(default_factory=dict)


class _Writer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[tuple[str, int, str]] = []

    def listed(self, path: str, array: NDArray[Any]) -> None:
        out = io.BytesIO()
        np.save(out, array, allow_pickle=False)
        content = out.getvalue()
        self._write(path, content)
        self.files.append((path, len(content), file_digest(content)))

    def features(self, path: str, rows: NDArray[Any]) -> None:
        text = f"{{'descr': '{rows.dtype.str}', 'fortran_order': False, 'shape': {rows.shape}, }}"
        header = text.encode().ljust(_DATA_OFFSET - 11) + b"\n"
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        self._write(path, start + header + rows.tobytes())

    def _write(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def write(typed: Typed, folder: Path, parts: int) -> None:
    """Writes the dataset into an empty folder, named after it."""
    if parts < 1:
        raise ArgumentError(f"parts={parts}: at least one")
    offsets = {name: np.arange(parts + 1) * count // parts for name, count in typed.counts.items()}
    part_offsets = np.sum(list(offsets.values()), axis=0)
    vertices = _vertices(offsets, part_offsets)
    total = int(part_offsets[-1])
    writer = _Writer(folder)
    tables = []
    graphs = []
    for name, count in typed.counts.items():
        if not any(owner == name for owner, _ in typed.features):
            raise ArgumentError(f"vertex type {name!r} has no features: give it some, or leave the type out")
        del count
    for (owner, attribute), rows in typed.features.items():
        if isinstance(owner, str):
            key = (owner, attribute)
            tables.append(_table(writer, f"{owner}.{attribute}", rows, offsets[owner], typed.dtypes.get(key)))
    for edge_type, edges in typed.edges.items():
        name = "__".join(edge_type)
        source, target = vertices[edge_type[0]][edges[0]], vertices[edge_type[2]][edges[1]]
        order = np.argsort(target, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=total))]).astype(np.uint64)
        writer.listed(f"graph/{name}.indptr.npy", indptr)
        writer.listed(f"graph/{name}.indices.npy", source[order].astype(np.uint32))
        graphs.append((name, len(order)))
        for (owner, attribute), rows in typed.features.items():
            if owner == edge_type:
                ends = indptr[part_offsets].astype(np.int64)
                dtype = typed.dtypes.get((owner, attribute))
                tables.append(_table(writer, f"{name}.{attribute}", rows[order], ends, dtype))
    _ids(writer, typed, vertices, total)
    text = sealed_manifest(folder.name, part_offsets.tolist(), graphs, tables, writer.files)
    (folder / "dataset.toml").write_text(text)


def _vertices(offsets: dict[str, Any], part_offsets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Dataset ids of each type's ids: part by part, within a part type by type."""
    found, starts = {}, part_offsets[:-1].copy()
    for name, of_type in offsets.items():
        counts = np.diff(of_type)
        found[name] = np.repeat(starts - of_type[:-1], counts) + np.arange(int(of_type[-1]))
        starts = starts + counts
    return found


def _table(
    writer: _Writer, name: str, rows: NDArray[Any], offsets: Any, dtype: str | None
) -> tuple[str, int, str, int, list[int]]:
    rows = np.ascontiguousarray(rows.reshape(len(rows), -1))
    row_bytes = rows.shape[1] * rows.itemsize
    # Small rows share a block of about a quarter of a page.
    per_block = 1
    while per_block < 16 and 2 * per_block * row_bytes <= 1024:
        per_block *= 2
    for part, (start, end) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        here = rows[start:end]
        writer.features(f"parts/{part}/{name}.npy", here)
        sums = block_checksums(here.reshape(-1).view(np.uint8), per_block * row_bytes)
        writer.listed(f"parts/{part}/{name}.crc.npy", np.frombuffer(sums, dtype="<u4"))
    return name, rows.shape[1], dtype or rows.dtype.name, per_block, [int(offset) for offset in offsets]


def _ids(writer: _Writer, typed: Typed, vertices: dict[str, NDArray[np.int64]], total: int) -> None:
    """Original ids count through the types, one after the other."""
    dataset_id = np.concatenate(list(vertices.values()))
    original_id = np.empty(total, dtype=np.uint64)
    original_id[dataset_id] = np.arange(total)
    writer.listed("original_id.npy", original_id)
    writer.listed("dataset_id.npy", dataset_id.astype(np.uint32))
    if typed.labels:
        labels = np.full(total, -1, dtype=np.int64)
        for name, of_type in typed.labels.items():
            labels[vertices[name]] = of_type
        writer.listed("labels.npy", labels)
    for split in ("train", "valid", "test"):
        found = [vertices[name][ids] for (which, name), ids in typed.splits.items() if which == split]
        if found:
            writer.listed(f"split_{split}.npy", np.concatenate(found).astype(np.uint32))
