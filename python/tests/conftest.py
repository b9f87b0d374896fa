"""Real clusters for the tests: datasets imported by `rudder`, nodes started on loopback, ended by their id."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import Cluster, imported

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Imports a source once a session: `datasets("cora", parts=2)` for a shipped one, or `generate:...`."""
    home = tmp_path_factory.mktemp("datasets")
    made: dict[tuple[object, ...], Path] = {}

    def give(source: str, parts: int = 2, *options: str) -> Path:
        key = (source, parts, *options)
        if key not in made:
            made[key] = imported(source, home / f"d{len(made)}", parts, *options)
        return made[key]

    return give


TINY = "generate:rmat:vertices=3000,edges=24000,dim=16,seed=7"


@pytest.fixture(scope="session")
def tiny(datasets: Callable[..., Path]) -> Path:
    return datasets(TINY, 2, "--rows-per-block", "4")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters; all of their processes end with the test."""
    started: list[Cluster] = []

    def start(dataset: Path, **options: object) -> Cluster:
        made = Cluster(tmp_path / f"c{len(started)}", dataset, **options)  # type: ignore[arg-type]
        started.append(made)
        return made.start()

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def tiny_cluster(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One compute node, two storage nodes, a cache of a third of the features."""
    with Cluster(tmp_path_factory.mktemp("tiny"), tiny).start() as one:
        yield one
