"""Heterogeneous graphs: exported, served, sampled by PyG's stock loader; vertex and edge features."""

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
from torch_geometric.loader import NeighborLoader  # noqa: E402

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


def test_our_sampler_says_who_samples_several_types(hetero_cluster: Cluster) -> None:
    client = hetero_cluster.client()
    with pytest.raises(rudder.errors.ArgumentError, match="NeighborLoader"):
        rudder.pyg.NeighborSampler(rudder.pyg.GraphStore(client), [2])
    client.close()


def test_export_says_what_is_missing(tmp_path: Path) -> None:
    data = graph()
    del data["author"].x
    data["author"].num_nodes = 37
    with pytest.raises(rudder.errors.ArgumentError, match="'author' has no features"):
        rudder.export_dataset(data, tmp_path / "library")
