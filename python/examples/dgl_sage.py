"""GraphSAGE with DGL's classic loader. Rudder's two lines are marked; the rest is what any DGL script has.

    python dgl_sage.py --socket /run/rudder/c0.sock --dataset /data/debian
"""

import argparse
import time

import dgl
import numpy as np
import torch
from dgl.nn import SAGEConv
from torch.nn.functional import cross_entropy

import rudder
import rudder.dgl


class Sage(torch.nn.Module):
    def __init__(self, columns, classes, hidden=64):
        super().__init__()
        self.first, self.second = SAGEConv(columns, hidden, "mean"), SAGEConv(hidden, classes, "mean")

    def forward(self, blocks, x):
        return self.second(blocks[1], self.first(blocks[0], x).relu())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)

    client = rudder.Client(arguments.socket, arguments.dataset)  # 1: the node of this machine
    graph = rudder.dgl.graph(client)  # 2: its "feat" comes from the node

    dataset = client.dataset
    labels = graph.ndata["label"]
    train, test = (dataset.split(split) for split in ("train", "test"))
    train, test = (torch.from_numpy(ids[np.asarray(dataset.labels)[ids] >= 0]) for ids in (train, test))
    sampler = dgl.dataloading.NeighborSampler([5, 10], prefetch_node_feats=["feat"])
    model = Sage(dataset.table().dim, int(labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        start, total = time.perf_counter(), 0.0
        loader = dgl.dataloading.DataLoader(
            graph, train, sampler, batch_size=arguments.batch_size, shuffle=True
        )
        for _, seeds, blocks in loader:
            loss = cross_entropy(model(blocks, blocks[0].srcdata["feat"]), labels[seeds])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(seeds)
        right = 0
        with torch.no_grad():
            for _, seeds, blocks in dgl.dataloading.DataLoader(graph, test, sampler, batch_size=1024):
                right += int((model(blocks, blocks[0].srcdata["feat"]).argmax(1) == labels[seeds]).sum())
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss sum {total:.1f}, test accuracy {right / len(test):.3f}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
