"""What serves the rows on the storage machines, and Rudder's node on the training machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from links import Links
from processes import Process, Processes, binary
from support import free_ports, run

import rudder

HERE = Path(__file__).resolve().parent
PATIENCE = 60.0


@dataclass(frozen=True)
class Bench:
    """Where a comparison runs: machine p < parts stores part p, the last one trains."""

    processes: Processes
    links: Links
    dataset: rudder.Dataset
    cache_bytes: int
    depth: int
    #: How trainers sample: Rudder starts from what that makes likely.
    seeds: int
    fanout: list[int]

    @property
    def parts(self) -> int:
        return len(self.dataset.part_offsets) - 1

    @property
    def trains(self) -> int:
        return self.parts


@dataclass(frozen=True)
class Serving:
    """What runs beside a trainer."""

    #: The trainer's options that lead to it.
    options: list[str]
    #: Processes on the storage machines.
    storage: list[Process]
    #: Rudder's node on the training machine.
    node: Process | None = None


@contextmanager
def rows_servers(bench: Bench) -> Iterator[Serving]:
    """A straightforward server a part."""
    with ExitStack() as stack:
        addresses, servers = [], []
        table = bench.dataset.table().name
        for part, port in enumerate(free_ports(bench.parts)):
            host = bench.links.address(part)
            words = [*bench.links.within(part), sys.executable, str(HERE / "rows_server.py")]
            words += ["--rows", str(bench.dataset.path / f"parts/{part}/{table}.npy")]
            words += ["--bind", host, "--port", str(port)]
            servers.append(stack.enter_context(bench.processes.running(f"rows{part}", words)))
            servers[-1].line(PATIENCE)
            reached = bench.links.dial("c0", f"s{part}", (host, port))
            addresses.append(f"{reached[0]}:{reached[1]}")
        yield Serving(["--servers", *addresses], servers)


@contextmanager
def nodes(bench: Bench, folder: Path) -> Iterator[Serving]:
    """Rudder's nodes."""
    folder.mkdir()
    names = [*(f"s{part}" for part in range(bench.parts)), "c0"]
    hosts = [bench.links.address(machine) for machine in range(len(names))]
    ports = free_ports(2 * len(names))
    control = [(host, ports[2 * at]) for at, host in enumerate(hosts)]
    data = [(host, ports[2 * at + 1]) for at, host in enumerate(hosts)]
    for part in range(bench.parts):
        held = folder / "storage" / f"s{part}"
        held.mkdir(parents=True)
        (held / bench.dataset.name).symlink_to(bench.dataset.path)
    own = folder / "cluster.toml"
    own.write_text(_topology(bench, names, control, data))
    run(binary("rudder"), "keys", "init", "--topology", str(own))
    with ExitStack() as stack:
        storage = [_start(stack, bench, own, at, name) for at, name in enumerate(names[:-1])]
        # The training machine's own view: storage behind the links.
        data = [bench.links.dial("c0", name, one) for name, one in zip(names, data, strict=True)]
        seen = folder / "c0.toml"
        seen.write_text(_topology(bench, names, control, data))
        node = _start(stack, bench, seen, bench.trains, "c0")
        yield Serving(["--socket", str(folder / "c0.sock")], storage, node)


def _start(stack: ExitStack, bench: Bench, topology: Path, machine: int, name: str) -> Process:
    words = [*bench.links.within(machine), binary("rudder-node"), "--topology", str(topology), "--node", name]
    process = stack.enter_context(bench.processes.running(name, [*words, "--json"]))
    while process.line(PATIENCE).get("event") != "ready":
        pass
    return process


def _topology(
    bench: Bench, names: list[str], control: list[tuple[str, int]], data: list[tuple[str, int]]
) -> str:
    text = 'keys = "keys"\n[defaults]\ncores = "shared"\nstorage_directory = "storage/{name}"\n'
    text += f'trainer_socket = "{{name}}.sock"\ncache = "{bench.cache_bytes}B"\n'
    text += f"policy = {{ rudder = {{ seeds = {bench.seeds}, fanout = {bench.fanout} }} }}\n"
    # The look-ahead, the minibatch in use, and the one that may be ready beside it.
    text += f"credits = {bench.depth + 2}\n"
    for at, name in enumerate(names):
        text += f'[[nodes]]\nname = "{name}"\nmachine = "{name}"\ncontrol = "{control[at][0]}:{control[at][1]}"\n'
        if name == "c0":
            text += 'roles = ["compute"]\n'
        else:
            roles = '["storage", "scheduler"]' if at == 0 else '["storage"]'
            text += f'roles = {roles}\ndata = "{data[at][0]}:{data[at][1]}"\n'
    name = bench.dataset.name
    text += f'[[datasets]]\nname = "{name}"\ndirectory = "{bench.dataset.path}"\nplacement = "round_robin"\n'
    text += f"parts = {bench.parts}\n"
    return text + f'[default_link]\nbandwidth = "{bench.links.bits_per_second}bit/s"\nlatency = "0.1ms"\n'
