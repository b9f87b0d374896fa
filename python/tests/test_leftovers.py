"""A trainer or a loader's worker that is killed leaves nothing: no process, socket, segment, pin. Ctrl-C ends every
wait."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import PATIENCE, Cluster, until

TRAINER = """
import signal, sys, threading, time, numpy as np, rudder

# A shell that starts the tests in its background has told them to ignore it, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
socket, dataset, stage = sys.argv[1:]

def at(place):
    print(place, flush=True)
    # Whoever started this says when to go on.
    sys.stdin.readline()

try:
    at("connect")
    client = rudder.Client(socket, dataset, job=9, time_out=1000)
    # More than the socket takes at once; more rows than the cache holds, where they are to be waited for.
    count = {"announce": 3_000_000, "ready": 3_000, "fetch": 3_000, "another": 3_000}.get(stage, 400)
    ids = np.arange(count) % 3_000
    if stage == "statistics":
        at(stage)
        client.statistics()
    if stage == "announce":
        at(stage)
        client.announce(ids)
    if stage == "fetch":
        at(stage)
        client.fetch(ids)
    if stage == "ready":
        at(stage)
    if stage == "another":
        # The connection is in use by a thread that no signal reaches.
        waits = client.announce(ids)
        threading.Thread(target=client.ready, args=(waits, 30.0), daemon=True).start()
        at(stage)
        while True:
            client.outstanding
    ahead = [client.announce(ids) for _ in range(3)]
    client.ready(ahead[0])
    if stage == "view":
        view = client.view(ahead[0])
        client.release(ahead[0])
    at(stage)
    while True:
        if stage == "gather":
            client.gather(ahead[0])
        elif stage == "view":
            assert view.row(3).shape == (16,)
        else:
            raise SystemExit("it was to be stopped before")
except KeyboardInterrupt:
    print("interrupted", time.monotonic(), flush=True)
    # Whatever was cut off: the client still works, as soon as the node does.
    sys.stdin.readline()
    if stage in ("announce", "statistics"):
        with_it = client.fetch(ids[:50])
        assert np.array_equal(with_it, client.dataset.rows(ids[:50]))
        assert client.outstanding == 0
        print("goes on", flush=True)
"""

LOADER = """
import sys, torch
import rudder

class Rows(torch.utils.data.Dataset):
    def __init__(self, client):
        self.client = client

    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        return self.client.fetch(torch.arange(i, i + 50) % 3000)

def main():
    socket, dataset, context, last = sys.argv[1:]
    rows = Rows(rudder.Client(socket, dataset, job=9, time_out=1000))
    epoch = iter(torch.utils.data.DataLoader(rows, None, num_workers=2, multiprocessing_context=context))
    for _ in range(int(last)):
        next(epoch)
    print(*(worker.pid for worker in epoch._workers), flush=True)
    for _ in epoch:
        pass

if __name__ == "__main__":
    main()
