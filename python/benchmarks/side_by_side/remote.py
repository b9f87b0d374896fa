"""Features on other machines as a user would write it: one batched request to each owner a minibatch, and, if wanted,
an LRU cache of rows in the trainer's process. Nothing of Rudder's moves a byte here.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rows_server import exactly
from torch_geometric.data import FeatureStore, TensorAttr


class RemoteRows:
    """Rows of all parts by dataset id. After a fork the child connects anew."""

    def __init__(self, servers: list[tuple[str, int]], part_offsets: tuple[int, ...], dim: int) -> None:
        self._servers, self._offsets, self.dim = servers, np.asarray(part_offsets), dim
        self._sockets: list[socket.socket] = []
        self._pid = 0

    def fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._pid != os.getpid():
            self._sockets = [socket.create_connection(server, timeout=120) for server in self._servers]
            for one in self._sockets:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pid = os.getpid()
        out = np.empty((len(ids), self.dim), dtype=np.float32)
        owners = np.searchsorted(self._offsets, ids, side="right") - 1
        asked = []
        # Every owner is asked before any answer is awaited.
        for part, one in enumerate(self._sockets):
            here = np.flatnonzero(owners == part)
            if len(here):
                wanted = (ids[here] - self._offsets[part]).astype("<u4")
                one.sendall(struct.pack("<I", len(wanted)) + wanted.tobytes())
                asked.append((one, here))
        for one, here in asked:
            answer = exactly(one, len(here) * self.dim * 4)
            if len(answer) != len(here) * self.dim * 4:
                raise ConnectionError("a storage server closed the connection")
            out[here] = np.frombuffer(answer, dtype="<f4").reshape(-1, self.dim)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sockets": [], "_pid": 0}


class LruRows:
    """As the rows behind it, with the last used `capacity` rows kept. Whole arrays at a time: a minibatch is one use."""

    def __init__(self, behind: RemoteRows, capacity: int, vertices: int) -> None:
        self._behind = behind
        self._slot = np.full(vertices, -1, dtype=np.int64)
        self._vertex = np.full(capacity, -1, dtype=np.int64)
        self._used = np.zeros(capacity, dtype=np.int64)
        self._rows = np.empty((capacity, behind.dim), dtype=np.float32)
        self._turn = 0

    def fetch(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        self._turn += 1
        slots = self._slot[ids]
        hits = np.flatnonzero(slots >= 0)
        misses = np.flatnonzero(slots < 0)
        out = np.empty((len(ids), self._behind.dim), dtype=np.float32)
        out[hits] = self._rows[slots[hits]]
        self._used[slots[hits]] = self._turn
        if len(misses):
            out[misses] = self._behind.fetch(ids[misses])
            self._keep(ids[misses], out[misses])
        return out

    def _keep(self, ids: NDArray[np.int64], rows: NDArray[np.float32]) -> None:
        count = min(len(ids), len(self._used))
        if count == 0:
            return
        oldest = np.argpartition(self._used, count - 1)[:count]
        gone = self._vertex[oldest]
        self._slot[gone[gone >= 0]] = -1
        self._vertex[oldest], self._slot[ids[:count]] = ids[:count], oldest
        self._rows[oldest], self._used[oldest] = rows[:count], self._turn


class RemoteFeatureStore(FeatureStore):  # type: ignore[misc]
    """PyG's interface over remote rows; labels are small and local."""

    def __init__(self, rows: RemoteRows | LruRows, labels: NDArray[np.int64], dim: int) -> None:
        super().__init__(tensor_attr_cls=None)
        self._rows, self._labels, self._dim = rows, labels, dim

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return [TensorAttr(None, "x", None), TensorAttr(None, "y", None)]

    def _get_tensor(self, attr: TensorAttr) -> Any:
        ids = attr.index.numpy()
        return torch.from_numpy(self._rows.fetch(ids) if attr.attr_name == "x" else self._labels[ids])

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return (len(self._labels), self._dim) if attr.attr_name == "x" else (len(self._labels),)

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        return False

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return False


class RemoteStorage:
    """DGL's interface over remote rows."""

    def __init__(self, rows: RemoteRows | LruRows) -> None:
        self._rows = rows

    def requires_ddp(self) -> bool:
        return False

    def fetch(self, indices: Any, device: Any, pin_memory: bool = False, **_: Any) -> Any:
        return torch.from_numpy(self._rows.fetch(indices.numpy())).to(device)
