"""The plain client against real nodes."""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import rudder
from rudder import errors
from support import Cluster, imported, until


@pytest.fixture
def client(tiny_cluster: Cluster) -> Iterator[rudder.Client]:
    client = tiny_cluster.client()
    yield client
    client.close()


def some_ids(client: rudder.Client, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, client.dataset.vertices, count)


def test_rows_are_the_datasets(client: rudder.Client) -> None:
    ahead = []
    for seed in range(4):
        ids = some_ids(client, 200, seed)
        ahead.append((ids, client.announce(ids)))
    assert client.outstanding == 4
    for ids, minibatch in ahead:
        rows = client.gather(minibatch)
        assert rows.dtype == np.float32 and rows.shape == (200, 16)
        assert np.array_equal(rows, client.dataset.rows(ids))
        client.release(minibatch)
        client.release(minibatch)
    assert client.outstanding == 0


def test_no_rows_and_repeated_rows(client: rudder.Client) -> None:
    assert client.fetch(np.array([], dtype=np.int64)).shape == (0, 16)
    ids = np.array([5, 5, 7, 5])
    assert np.array_equal(client.fetch(ids), client.dataset.rows(ids))


def test_original_ids(tiny_cluster: Cluster) -> None:
    client = tiny_cluster.client(ids="original")
    dataset = client.dataset
    original = np.array([3, 0, 2999, 3])
    assert np.array_equal(client.fetch(original), dataset.rows(dataset.dataset_id[original]))
    assert np.array_equal(dataset.original_id[dataset.dataset_id[original]], original)
    client.close()


def test_into_a_given_array(client: rudder.Client) -> None:
    ids = some_ids(client, 50)
    minibatch = client.announce({"features": ids})
    out = np.empty((50, 16), dtype=np.float32)
    assert client.gather(minibatch, out=out) is out
    assert np.array_equal(out, client.dataset.rows(ids))
    read_only = out.copy()
    read_only.flags.writeable = False
    for bad in (out[:49], out.astype(np.float64), out.T.copy().T, read_only, [1.0]):
        with pytest.raises(errors.ArgumentError, match="give a contiguous"):
            client.gather(minibatch, out=bad)
    client.release(minibatch)
    with pytest.raises(errors.MinibatchError, match="before the release"):
        client.gather(minibatch)


def test_wrong_ids_are_named(client: rudder.Client) -> None:
    for bad, text in [([0, -1], "id -1 at position 1"), ([3000], "id 3000 at position 0")]:
        with pytest.raises(errors.RowError, match=text):
            client.announce(np.array(bad))
    for bad_array in (np.zeros((2, 2), dtype=np.int64), np.array([0.5])):
        with pytest.raises(errors.ArgumentError, match="whole numbers"):
            client.announce(bad_array)
    with pytest.raises(errors.DatasetError, match="no table 'edges'"):
        client.announce({"edges": np.array([1])})
    assert client.outstanding == 0


def test_credits_bound_what_is_announced(client: rudder.Client) -> None:
    ahead = [client.announce(some_ids(client, 5, seed)) for seed in range(client.credits)]
    with pytest.raises(errors.NoCredit, match="release one"):
        client.announce(some_ids(client, 5))
    for minibatch in ahead:
        client.release(minibatch)
    client.fetch(some_ids(client, 5))


def test_a_wait_ends_by_its_time_out(cluster: Callable[..., Cluster], tiny: Path) -> None:
    one = cluster(tiny, storage=2)
    client = one.client()
    one.kill("s0")
    one.kill("s1")
    minibatch = client.announce(some_ids(client, 50))
    with pytest.raises(errors.NotReadyInTime, match="rudder tree"):
        client.ready(minibatch, time_out=0.3)
    assert not client.is_ready(minibatch)
    one.start_node("s0")
    one.start_node("s1")
    # It stayed announced: the rows come when the storage nodes are back.
    assert client.gather(minibatch).shape == (50, 16)


