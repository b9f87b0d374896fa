"""The examples run as they stand, and are short."""

from __future__ import annotations

import gc
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import ROOT, Cluster

pytest.importorskip("torch")
EXAMPLES = ROOT / "python" / "examples"


@pytest.fixture(scope="module")
def cora_cluster(
    datasets: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("examples"), datasets("cora", 2), cache="3MiB").start() as one:
        yield one


@pytest.mark.parametrize("example", ["pyg_sage.py", "dgl_sage.py", "ddp_sage.py"])
def test_an_example_runs(
    cora_cluster: Cluster,
    example: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert len((EXAMPLES / example).read_text().splitlines()) < 80
    if example == "dgl_sage.py":
        pytest.importorskip("dgl")
    words = [example, "--socket", str(cora_cluster.socket()), "--dataset", str(cora_cluster.dataset)]
    monkeypatch.setattr(sys, "argv", [*words, "--epochs", "3", "--batch-size", "32"])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    # Here, not in a process of its own: importing torch is most of what an example takes.
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    gc.collect()
    said = capfd.readouterr().out
    if example == "ddp_sage.py":
        losses = [float(found) for found in re.findall(r"mean loss ([0-9.]+)", said)]
        assert len(losses) == 3 and losses[-1] < losses[0]
    else:
        # The public split has 140 training vertices; features alone reach about .57.
        accuracies = [float(found) for found in re.findall(r"test accuracy ([0-9.]+)", said)]
        assert len(accuracies) == 3 and accuracies[-1] > 0.65, said
