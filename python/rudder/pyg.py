"""PyTorch Geometric on Rudder: stores for its loaders and a sampler that needs neither pyg-lib nor torch-sparse.

    client = rudder.Client(socket, dataset)
    store, graph = rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)
    sampler = rudder.pyg.NeighborSampler(graph, num_neighbors=[10, 5], seed=1)
    loader = NodeLoader((store, graph), sampler, input_nodes=graph.split("train"), batch_size=512, shuffle=True)
    for minibatch in rudder.lookahead(loader, depth=16): ...

All of them speak the ids of the client: `ids="dataset"` or `ids="original"`.

A dataset whose tables have plain names is homogeneous: its first table is `x`, further tables of vertices keep their
names, labels are `y`, and tables with a row an edge are edge features. A dataset whose tables are called `type.name` is
heterogeneous: node types such as `paper.x`, edge types such as `paper__cites__paper.edge_attr`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import FeatureStore as PygFeatureStore
from torch_geometric.data import GraphStore as PygGraphStore
from torch_geometric.data import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from ._lookahead import LazyRows
from ._native import GraphSampler, RelationSampler
from ._types import Types, edge_type_of, original_csc
from .client import Client, Ids
from .dataset import Dataset, Split, Table
from .errors import ArgumentError, ReadOnlyError

__all__ = ["FeatureStore", "GraphStore", "NeighborSampler"]

_SERVED = "features are read-only while they are served: import the dataset anew, or keep the tensor beside"


class FeatureStore(PygFeatureStore):  # type: ignore[misc]
    """Features of a client's dataset for `NodeLoader`, `NeighborLoader`, `LinkNeighborLoader`.

    One batched fetch a minibatch. Survives fork and spawn: a worker opens a connection of its own. Tensors come as
    `[n, dim]` of the table's dtype; labels as int64 `[n]` from the dataset's own file.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(tensor_attr_cls=None)
        self.client = client
        dataset = client.dataset
        self._types = Types(dataset)
        self._tables: dict[tuple[Any, str], Table] = {}
        self._edge_tables: dict[tuple[Any, str], Table] = {}
        for name, table in dataset.tables.items():
            group, attribute = self._types.place(name)
            edges = edge_type_of(group) is not None if self._types.typed else self._is_edge_table(table)
            if edges:
                self._edge_tables[edge_type_of(group), attribute] = table
            else:
                self._tables[group, attribute] = table
        self._deferring = False
        self._lock = threading.Lock()

    def _is_edge_table(self, table: Table) -> bool:
        dataset = self.client.dataset
        return table.row_offsets != dataset.part_offsets and table.rows in dataset.graphs.values()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_lock"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"FeatureStore({self.client.dataset!r})"

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Meanwhile rows are not fetched: `LazyRows` stand in their place. What `rudder.lookahead` uses."""
        before, self._deferring = self._deferring, True
        try:
            yield
        finally:
            self._deferring = before

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Every attribute of vertices, fresh at each call since loaders write their indices into it."""
        attrs = [TensorAttr(group, name, None) for group, name in self._tables]
        attrs += [TensorAttr(group, "y", None) for group in self._types.labelled()]
        return attrs

    def _get_tensor(self, attr: TensorAttr) -> Any:
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Any]:
        found: list[Any] = [None] * len(attrs)
        wanted: list[tuple[int, Table, Any]] = []
        for at, attr in enumerate(attrs):
            table = self._tables.get((attr.group_name, attr.attr_name))
            if table is not None:
                wanted.append((at, table, _index(attr.index, table.rows)))
            elif attr.attr_name == "y" and attr.group_name in self._types.labelled():
                found[at] = self._labels(attr)
        self._fetch(wanted, found)
        return found

    def _fetch(self, wanted: list[tuple[int, Table, Any]], found: list[Any]) -> None:
        if self._deferring:
            for at, table, index in wanted:
                found[at] = LazyRows(table.name, index, table.dim)
            return
        # A table is announced once a minibatch: a second attribute of the same one waits its turn.
        while wanted:
            now = {table.name: (at, index) for at, table, index in reversed(wanted)}
            rows = self.client.fetch({name: index for name, (_, index) in now.items()})
            for name, (at, _) in now.items():
                found[at] = rows[name]
            taken = {at for at, _ in now.values()}
            wanted = [one for one in wanted if one[0] not in taken]

    def _labels(self, attr: TensorAttr) -> Any:
        labels = self.client.dataset.labels
        assert labels is not None
        ids = _index(attr.index, self._types.count(attr.group_name)).numpy()
        vertices = self._types.vertices(attr.group_name, ids, self.client.ids)
        # As a plain array: a mapped one makes a mapped one of every selection.
        return torch.from_numpy(np.asarray(labels)[vertices])

    def with_edge_features(self, data: Any) -> Any:
        """Adds the edges' features to a minibatch, by its `e_id`: a `transform` for PyG's loaders, whose stores fetch
        only vertices. `rudder.lookahead` calls it itself."""
        wanted: list[tuple[int, Table, Any]] = []
        places: list[tuple[Any, str]] = []
        for (edge_type, name), table in self._edge_tables.items():
            storage = data if edge_type is None else data[edge_type] if edge_type in data.edge_types else None
            if storage is not None and "e_id" in storage:
                wanted.append((len(places), table, storage.e_id))
                places.append((storage, name))
        found: list[Any] = [None] * len(places)
        self._fetch(wanted, found)
        for (storage, name), rows in zip(places, found, strict=True):
            storage[name] = rows
        return data

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        table = self._tables.get((attr.group_name, attr.attr_name))
        if table is not None:
            return (table.rows, table.dim)
        return (self._types.count(attr.group_name),) if attr.attr_name == "y" else None

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise ReadOnlyError(_SERVED)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise ReadOnlyError(_SERVED)


