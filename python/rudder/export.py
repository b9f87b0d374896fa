"""Graphs that live in PyG or DGL, as a folder that `rudder import` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._typed_export import Typed, write
from .errors import ArgumentError, DatasetError

__all__ = ["export_dataset"]


def export_dataset(
    data: Any, path: str | os.PathLike[str], *, feature: str | None = None, parts: int = 1
) -> Path:
    """Writes a graph into a new folder.

    A homogeneous PyG `Data` or DGL graph becomes plain arrays: `edges.npy` `[2, E]`, `features.npy` `[N, D]`, and labels
    and splits where there are any. `rudder import FOLDER DATASET --parts N` does the rest.

    A PyG `HeteroData` or a DGL graph of several types becomes a finished dataset of `parts` parts, each a range of every
    type: every feature of a vertex type is a table (`paper.x`), every edge type a graph (`paper__cites__paper`), its
    `edge_attr` (DGL: every `[E, D]` of its data) a table of edges. Every vertex type needs a feature.

    `feature` names the features where they are not `x` (PyG) or `feat` (DGL). Splits are the masks `train_mask`,
    `val_mask`, `test_mask`; labels `y` or `label`. Features keep their dtype. Returns the folder. Raises
    `ArgumentError` for what cannot be written, `DatasetError` if the folder is there already.
    """
    if getattr(data, "edge_types", None) and hasattr(data, "node_types"):
        return _write(_typed(data), path, parts)
    if hasattr(data, "canonical_etypes") and (len(data.ntypes) > 1 or len(data.canonical_etypes) > 1):
        return _write(_typed_of_dgl(data), path, parts)
    edges, arrays = _of_dgl(data) if hasattr(data, "ndata") else _of_pyg(data)
    features = _first(arrays, [feature] if feature else ["x", "feat"])
    if features is None:
        raise ArgumentError(f"no features among {sorted(arrays)}: name them with feature=")
    features = features.reshape(len(features), -1)
    wanted: dict[str, NDArray[Any]] = {"edges": edges, "features": features}
    labels = _first(arrays, ["y", "label"])
    if labels is not None:
        if labels.reshape(len(labels), -1).shape[1] != 1 or labels.dtype.kind not in "iu":
            raise ArgumentError(f"labels are one whole number a vertex, not {labels.dtype} {list(labels.shape)}")
        wanted["labels"] = labels.reshape(-1).astype(np.int64)
    for name, found in (("train", ["train_mask"]), ("valid", ["val_mask", "valid_mask"]), ("test", ["test_mask"])):
        mask = _first(arrays, found)
        if mask is not None:
            if mask.ndim != 1:
                raise ArgumentError(f"{found[0]} has {mask.ndim} dimensions: choose one split, [N]")
            wanted[f"split_{name}"] = np.flatnonzero(mask).astype(np.int64)
    for name in ("features", "labels"):
        if name in wanted and edges.size and len(wanted[name]) <= int(edges.max()):
            raise ArgumentError(f"{len(wanted[name])} rows of {name}, but an edge names vertex {int(edges.max())}")
    folder = _new(path)
    for name, array in wanted.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    return folder


def _write(typed: Typed, path: str | os.PathLike[str], parts: int) -> Path:
    folder = _new(path)
    write(typed, folder, parts)
    return folder


def _new(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise DatasetError(f"{folder} is there already: name a new folder") from None
    return folder


_MASKS = {"train_mask": "train", "val_mask": "valid", "valid_mask": "valid", "test_mask": "test"}


def _typed(data: Any) -> Typed:
    typed = Typed(counts={name: int(data[name].num_nodes) for name in data.node_types})
    for name in data.node_types:
        _add_vertices(typed, name, data[name].items())
    for edge_type in data.edge_types:
        storage = data[edge_type]
        typed.edges[edge_type] = _array(storage.edge_index).astype(np.int64)
        if "edge_attr" in storage:
            _add_features(typed, (edge_type, "edge_attr"), storage.edge_attr)
    return typed


def _typed_of_dgl(graph: Any) -> Typed:
    typed = Typed(counts={name: int(graph.num_nodes(name)) for name in graph.ntypes})
    for name in graph.ntypes:
        _add_vertices(typed, name, graph.nodes[name].data.items())
    for edge_type in graph.canonical_etypes:
        ends = graph.edges(etype=edge_type, order="eid")
        typed.edges[edge_type] = np.stack([_array(end) for end in ends]).astype(np.int64)
        for key, value in graph.edges[edge_type].data.items():
            if value.ndim == 2:
                _add_features(typed, (edge_type, key), value)
    return typed


def _add_vertices(typed: Typed, name: str, data: Any) -> None:
    for key, value in data:
        if not hasattr(value, "numpy"):
            continue
        if key in _MASKS:
            typed.splits[_MASKS[key], name] = np.flatnonzero(_array(value))
        elif key in ("y", "label") and value.ndim == 1 and _array(value).dtype.kind in "iu":
            typed.labels[name] = _array(value).astype(np.int64)
        elif value.ndim == 2 and len(value) == typed.counts[name]:
            _add_features(typed, (name, key), value)


def _add_features(typed: Typed, key: tuple[Any, str], value: Any) -> None:
    typed.features[key] = _array(value)
    typed.dtypes[key] = str(value.dtype).removeprefix("torch.")


def _first(arrays: dict[str, NDArray[Any]], names: list[str]) -> NDArray[Any] | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _of_pyg(data: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    if getattr(data, "edge_index", None) is None:
        raise ArgumentError("the Data has no edge_index")
    arrays = {key: _array(value) for key, value in data.to_dict().items() if hasattr(value, "numpy")}
    return arrays.pop("edge_index").astype(np.int64), arrays


def _of_dgl(graph: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    source, target = graph.edges(order="eid")
    return np.stack([_array(source), _array(target)]), {key: _array(graph.ndata[key]) for key in graph.ndata}


def _array(tensor: Any) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        # numpy has no bfloat16: import takes uint16 for it.
        import torch

        tensor = tensor.view(torch.uint16)
    return tensor.numpy()  # type: ignore[no-any-return]
