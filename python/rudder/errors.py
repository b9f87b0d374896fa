"""What can go wrong. Every message says what to do."""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "DatasetError",
    "MinibatchError",
    "MinibatchFailed",
    "NoCredit",
    "NodeRefused",
    "NodeUnreachable",
    "NotReadyInTime",
    "ReadOnlyError",
    "RowError",
    "RudderError",
]


class RudderError(Exception):
    """The base of all errors of this package."""


class ArgumentError(RudderError, ValueError):
    """An argument of the wrong kind, shape or dtype."""


class DatasetError(RudderError, ValueError):
    """A directory that is no dataset, or lacks what was asked for."""


class NodeUnreachable(RudderError, ConnectionError):
    """There is no compute node behind the socket, or the connection broke and did not come back."""


class NodeRefused(RudderError, ConnectionError):
    """The node does not take this trainer: another dataset or version, or a rank that trains already."""


class NotReadyInTime(RudderError, TimeoutError):
    """A minibatch whose rows did not arrive in time. It stays announced: wait again, or release it."""


class MinibatchFailed(RudderError):
    """The node cannot bring a minibatch's rows, for instance since a block is corrupt on every replica."""


class MinibatchError(RudderError, ValueError):
    """A minibatch that is not announced, or released already."""


class NoCredit(RudderError):
    """Too many minibatches are announced and not released: release one, or raise `credits` in the topology."""


class RowError(RudderError, IndexError):
    """An id that the table does not have."""


class ReadOnlyError(RudderError, TypeError):
    """Features are read-only while they are served."""
