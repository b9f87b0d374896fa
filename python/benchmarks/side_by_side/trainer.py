"""One trainer of a comparison, in one of four arms: everything but where the rows come from is the same.

    local   rows in this process's memory (the bound)
    remote  `remote.RemoteRows`: one request to each owner a minibatch, no cache
    lru     the same behind `remote.LruRows`
    rudder  the package, as its examples use it

Prints a line of JSON an epoch, and the losses of all steps at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import rudder


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Work:
    """What every arm and framework shares."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.dataset = rudder.Dataset(options.dataset)
        assert self.dataset.labels is not None, f"{options.dataset} has no labels to train on"
        self.labels = np.array(self.dataset.labels)
        train = np.flatnonzero(self.labels >= 0)
        self.seeds = torch.from_numpy(np.setdiff1d(train, self.dataset.split("test")))
        self.dim = self.dataset.table().dim
        self.classes = int(self.labels.max()) + 1

    def local(self) -> torch.Tensor:
        return torch.from_numpy(self.dataset.rows(np.arange(self.dataset.vertices)))

    def remote(self) -> Any:
        from remote import LruRows, RemoteRows

        options = self.options
        servers = [(host, int(port)) for host, port in (one.rsplit(":", 1) for one in options.servers)]
        rows = RemoteRows(servers, self.dataset.part_offsets, self.dim)
        if options.arm == "remote":
            return rows
        # Each loader worker has a cache of its own; together they are as large as Rudder's one.
        capacity = options.cache_bytes // (self.dim * 4) // max(1, self.fetchers())
        return LruRows(rows, capacity, self.dataset.vertices)

    def fetchers(self) -> int:
        """Processes that fetch: PyG's workers do, DGL's only sample."""
        return self.options.workers if self.options.framework == "pyg" else 1

    def client(self) -> rudder.Client:
        return rudder.Client(self.options.socket, self.dataset, time_out=120.0)


