"""What Rudder does for a real training, beside what a user would do without it. One command, one run:

    python benchmarks/side_by_side                      # with RUDDER_BIN naming the folder of rudder and rudder-node

The same graph, seeds, samples and model in four arms: (a) all features in local RAM, (b) a straightforward remote feature
store (one request to each owner a minibatch, no cache), (c) the same with an LRU row cache as large as Rudder's, (d) Rudder,
looking 32 minibatches ahead and into the next epoch. Each with 0, 2 and 4 loader workers; the best counts. Arms are interleaved and repeated;
figures are medians, and epochs after the first, except where said. The losses of all runs must be equal, step by step, or
it fails (of all with as many workers, since minibatches depend on that).

Two settings: links that carry twice what the training asks for, and starved ones, with a quarter of it. Compute is this
CPU's, which stands in for a GPU. Everything runs on this machine, so processes compete for its cores: "CPU" says how many
seconds of them each kind of process takes in an epoch, on all machines together ("storage" are rows servers or Rudder's
storage nodes), "cores busy" what share of the cores that is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cluster import Bench, Serving, nodes, rows_servers  # noqa: E402
from links import Links  # noqa: E402
from processes import Memory, Process, Processes, Processor  # noqa: E402
from report import ARMS, Run, as_json, ratios, rows_of, table, unequal  # noqa: E402
from support import imported  # noqa: E402

import rudder  # noqa: E402

#: Bits a second of a link, over what the training asks for at the speed of (a).
SETTINGS = {"enough": 2.0, "starved": 0.25}

EXAMPLES = """examples:
  RUDDER_BIN=target/release python python/benchmarks/side_by_side
  ... --frameworks pyg --repeats 1 --epochs 2 --workers 0         a quick look
  ... --settings starved --cache-share 0.25 --json starved.json
  ... --starved 40Mbit/s --links relay                            a rate of your own, without root
