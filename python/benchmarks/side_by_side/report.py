"""What a comparison found: medians over repeats, the best number of workers of each arm, and the ratios."""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

#: Arms in the order of the table, and what they are called there.
ARMS = {
    "local": "(a) features in local RAM",
    "remote": "(b) remote store",
    "lru": "(c) remote store + LRU",
    "rudder": "(d) Rudder",
}


@dataclass
class Run:
    """One trainer, once."""

    setting: str
    framework: str
    arm: str
    workers: int
    epoch_seconds: list[float]
    wait_seconds: list[float]
    #: Processor time of the trainer's own process, as it says.
    cpu_seconds: list[float]
    #: Processor time by kind of process, on all machines, epoch by epoch.
    processor_seconds: list[dict[str, float]]
    #: How long the trainer waited for the first minibatch of each epoch.
    first_waits: list[float]
    steps: list[int]
    rows: list[int]
    #: Over the training machine's link, both ways, all epochs; None where the links have no counter.
    link_bytes: int | None
    #: Largest resident set of each kind of process on the training machine, bytes.
    resident: dict[str, int]
    #: Largest sum of proportional set sizes of that machine's processes, bytes.
    together: int
    losses: list[float] = field(repr=False)

    @property
    def later(self) -> slice:
        """Epochs after the first."""
        return slice(1, None) if len(self.epoch_seconds) > 1 else slice(0, None)


@dataclass
class Row:
    """Repeats of one arm with one number of workers."""

    framework: str
    arm: str
    workers: int
    first_seconds: float
    seconds: float
    seconds_range: tuple[float, float]
    wait_share: float
    first_wait_seconds: float
    #: Of an epoch, by kind of process, on all machines.
    processor_seconds: dict[str, float]
    #: Share of this machine's cores that these processes take, which all run on it.
    busy: float
    link_mb_per_epoch: float | None
    resident_mb: dict[str, float]
    together_mb: float
    #: Whether no other number of workers made this arm faster.
    best: bool = False


def rows_of(runs: list[Run]) -> list[Row]:
    """A row for each arm and number of workers, in the order of the arms."""
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.framework, run.arm, run.workers), []).append(run)
    rows = [_row(key, group) for key, group in groups.items()]
    rows.sort(key=lambda row: (row.framework != "pyg", list(ARMS).index(row.arm), row.workers))
    for row in rows:
        same = [other for other in rows if (other.framework, other.arm) == (row.framework, row.arm)]
        row.best = row is min(same, key=lambda other: other.seconds)
    return rows


def _row(key: tuple[str, str, int], group: list[Run]) -> Row:
    seconds = [statistics.mean(run.epoch_seconds[run.later]) for run in group]
    waits = [sum(run.wait_seconds[run.later]) / sum(run.epoch_seconds[run.later]) for run in group]
    counted = [run.link_bytes / len(run.epoch_seconds) for run in group if run.link_bytes is not None]
    kinds = sorted({kind for run in group for kind in run.resident})
    processor = _processor(group)
    return Row(
        *key,
        first_seconds=statistics.median(run.epoch_seconds[0] for run in group),
        seconds=statistics.median(seconds),
        seconds_range=(min(seconds), max(seconds)),
        wait_share=statistics.median(waits),
        first_wait_seconds=statistics.median(statistics.mean(run.first_waits[run.later]) for run in group),
        processor_seconds=processor,
        busy=sum(processor.values()) / statistics.median(seconds) / (os.cpu_count() or 1),
        link_mb_per_epoch=statistics.median(counted) / 1e6 if counted else None,
        resident_mb={kind: max(run.resident.get(kind, 0) for run in group) / 1e6 for kind in kinds},
        together_mb=max(run.together for run in group) / 1e6,
    )


def _processor(group: list[Run]) -> dict[str, float]:
    """Seconds an epoch of each kind of process. The trainer's own is what it says itself, which is exact."""
    found: dict[str, float] = {}
    for kind in sorted({kind for run in group for epoch in run.processor_seconds for kind in epoch}):
        means = [statistics.mean(epoch.get(kind, 0.0) for epoch in run.processor_seconds[run.later]) for run in group]
        found[kind] = statistics.median(means)
    found["trainer"] = statistics.median(statistics.mean(run.cpu_seconds[run.later]) for run in group)
    return found


def unequal(runs: list[Run]) -> list[str]:
    """Runs of a framework whose losses are not those of its first run with as many workers, bit by bit. Another number of
    them makes other minibatches: DGL deals seeds out in as many slices, and PyG's loader draws from the generator that
    shuffles the next epoch when it starts workers."""
    first: dict[tuple[str, int], Run] = {}
    found = []
    for run in runs:
        with_it = first.setdefault((run.framework, run.workers), run)
        if run.losses != with_it.losses:
            pairs = zip(run.losses, with_it.losses, strict=False)
            at = next((at for at, (one, other) in enumerate(pairs) if one != other), len(run.losses))
            found.append(
                f"{run.framework} {ARMS[run.arm]}, {run.workers} workers, {run.setting}: differs from "
                f"{ARMS[with_it.arm]}, {with_it.workers} workers, {with_it.setting}, from step {at} on"
            )
    return found


def ratios(rows: list[Row], framework: str) -> dict[str, float]:
    """(d) against the others, each at its best: epoch time of (a) over (d), and of (b) and (c) over (d)."""
    best = {row.arm: row for row in rows if row.framework == framework and row.best}
    if "rudder" not in best:
        return {}
    own = best["rudder"].seconds
    found = {f"{arm}_over_rudder": best[arm].seconds / own for arm in ("local", "remote", "lru") if arm in best}
    if "remote" in best:
        found["remote_wait_share"] = best["remote"].wait_share
    return found


def table(rows: list[Row]) -> str:
    """For people. A star marks the best number of workers of an arm."""
    head = ["arm", "workers", "epoch, s", "range", "first, s", "waits", "1st wait, ms", "CPU, s", "cores busy"]
    head += ["link, MB", "peak RSS, MB", "together, MB"]
    lines = [head]
    for row in rows:
        lines.append(
            [
                f"{row.framework} {ARMS[row.arm]}",
                f"{row.workers}{' *' if row.best else ''}",
                f"{row.seconds:.2f}",
                f"{row.seconds_range[0]:.2f}..{row.seconds_range[1]:.2f}",
                f"{row.first_seconds:.2f}",
                f"{100 * row.wait_share:.1f} %",
                f"{1e3 * row.first_wait_seconds:.0f}",
                ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in row.processor_seconds.items()),
                f"{100 * row.busy:.0f} %",
                "-" if row.link_mb_per_epoch is None else f"{row.link_mb_per_epoch:.1f}",
                ", ".join(f"{kind} {size:.0f}" for kind, size in row.resident_mb.items()),
                f"{row.together_mb:.0f}",
            ]
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def as_json(rows: list[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
