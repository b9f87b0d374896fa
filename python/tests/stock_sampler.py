"""A stand-in for torch-sparse's two operators, which PyG's stock `NeighborSampler` calls: written for the tests, since
neither pyg-lib nor torch-sparse is to be had everywhere. Draws from torch's generator, as the original does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_geometric.typing


class _Sampled:
    """Local numbers in first-seen order."""

    def __init__(self, seeds: torch.Tensor) -> None:
        self.nodes: list[int] = []
        self.local: dict[int, int] = {}
        self.see(seeds.tolist())

    def see(self, nodes: list[int]) -> list[int]:
        for node in nodes:
            if node not in self.local:
                self.local[node] = len(self.nodes)
                self.nodes.append(node)
        return [self.local[node] for node in nodes]


def _chosen(colptr: torch.Tensor, node: int, fanout: int) -> list[int]:
    start, end = int(colptr[node]), int(colptr[node + 1])
    if fanout < 0 or end - start <= fanout:
        return list(range(start, end))
    return (start + torch.randperm(end - start)[:fanout]).tolist()


def neighbor_sample(
    colptr: torch.Tensor, row: torch.Tensor, seed: torch.Tensor, fanouts: list[int], *_: Any
) -> tuple[torch.Tensor, ...]:
    seen = _Sampled(seed)
    rows: list[int] = []
    cols: list[int] = []
    edges: list[int] = []
    start = 0
    for fanout in fanouts:
        end = len(seen.nodes)
        for at in range(start, end):
            chosen = _chosen(colptr, seen.nodes[at], fanout)
            rows += seen.see(row[chosen].tolist())
            cols += [at] * len(chosen)
            edges += chosen
        start = end
    return tuple(torch.tensor(part, dtype=torch.long) for part in (seen.nodes, rows, cols, edges))


def hetero_neighbor_sample(
    node_types: list[str],
    edge_types: list[tuple[str, str, str]],
    colptrs: dict[str, torch.Tensor],
    rows: dict[str, torch.Tensor],
    seeds: dict[str, torch.Tensor],
    fanouts: dict[str, list[int]],
    hops: int,
    *_: Any,
) -> tuple[dict[str, torch.Tensor], ...]:
    empty = torch.empty(0, dtype=torch.long)
    seen = {name: _Sampled(seeds.get(name, empty)) for name in node_types}
    found: dict[str, tuple[list[int], list[int], list[int]]] = {
        "__".join(kind): ([], [], []) for kind in edge_types
    }
    starts = dict.fromkeys(node_types, 0)
    for hop in range(hops):
        ends = {name: len(seen[name].nodes) for name in node_types}
        for source, relation, target in edge_types:
            kind = f"{source}__{relation}__{target}"
            row, col, edge = found[kind]
            for at in range(starts[target], ends[target]):
                chosen = _chosen(colptrs[kind], seen[target].nodes[at], fanouts[kind][hop])
                row += seen[source].see(rows[kind][chosen].tolist())
                col += [at] * len(chosen)
                edge += chosen
        starts = ends

    def tensors(part: int) -> dict[str, torch.Tensor]:
        return {kind: torch.tensor(lists[part], dtype=torch.long) for kind, lists in found.items()}

    nodes = {name: torch.tensor(one.nodes, dtype=torch.long) for name, one in seen.items()}
    return nodes, tensors(0), tensors(1), tensors(2)


@pytest.fixture
def stock_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE:
        return
    monkeypatch.setattr(torch_geometric.typing, "WITH_TORCH_SPARSE", True)
    for operator in (neighbor_sample, hetero_neighbor_sample):
        monkeypatch.setattr(torch.ops.torch_sparse, operator.__name__, operator, raising=False)
