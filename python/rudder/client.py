"""A trainer's connection to the compute node of its machine.

    client = rudder.Client("/run/rudder/c0.sock", "/data/papers")
    ahead = client.announce(ids)          # as far ahead as the sampler knows
    ...
    x = client.gather(ahead)              # waits, copies into one tensor
    client.release(ahead)
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._native import Connection, PinnedBytes, ReadyRows
from .dataset import Dataset, Table
from .errors import ArgumentError, DatasetError, MinibatchError

__all__ = ["Client", "Minibatch", "Piece", "View"]

log = logging.getLogger("rudder")

#: Views that are held for longer than this, in seconds, are warned of: they keep rows from leaving the cache.
VIEW_HELD_MAX = 10.0

#: A connection of a forked or spawned worker has a rank of its own: this bit, nine bits of the rank, the pid.
_WORKER_RANK = 1 << 31

Ids = Literal["original", "dataset"]


class Minibatch:
    """An announced minibatch: what `Client.announce` gives and the other calls take."""

    __slots__ = ("_ready", "id", "released", "rows", "torch")

    def __init__(self, id: int, rows: dict[str, int], torch: bool) -> None:
        self.id = id
        #: Number of rows announced of each table.
        self.rows = rows
        #: Whether the ids came as a torch tensor; then rows are gathered into one, too.
        self.torch = torch
        self.released = False
        self._ready: ReadyRows | None = None

    def __repr__(self) -> str:
        state = "released" if self.released else "ready" if self._ready else "announced"
        return f"Minibatch({self.id}, {self.rows}, {state})"


@dataclass(frozen=True)
class Piece:
    """Rows of a view that lie in one mapping: row `position[i]` of the minibatch is `slots[index[i]]`."""

    #: `[n, dim]`, read-only, over the shared slots themselves. Writing to it ends the process.
    slots: Any
    #: int64 `[m]`
    index: Any
    #: int64 `[m]`
    position: Any


@dataclass(frozen=True)
class View:
    """Rows of a table in place, without a copy.

    The minibatch stays pinned until every array of the view is gone, also after `Client.release`: hold views briefly.
    """

    pieces: list[Piece]
    rows: int

    @property
    def slots(self) -> Any:
        """The only piece's slots. Raises `MinibatchError` where the rows lie in several mappings."""
        return self._sole().slots

    @property
    def index(self) -> Any:
        """The only piece's index: `view.slots[view.index]` are the rows in the order of the announcement."""
        return self._sole().index

    def row(self, i: int) -> Any:
        """The i-th announced row, `[dim]`, in place. Raises IndexError."""
        for piece in self.pieces:
            at = (piece.position == i).nonzero()
            at = at[0] if isinstance(at, tuple) else at.reshape(-1)
            if len(at):
                return piece.slots[int(piece.index[int(at[0])])]
        raise IndexError(f"row {i}: the view has {self.rows}")

    def _sole(self) -> Piece:
        if len(self.pieces) != 1:
            raise MinibatchError(
                f"the rows lie in {len(self.pieces)} mappings: go through `pieces`, or gather them"
            )
        return self.pieces[0]


