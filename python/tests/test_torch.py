"""The plain client with torch tensors."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import rudder
from support import Cluster

torch = pytest.importorskip("torch")


@pytest.fixture
def client(tiny_cluster: Cluster) -> Iterator[rudder.Client]:
    client = tiny_cluster.client()
    yield client
    client.close()


def test_gathers_into_new_given_and_pinned_tensors(client: rudder.Client) -> None:
    ids = torch.randint(0, 3000, (80,))
    want = torch.from_numpy(client.dataset.rows(ids.numpy()))
    minibatch = client.announce(ids)
    new = client.gather(minibatch)
    assert new.dtype == torch.float32 and torch.equal(new, want)
    new += 1  # writable
    given = torch.empty(80, 16)
    assert client.gather(minibatch, out=given) is given and torch.equal(given, want)
    pinned = client.gather(minibatch, pin_memory=True)
    assert torch.equal(pinned, want) and pinned.is_pinned() == torch.cuda.is_available()
    for bad in (torch.empty(80, 16, dtype=torch.float64), torch.empty(16, 80).T, torch.empty(79, 16)):
        with pytest.raises(rudder.errors.ArgumentError, match="give a contiguous"):
            client.gather(minibatch, out=bad)
    client.release(minibatch)
    assert client.fetch(ids[:0]).shape == (0, 16)


def test_a_view_lives_through_a_backward_pass(client: rudder.Client) -> None:
    ids = torch.randint(0, 3000, (30,))
    want = torch.from_numpy(client.dataset.rows(ids.numpy()))
    minibatch = client.announce(ids)
    view = client.view(minibatch)
    weight = torch.ones(16, requires_grad=True)
    # The product keeps the row itself for the backward pass, not a copy.
    loss = (view.row(7) * weight).sum()
    client.release(minibatch)
    del view
    gc.collect()
    assert client.outstanding == 1, "the graph for the backward pass pins the rows"
    for _ in range(30):
        client.fetch(torch.randint(0, 3000, (100,)))
    loss.backward()
    assert torch.equal(weight.grad, want[7])
    del loss
    gc.collect()
    assert client.outstanding == 0


def test_a_view_is_the_shared_memory_itself(client: rudder.Client) -> None:
    ids = torch.randint(0, 3000, (30,))
    minibatch = client.announce(ids)
    first, second = client.view(minibatch), client.view(minibatch)
    addresses = [[piece.slots.data_ptr() for piece in view.pieces] for view in (first, second)]
    assert addresses[0] == addresses[1]
    got = torch.empty(30, 16)
    for piece in first.pieces:
        got[piece.position] = piece.slots[piece.index]
    assert torch.equal(got, torch.from_numpy(client.dataset.rows(ids.numpy())))
    client.release(minibatch)


def test_numpy_ids_give_numpy_rows(client: rudder.Client) -> None:
    assert isinstance(client.fetch(np.arange(5)), np.ndarray)
    assert isinstance(client.fetch({"features": torch.arange(5)})["features"], torch.Tensor)