class Pyg:
    def __init__(self, work: Work) -> None:
        from remote import RemoteFeatureStore
        from torch_geometric.data import Data
        from torch_geometric.loader import NodeLoader
        from torch_geometric.nn import SAGEConv

        import rudder.pyg

        options = work.options
        graph = rudder.pyg.GraphStore(work.dataset)
        sampler = rudder.pyg.NeighborSampler(graph, options.fanout, seed=options.seed)
        data: Any
        if options.arm == "local":
            row, colptr = graph._get_edge_index(graph.get_all_edge_attrs()[0])
            col = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
            data = Data(x=work.local(), y=torch.from_numpy(work.labels), edge_index=torch.stack([row, col]))
        elif options.arm == "rudder":
            data = (rudder.pyg.FeatureStore(work.client()), graph)
        else:
            data = (RemoteFeatureStore(work.remote(), work.labels, work.dim), graph)
        self.loader: Any = NodeLoader(
            data,
            sampler,
            input_nodes=work.seeds,
            batch_size=options.batch_size,
            shuffle=True,
            generator=torch.Generator().manual_seed(options.seed),
            num_workers=options.workers,
            persistent_workers=options.workers > 0,
        )
        if options.arm == "rudder":
            self.loader = rudder.lookahead(self.loader, depth=options.depth, epochs=options.epochs)

        class Sage(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = SAGEConv(work.dim, options.hidden), SAGEConv(options.hidden, work.classes)

            def forward(self, minibatch: Any) -> Any:
                x = self.first(minibatch.x, minibatch.edge_index).relu()
                return self.second(x, minibatch.edge_index)[: minibatch.batch_size]

        torch.manual_seed(options.seed)
        self.model: torch.nn.Module = Sage()

    def epoch(self) -> Iterator[Any]:
        return iter(self.loader)

    def loss(self, minibatch: Any) -> Any:
        return cross_entropy(self.model(minibatch), minibatch.y[: minibatch.batch_size])

    def rows(self, minibatch: Any) -> int:
        return len(minibatch.x)


class Dgl:
    def __init__(self, work: Work) -> None:
        import dgl
        from dgl.nn import SAGEConv
        from remote import RemoteStorage

        options = work.options
        # DGL shuffles with numpy's generator and samples with its own.
        np.random.seed(options.seed)
        dgl.seed(options.seed)
        indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in work.dataset.csc())
        graph = dgl.graph(
            ("csc", (indptr, indices, torch.empty(0, dtype=torch.int64))), num_nodes=work.dataset.vertices
        )
        self.labels = torch.from_numpy(work.labels)
        if options.arm == "local":
            graph.ndata["feat"] = work.local()
        elif options.arm in ("remote", "lru"):
            storage = RemoteStorage(work.remote())
            graph.get_node_storage = lambda key, ntype=None: storage
        fetched = [] if options.arm == "rudder" else ["feat"]
        self.loader: Any = dgl.dataloading.DataLoader(
            graph,
            work.seeds,
            dgl.dataloading.NeighborSampler(options.fanout[::-1], prefetch_node_feats=fetched),
            batch_size=options.batch_size,
            shuffle=True,
            num_workers=options.workers,
            **({"persistent_workers": True} if options.workers else {}),
        )
        if options.arm == "rudder":
            self.loader = rudder.lookahead(
                self.loader,
                depth=options.depth,
                epochs=options.epochs,
                client=work.client(),
                ids=lambda minibatch: {work.dataset.table().name: minibatch[0]},
                fill=self._fill,
            )

        class Sage(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first = SAGEConv(work.dim, options.hidden, "mean")
                self.second = SAGEConv(options.hidden, work.classes, "mean")

            def forward(self, blocks: Any) -> Any:
                x = self.first(blocks[0], blocks[0].srcdata["feat"]).relu()
                return self.second(blocks[1], x)

        torch.manual_seed(options.seed)
        self.model: torch.nn.Module = Sage()

    @staticmethod
    def _fill(minibatch: Any, rows: dict[str, Any]) -> Any:
        (minibatch[2][0].srcdata["feat"],) = rows.values()
        return minibatch

    def epoch(self) -> Iterator[Any]:
        return iter(self.loader)

    def loss(self, minibatch: Any) -> Any:
        _, seeds, blocks = minibatch
        return cross_entropy(self.model(blocks), self.labels[seeds])

    def rows(self, minibatch: Any) -> int:
        return len(minibatch[0])


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    work = Work(options)
    framework: Any = Pyg(work) if options.framework == "pyg" else Dgl(work)
    optimizer = torch.optim.Adam(framework.model.parameters(), lr=0.01)
    say("started", minibatches=len(framework.loader), row_bytes=work.dim * 4)
    losses: list[float] = []
    for epoch in range(options.epochs):
        start, start_cpu = time.perf_counter(), time.process_time()
        waited, first_wait, rows, steps = 0.0, 0.0, 0, 0
        minibatches = framework.epoch()
        asked = start
        while True:
            minibatch = next(minibatches, None)
            waited += time.perf_counter() - asked
            if steps == 0:
                first_wait = waited
            if minibatch is None:
                break
            loss = framework.loss(minibatch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            rows += framework.rows(minibatch)
            steps += 1
            asked = time.perf_counter()
        seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
        say(
            "epoch",
            epoch=epoch,
            seconds=seconds,
            waited=waited,
            first_wait=first_wait,
            cpu=cpu,
            rows=rows,
            steps=steps,
        )
    say("finished", losses=losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=["pyg", "dgl"], required=True)
    parser.add_argument("--arm", choices=["local", "remote", "lru", "rudder"], required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--servers", nargs="*", default=[], help="host:port by part: remote, lru")
    parser.add_argument("--socket", default="", help="the node's: rudder")
    parser.add_argument("--cache-bytes", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--fanout", type=int, nargs="+", default=[10, 5])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
