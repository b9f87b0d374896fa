"""Processes of a comparison: they end with it, however it ends, and their memory is watched."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support import binary  # noqa: E402

__all__ = ["Memory", "Process", "Processes", "Processor", "binary"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
#: Between two looks at the memory of the training machine's processes, in seconds.
_LOOK_SECONDS = 0.5


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child whose standard output is one JSON object a line."""

    def __init__(self, name: str, words: list[str], log: Path, environment: dict[str, str]) -> None:
        self.name, self.log = name, log
        with log.open("ab") as errors:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                # A group of its own: Ctrl-C reaches the comparison alone, which then ends its children in order.
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._unread = b""

    @property
    def pid(self) -> int:
        return self._child.pid

    def write(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()

    def line(self, patience: float = 60.0) -> dict[str, Any]:
        """The next line. Raises SystemExit with the process's log if there is none in `patience` seconds."""
        assert self._child.stdout is not None
        deadline = time.monotonic() + patience
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SystemExit(f"{self.name} said nothing for {patience:.0f} s; its log:\n{self._said()}")
                if selector.select(left):
                    got = os.read(self._child.stdout.fileno(), 1 << 20)
                    if not got:
                        raise SystemExit(f"{self.name} ended; its log:\n{self._said()}")
                    self._unread += got
        line, _, self._unread = self._unread.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:].strip() or "(empty)"

    def end(self) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            if self._child.poll() is None:
                self._child.send_signal(how)
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(8)
        # Loader workers of a trainer that had to be killed are in its group.
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class Processes:
    """Starts processes with logs in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def running(self, name: str, words: list[str], **environment: str) -> Iterator[Process]:
        # What a process leaves in its temporary folder, when it has to be ended, goes with the comparison's own.
        own = {"TMPDIR": str(self.folder), **environment}
        process = Process(name, words, self.folder / f"{name}.log", own)
        try:
            yield process
        finally:
            process.end()


class Processor:
    """Seconds of processor time that kinds of processes take, between two looks. A process's children are a kind of their
    own, "NAME workers"; what ended children took counts with them.
    """

    def __init__(self, roots: dict[str, list[int]]) -> None:
        self._roots = roots
        self._before = self._spent()

    def since(self) -> dict[str, float]:
        """What each kind took since the last look. The kernel counts in hundredths of a second."""
        before, self._before = self._before, self._spent()
        return {kind: spent - before.get(kind, 0.0) for kind, spent in self._before.items()}

    def _spent(self) -> dict[str, float]:
        spent: dict[str, float] = {}
        for kind, roots in self._roots.items():
            for root in roots:
                own, ended = _processor_seconds(root)
                workers = [ended, *(sum(_processor_seconds(child)) for child in _children(root))]
                for name, seconds in ((kind, own), (f"{kind} workers", sum(workers))):
                    spent[name] = spent.get(name, 0.0) + seconds
        return {kind: seconds for kind, seconds in spent.items() if seconds or not kind.endswith(" workers")}


class Memory:
    """Watches the processes of the training machine, their children counted in, while it is entered.

    `resident`: largest resident set of each kind of process; `together`: largest sum of proportional set sizes, in which
    memory that several share counts once. Bytes.
    """

    def __init__(self, roots: dict[str, int]) -> None:
        self._roots = roots
        self.resident: dict[str, int] = {}
        self.together = 0
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._leave.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        together = 0
        for name, root in self._roots.items():
            for pid in (root, *_children(root)):
                kind = name if pid == root else f"{name} workers"
                with suppress(OSError, ValueError):
                    peak = _kib(f"/proc/{pid}/status", "VmHWM:")
                    self.resident[kind] = max(self.resident.get(kind, 0), peak)
                    together += _kib(f"/proc/{pid}/smaps_rollup", "Pss:")
        self.together = max(self.together, together)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *_children(int(child))]
    return found


def _processor_seconds(pid: int) -> tuple[float, float]:
    """Of a process itself, and of its children that have ended."""
    try:
        # The name, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    user, system, ended_user, ended_system = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15])
    return user + system, ended_user + ended_system


def _kib(path: str, key: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    return 0
