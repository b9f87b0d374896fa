"""PyG's loaders on the stores: the same requests, bytes and minibatches as from memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rudder
from support import Cluster

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import rudder.pyg  # noqa: E402
from stock_sampler import stock_sampler  # noqa: E402, F401
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.data.feature_store import TensorAttr  # noqa: E402
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader, NodeLoader  # noqa: E402


@pytest.fixture(params=["dataset", "original"])
def client(tiny_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[rudder.Client]:
    client = tiny_cluster.client(ids=request.param)
    yield client
    client.close()


def stores(client: rudder.Client) -> tuple[rudder.pyg.FeatureStore, rudder.pyg.GraphStore]:
    return rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)


def in_memory(client: rudder.Client) -> Data:
    """The whole graph, features and all, as PyG holds it in memory."""
    graph = rudder.pyg.GraphStore(client)
    row, colptr = graph._get_edge_index(graph.get_all_edge_attrs()[0])
    col = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    ids = np.arange(client.dataset.vertices)
    x = client.dataset.rows(client.dataset.dataset_id[ids] if client.ids == "original" else ids)
    return Data(x=torch.from_numpy(x), edge_index=torch.stack([row, col]))


def same(ours: Any, theirs: Any) -> None:
    assert torch.equal(ours.n_id, theirs.n_id)
    assert torch.equal(ours.edge_index, theirs.edge_index)
    assert torch.equal(ours.e_id, theirs.e_id)
    assert ours.x.dtype == theirs.x.dtype and torch.equal(ours.x, theirs.x)
    assert ours.batch_size == theirs.batch_size


def node_loader(client: rudder.Client, **options: Any) -> NodeLoader:
    data = stores(client)
    sampler = rudder.pyg.NeighborSampler(data[1], [4, 3], seed=3)
    options.setdefault("batch_size", 16)
    return NodeLoader(data, sampler, input_nodes=torch.arange(200), **options)


def test_stock_neighbor_loader(client: rudder.Client, stock_sampler: None) -> None:  # noqa: F811
    def minibatches(data: Any, **more: Any) -> list[Any]:
        torch.manual_seed(5)
        nodes = torch.arange(60)
        loader = NeighborLoader(data, [4, 3], nodes, batch_size=20, shuffle=True, is_sorted=True)
        return list(rudder.lookahead(loader, depth=2) if more.get("ahead") else loader)

    theirs = minibatches(in_memory(client))
    for ahead in (False, True):
        ours = minibatches(stores(client), ahead=ahead)
        assert len(ours) == len(theirs) == 3
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    assert client.outstanding == 0


def test_stock_link_loader(client: rudder.Client, stock_sampler: None) -> None:  # noqa: F811
    def minibatches(data: Any, label_index: Any) -> list[Any]:
        torch.manual_seed(6)
        loader = LinkNeighborLoader(
            data, [3], label_index, neg_sampling_ratio=1.0, batch_size=20, shuffle=True, is_sorted=True
        )
        return list(loader)

    memory = in_memory(client)
    links = memory.edge_index[:, :60]
    ours, theirs = minibatches(stores(client), (None, links)), minibatches(memory, links)
    assert len(ours) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.edge_label_index, other.edge_label_index)
        assert torch.equal(one.edge_label, other.edge_label)
        assert torch.equal(one.x, other.x)


@pytest.mark.parametrize(
    ("workers", "ahead"),
    [("none", False), ("none", True), ("fork", False), ("fork", True), ("spawn", False)],
)
def test_workers_change_nothing(tiny_cluster: Cluster, workers: str, ahead: bool) -> None:
    client = tiny_cluster.client()
    options = {} if workers == "none" else {"num_workers": 2, "multiprocessing_context": workers}
    loader = node_loader(client, **options)
    ours = list(rudder.lookahead(loader, depth=3) if ahead else loader)
    memory = in_memory(client)
    sampler = rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client), [4, 3], seed=3)
    theirs = list(NodeLoader(memory, sampler, input_nodes=torch.arange(200), batch_size=16))
    assert len(ours) == len(theirs) == 13
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)
    assert client.outstanding == 0
    client.close()


def test_our_link_sampler(client: rudder.Client) -> None:
    from torch_geometric.loader import LinkLoader

    memory = in_memory(client)
    links = memory.edge_index[:, 100:140]

    def minibatches(data: Any, label_index: Any) -> list[Any]:
        torch.manual_seed(1)
        sampler = rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client), [3, 2])
        return list(LinkLoader(data, sampler, label_index, neg_sampling="binary", batch_size=10))

    for one, other in zip(minibatches(stores(client), (None, links)), minibatches(memory, links), strict=True):
        assert torch.equal(one.x, other.x) and torch.equal(one.edge_label_index, other.edge_label_index)


def test_samples_keep_the_rules(client: rudder.Client) -> None:
    graph = rudder.pyg.GraphStore(client)
    row, colptr = graph._get_edge_index(graph.get_all_edge_attrs()[0])
    sampler = rudder.pyg.NeighborSampler(graph, [4, -1], seed=9)
    seeds = torch.tensor([7, 1, 7, 2000])
    out = sampler.sample(seeds, 0, 0)
    assert out.node[:3].tolist() == [7, 1, 2000]
    assert sum(out.num_sampled_nodes) == len(out.node) and sum(out.num_sampled_edges) == len(out.row)
    for source, target in zip(out.node[out.row].tolist(), out.node[out.col].tolist(), strict=True):
        assert source in row[colptr[target] : colptr[target + 1]]
    many = torch.arange(200)
    first = sampler.sample(many, 0, 0)
    assert torch.equal(sampler.sample(many, 0, 0).node, first.node)
    assert not torch.equal(sampler.sample(many, 1, 0).node, first.node)
    with pytest.raises(rudder.errors.RowError, match="the graph has 3000"):
        rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client, "dataset"), [1]).sample(torch.tensor([3000]), 0, 0)


def test_the_sampler_copies_no_graph(client: rudder.Client) -> None:
    from rudder._native import GraphSampler

    indptr, indices = client.dataset.csc()
    addresses = (indptr.__array_interface__["data"][0], indices.__array_interface__["data"][0])
    assert GraphSampler(indptr, indices, [2]).addresses() == addresses


def test_indices_of_every_kind(client: rudder.Client) -> None:
    store = rudder.pyg.FeatureStore(client)
    everything = in_memory(client).x
    for index in (None, slice(5, 30, 2), 7, torch.tensor([9]), torch.arange(3000) < 4):
        got = store.get_tensor(TensorAttr(None, "x", index))
        if index is None:
            want = everything
        else:
            want = everything[[index] if isinstance(index, int) else index]
        assert torch.equal(got, want), index
    assert store._get_tensor(TensorAttr(None, "z", None)) is None
    assert store.get_tensor_size(TensorAttr(None, "x", None)) == (3000, 16)


def test_stores_are_read_only(client: rudder.Client) -> None:
    store, graph = stores(client)
    with pytest.raises(rudder.errors.ReadOnlyError, match="import the dataset anew"):
        store.put_tensor(torch.zeros(3000, 16), group_name=None, attr_name="x", index=None)
    with pytest.raises(rudder.errors.ReadOnlyError):
        graph._put_edge_index(None, graph.get_all_edge_attrs()[0])


def test_transforms_see_filled_features(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client()

    def doubled(data: Any) -> Any:
        data.x = data.x * 2
        return data

    plain = list(node_loader(client))
    loader = node_loader(client, transform=doubled)
    for one, other in zip(rudder.lookahead(loader, depth=2), plain, strict=True):
        assert torch.equal(one.x, other.x * 2)
    assert loader.transform is doubled
    client.close()


def test_an_abandoned_epoch_gives_everything_back(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client(ids="dataset")
    loader = rudder.lookahead(node_loader(client), depth=50)
    assert loader.depth == client.credits - 1 and len(loader) == 13
    epoch = iter(loader)
    next(epoch)
    # Training begins when the first is ready; the window fills meanwhile.
    assert 1 <= client.outstanding <= loader.depth
    epoch.close()  # type: ignore[attr-defined]
    assert client.outstanding == 0
    client.close()


def test_the_next_epoch_begins_while_one_ends(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client()

    def shuffled() -> NodeLoader:
        return node_loader(client, shuffle=True, generator=torch.Generator().manual_seed(4))

    plain = shuffled()
    theirs = [list(plain) for _ in range(3)]
    loader = rudder.lookahead(shuffled(), depth=4, epochs=3)
    for epoch in range(3):
        for at, (one, other) in enumerate(zip(loader, theirs[epoch], strict=True)):
            same(one, other)
            # Beside the ones ahead none is held, and at the end of the last epoch there is nothing ahead.
            left = 13 - 1 - at + (13 if epoch < 2 else 0)
            assert client.outstanding == min(4, left) if at >= 4 else client.outstanding <= 4
        # What will be used first, and those beside it.
        assert client.outstanding == (0 if epoch == 2 else 5)
    # Gone over more often than was said: then each epoch is on its own.
    assert len(list(loader)) == 13 and client.outstanding == 0

    abandoned = rudder.lookahead(shuffled(), depth=4, epochs=2)
    epoch_ends = iter(abandoned)
    for _ in range(12):
        next(epoch_ends)
    assert client.outstanding == 4
    epoch_ends.close()  # type: ignore[attr-defined]
    assert client.outstanding == 0
    with pytest.raises(rudder.errors.ArgumentError, match="at least once"):
        rudder.lookahead(shuffled(), epochs=0)
    client.close()


def test_any_loader_looks_ahead(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client()
    batches = [{"ids": torch.arange(n, n + 10)} for n in range(0, 100, 10)]
    loader = rudder.lookahead(
        batches,
        depth=3,
        client=client,
        ids=lambda batch: {"features": batch["ids"]},
        fill=lambda batch, rows: {**batch, "x": rows["features"]},
    )
    for batch in loader:
        assert np.array_equal(batch["x"], client.dataset.rows(batch["ids"].numpy()))
    for wrong in ({}, {"client": client, "ids": len}):
        with pytest.raises(rudder.errors.ArgumentError):
            rudder.lookahead(batches, **wrong)  # type: ignore[arg-type]
    client.close()
