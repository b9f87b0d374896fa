"""DGL on Rudder: classic feature storages, GraphBolt's features in both of its interfaces, DistDGL's `pull`.

    client = rudder.Client(socket, dataset)
    graph = rudder.dgl.graph(client)                   # its "feat" comes from the node
    sampler = dgl.dataloading.NeighborSampler([10, 5], prefetch_node_feats=["feat"])
    loader = dgl.dataloading.DataLoader(graph, graph_ids, sampler, batch_size=512)

Importing this module needs torch; DGL itself is imported where it is used, and GraphBolt's base classes are taken where
the installed DGL has them (they need DGL 2.1 and its torch).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ._types import original_csc
from .client import Client, Minibatch
from .errors import ArgumentError, ReadOnlyError

__all__ = ["Feature", "FeatureStorage", "FeatureStore", "Pending", "attach", "graph", "wrap_pull"]

_SERVED = "features are read-only while they are served: import the dataset anew, or keep the tensor beside"


def _base(module: str, name: str) -> Any:
    """A base class of DGL's, or `object` where the installed DGL has none."""
    try:
        return getattr(__import__(module, fromlist=[name]), name)
    except Exception:  # DGL raises all kinds of errors where it does not fit torch
        return object


class Pending:
    """Rows on their way. They are announced; `wait` gathers and releases them."""

    def __init__(self, client: Client, ids: Any, table: str | None, device: Any, pin_memory: bool) -> None:
        self._client, self._device, self._pin_memory = client, device, pin_memory
        name = client.dataset.table(table).name
        ids = torch.as_tensor(ids).to("cpu", torch.int64).reshape(-1)
        self._minibatch: Minibatch | None = client.announce({name: ids})
        self._rows: Any = None

    def wait(self) -> Any:
        """The rows, `[n, dim]`, on the device that was asked for."""
        if self._minibatch is not None:
            minibatch, self._minibatch = self._minibatch, None
            try:
                rows = self._client.gather(minibatch, pin_memory=self._pin_memory)
            finally:
                self._client.release(minibatch)
            self._rows = rows if self._device is None else rows.to(self._device, non_blocking=True)
        return self._rows

    def __del__(self) -> None:
        minibatch = getattr(self, "_minibatch", None)
        if minibatch is not None:
            try:
                self._client.release(minibatch)
            except Exception:  # the node is gone, and so are the pins
                pass


class FeatureStorage(_base("dgl.storages", "FeatureStorage")):  # type: ignore[misc]
    """A table for DGL's classic `DataLoader`, which asks for rows first and waits for them later."""

    def __init__(self, client: Client, table: str | None = None) -> None:
        self.client, self.table = client, table

    def requires_ddp(self) -> bool:
        return False

    def fetch(self, indices: Any, device: Any, pin_memory: bool = False, **_: Any) -> Pending:
        """Announces rows and returns what their `wait()` gives."""
        return Pending(self.client, indices, self.table, device, pin_memory)


