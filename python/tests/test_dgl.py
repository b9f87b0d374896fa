"""DGL's loaders on the storages: the same minibatches as from memory."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import rudder
from support import Cluster

torch = pytest.importorskip("torch")

import rudder.dgl  # noqa: E402

try:
    import dgl
except Exception as error:  # DGL raises all kinds of errors where it does not fit torch
    pytest.skip(f"no DGL: {error}", allow_module_level=True)


@pytest.fixture(params=["dataset", "original"])
def client(tiny_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[rudder.Client]:
    client = tiny_cluster.client(ids=request.param)
    yield client
    client.close()


def all_rows(client: rudder.Client) -> Any:
    dataset = client.dataset
    ids = dataset.dataset_id if client.ids == "original" else range(dataset.vertices)
    return torch.from_numpy(dataset.rows(ids))


def minibatches(graph: Any) -> list[tuple[Any, Any]]:
    torch.manual_seed(4)
    dgl.random.seed(4)
    sampler = dgl.dataloading.NeighborSampler([4, 3], prefetch_node_feats=["feat"])
    loader = dgl.dataloading.DataLoader(graph, torch.arange(100), sampler, batch_size=20)
    return [(ids, blocks[0].srcdata["feat"]) for ids, _, blocks in loader]


def test_classic_loader(client: rudder.Client) -> None:
    memory = rudder.dgl.graph(client)
    del memory.get_node_storage
    memory.ndata["feat"] = all_rows(client)
    ours, theirs = minibatches(rudder.dgl.graph(client)), minibatches(memory)
    assert len(ours) == 5
    for (ids, rows), (want_ids, want) in zip(ours, theirs, strict=True):
        assert torch.equal(ids, want_ids) and torch.equal(rows, want)
    assert client.outstanding == 0


def test_other_features_stay_where_they_are(client: rudder.Client) -> None:
    graph = rudder.dgl.graph(client)
    graph.ndata["weight"] = torch.arange(3000)
    sampler = dgl.dataloading.NeighborSampler([2], prefetch_node_feats=["feat", "weight"])
    loader = dgl.dataloading.DataLoader(graph, torch.arange(10), sampler, batch_size=5)
    for ids, _, blocks in loader:
        assert torch.equal(blocks[0].srcdata["weight"], ids)


def test_fetching_is_asynchronous(client: rudder.Client) -> None:
    storage = rudder.dgl.FeatureStorage(client)
    first = storage.fetch(torch.arange(5), "cpu")
    second = storage.fetch(torch.arange(5, 9), "cpu")
    assert client.outstanding == 2
    assert torch.equal(second.wait(), all_rows(client)[5:9])
    assert first.wait() is first.wait()
    abandoned = storage.fetch(torch.arange(3), "cpu")
    del abandoned
    assert client.outstanding == 0


def test_graphbolt_interfaces(client: rudder.Client) -> None:
    key = ("node", None, "feat")
    store = rudder.dgl.FeatureStore(client)
    want = all_rows(client)
    assert torch.equal(store.read(*key, torch.tensor([4, 4, 1])), want[[4, 4, 1]])
    assert torch.equal(store.read(*key), want)
    assert store.keys() == [key] and key in store and len(store) == 1
    assert store.size(*key) == torch.Size([16]) and store.count(*key) == 3000
    feature = store[key]
    stages = list(feature.read_async(torch.arange(7)))
    assert len(stages) == feature.read_async_num_stages("cpu")
    assert torch.equal(stages[-1].wait(), want[:7])
    with pytest.raises(rudder.errors.ReadOnlyError):
        store.update(*key, torch.zeros(3000, 16))
    with pytest.raises(rudder.errors.ArgumentError, match="there are"):
        store.read("edge", None, "feat")


def test_pull_is_wrapped(client: rudder.Client) -> None:
    kvclient = SimpleNamespace(pull=lambda name, ids: (name, ids))
    rudder.dgl.wrap_pull(kvclient, client, {"node:_N:feat": "features"}, ids=lambda ids: ids + 1)
    assert torch.equal(kvclient.pull("node:_N:feat", torch.arange(6)), all_rows(client)[1:7])
    assert kvclient.pull("node:_N:label", 5) == ("node:_N:label", 5)
