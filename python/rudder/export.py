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

    A PyG `HeteroData` becomes a finished dataset of `parts` parts, each a range of every type: every feature of a vertex
    type is a table (`paper.x`), every edge type a graph (`paper__cites__paper`), its `edge_attr` a table of edges. Every
    vertex type needs a feature.

    `feature` names the features where they are not `x` (PyG) or `feat` (DGL). Splits are the masks `train_mask`,
    `val_mask`, `test_mask`; labels `y` or `label`. Features keep their dtype. Returns the folder. Raises
    `ArgumentError` for what cannot be written, `DatasetError` if the folder is there already.
    """
    if getattr(data, "edge_types", None) and hasattr(data, "node_types"):
        folder = _new(path)
        write(_typed(data), folder, parts)
        return folder
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


def _new(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise DatasetError(f"{folder} is there already: name a new folder") from None
    return folder


def _typed(data: Any) -> Typed:
    typed = Typed(counts={name: int(data[name].num_nodes) for name in data.node_types})
    masks = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}
    for name in data.node_types:
        for key, value in data[name].items():
            if not hasattr(value, "numpy"):
                continue
            array = _array(value)
            if key in masks:
                typed.splits[masks[key], name] = np.flatnonzero(array)
            elif key == "y" and array.ndim == 1 and array.dtype.kind in "iu":
                typed.labels[name] = array.astype(np.int64)
            elif array.ndim == 2 and len(array) == typed.counts[name]:
                typed.features[name, key] = array
                typed.dtypes[name, key] = str(value.dtype).removeprefix("torch.")
    for edge_type in data.edge_types:
        storage = data[edge_type]
        typed.edges[edge_type] = _array(storage.edge_index).astype(np.int64)
        if "edge_attr" in storage:
            typed.features[edge_type, "edge_attr"] = _array(storage.edge_attr)
            typed.dtypes[edge_type, "edge_attr"] = str(storage.edge_attr.dtype).removeprefix("torch.")
    return typed


def _first(arrays: dict[str, NDArray[Any]], names: list[str]) -> NDArray[Any] | None:
    return next((arrays[name] for name in names if name in arrays), None)


def _of_pyg(data: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    if getattr(data, "edge_index", None) is None:
        raise ArgumentError("the Data has no edge_index")
    arrays = {key: _array(value) for key, value in data.to_dict().items() if hasattr(value, "numpy")}
    return arrays.pop("edge_index").astype(np.int64), arrays


def _of_dgl(graph: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        raise ArgumentError("a heterogeneous DGL graph cannot be exported: export one type at a time")
    source, target = graph.edges(order="eid")
    return np.stack([_array(source), _array(target)]), {key: _array(graph.ndata[key]) for key in graph.ndata}


def _array(tensor: Any) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        # numpy has no bfloat16: import takes uint16 for it.
        import torch

        tensor = tensor.view(torch.uint16)
    return tensor.numpy()  # type: ignore[no-any-return]
