"""GraphSAGE with PyG in several processes (gloo). Each has a rank of its own towards the node.

    python ddp_sage.py --socket /run/rudder/c0.sock --dataset /data/debian --trainers 4
"""

import argparse
import tempfile

import torch
import torch.multiprocessing
from pyg_sage import Sage
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.loader import NodeLoader

import rudder
import rudder.pyg


def trainer(rank, arguments, meet):
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meet}", rank=rank, world_size=arguments.trainers
    )
    client = rudder.Client(arguments.socket, arguments.dataset, rank=rank)  # 1: one rank a trainer
    store, graph = rudder.pyg.FeatureStore(client), rudder.pyg.GraphStore(client)  # 2

    labels = client.dataset.labels
    train = graph.split("train")
    train = train[torch.from_numpy(labels[train.numpy()] >= 0)]
    share = len(train) // arguments.trainers
    sampler = rudder.pyg.NeighborSampler(graph, [10, 5], seed=arguments.seed)
    loader = NodeLoader(
        (store, graph),
        sampler,
        input_nodes=train[rank * share : (rank + 1) * share],
        batch_size=arguments.batch_size,
        shuffle=True,
    )
    loader = rudder.lookahead(loader, depth=8)  # 3: announce ahead
    model = DistributedDataParallel(Sage(client.dataset.table().dim, int(labels.max()) + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        total = torch.zeros(1)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        torch.distributed.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: mean loss {total.item() / arguments.trainers:.4f}", flush=True)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--trainers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.start_processes(
            trainer, (arguments, f"{folder}/meet"), nprocs=arguments.trainers, start_method="fork"
        )


if __name__ == "__main__":
    main()
