"""A scenario's trainer with real compute: GraphSAGE in PyG, one JSON object a line on standard output.

    python3 -m rudder.trainer --socket c0.sock --dataset /data/debian --rank 0 --world 1 --seeds 64 --fanout 10,5 \\
        --window 16 --minibatches 100 --seed 1

Samples, announces and counts as the reference trainer does (the same trace, the same events); where that one sleeps,
this one trains. `--socket -` takes the rows from the dataset's own files: what training costs where data costs nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import rudder
import rudder.pyg

from ._native import RequestDigest, Seeds

__all__ = ["main"]


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


class Sage(torch.nn.Module):  # type: ignore[misc]
    """Two layers of GraphSAGE with mean aggregation."""

    def __init__(self, columns: int, classes: int, hidden: int) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.first, self.second = SAGEConv(columns, hidden), SAGEConv(hidden, classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Feed:
    """Minibatches of the trace, announced a window ahead."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.dataset = rudder.Dataset(arguments.dataset)
        graph = rudder.pyg.GraphStore(self.dataset)
        self.sampler = rudder.pyg.NeighborSampler(graph, arguments.fanout, seed=arguments.seed)
        self.client: rudder.Client | None = None
        self.local: Any = None
        self.window = arguments.window
        if arguments.socket == "-":
            self.local = torch.from_numpy(self.dataset.rows(np.arange(self.dataset.vertices)))
        else:
            self.client = rudder.Client(
                arguments.socket, self.dataset, job=arguments.job, rank=arguments.rank, time_out=60.0
            )
            self.window = min(self.window, self.client.credits - 1)
        self.digest = RequestDigest()
        self.ahead: deque[tuple[Any, Any]] = deque()
        self.announced = 0
        self._epoch = -1
        train = self.dataset.split("train")
        self._train = train if len(train) else np.arange(self.dataset.vertices)
        self._deal(0)

    def _deal(self, epoch: int) -> None:
        if epoch != self._epoch:
            options = self.arguments
            self._seeds = Seeds(
                self._train, options.seed, epoch, options.seeds, options.rank, options.world
            )
            self._epoch = epoch

    def look_ahead(self, current: int) -> None:
        until = min(current + self.window + 1, self.arguments.minibatches)
        while self.announced < until:
            epoch, within = divmod(self.announced, max(1, len(self._seeds)))
            self._deal(epoch)
            seeds = torch.from_numpy(np.asarray(self._seeds.minibatch(within)))
            sample = self.sampler.sample(seeds, epoch, within)
            self.digest.request(self.announced, 0, sample.node.numpy())
            announced = None if self.client is None else self.client.announce(sample.node)
            self.ahead.append((sample, announced))
            self.announced += 1

    def gather(self) -> tuple[Any, Any, int]:
        """(sample, rows, nanoseconds of the copy) of the oldest announced minibatch."""
        sample, announced = self.ahead.popleft()
        if self.client is None:
            start = time.perf_counter_ns()
            rows = self.local.index_select(0, sample.node)
            return sample, rows, time.perf_counter_ns() - start
        self.client.ready(announced)
        start = time.perf_counter_ns()
        rows = self.client.gather(announced)
        spent = time.perf_counter_ns() - start
        self.client.release(announced)
        return sample, rows, spent


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    feed = Feed(arguments)
    dataset, labels = feed.dataset, feed.dataset.labels
    if labels is None:
        raise rudder.errors.DatasetError(f"{dataset.path} has no labels to train on")
    model = Sage(dataset.table().dim, int(labels.max()) + 1, arguments.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    wrong = 0
    say("started", rank=arguments.rank, at_ns=time.time_ns())
    start = time.perf_counter_ns()
    for minibatch in range(arguments.minibatches):
        feed.look_ahead(minibatch)
        sampled = time.perf_counter_ns()
        sample, x, gather_ns = feed.gather()
        waited = time.perf_counter_ns()
        seeds = sample.node[: sample.num_sampled_nodes[0]]
        y = torch.from_numpy(labels[seeds.numpy()])
        out = model(x, torch.stack([sample.row, sample.col]))[: len(seeds)]
        if bool((y >= 0).any()):
            loss = cross_entropy(out, y, ignore_index=-1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        trained = time.perf_counter_ns()
        bytes_wrong = 0
        if arguments.verify:
            want = dataset.rows(sample.node.numpy())
            bytes_wrong = int((x.numpy().view(np.uint8) != want.view(np.uint8)).sum())
            wrong += bytes_wrong
        say(
            "step",
            minibatch=minibatch,
            at_ns=time.time_ns(),
            step_ns=trained - start,
            # Sampling runs on the trainer's own thread here, so all of it counts.
            wait_ns=waited - start,
            sample_ns=sampled - start,
            gather_ns=gather_ns,
            rows=len(sample.node),
            bytes=x.numel() * x.element_size(),
            bytes_wrong=bytes_wrong,
        )
        # Comparing bytes and talking are this harness's own work.
        start = time.perf_counter_ns()
    say("finished", minibatches=arguments.minibatches, bytes_wrong=wrong, trace_digest=feed.digest.hex())


def main(words: list[str] | None = None) -> int:
    """The command. Returns its exit code; a failure is an event as well."""
    parser = argparse.ArgumentParser(prog="python3 -m rudder.trainer", description=__doc__)
    parser.add_argument("--socket", required=True, help="the node's trainer socket; - for the dataset's own files")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--job", type=int, default=0)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=64)
    parser.add_argument("--fanout", type=lambda text: [int(n) for n in text.split(",")], default=[10, 5])
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--minibatches", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--verify", action="store_true")
    arguments = parser.parse_args(words)
    try:
        train(arguments)
    except Exception as error:
        say("failed", reason=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