"""


def processes(tag: str) -> list[int]:
    """Those started under the tag, whoever their parent is."""
    found = []
    for one in Path("/proc").iterdir():
        try:
            if one.name.isdigit() and tag.encode() in (one / "environ").read_bytes():
                found.append(int(one.name))
        except OSError:
            continue
    return found


def standing(one: Cluster) -> dict[str, int]:
    """What all trainers hold on the node."""
    watcher = one.client(job=8)
    told = json.loads(watcher.statistics())
    watcher.close()
    return {key: told[key] for key in ("trainers_waiting", "minibatches_outstanding", "slots_pinned")}


def held(one: Cluster) -> dict[str, Any]:
    """What could be left behind: files, segments, descriptors of the node, what trainers hold. Not what torch hands
    tensors over in: it unlinks that as soon as it is made, and a kill may come between."""
    pid = one.nodes["c0"].pid
    links = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(fd).split(":")[0])
        except OSError:
            continue
    return {
        "sockets": sorted(file.name for file in one.directory.glob("*.sock*")),
        "segments": sorted(file.name for file in Path("/dev/shm").iterdir() if not file.name.startswith("torch_")),
        "descriptors": len(links),
        **standing(one),
    }


@pytest.fixture(scope="module")
def node(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("leftovers"), tiny).start() as one:
        # What a node opens for good when it is first asked: its connections to the storage nodes among it.
        first = one.client(job=8)
        first.fetch(range(3_000))
        first.close()
        yield one


@pytest.fixture(scope="module")
def before(node: Cluster) -> dict[str, Any]:
    """What is held at rest. Taken once: while a node that stood still finds its peers again, it holds less."""
    return held(node)


@contextmanager
def started(one: Cluster, program: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    tag = f"RUDDER_TEST_{uuid.uuid4().hex}"
    command = [sys.executable, "-c", program, str(one.socket()), str(one.dataset), *words]
    if program is LOADER:
        # Spawned workers read the program's file.
        file = one.directory / "loader.py"
        file.write_text(program)
        command[1:3] = [str(file)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=one.directory,
        env={**os.environ, tag: "1", "OMP_NUM_THREADS": "1"},
    )
    try:
        yield process, tag
    finally:
        for pid in {process.pid, *processes(tag)}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.communicate()


@contextmanager
def stopped(one: Cluster, names: list[str]) -> Iterator[None]:
    """Nodes that are there and do not answer."""
    pids = [one.nodes[name].pid for name in names]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        # The signal is taken a little later.
        until(lambda: all(state(thread) == "T" for pid in pids for thread in threads(pid)))
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


#: Who does not answer at each stage.
STAGES = {
    "connect": ["c0"],
    "statistics": ["c0"],
    "announce": ["c0"],
    "ready": ["s0", "s1"],
    "fetch": ["s0", "s1"],
    "gather": [],
    "view": [],
}


def arrive(process: subprocess.Popen[str], stage: str) -> None:
    """Lets the trainer go on up to the stage."""
    assert process.stdin is not None and process.stdout is not None
    while (line := process.stdout.readline().strip()) != stage:
        assert line == "connect", process.stderr and process.stderr.read()
        go_on(process)


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def state(process: Path) -> str:
    """What a process, or one of its threads, does: the field after its name."""
    return (process / "stat").read_text().rpartition(")")[2].split()[0]


def asleep(pid: int) -> bool:
    """Whether the process waits for something."""
    return state(Path(f"/proc/{pid}")) == "S"


def back_to(one: Cluster, before: dict[str, Any]) -> None:
    """Waits until no more is held than before. The connection that asks may just be closing, so the node's descriptors
    may have been one more then."""
    now: dict[str, Any] = {}

    def is_back() -> bool:
        now.update(held(one))
        return now["descriptors"] <= before["descriptors"] and {**now, "descriptors": 0} == {**before, "descriptors": 0}

    try:
        until(is_back)
    except AssertionError:
        assert now == before
        raise


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_trainer_leaves_nothing(node: Cluster, before: dict[str, Any], stage: str) -> None:
    with started(node, TRAINER, stage) as (process, tag):
        arrive(process, stage)
        with stopped(node, STAGES[stage]):
            go_on(process)
            if STAGES[stage]:
                until(lambda: reads_no_more(process) and asleep(process.pid))
            process.kill()
            process.wait(PATIENCE)
        back_to(node, before)
        assert processes(tag) == []


def reads_no_more(process: subprocess.Popen[str]) -> bool:
    """Whether the trainer has taken the line that lets it go on."""
    assert process.stdin is not None
    waiting = fcntl.ioctl(process.stdin.fileno(), termios.FIONREAD, b"\0" * 4)
    return bool(struct.unpack("i", waiting)[0] == 0)


#: How soon Ctrl-C ends a wait, in seconds, on a machine that has nothing else to do.
SOON = 0.3


@pytest.mark.parametrize("stage", [*(stage for stage in STAGES if STAGES[stage]), "another"])
def test_control_c_ends_every_wait_soon(node: Cluster, before: dict[str, Any], stage: str) -> None:
    took = []
    # Another process may take the processor for a while: one of a few attempts will do.
    while not took or (min(took) > SOON and len(took) < 5):
        took.append(interrupted(node, stage))
    assert min(took) <= SOON, took
    back_to(node, before)


def interrupted(one: Cluster, stage: str) -> float:
    """Seconds from Ctrl-C to the exception."""
    with started(one, TRAINER, stage) as (process, _):
        assert process.stdout is not None
        arrive(process, stage)
        with stopped(one, STAGES.get(stage, STAGES["ready"])):
            go_on(process)
            until(lambda: reads_no_more(process) and (stage == "another" or asleep(process.pid)))
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            said, when = process.stdout.readline().split()
        out, errors = process.communicate("\n", timeout=PATIENCE)
        goes_on = "goes on\n" if stage in ("announce", "statistics") else ""
        assert (said, out, errors) == ("interrupted", goes_on, "")
        return float(when) - start


@pytest.mark.parametrize(
    ("whom", "context", "last"),
    [("worker", "spawn", 9), ("trainer", "fork", 9), ("both", "fork", 1)],
)
def test_killed_loader_workers_leave_nothing(
    node: Cluster, before: dict[str, Any], whom: str, context: str, last: int
) -> None:
    pytest.importorskip("torch")
    with started(node, LOADER, context, str(last)) as (process, tag):
        assert process.stdout is not None and process.stderr is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2, process.stderr.read()
        assert set(workers) <= set(processes(tag))
        for pid in {"worker": workers[:1], "trainer": [process.pid], "both": [*workers, process.pid]}[whom]:
            os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=PATIENCE)
        if whom == "worker":
            # What torch says of it depends on what the worker was doing.
            assert process.returncode == 1 and "Error" in errors, errors
        until(lambda: processes(tag) == [])
        back_to(node, before)


def test_many_connections_leave_nothing(node: Cluster, before: dict[str, Any]) -> None:
    for turn in range(100):
        client = node.client(job=9)
        client.fetch([turn])
        del client
    back_to(node, before)


def test_the_counters_tell_what_is_held(node: Cluster) -> None:
    before = standing(node)
    client = node.client(job=9)
    one, other = client.announce([1, 2, 900]), client.announce([3])
    view = client.view(one)
    told = standing(node)
    assert told["trainers_waiting"] == before["trainers_waiting"] + 1
    assert told["minibatches_outstanding"] == before["minibatches_outstanding"] + 2
    assert told["slots_pinned"] > 0
    client.release(other)
    client.release(one)
    assert standing(node)["slots_pinned"] > 0, "the view pins"
    del view
    until(lambda: standing(node) == before)
    client.close()