def test_nobody_behind_the_socket(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.NodeUnreachable, match="is `rudder-node` running"):
        rudder.Client(tmp_path / "none.sock", tiny)
    with pytest.raises(errors.DatasetError, match="rudder import"):
        rudder.Client(tmp_path / "none.sock", tmp_path)
    with pytest.raises(errors.ArgumentError, match="original"):
        rudder.Client(tmp_path / "none.sock", tiny, ids="other")  # type: ignore[arg-type]


def test_a_rank_trains_once(tiny_cluster: Cluster, client: rudder.Client) -> None:
    with pytest.raises(errors.NodeRefused, match="already trains"):
        tiny_cluster.client(job=client.job, time_out=0.2)


def test_another_version_of_the_dataset_is_refused(
    tiny_cluster: Cluster, datasets: Callable[..., Path]
) -> None:
    name = rudder.Dataset(tiny_cluster.dataset).name
    other = datasets("generate:rmat:vertices=3000,edges=24000,dim=16,seed=8", 2, "--name", name)
    with pytest.raises(errors.NodeRefused, match="another version"):
        rudder.Client(tiny_cluster.socket(), other, job=77, time_out=1.0)


def test_a_view_copies_nothing_and_pins(client: rudder.Client, caplog: pytest.LogCaptureFixture) -> None:
    ids = some_ids(client, 40)
    minibatch = client.announce(ids)
    view = client.view(minibatch)
    want = client.dataset.rows(ids)
    got = np.empty_like(want)
    for piece in view.pieces:
        assert not piece.slots.flags.writeable and not piece.slots.flags.owndata
        got[piece.position] = piece.slots[piece.index]
    assert np.array_equal(got, want)
    row = view.row(3)
    # The row's address lies within a file that is mapped read-only and shared: nothing was copied.
    address = row.__array_interface__["data"][0]
    assert any(start <= address < end for start, end in shared_mappings())
    client.release(minibatch)
    assert client.outstanding == 1, "the view pins"
    for seed in range(20):
        client.fetch(some_ids(client, 100, seed))
    assert np.array_equal(row, want[3])
    del view, piece
    assert client.outstanding == 1
    del row
    assert client.outstanding == 0