class Client:
    """Connects to the compute node behind `socket` as trainer `rank` of `job`.

    `dataset` is the directory that `rudder import` wrote (or a `Dataset`); its features may be absent.
    `ids="original"` takes the ids of the source that was imported, `"dataset"` (the default) those of the dataset,
    which the shipped graph stores use. `time_out` bounds every wait, in seconds.

    After a fork, and in a process that unpickles it, a client opens a connection of its own. Calls may come from
    several threads. Raises `NodeUnreachable`, `NodeRefused`, `DatasetError`.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        dataset: Dataset | str | os.PathLike[str],
        *,
        job: int = 0,
        rank: int = 0,
        ids: Ids = "dataset",
        time_out: float = 60.0,
    ) -> None:
        if ids not in ("original", "dataset"):
            raise ArgumentError(f'ids={ids!r}: say "original" or "dataset"')
        self.socket = os.path.abspath(socket)
        self.dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        self.job, self.rank, self.ids, self.time_out = job, rank, ids, time_out
        self._start()
        self._connect(rank)

    def _start(self) -> None:
        self._native: Connection | None = None
        self._pid = os.getpid()
        self._generation = 0
        self._views: list[tuple[weakref.ref[PinnedBytes], float, int]] = []

    def _connect(self, rank: int) -> Connection:
        tables = self.dataset.tables.values()
        maps = {}
        if self.ids == "original":
            # Only tables of vertices have original ids; rows of others count as they are.
            ids = self.dataset.dataset_id
            maps = {table.index: ids for table in tables if table.row_offsets == self.dataset.part_offsets}
        native = Connection(
            self.socket,
            self.dataset.name,
            self.dataset.digest,
            self.job,
            rank,
            self.time_out,
            [table.rows for table in tables],
            maps,
        )
        self._credits, self._ready_ahead, self._generation = native.welcome()
        self._native = native
        log.debug("connected to %s as job %d rank %d", self.socket, self.job, rank)
        return native

    def __getstate__(self) -> dict[str, Any]:
        kept = ("socket", "dataset", "job", "rank", "ids", "time_out")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def _connection(self) -> Connection:
        """The connection of this very process."""
        if self._native is not None and self._pid == os.getpid():
            return self._native
        # The parent's connection is only closed here, never spoken over.
        self._start()
        worker = _WORKER_RANK | (self.rank & 0x1FF) << 22 | os.getpid() & 0x3FFFFF
        log.debug("process %d opens a connection of its own", os.getpid())
        return self._connect(worker)

    @property
    def credits(self) -> int:
        """Minibatches that may be announced and not released."""
        self._connection  # noqa: B018
        return self._credits

    @property
    def ready_ahead(self) -> int:
        """Minibatches that may be ready (pinned) beyond the one in use."""
        self._connection  # noqa: B018
        return self._ready_ahead

    @property
    def outstanding(self) -> int:
        """Minibatches that are announced and not released."""
        return self._connection.outstanding()

    def announce(self, rows: Any) -> Minibatch:
        """Says which rows a coming minibatch needs: ids of the first table, or `{table: ids}`.

        Ids are integer arrays or tensors `[n]`, in the order in which rows will come; repeats are fine. Does not wait
        for the rows. Raises `RowError` for an id the table does not have, `NoCredit`.
        """
        connection = self._connection
        wanted: Mapping[str, Any] = rows if isinstance(rows, Mapping) else {self.dataset.table().name: rows}
        tables, counts, torch = [], {}, False
        for name, ids in wanted.items():
            array = _ids(ids)
            torch = torch or _is_tensor(ids)
            tables.append((self.dataset.table(name).index, array))
            counts[name] = len(array)
        minibatch = connection.announce(tables)
        self._warn_of_views()
        return Minibatch(minibatch, counts, torch)

    def ready(self, minibatch: Minibatch, time_out: float | None = None) -> Minibatch:
        """Waits until every row of the minibatch can be read, at most `time_out` seconds (the client's if left out).

        Raises `NotReadyInTime`, `MinibatchFailed`, KeyboardInterrupt.
        """
        self._ready(minibatch, time_out)
        return minibatch

    def is_ready(self, minibatch: Minibatch) -> bool:
        """Whether the rows can be read now; does not wait."""
        if minibatch._ready is None:
            self._announced(minibatch)
            minibatch._ready = self._connection.try_ready(minibatch.id)
        return minibatch._ready is not None

    def _announced(self, minibatch: Minibatch) -> None:
        if minibatch.released:
            raise MinibatchError(f"minibatch {minibatch.id} is released: gather and view before the release")

    def _ready(self, minibatch: Minibatch, time_out: float | None = None) -> ReadyRows:
        self._announced(minibatch)
        if minibatch._ready is None:
            connection = self._connection
            patience = self.time_out if time_out is None else time_out
            minibatch._ready = connection.ready(minibatch.id, patience)
            generation = connection.welcome()[2]
            if generation != self._generation:
                log.warning("the compute node at %s was restarted; this trainer went on with it", self.socket)
                self._generation = generation
            self._warn_of_views()
        return minibatch._ready

    def gather(
        self,
        minibatch: Minibatch,
        table: str | None = None,
        *,
        out: Any = None,
        pin_memory: bool = False,
    ) -> Any:
        """Waits for the minibatch and copies a table's rows, in the order of the announcement.

        Into `out` where it is given: a contiguous, writable array or tensor `[n, dim]` of the table's dtype, in the
        CPU's memory. Else into a new one: a torch tensor where ids were announced as one, else a numpy array; with
        `pin_memory` a tensor in page-locked memory where CUDA is there, and an ordinary one elsewhere.
        """
        ready = self._ready(minibatch)
        spec = self._table_of(minibatch, table)
        shape = (minibatch.rows[spec.name], spec.dim)
        if out is None:
            out = _empty(shape, spec, minibatch.torch or pin_memory, pin_memory)
        else:
            _check_out(out, shape, spec)
        ready.gather(spec.index, _writable_bytes(out))
        return out

    def view(self, minibatch: Minibatch, table: str | None = None) -> View:
        """Waits for the minibatch and shows a table's rows where they lie, without a copy.

        Read-only: a write to it ends the process. The rows stay pinned until the view and every array or tensor made
        from it (a graph kept for the backward pass too) are gone, and count against `ready_ahead` until then.
        """
        ready = self._ready(minibatch)
        spec = self._table_of(minibatch, table)
        pieces = []
        for mapping, first, stride, count, index, position in ready.pieces(spec.index, spec.row_bytes):
            pinned = ready.mapping(mapping)
            self._views.append((weakref.ref(pinned), time.monotonic(), minibatch.id))
            slots = _slots(np.asarray(pinned), first, stride, count, spec)
            piece = Piece(slots, np.asarray(index), np.asarray(position))
            pieces.append(_as_tensors(piece, spec) if minibatch.torch else piece)
        return View(pieces, minibatch.rows[spec.name])

    def release(self, minibatch: Minibatch) -> None:
        """Gives the minibatch back: now, or when its last view is gone. Releasing twice is fine."""
        if minibatch.released:
            return
        minibatch.released = True
        if self._pid != os.getpid():
            return
        if minibatch._ready is None:
            self._connection.release(minibatch.id)
        else:
            minibatch._ready.release()
            minibatch._ready = None

    def fetch(self, rows: Any, **options: Any) -> Any:
        """Announce, wait, gather, release in one call, for who cannot look ahead. Takes what `announce` takes, and
        `gather`'s options; gives one array, or a dict of them where a dict was given."""
        minibatch = self.announce(rows)
        try:
            if isinstance(rows, Mapping):
                return {name: self.gather(minibatch, name, **options) for name in rows}
            return self.gather(minibatch, **options)
        finally:
            self.release(minibatch)

    def statistics(self) -> str:
        """The node's counters as JSON text."""
        return self._connection.statistics()

    def close(self) -> None:
        """Closes the connection; the node drops what is announced. Views stay readable, but nothing keeps their
        rows from changing."""
        self._start()

    def _table_of(self, minibatch: Minibatch, table: str | None) -> Table:
        name = next(iter(minibatch.rows), None) if table is None else table
        if name is None or name not in minibatch.rows:
            raise DatasetError(f"minibatch {minibatch.id} announced {list(minibatch.rows)}, not {table!r}")
        return self.dataset.table(name)

    def _warn_of_views(self) -> None:
        if not self._views:
            return
        now, kept = time.monotonic(), []
        for view, since, minibatch in self._views:
            if view() is None:
                continue
            if now - since >= VIEW_HELD_MAX:
                log.warning(
                    "a view of minibatch %d is held for %.0f s: it keeps its rows pinned in the cache; copy what is "
                    "needed longer (gather), or drop the view",
                    minibatch,
                    now - since,
                )
            else:
                kept.append((view, since, minibatch))
        self._views = kept


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _ids(ids: Any) -> NDArray[np.int64]:
    if _is_tensor(ids):
        ids = ids.detach().cpu().numpy()
    array = np.asarray(ids)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ArgumentError(f"ids are whole numbers [n], not {array.dtype} {list(array.shape)}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _torch_dtype(spec: Table) -> Any:
    import torch

    return getattr(torch, spec.dtype)


def _empty(shape: tuple[int, int], spec: Table, tensor: bool, pin_memory: bool) -> Any:
    if not tensor:
        return np.empty(shape, dtype=spec.numpy_dtype)
    import torch

    pinned = pin_memory and torch.cuda.is_available()
    return torch.empty(shape, dtype=_torch_dtype(spec), pin_memory=pinned)


def _check_out(out: Any, shape: tuple[int, int], spec: Table) -> None:
    tensor = _is_tensor(out)
    dtype = _torch_dtype(spec) if tensor else spec.numpy_dtype
    wrong = None
    if not tensor and not isinstance(out, np.ndarray):
        wrong = f"a {type(out).__name__}"
    elif tuple(out.shape) != shape or out.dtype != dtype:
        wrong = f"{out.dtype} {list(out.shape)}"
    elif tensor and (out.device.type != "cpu" or not out.is_contiguous()):
        wrong = f"on {out.device}, contiguous: {out.is_contiguous()}"
    elif not tensor and not (out.flags.c_contiguous and out.flags.writeable):
        wrong = "read-only or not contiguous"
    if wrong:
        raise ArgumentError(f"out is {wrong}; give a contiguous array or CPU tensor of {dtype} {list(shape)}")


def _writable_bytes(out: Any) -> NDArray[np.uint8]:
    if _is_tensor(out):
        import torch

        out = out.detach()
        # numpy lacks the type, not the bytes.
        out = out.view(torch.uint16).numpy() if out.dtype == torch.bfloat16 else out.numpy()
    return out.reshape(-1).view(np.uint8)  # type: ignore[no-any-return]


def _slots(bytes: NDArray[np.uint8], first: int, stride: int, count: int, spec: Table) -> NDArray[Any]:
    """Slots as a strided array over the mapping from the first row on; its rows overlap where the stride is less than
    a row."""
    end = first + (count - 1) * stride + spec.row_bytes
    flat = bytes[first:end].view(spec.numpy_dtype)
    strides = (stride, spec.numpy_dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (count, spec.dim), strides, writeable=False)


def _as_tensors(piece: Piece, spec: Table) -> Piece:
    import torch

    with warnings.catch_warnings():
        # That the array is read-only is said where views are documented.
        warnings.simplefilter("ignore", UserWarning)
        slots = torch.from_numpy(piece.slots)
    if spec.dtype == "bfloat16":
        slots = slots.view(torch.bfloat16)
    return Piece(slots, torch.from_numpy(piece.index), torch.from_numpy(piece.position))