def graph(client: Client, features: Mapping[str, str] | None = None) -> Any:
    """The dataset's first graph as a `DGLGraph`, by the client's ids, with its features attached (see `attach`), and
    labels as `ndata["label"]` where the dataset has them."""
    import dgl

    dataset = client.dataset
    if client.ids == "original":
        indices, indptr = (torch.from_numpy(array) for array in original_csc(dataset))
    else:
        indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in dataset.csc())
    made = dgl.graph(("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=dataset.vertices)
    if dataset.labels is not None:
        ids = dataset.dataset_id if client.ids == "original" else slice(None)
        made.ndata["label"] = torch.from_numpy(np.array(dataset.labels[ids]))
    return attach(made, client, features)


def attach(graph: Any, client: Client, features: Mapping[str, str] | None = None) -> Any:
    """Makes `prefetch_node_feats` of DGL's samplers take the named features from the node: key -> table, `"feat"` from
    the first table if left out. All other features stay where they are. Returns the graph."""
    names = dict(features) if features is not None else {"feat": client.dataset.table().name}
    storages = {key: FeatureStorage(client, client.dataset.table(table).name) for key, table in names.items()}
    own: Callable[..., Any] = graph.get_node_storage

    def node_storage(key: str, ntype: Any = None) -> Any:
        return storages[key] if key in storages else own(key, ntype)

    graph.get_node_storage = node_storage
    return graph


class Feature(_base("dgl.graphbolt", "Feature")):  # type: ignore[misc]
    """A table as a GraphBolt feature: `read`, `size`, `metadata` of 2.1, `read_async` and `count` of 2.5."""

    def __init__(self, client: Client, table: str | None = None) -> None:
        if type(self).__mro__[1] is not object:
            super().__init__()
        self.client = client
        self._table = client.dataset.table(table)

    def read(self, ids: Any = None) -> Any:
        """Rows `[n, dim]` of ids `[n]`; all rows without ids."""
        return self._pending(ids).wait()

    def read_async(self, ids: Any) -> Iterator[Pending]:
        """Announces at once; the last yielded value's `wait()` gives the rows."""
        yield self._pending(ids)

    def read_async_num_stages(self, ids_device: Any) -> int:
        """How often `read_async` yields."""
        return 1

    def _pending(self, ids: Any) -> Pending:
        ids = torch.arange(self._table.rows) if ids is None else ids
        return Pending(self.client, ids, self._table.name, getattr(ids, "device", None), False)

    def size(self) -> torch.Size:
        """The shape of one row."""
        return torch.Size([self._table.dim])

    def count(self) -> int:
        """Number of rows."""
        return self._table.rows

    def metadata(self) -> dict[str, Any]:
        return {"table": self._table.name, "dtype": self._table.dtype}

    def update(self, value: Any, ids: Any = None) -> None:
        raise ReadOnlyError(_SERVED)


class FeatureStore(_base("dgl.graphbolt", "FeatureStore")):  # type: ignore[misc]
    """A GraphBolt feature store over a client: the interface of 2.1 (`read(domain, type, name, ids)`) and of 2.5
    (`store[domain, type, name]`). Without `features` the first table is `("node", None, "feat")`."""

    def __init__(self, client: Client, features: Mapping[tuple[str, Any, str], str] | None = None) -> None:
        if type(self).__mro__[1] is not object:
            super().__init__()
        names = features or {("node", None, "feat"): client.dataset.table().name}
        self._features = {key: Feature(client, table) for key, table in names.items()}

    def __getitem__(self, key: tuple[str, Any, str]) -> Feature:
        if key not in self._features:
            raise ArgumentError(f"no feature {key}; there are {self.keys()}")
        return self._features[key]

    def __setitem__(self, key: tuple[str, Any, str], feature: Any) -> None:
        self._features[key] = feature

    def __contains__(self, key: tuple[str, Any, str]) -> bool:
        return key in self._features

    def __len__(self) -> int:
        return len(self._features)

    def keys(self) -> list[tuple[str, Any, str]]:
        return list(self._features)

    def read(self, domain: str, type_name: Any, feature_name: str, ids: Any = None) -> Any:
        return self[domain, type_name, feature_name].read(ids)

    def size(self, domain: str, type_name: Any, feature_name: str) -> torch.Size:
        return self[domain, type_name, feature_name].size()

    def count(self, domain: str, type_name: Any, feature_name: str) -> int:
        return self[domain, type_name, feature_name].count()

    def metadata(self, domain: str, type_name: Any, feature_name: str) -> dict[str, Any]:
        return self[domain, type_name, feature_name].metadata()

    def update(
        self, domain: str, type_name: Any, feature_name: str, value: Any, ids: Any = None
    ) -> None:
        self[domain, type_name, feature_name].update(value, ids)


def wrap_pull(
    kvclient: Any, client: Client, tables: Mapping[str, str], ids: Callable[[Any], Any] | None = None
) -> None:
    """Makes DistDGL's `KVClient.pull(name, id_tensor)`, below every `DistTensor`, take the named tensors from the node.

    `tables`: DistDGL's name of a tensor, such as `"node:_N:feat"`, -> table. `ids` turns DistDGL's ids (after its own
    reshuffling) into the client's; left out, they are the same. Tensors of other names are pulled as before."""
    own: Callable[[str, Any], Any] = kvclient.pull
    found = {name: client.dataset.table(table).name for name, table in tables.items()}

    def pull(name: str, id_tensor: Any) -> Any:
        if name not in found:
            return own(name, id_tensor)
        wanted = id_tensor if ids is None else ids(id_tensor)
        return Pending(client, wanted, found[name], None, False).wait()

    kvclient.pull = pull
