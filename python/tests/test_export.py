"""Graphs of the frameworks come through export and import unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rudder
from support import imported

torch = pytest.importorskip("torch")


def tensors(count: int = 60) -> dict[str, Any]:
    made = torch.Generator().manual_seed(1)
    code = torch.arange(count) % 3
    return {
        "x": torch.randn(count, 5, generator=made),
        "y": torch.randint(0, 4, (count,), generator=made),
        "edge_index": torch.randint(0, count, (2, 200), generator=made),
        "train_mask": code == 0,
        "val_mask": code == 1,
        "test_mask": code == 2,
    }


def check(folder: Path, target: Path, want: dict[str, Any]) -> None:
    dataset = rudder.Dataset(imported(str(folder), target, 2))
    ids = dataset.dataset_id
    assert np.array_equal(dataset.rows(ids), want["x"].numpy())
    assert dataset.labels is not None and np.array_equal(dataset.labels[ids], want["y"].numpy())
    train = np.sort(dataset.original_id[dataset.split("train")])
    assert np.array_equal(train, np.flatnonzero(want["train_mask"]))
    indptr, indices = dataset.csc()
    targets = np.repeat(np.arange(dataset.vertices), np.diff(indptr).astype(np.int64))
    edges = np.stack([dataset.original_id[indices], dataset.original_id[targets]]).astype(np.int64)
    assert sorted(map(tuple, edges.T)) == sorted(map(tuple, want["edge_index"].numpy().T))


def test_a_pyg_graph(tmp_path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data").Data(**tensors())
    folder = rudder.export_dataset(data, tmp_path / "exported")
    check(folder, tmp_path / "dataset", tensors())
    with pytest.raises(rudder.errors.DatasetError, match="there already"):
        rudder.export_dataset(data, folder)
    del data.x
    with pytest.raises(rudder.errors.ArgumentError, match="feature="):
        rudder.export_dataset(data, tmp_path / "other")
    data.x, data.y = torch.zeros(60, 5), torch.zeros(60, 2)
    with pytest.raises(rudder.errors.ArgumentError, match="whole number"):
        rudder.export_dataset(data, tmp_path / "other")


def test_a_dgl_graph(tmp_path: Path) -> None:
    try:
        import dgl
    except Exception as error:
        pytest.skip(f"no DGL: {error}")
    want = tensors()
    graph = dgl.graph(tuple(want["edge_index"]), num_nodes=60)
    graph.ndata.update({"feat": want["x"], "label": want["y"]})
    graph.ndata.update({name: want[name] for name in ("train_mask", "val_mask", "test_mask")})
    check(rudder.export_dataset(graph, tmp_path / "exported"), tmp_path / "dataset", want)


def test_a_dgl_graph_of_several_types(tmp_path: Path) -> None:
    try:
        import dgl
    except Exception as error:
        pytest.skip(f"no DGL: {error}")
    made = torch.Generator().manual_seed(2)
    writes = torch.randint(0, 20, (70,), generator=made), torch.randint(0, 30, (70,), generator=made)
    cites = torch.randint(0, 30, (2, 90), generator=made)
    graph = dgl.heterograph(
        {("author", "writes", "paper"): writes, ("paper", "cites", "paper"): tuple(cites)},
        num_nodes_dict={"author": 20, "paper": 30},
    )
    graph.nodes["author"].data["feat"] = torch.randn(20, 3, generator=made)
    graph.nodes["paper"].data["feat"] = torch.randn(30, 4, generator=made).to(torch.float16)
    graph.nodes["paper"].data["label"] = torch.arange(30) % 5
    graph.nodes["paper"].data["train_mask"] = torch.arange(30) % 2 == 0
    graph.edges["writes"].data["order"] = torch.arange(70).reshape(-1, 1)
    dataset = rudder.Dataset(rudder.export_dataset(graph, tmp_path / "library", parts=2))
    assert set(dataset.tables) == {"author.feat", "paper.feat", "author__writes__paper.order"}
    assert dataset.graphs == {"author__writes__paper": 70, "paper__cites__paper": 90}
    for name in ("author", "paper"):
        rows = dataset.rows(torch.arange(graph.num_nodes(name)), f"{name}.feat")
        assert np.array_equal(rows, graph.nodes[name].data["feat"].numpy())
    # Original ids count through the types: authors, then papers.
    papers = np.arange(20, 50)
    assert dataset.labels is not None
    assert np.array_equal(dataset.labels[dataset.dataset_id[papers]], np.arange(30) % 5)
    assert np.array_equal(np.sort(dataset.original_id[dataset.split("train")]), papers[::2])
    indptr, indices = dataset.csc("author__writes__paper")
    targets = np.repeat(np.arange(dataset.vertices), np.diff(indptr).astype(np.int64))
    found = sorted(zip(dataset.original_id[indices].tolist(), dataset.original_id[targets].tolist(), strict=True))
    assert found == sorted(zip(writes[0].tolist(), (writes[1] + 20).tolist(), strict=True))


def test_bfloat16_stays_as_it_is(tmp_path: Path) -> None:
    want = {**tensors(), "x": torch.randn(60, 4).to(torch.bfloat16)}
    data = pytest.importorskip("torch_geometric.data").Data(**want)
    dataset = rudder.Dataset(imported(str(rudder.export_dataset(data, tmp_path / "e")), tmp_path / "d", 1))
    assert dataset.table().dtype == "bfloat16"
    assert np.array_equal(dataset.rows(dataset.dataset_id), want["x"].view(torch.uint16).numpy())
