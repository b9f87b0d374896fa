"""Processes of the tests. Every wait is bounded, and every process is ended by its id."""

from __future__ import annotations

import itertools
import json
import os
import random
import selectors
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rudder

ROOT = Path(__file__).resolve().parents[2]
#: Nothing here takes nearly as long on a machine that works, in seconds.
PATIENCE = 120.0
_JOBS = iter(range(1, 1 << 20))


def binary(name: str) -> str:
    """A program of the workspace: from RUDDER_BIN, else where cargo puts it, else from PATH."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    folders = [os.environ.get("RUDDER_BIN"), target / "debug", target / "release"]
    for folder in filter(None, folders):
        if (Path(folder) / name).is_file():
            return str(Path(folder) / name)
    found = shutil.which(name)
    assert found, f"{name} is not built: cargo build -p rudder -p rudder-node"
    return found


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def imported(source: str, target: Path, parts: int, *options: str) -> Path:
    """A dataset from a shipped folder, any other path, or a generator."""
    shipped = ROOT / "datasets" / source
    where = str(shipped) if shipped.is_dir() else source
    run(binary("rudder"), "import", where, str(target), "--parts", str(parts), *options)
    return target


def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Asks until the answer is true; for processes, which offer nothing better to wait on."""
    deadline = time.monotonic() + patience
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it did not become so in time"
        time.sleep(0.01)
    return answer


# Below the ports that the kernel hands out by itself: such a port could be taken by anybody's connection before a node
# binds it.
_PORTS = itertools.cycle(random.sample(range(12_000, 32_000), 20_000))


def free_ports(count: int) -> list[int]:
    free: list[int] = []
    while len(free) < count:
        port = next(_PORTS)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
    return free


class Node:
    """A running `rudder-node`."""

    def __init__(self, topology: Path, name: str) -> None:
        words = [binary("rudder-node"), "--topology", str(topology), "--node", name, "--json"]
        self.log = (topology.parent / f"{name}.log").open("a")
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log
        )
        self.ready = self._ready_line()

    def _ready_line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        deadline, text = time.monotonic() + PATIENCE, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                assert left > 0 and selector.select(left), "the node did not become ready in time"
                got = os.read(self.process.stdout.fileno(), 1 << 16)
                assert got, f"the node ended: {Path(self.log.name).read_text()}"
                text += got
                for line in text.splitlines():
                    if line.startswith(b"{") and line.endswith(b"}"):
                        event: dict[str, Any] = json.loads(line)
                        if event.get("event") == "ready":
                            return event

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        if self.process.stdout:
            self.process.stdout.close()
        self.log.close()


class Cluster:
    """Storage and compute nodes of one dataset on this machine, each its own memory."""

    def __init__(
        self,
        directory: Path,
        dataset: Path,
        *,
        storage: int = 2,
        compute: int = 1,
        cache: str = "64KiB",
        policy: str = "rudder",
        credits: int = 12,
        replicas: int = 1,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory, self.dataset = directory, dataset
        self.topology = directory / "cluster.toml"
        self.nodes: dict[str, Node] = {}
        self.names = ["sched", *(f"s{n}" for n in range(storage)), *(f"c{n}" for n in range(compute))]
        name = rudder.Dataset(dataset).name
        ports = iter(free_ports(1 + 2 * storage + compute))
        text = '[defaults]\ncores = "shared"\nstorage_directory = "storage/{name}"\n'
        text += f'trainer_socket = "{{name}}.sock"\ncache = "{cache}"\npolicy = "{policy}"\ncredits = {credits}\n'
        for node in self.names:
            text += f'[[nodes]]\nname = "{node}"\ncontrol = "127.0.0.1:{next(ports)}"\n'
            if node == "sched":
                text += 'roles = ["scheduler"]\n'
            elif node.startswith("s"):
                text += f'roles = ["storage"]\ndata = "127.0.0.1:{next(ports)}"\n'
                held = directory / "storage" / node
                held.mkdir(parents=True)
                (held / name).symlink_to(dataset)
            else:
                text += 'roles = ["compute"]\n'
        text += f'[[datasets]]\nname = "{name}"\ndirectory = "{dataset}"\nplacement = "round_robin"\n'
        text += f"parts = {storage}\nreplicas = {replicas}\n"
        text += '[default_link]\nbandwidth = "1Gbit/s"\n'
        text += '[limits]\ntransfer_timeout = "2s"\nheartbeat_timeout = "2s"\n'
        self.topology.write_text(text)

    def start(self) -> Cluster:
        for name in self.names:
            self.start_node(name)
        return self

    def start_node(self, name: str) -> Node:
        self.nodes[name] = Node(self.topology, name)
        return self.nodes[name]

    def kill(self, name: str) -> None:
        self.nodes.pop(name).end(signal.SIGKILL)

    def socket(self, node: str = "c0") -> Path:
        return self.directory / f"{node}.sock"

    def client(self, node: str = "c0", **options: Any) -> rudder.Client:
        """A trainer's client, of a job of its own unless one is given."""
        options.setdefault("job", next(_JOBS))
        options.setdefault("time_out", PATIENCE)
        return rudder.Client(self.socket(node), self.dataset, **options)

    def stop(self) -> None:
        for name in reversed(list(self.nodes)):
            self.nodes.pop(name).end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
