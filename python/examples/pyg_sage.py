"""GraphSAGE with PyG. Rudder's three lines are marked; the rest is what any PyG script has.

    python pyg_sage.py --socket /run/rudder/c0.sock --dataset /data/debian
"""

import argparse
import time

import torch
from torch.nn.functional import cross_entropy
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import SAGEConv

import rudder
import rudder.pyg


class Sage(torch.nn.Module):
    def __init__(self, columns, classes, hidden=64):
        super().__init__()
        self.first, self.second = SAGEConv(columns, hidden), SAGEConv(hidden, classes)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def loader(store, graph, split, arguments, shuffle):
    sampler = rudder.pyg.NeighborSampler(graph, [10, 5], seed=arguments.seed)
    nodes = graph.split(split)
    nodes = nodes[torch.from_numpy(graph.dataset.labels[nodes.numpy()] >= 0)]
    loader = NodeLoader(
        (store, graph), sampler, input_nodes=nodes, batch_size=arguments.batch_size, shuffle=shuffle
    )
    return rudder.lookahead(loader, depth=arguments.depth)  # 3: announce ahead


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)

    client = rudder.Client(arguments.socket, arguments.dataset)  # 1: the node of this machine
    store, graph = rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)  # 2: its stores

    dataset = client.dataset
    model = Sage(dataset.table().dim, int(dataset.labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        start, total = time.perf_counter(), 0.0
        model.train()
        for batch in loader(store, graph, "train", arguments, shuffle=True):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * batch.batch_size
        right = count = 0
        model.eval()
        with torch.no_grad():
            for batch in loader(store, graph, "test", arguments, shuffle=False):
                found = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(1)
                right += int((found == batch.y[: batch.batch_size]).sum())
                count += batch.batch_size
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss sum {total:.1f}, test accuracy {right / count:.3f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
