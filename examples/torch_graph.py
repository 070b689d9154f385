#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch with its own cache switched off: a training step and a captured graph are
served by libgcpool, from the pool that the other libraries of the process use, too.

    pip install torch
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 gcpool python3 torch_graph.py
"""

import sys

try:
    import torch
except ImportError:
    print("no torch here: pip install torch")
    sys.exit(77)

WIDTH, BATCH = 512, 128


def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        batch = torch.randn(BATCH, WIDTH, device="cuda")
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def graph_of(model, static):
    """The forward pass as a graph: every temporary is allocated during the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        output = model(static)
    return graph, output


def main():
    if not torch.cuda.is_available():
        print("no GPU that this torch can use")
        sys.exit(77)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU(),
                                torch.nn.Linear(WIDTH, WIDTH)).cuda()
    print("loss after 20 steps: %.6f" % train(model, 20))
    static = torch.zeros(BATCH, WIDTH, device="cuda")
    graph, output = graph_of(model, static)
    same = True
    for _ in range(20):
        static.normal_()
        graph.replay()
        with torch.no_grad():
            same = same and torch.equal(output, model(static))
    print("replays %s eager runs" % ("equal" if same else "DIFFER from"))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
