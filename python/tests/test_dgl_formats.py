"""What DGL itself writes is imported bit by bit, cut as DGL cut it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rudder
from support import binary, run

torch = pytest.importorskip("torch")

try:
    import dgl
except Exception as error:  # DGL raises all kinds of errors where it does not fit torch
    pytest.skip(f"no DGL: {error}", allow_module_level=True)

VERTICES, EDGES = 90, 400


def graph(dtype: Any = torch.float32) -> Any:
    made = torch.Generator().manual_seed(3)
    ends = torch.randint(0, VERTICES, (2, EDGES), generator=made)
    one = dgl.graph((ends[0], ends[1]), num_nodes=VERTICES)
    one.ndata["feat"] = torch.randn(VERTICES, 5, generator=made).to(dtype)
    one.ndata["label"] = torch.randint(0, 4, (VERTICES,), generator=made)
    one.ndata["year"] = torch.arange(VERTICES)
    for at, name in enumerate(("train_mask", "val_mask", "test_mask")):
        one.ndata[name] = torch.arange(VERTICES) % 3 == at
    one.edata["weight"] = torch.rand(EDGES, generator=made)
    return one


def partitioned(whole: Any, folder: Path, parts: int, **options: Any) -> Any:
    """Cuts a graph; gives the vertex that each vertex of the partitions was."""
    options.setdefault("part_method", "metis" if parts > 1 else "random")
    vertices, _ = dgl.distributed.partition_graph(
        whole, "tiny", parts, str(folder), return_mapping=True, **options
    )
    return vertices


def edges_of(dataset: rudder.Dataset) -> list[tuple[int, int]]:
    indptr, indices = dataset.csc()
    targets = np.repeat(np.arange(dataset.vertices), np.diff(indptr).astype(np.int64))
    ids = dataset.original_id.astype(np.int64)
    return sorted(zip(ids[indices].tolist(), ids[targets].tolist(), strict=True))


def imported(source: Path, target: Path, *options: str) -> rudder.Dataset:
    run(binary("rudder"), "import", str(source), str(target), "--rows-per-block", "4", *options)
    return rudder.Dataset(target)


def check(dataset: rudder.Dataset, whole: Any, original: Any) -> None:
    """`original[v]` is the whole graph's vertex that the dataset's original id `v` is."""
    ids = dataset.dataset_id
    rows = dataset.rows(ids)
    want = whole.ndata["feat"][original]
    want = want.view(torch.uint16) if want.dtype == torch.bfloat16 else want
    assert rows.dtype == want.numpy().dtype and rows.tobytes() == want.numpy().tobytes()
    assert dataset.labels is not None
    assert np.array_equal(dataset.labels[ids], whole.ndata["label"][original].numpy())
    for split, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
        found = np.sort(dataset.original_id[dataset.split(split)])
        assert np.array_equal(found, np.flatnonzero(whole.ndata[mask][original].numpy()))
    place = np.empty(VERTICES, dtype=np.int64)
    place[original.numpy()] = np.arange(VERTICES)
    source, target = (place[ends.numpy()] for ends in whole.edges())
    assert edges_of(dataset) == sorted(zip(source.tolist(), target.tolist(), strict=True))


def parts_of(dataset: rudder.Dataset) -> list[Any]:
    offsets = dataset.part_offsets
    return [np.sort(dataset.original_id[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


@pytest.mark.parametrize("formats", [None, ["csc"], ["csr"], ["coo", "csc"]])
def test_partitions_come_as_dgl_cut_them(tmp_path: Path, formats: list[str] | None) -> None:
    whole = graph()
    original = partitioned(whole, tmp_path / "cut", 3, graph_formats=formats)
    dataset = imported(tmp_path / "cut", tmp_path / "set")
    check(dataset, whole, original)
    ranges = json.loads((tmp_path / "cut" / "tiny.json").read_text())["node_map"]["_N"]
    assert len(parts_of(dataset)) == 3
    for found, (start, end) in zip(parts_of(dataset), ranges, strict=True):
        assert np.array_equal(found, np.arange(start, end))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "uint8"])
def test_partitions_keep_their_dtype(tmp_path: Path, dtype: str) -> None:
    whole = graph(getattr(torch, dtype))
    original = partitioned(whole, tmp_path / "cut", 2, part_method="random", num_hops=2)
    check(imported(tmp_path / "cut" / "tiny.json", tmp_path / "set", "--parts", "2"), whole, original)


def test_one_partition_and_other_parts(tmp_path: Path) -> None:
    whole = graph()
    original = partitioned(whole, tmp_path / "cut", 1)
    check(imported(tmp_path / "cut", tmp_path / "one"), whole, original)
    with pytest.raises(AssertionError, match="cut into 1 parts already, not 2"):
        imported(tmp_path / "cut", tmp_path / "two", "--parts", "2")
    dataset = imported(tmp_path / "cut", tmp_path / "anew", "--parts", "2", "--partitioner", "metis")
    assert len(parts_of(dataset)) == 2
    check(dataset, whole, original)


def test_partitions_with_types_are_refused(tmp_path: Path) -> None:
    ends = torch.arange(30), torch.arange(30).flip(0)
    typed = dgl.heterograph({("a", "to", "b"): ends, ("b", "back", "a"): ends})
    dgl.distributed.partition_graph(typed, "typed", 2, str(tmp_path / "cut"), part_method="random")
    with pytest.raises(AssertionError, match="2 vertex types .*export_dataset"):
        imported(tmp_path / "cut", tmp_path / "set")


def chunked(whole: Any, folder: Path, text: bool) -> None:
    """As DGL's tools/chunk_graph.py, which does not come with the package, lays it out."""
    sizes = {"nodes": [40, 30, 20], "edges": [150, 250]}

    def write(name: str, array: Any, chunks: list[int], as_text: bool) -> dict[str, Any]:
        files = []
        for at, part in enumerate(np.split(array, np.cumsum(chunks)[:-1])):
            file = folder / f"{name}-{at}.{'csv' if as_text else 'npy'}"
            file.parent.mkdir(parents=True, exist_ok=True)
            if as_text:
                lines = part.reshape(len(part), -1)
                file.write_text("".join(" ".join(repr(v.item()) for v in row) + "\n" for row in lines))
            else:
                np.save(file, part)
            # DGL's own script writes absolute paths; relative ones are as good.
            files.append(os.fspath(file) if at else os.fspath(file.relative_to(folder)))
        kind = {"name": "csv", "delimiter": " "} if as_text else {"name": "numpy"}
        return {"format": kind, "data": files}

    ends = np.stack([part.numpy() for part in whole.edges()], axis=1)
    data = {key: value.numpy() for key, value in whole.ndata.items()}
    if text:
        data = {key: value.astype(np.int64) if value.dtype == bool else value for key, value in data.items()}
    metadata = {
        "graph_name": "tiny",
        "node_type": ["v"],
        "num_nodes_per_chunk": [sizes["nodes"]],
        "edge_type": ["v:to:v"],
        "num_edges_per_chunk": [sizes["edges"]],
        "edges": {"v:to:v": write("edges/to", ends, sizes["edges"], text)},
        "node_data": {
            "v": {key: write(f"node_data/{key}", value, sizes["nodes"], text) for key, value in data.items()}
        },
        "edge_data": {
            "v:to:v": {"weight": write("w", whole.edata["weight"].numpy(), sizes["edges"], False)}
        },
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))


