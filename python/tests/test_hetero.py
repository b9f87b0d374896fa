"""Heterogeneous graphs: exported, served, sampled by PyG's stock loader and by our own sampler; vertex and edge features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rudder
from support import Cluster, binary, run

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import rudder.pyg  # noqa: E402
from stock_sampler import stock_sampler  # noqa: E402, F401
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader  # noqa: E402

CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def graph() -> HeteroData:
    made = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["paper"].x = torch.randn(101, 6, generator=made)
    data["paper"].y = torch.randint(0, 5, (101,), generator=made)
    data["paper"].train_mask = torch.arange(101) % 2 == 0
    data["author"].x = torch.randint(0, 99, (37, 3), generator=made)
    for edge_type, edges in ((CITES, 400), (WRITES, 200)):
        ends = [torch.randint(0, data[name].num_nodes, (edges,), generator=made) for name in edge_type[::2]]
        # By target: PyG's sampler then keeps the order of edges, as the dataset does.
        order = ends[1].argsort(stable=True)
        data[edge_type].edge_index = torch.stack([ends[0][order], ends[1][order]])
    data[CITES].edge_attr = torch.randn(400, 2, generator=made).to(torch.float16)
    return data


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rudder.export_dataset(graph(), tmp_path_factory.mktemp("hetero") / "library", parts=2)


@pytest.fixture(scope="module")
def hetero_cluster(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("nodes"), exported).start() as one:
        yield one


def test_the_dataset_is_whole(exported: Path) -> None:
    run(binary("rudder"), "inspect", str(exported))
    dataset = rudder.Dataset(exported)
    assert list(dataset.tables) == ["paper.x", "author.x", "paper__cites__paper.edge_attr"]
    assert dataset.graphs == {"paper__cites__paper": 400, "author__writes__paper": 200}
    assert torch.equal(torch.from_numpy(dataset.rows(range(37), "author.x")), graph()["author"].x)


@pytest.mark.parametrize("ahead", [False, True])
def test_stock_loader(hetero_cluster: Cluster, stock_sampler: None, ahead: bool) -> None:  # noqa: F811
    client = hetero_cluster.client()
    store, graph_store = rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)
    seeds = graph_store.split("train", "paper")
    assert torch.equal(seeds.sort().values, graph()["paper"].train_mask.nonzero().reshape(-1))

    def minibatches(data: Any, transform: Any = None) -> list[Any]:
        torch.manual_seed(8)
        fanout = {CITES: [3, 2], WRITES: [3, 2]}
        loader = NeighborLoader(
            data, fanout, ("paper", seeds), batch_size=10, transform=transform, is_sorted=True
        )
        return list(rudder.lookahead(loader, depth=3) if ahead and transform is not None else loader)

    memory = graph()
    theirs = minibatches(memory)
    ours = minibatches((store, graph_store), (lambda data: data) if ahead else store.with_edge_features)
    assert len(ours) == len(theirs) == 6
    for one, other in zip(ours, theirs, strict=True):
        for name in ("paper", "author"):
            # The order in which PyG visits edge types differs between stores and memory: ids may too.
            assert torch.equal(one[name].x, memory[name].x[one[name].n_id])
            assert one[name].x.dtype == memory[name].x.dtype
        assert torch.equal(one["paper"].y, memory["paper"].y[one["paper"].n_id])
        assert torch.equal(one["paper"].input_id, other["paper"].input_id)
        assert torch.equal(one[CITES].edge_attr, memory[CITES].edge_attr[one[CITES].e_id])
    assert client.outstanding == 0
    client.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_our_sampler(hetero_cluster: Cluster, ahead: bool) -> None:
    client = hetero_cluster.client()
    store, graph_store = rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)
    seeds = torch.arange(101)[40:][::3]

    def minibatches(data: Any, transform: Any = None) -> list[Any]:
        sampler = rudder.pyg.NeighborSampler(graph_store, {WRITES: [3, 2], CITES: [-1, 2]}, seed=4)
        loader = NodeLoader(data, sampler, ("paper", seeds), batch_size=8, transform=transform)
        return list(rudder.lookahead(loader, depth=3) if ahead and transform is not None else loader)

    theirs = minibatches(graph())
    ours = minibatches((store, graph_store), (lambda data: data) if ahead else store.with_edge_features)
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        for name in ("paper", "author"):
            assert torch.equal(one[name].n_id, other[name].n_id)
            assert torch.equal(one[name].x, other[name].x)
        assert torch.equal(one["paper"].y, other["paper"].y)
        assert torch.equal(one[CITES].edge_attr, other[CITES].edge_attr)
        for edge_type in (CITES, WRITES):
            assert torch.equal(one[edge_type].edge_index, other[edge_type].edge_index)
    assert client.outstanding == 0
    client.close()


def test_samples_of_several_types_keep_the_rules(hetero_cluster: Cluster) -> None:
    client, whole = hetero_cluster.client(), graph()
    sampler = rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client), [4, 2], seed=4)
    seeds = {"paper": torch.tensor([5, 90, 5]), "author": torch.tensor([36])}
    found = sampler.sample(seeds, 0, 0)
    assert found.node["paper"][:2].tolist() == [5, 90] and found.node["author"][0] == 36
    for name, ids in found.node.items():
        assert len(ids.unique()) == len(ids) == sum(found.num_sampled_nodes[name])
    assert found.num_sampled_nodes["author"][0] == 1 and found.num_sampled_nodes["paper"][0] == 2
    for edge_type in (CITES, WRITES):
        sources, targets = found.node[edge_type[0]][found.row[edge_type]], found.node["paper"][found.col[edge_type]]
        # The position of an edge is its place in the source's graph, which is in the order of targets.
        assert torch.equal(torch.stack([sources, targets]), whole[edge_type].edge_index[:, found.edge[edge_type]])
        assert sum(found.num_sampled_edges[edge_type]) == len(sources)
        degrees = torch.bincount(whole[edge_type].edge_index[1], minlength=101)
        first = targets[: found.num_sampled_edges[edge_type][0]]
        for seed in (5, 90):
            assert int((first == seed).sum()) == min(4, int(degrees[seed]))
    again = sampler.sample(seeds, 0, 0)
    assert all(torch.equal(again.edge[edge_type], found.edge[edge_type]) for edge_type in (CITES, WRITES))
    assert not torch.equal(sampler.sample(seeds, 1, 0).edge[CITES], found.edge[CITES])
    client.close()


def test_our_link_sampler_of_several_types(hetero_cluster: Cluster) -> None:
    client, whole = hetero_cluster.client(), graph()
    graph_store = rudder.pyg.GraphStore(client)
    links = (WRITES, whole[WRITES].edge_index[:, :30])

    def minibatches(data: Any) -> list[Any]:
        torch.manual_seed(2)
        sampler = rudder.pyg.NeighborSampler(graph_store, [3])
        return list(LinkLoader(data, sampler, links, neg_sampling="binary", batch_size=10))

    ours, theirs = minibatches((rudder.pyg.FeatureStore(client), graph_store)), minibatches(whole)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one[WRITES].edge_label_index, other[WRITES].edge_label_index)
        assert torch.equal(one["author"].x, other["author"].x)
    client.close()


def test_our_sampler_says_which_fanouts_it_takes(hetero_cluster: Cluster) -> None:
    client = hetero_cluster.client()
    for wrong, said in (({CITES: [2]}, "a list for each"), ({CITES: [2], WRITES: [2, 1]}, "as many hops")):
        with pytest.raises(rudder.errors.ArgumentError, match=said):
            rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client), wrong)
    client.close()


def test_export_says_what_is_missing(tmp_path: Path) -> None:
    data = graph()
    del data["author"].x
    data["author"].num_nodes = 37
    with pytest.raises(rudder.errors.ArgumentError, match="'author' has no features"):
        rudder.export_dataset(data, tmp_path / "library")