"""


def rate(text: str) -> float:
    for unit, size in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * size
    raise argparse.ArgumentTypeError(f"{text!r}: write a rate such as 40Mbit/s")


def listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="side_by_side", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graph", default="debian", help="a shipped graph, or anything that `rudder import` takes")
    parser.add_argument("--frameworks", type=listed, default=["pyg", "dgl"], help="pyg, dgl or both (default)")
    parser.add_argument("--arms", type=listed, default=list(ARMS), help=",".join(ARMS))
    parser.add_argument("--settings", type=listed, default=list(SETTINGS), help=",".join(SETTINGS))
    parser.add_argument("--workers", type=lambda text: [int(n) for n in listed(text)], default=[0, 2, 4])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3, help="of a run, the first counted apart")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--fanout", type=lambda text: [int(n) for n in listed(text)], default=[10, 5])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--depth", type=int, default=32, help="minibatches that Rudder looks ahead")
    parser.add_argument("--cache-share", type=float, default=0.25, help="of the features' bytes")
    parser.add_argument("--parts", type=int, default=2, help="storage machines")
    parser.add_argument("--links", choices=["auto", "netns", "relay"], default="auto")
    for name, share in SETTINGS.items():
        help = f"rate of each link, in place of {share:g} times what is asked for at the speed of (a)"
        parser.add_argument(f"--{name}", type=rate, help=help)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60, help="no run begins after that long; the table says so")
    parser.add_argument("--json", type=Path, help="write everything here, too")
    return parser.parse_args()


class Comparison:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.processes = Processes(folder)
        self.dataset = rudder.Dataset(imported(options.graph, folder / "dataset", options.parts))
        features = self.dataset.vertices * self.dataset.table().row_bytes
        self.cache_bytes = max(1 << 20, int(features * options.cache_share))
        self.runs: list[Run] = []
        self.planned = 0
        self._count = 0
        self._end = time.monotonic() + 60 * options.minutes

    def note(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def measure(self) -> dict[str, float]:
        """All runs. Returns the links' rates by setting, bits a second."""
        rates = self._rates()
        for setting, bits in rates.items():
            with Links(self.options.parts + 1, bits, self.options.links, self.processes) as links:
                asked = (self.options.depth, self.options.batch_size, self.options.fanout)
                bench = Bench(self.processes, links, self.dataset, self.cache_bytes, *asked)
                for repeat in range(self.options.repeats):
                    for framework, arm, workers in self._plan(repeat):
                        self.planned += 1
                        if time.monotonic() < self._end:
                            self._run(bench, setting, framework, arm, workers)
        return rates

    def _plan(self, repeat: int) -> list[tuple[str, str, int]]:
        """Interleaved, and turned with every repeat, so that no arm is always first."""
        one = [
            (framework, arm, workers)
            for framework in self.options.frameworks
            for workers in self.options.workers
            for arm in self.options.arms
        ]
        turn = repeat * len(one) // max(1, self.options.repeats)
        return one[turn:] + one[:turn]

    def _rates(self) -> dict[str, float]:
        given = {setting: getattr(self.options, setting) for setting in self.options.settings}
        if all(given.values()):
            return given
        framework = self.options.frameworks[0]
        self.note(f"how fast {framework} trains with local features, for the links' rates")
        with self.processes.running("trainer", self._trainer(framework, "local", 0, []), **self._alone()) as trainer:
            epochs, _ = self._follow(trainer, None, Processor({}))
        fast = min(epochs, key=lambda epoch: float(epoch["seconds"]))
        asked = 8 * fast["rows"] * self.dataset.table().row_bytes / fast["seconds"]
        return {setting: bits or asked * SETTINGS[setting] for setting, bits in given.items()}

    def _run(self, bench: Bench, setting: str, framework: str, arm: str, workers: int) -> None:
        self._count += 1
        label = f"{setting}: {framework} {ARMS[arm]}, {workers} workers"
        with ExitStack() as stack:
            serving = Serving([], [])
            if arm in ("remote", "lru"):
                serving = stack.enter_context(rows_servers(bench))
            elif arm == "rudder":
                serving = stack.enter_context(nodes(bench, self.folder / f"nodes{self._count}"))
            words = bench.links.within(bench.trains) + self._trainer(framework, arm, workers, serving.options)
            trainer = stack.enter_context(self.processes.running("trainer", words, **self._alone()))
            here = {"trainer": trainer.pid} | ({"node": serving.node.pid} if serving.node else {})
            memory = stack.enter_context(Memory(here))
            started = trainer.line(600)
            before = bench.links.carried(trainer.pid)
            everywhere = {kind: [pid] for kind, pid in here.items()}
            processor = Processor(everywhere | {"storage": [one.pid for one in serving.storage]})
            epochs, losses = self._follow(trainer, label, processor)
            after = bench.links.carried(trainer.pid)
        self.runs.append(
            Run(
                setting=setting,
                framework=framework,
                arm=arm,
                workers=workers,
                epoch_seconds=[epoch["seconds"] for epoch in epochs],
                wait_seconds=[epoch["waited"] for epoch in epochs],
                cpu_seconds=[epoch["cpu"] for epoch in epochs],
                processor_seconds=[epoch["processor"] for epoch in epochs],
                first_waits=[epoch["first_wait"] for epoch in epochs],
                steps=[epoch["steps"] for epoch in epochs],
                rows=[epoch["rows"] for epoch in epochs],
                link_bytes=None if before is None or after is None else after - before,
                resident=memory.resident,
                together=memory.together,
                losses=losses,
            )
        )
        assert all(epoch["steps"] == started["minibatches"] for epoch in epochs), "an epoch was cut short"

    def _trainer(self, framework: str, arm: str, workers: int, extra: list[str]) -> list[str]:
        given = self.options
        words = [sys.executable, "-W", "ignore", str(HERE / "trainer.py"), "--framework", framework, "--arm", arm]
        words += ["--dataset", str(self.dataset.path), "--workers", str(workers), "--depth", str(given.depth)]
        words += ["--epochs", str(given.epochs), "--batch-size", str(given.batch_size), "--hidden", str(given.hidden)]
        words += ["--seed", str(given.seed), "--cache-bytes", str(self.cache_bytes)]
        return [*words, "--fanout", *map(str, given.fanout), *extra]

    @staticmethod
    def _alone() -> dict[str, str]:
        """One thread a process: with more, processes on few cores wait for each other, and DGL's samples differ."""
        return {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}

    def _follow(
        self, trainer: Process, label: str | None, processor: Processor
    ) -> tuple[list[dict[str, Any]], list[float]]:
        epochs: list[dict[str, Any]] = []
        while True:
            event = trainer.line(900)
            if event["event"] == "finished":
                return epochs, event["losses"]
            if event["event"] == "epoch":
                epochs.append({**event, "processor": processor.since()})
                if label is not None:
                    share = 100 * event["waited"] / event["seconds"]
                    which = f"epoch {event['epoch'] + 1} of {self.options.epochs}"
                    self.note(f"{label}: {which}: {event['seconds']:.2f} s, waits {share:.0f} %")