@pytest.mark.parametrize("text", [False, True])
def test_chunked_graphs(tmp_path: Path, text: bool) -> None:
    whole = graph()
    chunked(whole, tmp_path / "chunks", text)
    dataset = imported(tmp_path / "chunks", tmp_path / "set", "--parts", "2")
    check(dataset, whole, torch.arange(VERTICES))
    # What DGL's tools for partitioning assign is taken over, beside the chunks or named.
    assigned = np.arange(VERTICES) * 7 % 4
    lines = "".join(f"{part}\n" for part in assigned)
    (tmp_path / "chunks" / "v.txt").write_text(lines)
    dataset = imported(tmp_path / "chunks", tmp_path / "placed")
    check(dataset, whole, torch.arange(VERTICES))
    assert [found.tolist() for found in parts_of(dataset)] == [
        np.flatnonzero(assigned == part).tolist() for part in range(4)
    ]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "v.txt").write_text("0\n" * VERTICES)
    (tmp_path / "elsewhere" / "partition_meta.json").write_text('{"num_parts": 2, "algo_name": "random"}')
    dataset = imported(tmp_path / "chunks", tmp_path / "named", "--placement", str(tmp_path / "elsewhere"))
    assert [len(found) for found in parts_of(dataset)] == [VERTICES, 0]
