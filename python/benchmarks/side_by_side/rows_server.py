"""The storage end of a straightforward remote feature store: one part's rows in memory, served by row number.

    request: u32 count, u32 row numbers; answer: the rows, one after the other. Little endian.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import threading
from pathlib import Path

import numpy as np


def exactly(source: socket.socket, count: int) -> bytearray:
    """The next `count` bytes; fewer only at the end of the stream."""
    to = bytearray(count)
    view, got = memoryview(to), 0
    while got < count:
        read = source.recv_into(view[got:])
        if read == 0:
            return to[:got]
        got += read
    return to


def serve(peer: socket.socket, rows: np.ndarray) -> None:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer:
        while head := exactly(peer, 4):
            (count,) = struct.unpack("<I", head)
            wanted = np.frombuffer(exactly(peer, 4 * count), dtype="<u4")
            peer.sendall(memoryview(rows[wanted]).cast("B"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="the part's .npy file")
    parser.add_argument("--bind", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    rows = np.load(arguments.rows)
    with socket.create_server((arguments.bind, arguments.port), backlog=64) as listener:
        print(json.dumps({"event": "ready"}), flush=True)
        while True:
            peer, _ = listener.accept()
            threading.Thread(target=serve, args=(peer, rows), daemon=True).start()


if __name__ == "__main__":
    main()