def _index(index: Any, rows: int) -> Any:
    """PyG's index as int64 `[n]`."""
    if index is None:
        return torch.arange(rows)
    if isinstance(index, slice):
        return torch.arange(rows)[index]
    if isinstance(index, int):
        return torch.tensor([index])
    index = torch.as_tensor(index)
    return index.nonzero().reshape(-1) if index.dtype == torch.bool else index.to(torch.int64).reshape(-1)


class GraphStore(PygGraphStore):  # type: ignore[misc]
    """The graphs of a client's dataset, in CSC, from its mapped files. `ids` is the client's."""

    def __init__(self, source: Client | Dataset, ids: Ids | None = None) -> None:
        super().__init__(edge_attr_cls=None)
        self.dataset = source if isinstance(source, Dataset) else source.dataset
        self.ids: Ids = ids or (source.ids if isinstance(source, Client) else "dataset")
        self._types = Types(self.dataset)

    def __repr__(self) -> str:
        return f"GraphStore({self.dataset!r}, ids={self.ids!r})"

    def split(self, which: Split, node_type: str | None = None) -> Any:
        """Ids of a split, int64 `[n]`: what loaders take as `input_nodes`."""
        found = self._types.locals(node_type, self.dataset.split(which))
        return torch.from_numpy(self._given(found) if node_type is None else found)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Every graph, fresh at each call."""
        attrs = []
        for name in self.dataset.graphs:
            edge_type = edge_type_of(name) if self._types.typed else None
            ends = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
            size = (self._types.count(ends[0]), self._types.count(ends[1]))
            attrs.append(EdgeAttr(edge_type, EdgeLayout.CSC, True, size))
        return attrs if self._types.typed else attrs[:1]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Any:
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        if edge_attr.edge_type is not None:
            row, colptr = self._types.csc(edge_attr.edge_type)
        elif self.ids == "dataset":
            indptr, indices = self.dataset.csc()
            row, colptr = indices.astype(np.int64), indptr.astype(np.int64)
        else:
            row, colptr = original_csc(self.dataset)
        return torch.from_numpy(row), torch.from_numpy(colptr)

    def _given(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Dataset ids as the ids this store speaks."""
        return self.dataset.original_id[vertices].astype(np.int64) if self.ids == "original" else vertices

    def _own(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids that this store speaks as dataset ids."""
        return self.dataset.dataset_id[ids].astype(np.int64) if self.ids == "original" else ids

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise ReadOnlyError(_SERVED)

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise ReadOnlyError(_SERVED)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Rudder's deterministic sampler for PyG's `NodeLoader` and `LinkLoader`.

    Each hop takes, without replacement, up to `num_neighbors[hop]` in-neighbours (-1: all) of what the hop before saw
    first. What is sampled depends on (seed, epoch, seeds of the minibatch) alone, never on workers or order. A loader
    that shuffles gives other minibatches in each epoch; where it does not, `set_epoch` before each one makes the
    samples differ (before the loader's workers start).

    On a dataset of several types each hop does so for every edge type. `num_neighbors` holds for each of them, or is a
    dict with a list for every edge type; seeds come as `("paper", ids)`. Raises `ArgumentError` for other fan-outs.
    """

    def __init__(
        self, graph: GraphStore, num_neighbors: list[int] | dict[tuple[str, str, str], list[int]], seed: int = 0
    ) -> None:
        self.graph, self.seed, self.epoch = graph, seed, 0
        self.num_neighbors = _fanouts(graph, num_neighbors)
        self._native: GraphSampler | RelationSampler | None = None

    def set_epoch(self, epoch: int) -> None:
        """Makes the samples of this epoch differ from others' with equal seeds."""
        self.epoch = epoch

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": None}

    @property
    def edge_permutation(self) -> None:
        return None

    def sample_from_nodes(self, index: Any, **_: Any) -> SamplerOutput | HeteroSamplerOutput:
        if index.time is not None:
            raise ArgumentError("this sampler knows no time: take PyG's own for temporal sampling")
        return node_sample(index, self._sample)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None, **_: Any) -> SamplerOutput | HeteroSamplerOutput:
        types = self.graph._types
        counts: Any = {name: types.count(name) for name in types.names} if types.typed else types.count(None)
        return edge_sample(index, self._sample, counts, False, None, neg_sampling)

    def _sample(self, seeds: Any, _time: Any = None, **_: Any) -> SamplerOutput | HeteroSamplerOutput:
        return self.sample(seeds, self.epoch, _key(seeds))

    def sample(self, seeds: Any, epoch: int, minibatch: int) -> SamplerOutput | HeteroSamplerOutput:
        """Samples with a key of your own: (seed, epoch, minibatch), as the nodes' predictors do. `seeds` are ids, or
        `{type: ids}` where the dataset has several types."""
        if isinstance(self.num_neighbors, dict):
            return self._sample_types(seeds, epoch, minibatch, self.num_neighbors)
        if not isinstance(self._native, GraphSampler):
            self._native = GraphSampler(*self.graph.dataset.csc(), self.num_neighbors)
        own = self.graph._own(seeds.numpy())
        node, row, col, edge, nodes, edges = self._native.sample(
            self.seed, epoch, minibatch, np.ascontiguousarray(own, dtype=np.int64)
        )
        return SamplerOutput(
            node=torch.from_numpy(self.graph._given(np.asarray(node))),
            row=torch.from_numpy(np.asarray(row)),
            col=torch.from_numpy(np.asarray(col)),
            edge=torch.from_numpy(np.asarray(edge)),
            num_sampled_nodes=nodes,
            num_sampled_edges=edges,
        )

    def _sample_types(
        self, seeds: Any, epoch: int, minibatch: int, fanouts: dict[tuple[str, str, str], list[int]]
    ) -> HeteroSamplerOutput:
        dataset, types = self.graph.dataset, self.graph._types
        if not isinstance(self._native, RelationSampler):
            graphs = [(*dataset.csc("__".join(edge_type)), fanout) for edge_type, fanout in fanouts.items()]
            self._native = RelationSampler(graphs)
        own = [types.vertices(name, ids.numpy(), "dataset") for name, ids in seeds.items()]
        sampled = self._native.sample(
            self.seed, epoch, minibatch, np.ascontiguousarray(np.concatenate(own), dtype=np.int64)
        )
        kinds, ids = types.of(np.asarray(sampled[0]))
        # Where each sampled vertex stands among those of its type.
        place, node, of_hop = np.empty_like(ids), {}, {}
        for at, name in enumerate(types.names):
            here = np.flatnonzero(kinds == at)
            place[here] = np.arange(len(here))
            node[name] = torch.from_numpy(ids[here])
            of_hop[name] = np.diff(np.searchsorted(here, sampled[1]), prepend=0).tolist()
        edges = dict(zip(fanouts, sampled[2], strict=True))
        return HeteroSamplerOutput(
            node=node,
            row={edge_type: torch.from_numpy(place[np.asarray(one[0])]) for edge_type, one in edges.items()},
            col={edge_type: torch.from_numpy(place[np.asarray(one[1])]) for edge_type, one in edges.items()},
            edge={edge_type: torch.from_numpy(np.asarray(one[2])) for edge_type, one in edges.items()},
            num_sampled_nodes=of_hop,
            num_sampled_edges={edge_type: one[3] for edge_type, one in edges.items()},
        )


def _fanouts(graph: GraphStore, given: Any) -> list[int] | dict[tuple[str, str, str], list[int]]:
    """One list for a homogeneous dataset; else one for every edge type, in the dataset's order."""
    if not graph._types.typed:
        if isinstance(given, dict):
            raise ArgumentError("num_neighbors by edge type: this dataset has one type, give one list")
        return list(given)
    names = {edge_type: given for name in graph.dataset.graphs if (edge_type := edge_type_of(name))}
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ArgumentError(f"num_neighbors has {list(given)}: give a list for each of {list(names)}")
        names = {edge_type: given[edge_type] for edge_type in names}
    if len({len(fanout) for fanout in names.values()}) > 1:
        raise ArgumentError("num_neighbors: give each edge type as many hops; 0 takes no neighbour")
    return {edge_type: list(fanout) for edge_type, fanout in names.items()}


def _key(seeds: Any) -> int:
    """The same for the same seeds in the same order, in every process."""
    hashed = hashlib.blake2b(digest_size=8)
    for name, ids in seeds.items() if isinstance(seeds, dict) else [("", seeds)]:
        hashed.update(name.encode() + np.ascontiguousarray(ids.numpy()).tobytes())
    return int.from_bytes(hashed.digest(), "little")
