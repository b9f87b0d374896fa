"""GraphBolt's own loader over the features, on its real base classes. Runs where GraphBolt does: README.md says how."""

from __future__ import annotations

from typing import Any

import pytest
import rudder
from support import Cluster

torch = pytest.importorskip("torch")

try:
    import dgl.graphbolt as gb
except Exception as error:  # DGL raises all kinds of errors where it does not fit torch
    pytest.skip(f"no GraphBolt: {error}", allow_module_level=True)
if not hasattr(gb, "FeatureStore"):
    pytest.skip("a DGL before 2.1", allow_module_level=True)

import rudder.dgl  # noqa: E402


def test_base_classes(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client()
    store = rudder.dgl.FeatureStore(client)
    assert isinstance(store, gb.FeatureStore)
    assert isinstance(store["node", None, "feat"], gb.Feature)
    client.close()


@pytest.mark.parametrize("ids", ["dataset", "original"])
def test_its_loader_gets_the_rows(tiny_cluster: Cluster, ids: Any) -> None:
    client = tiny_cluster.client(ids=ids)
    dataset = client.dataset
    order = dataset.dataset_id if ids == "original" else range(dataset.vertices)
    want = torch.from_numpy(dataset.rows(order))
    indptr, indices = dataset.csc()
    make = getattr(gb, "fused_csc_sampling_graph", None) or gb.from_fused_csc
    graph = make(torch.from_numpy(indptr.astype("int64")), torch.from_numpy(indices.astype("int64")))
    seeds = gb.ItemSet(torch.arange(100), names="seed_nodes")
    pipe = gb.ItemSampler(seeds, batch_size=20).sample_neighbor(graph, [4, 3])
    pipe = pipe.fetch_feature(rudder.dgl.FeatureStore(client), node_feature_keys=["feat"])
    try:
        loader = gb.DataLoader(pipe, num_workers=0)
    except TypeError:
        loader = gb.SingleProcessDataLoader(pipe)
    minibatches = list(loader)
    assert len(minibatches) == 5
    for minibatch in minibatches:
        assert torch.equal(minibatch.node_features["feat"], want[minibatch.input_nodes])
    assert client.outstanding == 0
    client.close()
