"""The scenario trainer speaks the reference trainer's protocol, over the same trace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import Cluster, binary, run

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from rudder import trainer  # noqa: E402

OPTIONS = ["--seeds", "8", "--fanout", "4,3", "--window", "6", "--minibatches", "30", "--seed", "5"]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("fed", [True, False])
def test_the_trace_is_the_reference_trainers(
    tiny_cluster: Cluster, capsys: pytest.CaptureFixture[str], fed: bool
) -> None:
    socket = str(tiny_cluster.socket()) if fed else "-"
    dataset = str(tiny_cluster.dataset)
    job = ["--job", "4001"]
    assert trainer.main(["--socket", socket, "--dataset", dataset, "--verify", *job, *OPTIONS]) == 0
    said = events(capsys.readouterr().out)
    assert [event["event"] for event in said] == ["started", *["step"] * 30, "finished"]
    assert said[-1]["bytes_wrong"] == 0
    assert all(0 <= step["wait_ns"] <= step["step_ns"] for step in said[1:-1])
    place = ["--topology", str(tiny_cluster.topology), "--node", "c0", "--dataset", dataset]
    reference = run(binary("rudder"), "trainer", *place, "--json-events", "--compute-ms", "0", *OPTIONS)
    assert events(reference)[-1]["trace_digest"] == said[-1]["trace_digest"]


def test_a_failure_is_an_event(tiny_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--socket", "/none.sock", "--dataset", str(tiny_cluster.dataset)]
    assert trainer.main(words) == 1
    last = events(capsys.readouterr().out)[-1]
    assert last["event"] == "failed" and "rudder-node" in last["reason"]
