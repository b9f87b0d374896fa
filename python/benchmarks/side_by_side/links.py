"""Links of a stated rate between the storage machines and the training machine of a comparison.

As root: a network namespace for each, veth pairs into one bridge, tbf at both ends. Elsewhere: `rudder relay`. What a
killed run left is recognised by the process id in its name and removed by the next.
"""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

from processes import Process, Processes, binary

Address = tuple[str, int]

_PREFIX = "rudder-compare-"
_NAMESPACES = Path("/run/netns")
_INTERFACE = "eth0"
#: What a link may carry at once, as a share of a second.
_BURST_SECONDS = 0.002


class Links:
    """`machines` machines; `mode` is "netns", "relay", or "auto": namespaces as root, else the relay."""

    def __init__(self, machines: int, bits_per_second: float, mode: str, processes: Processes) -> None:
        self.mode = mode if mode != "auto" else "netns" if os.geteuid() == 0 else "relay"
        self._bytes_per_second = int(bits_per_second / 8)
        self.bits_per_second = self._bytes_per_second * 8
        self._burst = max(16 << 10, int(self._bytes_per_second * _BURST_SECONDS))
        self._made: list[str] = []
        self._relay: Process | None = None
        self._ways: dict[tuple[str, str, Address], Address] = {}
        self._own = ExitStack()
        try:
            if self.mode == "netns":
                self._make(machines)
            else:
                rate, burst = f"{self.bits_per_second}bit/s", f"{self._burst}B"
                words = [binary("rudder"), "relay", "--rate", rate, "--burst", burst]
                self._relay = self._own.enter_context(processes.running("relay", words))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._own.close()
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        self._made = []

    def address(self, machine: int) -> str:
        """What a process on the machine binds."""
        return f"10.78.0.{machine + 1}" if self.mode == "netns" else "127.0.0.1"

    def within(self, machine: int) -> list[str]:
        """The words before a command that is to run on the machine."""
        return ["ip", "netns", "exec", self._made[machine + 1]] if self.mode == "netns" else []

    def dial(self, start: str, end: str, target: Address) -> Address:
        """Where a process on the machine called `start` finds `target` on the one called `end`."""
        if self._relay is None:
            return target
        way = (start, end, target)
        if way not in self._ways:
            self._relay.write(json.dumps({"from": start, "to": end, "target": f"{target[0]}:{target[1]}"}))
            answer = self._relay.line()
            host, port = answer["listen"].rsplit(":", 1)
            self._ways[way] = (host, int(port))
        return self._ways[way]

    def carried(self, process_id: int) -> int | None:
        """Bytes that the machine of a process has received and sent over its link; None where links have no counter."""
        if self.mode != "netns":
            return None
        for line in Path(f"/proc/{process_id}/net/dev").read_text().splitlines():
            name, _, numbers = line.strip().partition(":")
            if name == _INTERFACE:
                counters = numbers.split()
                return int(counters[0]) + int(counters[8])
        return None

    def _make(self, machines: int) -> None:
        for entry in _NAMESPACES.iterdir() if _NAMESPACES.is_dir() else ():
            if entry.name.startswith(_PREFIX):
                owner = entry.name.removeprefix(_PREFIX).split("-")[0]
                if not Path("/proc", owner).exists():
                    subprocess.run(["ip", "netns", "del", entry.name], check=False, capture_output=True)
        bridge = self._namespace("bridge")
        _ip(bridge, "link set lo up", "link add br0 type bridge", "link set br0 up")
        for machine in range(machines):
            name = self._namespace(str(machine))
            near = f"p{machine}"
            _ip(
                bridge,
                f"link add {near} type veth peer name {_INTERFACE} netns {name}",
                f"link set {near} master br0 up",
            )
            _ip(
                name,
                "link set lo up",
                f"addr add {self.address(machine)}/24 dev {_INTERFACE}",
                f"link set {_INTERFACE} up",
            )
            for namespace, interface in ((name, _INTERFACE), (bridge, near)):
                rate, burst = f"{self._bytes_per_second}bps", f"{self._burst}b"
                words = ["-n", namespace, "qdisc", "add", "dev", interface, "root", "tbf"]
                _run("tc", *words, "rate", rate, "burst", burst, "latency", "400ms")

    def _namespace(self, suffix: str) -> str:
        name = f"{_PREFIX}{os.getpid()}-{suffix}"
        _run("ip", "netns", "add", name)
        self._made.append(name)
        return name


def _ip(namespace: str, *lines: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", given="\n".join(lines) + "\n")


def _run(*words: str, given: str = "") -> None:
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(words)}` failed: {done.stderr.strip()}; try --links relay")
