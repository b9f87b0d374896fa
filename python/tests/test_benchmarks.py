"""The benchmarks run: a comparison of all arms on a small graph, one that is interrupted and leaves nothing, and what the
cache's memory adds up to over many trainers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import PATIENCE, ROOT, Cluster, binary, until

pytest.importorskip("torch_geometric")
BENCHMARKS = ROOT / "python" / "benchmarks"
SIDE_BY_SIDE = BENCHMARKS / "side_by_side"
QUICK = ["--graph", "cora", "--frameworks", "pyg", "--settings", "enough", "--workers", "0", "--repeats", "1"]
QUICK += ["--enough", "200Mbit/s", "--links", "relay", "--batch-size", "256"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: sockets lie below it."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "RUDDER_BIN": str(Path(binary("rudder")).parent), "TMPDIR": str(folder)}
    words = [sys.executable, "-W", "ignore", str(SIDE_BY_SIDE), *QUICK, *options]
    return subprocess.Popen(
        words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Also where the tests run in a shell's background, whose children ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def naming(folder: Path) -> list[str]:
    """Command lines of the running processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_the_arms_train_alike(folder: Path) -> None:
    report = folder / "report.json"
    comparison = started(folder, "--epochs", "2", "--json", str(report))
    # Four trainers, each of which imports torch.
    said, noted = comparison.communicate(timeout=5 * PATIENCE)
    assert comparison.returncode == 0, said + noted
    found = json.loads(report.read_text())
    rows = found["settings"]["enough"]["rows"]
    assert [row["arm"] for row in rows] == ["local", "remote", "lru", "rudder"]
    assert found["losses_differ"] == [] and "losses: equal" in said
    assert all(row["seconds"] > 0 and row["together_mb"] > 0 for row in rows)
    # Who took processor time: each trainer, and what serves it.
    kinds = [{"trainer"}, *2 * [{"storage", "trainer"}], {"node", "storage", "trainer"}]
    assert [set(row["processor_seconds"]) for row in rows] == kinds
    assert all(row["processor_seconds"]["trainer"] > 0 and row["busy"] > 0 for row in rows)
    assert found["runs"] == found["runs_planned"] == 4


def test_a_comparison_ends_in_time(folder: Path) -> None:
    comparison = started(folder, "--epochs", "2", "--minutes", "0")
    said, noted = comparison.communicate(timeout=PATIENCE)
    assert comparison.returncode == 0, said + noted
    assert "4 of 4 runs did not begin within 0 minutes" in said


def test_an_interrupted_comparison_leaves_nothing(folder: Path) -> None:
    comparison = started(folder, "--epochs", "100000", "--arms", "rudder")
    assert comparison.stderr is not None
    for line in comparison.stderr:
        if "epoch 3 of" in line:
            break
    assert naming(folder)
    comparison.send_signal(signal.SIGINT)
    comparison.communicate(timeout=PATIENCE)
    assert comparison.returncode == 130
    until(lambda: not naming(folder))
    assert list(folder.iterdir()) == []


def test_eight_trainers_hold_one_copy_of_the_cache(
    datasets: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from client import sharing

    with Cluster(folder / "c", datasets("cora", 2), cache="20MiB") as one:
        one.start()
        alone, together = (sharing(one, trainers)["cache_pss_over_all_mib"] for trainers in (1, 8))
    # All that any trainer touched, and of it no second copy.
    assert 10 < alone <= 20.1
    assert together <= 1.02 * alone + 0.1
