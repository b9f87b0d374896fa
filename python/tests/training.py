"""A GraphSAGE trained on minibatches from memory or from a node, in one process or several (gloo DDP)."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import rudder
import torch
from support import PATIENCE
from torch import nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import SAGEConv

import rudder.pyg


@dataclass(frozen=True)
class Run:
    """What is trained; equal runs must give equal losses, wherever the features come from."""

    dataset: Path
    epochs: int = 1
    batch_size: int = 128
    fanout: tuple[int, ...] = (10, 5)
    depth: int = 8
    hidden: int = 32
    seed: int = 1
    steps_max: int = 1 << 30


@dataclass
class Outcome:
    losses: list[float] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    accuracy: float = 0.0


class Sage(nn.Module):
    def __init__(self, columns: int, classes: int, hidden: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(columns, hidden), SAGEConv(hidden, classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


def memory(dataset: rudder.Dataset) -> Data:
    """The whole dataset in PyG's own form, vertices by dataset id."""
    graph = rudder.pyg.GraphStore(dataset)
    row, colptr = graph._get_edge_index(graph.get_all_edge_attrs()[0])
    col = torch.repeat_interleave(torch.arange(len(colptr) - 1), colptr.diff())
    x = torch.from_numpy(dataset.rows(np.arange(dataset.vertices)))
    assert dataset.labels is not None
    y = torch.from_numpy(np.array(dataset.labels))
    return Data(x=x, y=y, edge_index=torch.stack([row, col]))


def seeds_of(dataset: rudder.Dataset) -> torch.Tensor:
    """Every labelled vertex that is not for testing."""
    assert dataset.labels is not None
    train = np.flatnonzero(np.asarray(dataset.labels) >= 0)
    return torch.from_numpy(np.setdiff1d(train, dataset.split("test")))


def train(
    run: Run,
    source: Any,
    *,
    rank: int = 0,
    world: int = 1,
    ahead: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> Outcome:
    """`source`: a `Data` in memory, or a client."""
    torch.manual_seed(run.seed)
    dataset = rudder.Dataset(run.dataset)
    graph = rudder.pyg.GraphStore(dataset)
    data = (rudder.pyg.FeatureStore(source), graph) if isinstance(source, rudder.Client) else source
    assert dataset.labels is not None
    model: nn.Module = Sage(dataset.table().dim, int(dataset.labels.max()) + 1, run.hidden)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seeds = seeds_of(dataset)
    share = len(seeds) // world
    sampler = rudder.pyg.NeighborSampler(graph, list(run.fanout), seed=run.seed)
    loader: Any = NodeLoader(
        data,
        sampler,
        input_nodes=seeds[rank * share : (rank + 1) * share],
        batch_size=run.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(run.seed + rank),
    )
    if ahead:
        loader = rudder.lookahead(loader, depth=run.depth, epochs=run.epochs)
    outcome = Outcome()
    for _ in range(run.epochs):
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            outcome.losses.append(loss.item())
            digest = rudder._native.RequestDigest()
            digest.request(len(outcome.losses), 0, batch.n_id.numpy())
            outcome.requests.append(digest.hex())
            if on_step is not None:
                on_step(len(outcome.losses))
            if len(outcome.losses) >= run.steps_max:
                return outcome
    if rank == 0:
        outcome.accuracy = tested(model, memory(dataset), dataset.split("test"))
    return outcome


@torch.no_grad()
def tested(model: nn.Module, data: Data, ids: Any) -> float:
    plain = model.module if hasattr(model, "module") else model
    found = plain(data.x, data.edge_index)[ids].argmax(1)
    return float((found == data.y[ids]).float().mean())


def train_together(run: Run, world: int, sockets: Sequence[Path], job: int, ahead: bool, meet: Path) -> list[Outcome]:
    """A process for each trainer; `sockets` of the nodes they take in turn, or none to train from memory."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(world)]
    processes = [
        context.Process(target=_trainer, args=(run, rank, world, sockets, job, ahead, meet, pipes[rank][1]))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    outcomes = []
    try:
        for rank, (receive, _) in enumerate(pipes):
            assert receive.poll(PATIENCE), f"trainer {rank} did not end in time"
            outcome = receive.recv()
            assert isinstance(outcome, Outcome), f"trainer {rank}: {outcome}"
            outcomes.append(outcome)
        for process in processes:
            process.join(PATIENCE)
            assert process.exitcode == 0
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join(20)
    return outcomes


def _trainer(
    run: Run, rank: int, world: int, sockets: Sequence[Path], job: int, ahead: bool, meet: Path, pipe: Any
) -> None:
    try:
        torch.set_num_threads(1)
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{meet}", rank=rank, world_size=world
        )
        source: Any = memory(rudder.Dataset(run.dataset))
        if sockets:
            source = rudder.Client(sockets[rank % len(sockets)], run.dataset, job=job, rank=rank)
        pipe.send(train(run, source, rank=rank, world=world, ahead=ahead))
        torch.distributed.destroy_process_group()
    except BaseException as error:
        pipe.send(repr(error))
        raise