def report(comparison: Comparison, rates: dict[str, float]) -> int:
    """Prints and writes what was found. Returns the exit code."""
    given = comparison.options
    load = os.getloadavg()[1]
    found: dict[str, Any] = {
        "graph": given.graph,
        "cache_bytes": comparison.cache_bytes,
        "cache_share": given.cache_share,
        "epochs": given.epochs,
        "repeats": given.repeats,
        "cores": os.cpu_count(),
        "load_5_minutes": load,
        "settings": {},
    }
    print(f"{given.graph}: cache {comparison.cache_bytes / 1e6:.1f} MB, {given.cache_share:g} of the features' bytes")
    print(f"{os.cpu_count()} cores, load {load:.1f} over 5 minutes; compute is the CPU's")
    for setting, bits in rates.items():
        rows = rows_of([run for run in comparison.runs if run.setting == setting])
        compared = {framework: ratios(rows, framework) for framework in given.frameworks}
        found["settings"][setting] = {"bits_per_second": bits, "rows": as_json(rows), "ratios": compared}
        print(f"\n{setting}: links of {bits / 1e6:.1f} Mbit/s\n{table(rows)}")
        for framework, values in compared.items():
            text = ", ".join(f"{name.replace('_', ' ')} {value:.2f}" for name, value in values.items())
            print(f"{framework}, each at its best: {text}")
    if len(comparison.runs) < comparison.planned:
        left = comparison.planned - len(comparison.runs)
        print(f"\n{left} of {comparison.planned} runs did not begin within {given.minutes:g} minutes (--minutes)")
    found["runs"], found["runs_planned"] = len(comparison.runs), comparison.planned
    differing = unequal(comparison.runs)
    found["losses_differ"] = differing
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print("\nlosses: " + ("\n  ".join(["NOT EQUAL", *differing]) if differing else "equal in all runs, step by step"))
    return 1 if differing else 0


def main() -> int:
    given = options()
    unknown = [arm for arm in given.arms if arm not in ARMS]
    unknown += [setting for setting in given.settings if setting not in SETTINGS]
    unknown += [framework for framework in given.frameworks if framework not in ("pyg", "dgl")]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; see --help", file=sys.stderr)
        return 2
    if given.json is not None and not given.json.resolve().parent.is_dir():
        print(f"cannot write {given.json}: its folder is not there", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    with tempfile.TemporaryDirectory(prefix="rudder-compare-") as folder:
        try:
            comparison = Comparison(given, Path(folder))
            rates = comparison.measure()
        except KeyboardInterrupt:
            print("interrupted; every process and link of the comparison is gone", file=sys.stderr)
            return 130
        return report(comparison, rates)


if __name__ == "__main__":
    sys.exit(main())
