"""Rudder's package for trainers: feature rows from the compute node of this machine, in time.

`Client` is the plain interface; `rudder.pyg` and `rudder.dgl` fit it to the loaders of PyG and DGL; `lookahead` wraps a
loader so that the node knows what comes. torch, PyG and DGL are imported only where they are used.
"""

from __future__ import annotations

from . import errors
from ._lookahead import LazyRows, Lookahead, lookahead
from .client import Client, Minibatch, Piece, View
from .dataset import Dataset, Table
from .errors import RudderError
from .export import export_dataset

__all__ = [
    "Client",
    "Dataset",
    "LazyRows",
    "Lookahead",
    "Minibatch",
    "Piece",
    "RudderError",
    "Table",
    "View",
    "errors",
    "export_dataset",
    "lookahead",
]

__version__ = "0.1.0"
