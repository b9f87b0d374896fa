"""What the plain client costs a trainer, beside what torch does with a local tensor. One command, one run:

    python benchmarks/client.py            # with RUDDER_BIN naming the folder of rudder and rudder-node

Interleaved rounds, medians: `gather` against `torch.index_select` of the same rows from a local tensor, announcing
100,000 vertices, a view; then eight trainers on one node, and what the cache's memory adds up to over all of them.

Times are the processor time of the trainer's one thread, which other processes on the machine disturb least; for the
announcement, during which the node wakes up and may take the core, also the time on the wall.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import Cluster, imported  # noqa: E402

import rudder  # noqa: E402


def seconds(work: Callable[[], Any]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def gathering(client: rudder.Client, rounds: int, rows: int) -> dict[str, float]:
    everything = torch.from_numpy(client.dataset.rows(np.arange(client.dataset.vertices)))
    out = torch.empty(rows, everything.shape[1])
    local = torch.empty_like(out)
    ours, theirs, announces, announces_wall, views = [], [], [], [], []
    for turn in range(rounds + 1):
        ids = torch.from_numpy(np.random.default_rng(turn).integers(0, len(everything), rows))
        start, start_wall = time.thread_time(), time.perf_counter()
        minibatch = client.announce(ids)
        announces.append(time.thread_time() - start)
        announces_wall.append(time.perf_counter() - start_wall)
        client.ready(minibatch)
        theirs.append(seconds(lambda ids=ids: torch.index_select(everything, 0, ids, out=local)))
        ours.append(seconds(lambda m=minibatch: client.gather(m, out=out)))
        assert torch.equal(out, local)
        views.append(seconds(lambda m=minibatch: client.view(m)))
        client.release(minibatch)
        if turn == 0:  # the first touches memory that the kernel has to give first
            for times in (ours, theirs, announces, announces_wall, views):
                times.clear()
    milli = {"gather": ours, "index_select": theirs, "announce": announces, "view": views}
    milli["announce_wall"] = announces_wall
    found = {f"{name}_ms": 1e3 * statistics.median(times) for name, times in milli.items()}
    found["gather_speed_over_index_select"] = statistics.median(
        other / own for own, other in zip(ours, theirs, strict=True)
    )
    return found


def shared_memory(pid: int | str) -> tuple[int, int]:
    """(resident, proportional) bytes of the read-only shared mappings of a process."""
    resident = proportional = 0
    shared = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            shared = words[1] in ("r--s", "rw-s") and "memfd" in line
        elif shared and words[0] in ("Rss:", "Pss:"):
            resident += int(words[1]) * 1024 if words[0] == "Rss:" else 0
            proportional += int(words[1]) * 1024 if words[0] == "Pss:" else 0
    return resident, proportional


def touch(socket: Path, dataset: Path, rank: int, done: Any, leave: Any) -> None:
    client = rudder.Client(socket, dataset, job=9, rank=rank)
    for turn in range(5):
        client.fetch(np.random.default_rng(turn).integers(0, client.dataset.vertices, 5000))
    done.release()
    leave.wait(120)


def sharing(one: Cluster, trainers: int) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    done, leave = context.Semaphore(0), context.Event()
    processes = [
        context.Process(target=touch, args=(one.socket(), one.dataset, rank, done, leave))
        for rank in range(trainers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        assert done.acquire(timeout=120)
    pids = [process.pid for process in processes] + [one.nodes["c0"].pid]
    found = [shared_memory(pid) for pid in pids if pid is not None]
    leave.set()
    for process in processes:
        process.join(60)
    return {
        "trainers": trainers,
        "node_cache_resident_mib": found[-1][0] / 2**20,
        "cache_pss_over_all_mib": sum(proportional for _, proportional in found) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        source = f"generate:rmat:vertices=200000,edges=1000000,dim={arguments.dim},seed=3"
        dataset = imported(source, Path(folder) / "bench", 1, "--rows-per-block", "1")
        bytes = 200_000 * arguments.dim * 4 * 5 // 4
        with Cluster(Path(folder) / "c", dataset, storage=1, cache=f"{bytes >> 20}MiB").start() as one:
            client = one.client()
            for start in range(0, 200_000, 50_000):  # everything is resident before anything is measured
                client.fetch(np.arange(start, start + 50_000))
            print(json.dumps(gathering(client, arguments.rounds, arguments.rows), indent=1))
            print(json.dumps(sharing(one, 8), indent=1))


if __name__ == "__main__":
    main()