@pytest.mark.parametrize("columns", [3, 5, 16])
def test_views_of_rows_of_any_size(
    columns: int, cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    source = f"generate:rmat:vertices=500,edges=2000,dim={columns},seed=1"
    one = cluster(imported(source, tmp_path / "rows", 2, "--rows-per-block", "4"))
    client = one.client()
    for seed in range(3):
        ids = some_ids(client, 60, seed)
        minibatch = client.announce(ids)
        view = client.view(minibatch)
        got = np.full((60, columns), np.nan, dtype=np.float32)
        for piece in view.pieces:
            got[piece.position] = piece.slots[piece.index]
        assert np.array_equal(got, client.dataset.rows(ids)) and view.rows == 60
        assert np.array_equal(view.row(59), got[59])
        del view, piece
        client.release(minibatch)
    client.close()


def test_a_view_held_long_is_warned_of(
    client: rudder.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    minibatch = client.announce(some_ids(client, 4))
    view = client.view(minibatch)
    with caplog.at_level(logging.WARNING, "rudder"):
        client.fetch(some_ids(client, 4))
        assert not caplog.records
        monkeypatch.setattr("rudder.client.VIEW_HELD_MAX", 0.0)
        client.fetch(some_ids(client, 4))
        client.fetch(some_ids(client, 4))
    assert len([r for r in caplog.records if "a view of minibatch" in r.getMessage()]) == len(view.pieces)


def shared_mappings() -> list[tuple[int, int]]:
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access = line.split()[:2]
        if access == "r--s":
            start, end = (int(part, 16) for part in span.split("-"))
            found.append((start, end))
    return found


def test_threads_share_a_client(client: rudder.Client) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        for turn in range(10):
            ids = some_ids(client, 100, 100 * seed + turn)
            if not np.array_equal(client.fetch(ids), client.dataset.rows(ids)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not wrong and client.outstanding == 0


def test_a_forked_child_has_its_own_connection(client: rudder.Client) -> None:
    held = client.announce(some_ids(client, 30))
    view = client.view(held)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ids = some_ids(client, 60, 5)
            del view
            client.release(held)
            right = np.array_equal(client.fetch(ids), client.dataset.rows(ids))
            code = 0 if right and client.outstanding == 0 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert client.outstanding == 1 and view.rows == 30
    ids = some_ids(client, 60, 6)
    assert np.array_equal(client.fetch(ids), client.dataset.rows(ids))


def test_pickled_clients_connect_anew(client: rudder.Client) -> None:
    other = pickle.loads(pickle.dumps(client))
    ids = some_ids(client, 10)
    assert np.array_equal(other.fetch(ids), client.fetch(ids))
    other.close()


def test_statistics_are_json(client: rudder.Client) -> None:
    client.fetch(some_ids(client, 10))
    assert isinstance(json.loads(client.statistics()), dict)


WAITS = """
import signal, sys, numpy as np, rudder
# A shell that starts the tests in its background has told them to ignore it, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = rudder.Client(sys.argv[1], sys.argv[2], job=int(sys.argv[3]))
minibatch = client.announce(np.arange(100))
try:
    print("waiting", flush=True)
    client.ready(minibatch, time_out=100)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_control_c_ends_a_wait_and_a_kill_leaves_nothing(
    cluster: Callable[..., Cluster], tiny: Path
) -> None:
    one = cluster(tiny)
    one.kill("s0")
    one.kill("s1")
    for how in (signal.SIGINT, signal.SIGKILL):
        words = [sys.executable, "-c", WAITS, str(one.socket()), str(tiny), "5"]
        # Elsewhere than here: the package's own folder has no native half until it is installed.
        trainer = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=one.directory)
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "waiting\n"
        trainer.send_signal(how)
        out, _ = trainer.communicate(timeout=20)
        assert out == ("interrupted\n" if how == signal.SIGINT else "")
    # The rank is free again: the node has let go of the dead trainer and of what it had announced.
    client = until(lambda: connected(one))
    assert client.outstanding == 0


def connected(one: Cluster) -> rudder.Client | None:
    try:
        return one.client(job=5, time_out=0.2)
    except errors.NodeRefused:
        return None


def test_a_node_that_comes_back_is_used_again(
    cluster: Callable[..., Cluster], tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = cluster(tiny)
    client = one.client()
    ids = some_ids(client, 100)
    ahead = client.announce(ids)
    one.kill("c0")
    later = client.announce(ids[:50])
    one.start_node("c0")
    with caplog.at_level(logging.WARNING, "rudder"):
        assert np.array_equal(client.gather(later), client.dataset.rows(ids[:50]))
    assert "was restarted" in caplog.text
    assert np.array_equal(client.gather(ahead), client.dataset.rows(ids))
    client.release(ahead)
    client.release(later)
    assert np.array_equal(client.fetch(ids), client.dataset.rows(ids))


def test_datasets_say_what_is_wrong(tiny: Path) -> None:
    dataset = rudder.Dataset(tiny)
    assert dataset.vertices == 3000 and dataset.table().dim == 16
    indptr, indices = dataset.csc()
    assert len(indptr) == 3001 and indptr[-1] == len(indices) == dataset.graphs["edges"]
    assert len(dataset.split("train")) > 0
    for wrong in (lambda: dataset.table("x"), lambda: dataset.csc("x")):
        with pytest.raises(errors.DatasetError, match="there are"):
            wrong()
    with pytest.raises(errors.RowError):
        dataset.rows([3000])
