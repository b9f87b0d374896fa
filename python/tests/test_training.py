"""Training is the same training: requests, bytes and losses equal those of the run from memory, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import PATIENCE, Cluster

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import rudder  # noqa: E402
from training import Outcome, Run, memory, train, train_together  # noqa: E402


def from_memory(run: Run) -> Outcome:
    return train(run, memory(rudder.Dataset(run.dataset)))


def same(ours: Outcome, theirs: Outcome) -> None:
    assert ours.requests == theirs.requests
    assert ours.losses == theirs.losses
    assert ours.accuracy == theirs.accuracy


@pytest.fixture(scope="module")
def cora(datasets: Callable[..., Path]) -> Path:
    return datasets("cora", 2)


@pytest.fixture(scope="module")
def cora_cluster(cora: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cache of a fifth of the features, two compute nodes."""
    directory = tmp_path_factory.mktemp("cora")
    with Cluster(directory, cora, cache="3MiB", compute=2).start() as one:
        yield one


@pytest.mark.parametrize("ahead", [True, False])
def test_cora(cora_cluster: Cluster, ahead: bool) -> None:
    run = Run(cora_cluster.dataset, epochs=5)
    theirs = from_memory(run)
    client = cora_cluster.client()
    same(train(run, client, ahead=ahead), theirs)
    assert theirs.accuracy > 0.84
    assert client.outstanding == 0
    client.close()


def test_debian(datasets: Callable[..., Path], cluster: Callable[..., Cluster]) -> None:
    dataset = datasets("debian", 2)
    run = Run(dataset, batch_size=512, steps_max=12)
    theirs = from_memory(run)
    client = cluster(dataset, cache="8MiB").client()
    same(train(run, client, ahead=True), theirs)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("ahead", [True, False])
def test_four_trainers(cora_cluster: Cluster, nodes: int, ahead: bool, tmp_path: Path) -> None:
    run = Run(cora_cluster.dataset, epochs=2, batch_size=64)
    theirs = train_together(run, 4, [], 0, False, tmp_path / "meet0")
    sockets = [cora_cluster.socket(f"c{node}") for node in range(nodes)]
    job = 100 + 10 * nodes + ahead
    ours = train_together(run, 4, sockets, job, ahead, tmp_path / "meet1")
    assert len(theirs[0].losses) == 14
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)


def test_a_storage_node_is_killed_and_returns(cora: Path, cluster: Callable[..., Cluster]) -> None:
    one = cluster(cora, cache="3MiB")
    run = Run(cora, epochs=1)

    back: list[threading.Thread] = []

    def kill_and_start(step: int) -> None:
        if step == 3:
            one.kill("s0")
            back.append(threading.Thread(target=one.start_node, args=("s0",)))
            back[0].start()

    theirs = from_memory(run)
    client = one.client()
    same(train(run, client, ahead=True, on_step=kill_and_start), theirs)
    back[0].join(PATIENCE)
    assert "s0" in one.nodes and client.outstanding == 0
