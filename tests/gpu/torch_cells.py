#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A recurrent network each of whose steps is a graph of its own: 1,000 small graphs, each
of which reads the state that the one before has left, 8 KiB. Prints as JSON what they hold
("held", MiB of the device; "reserved", MiB of the allocator) and how many states of three
rounds differ from those of an eager run ("wrong").

  torch_cells.py --mode private|shared|none      as torch_shapes.py

Exit code: 0 all right, 1 not."""

import argparse
import json
import sys

import torch

from torch_first import reserved
from torch_shapes import used
from yardstick import Library

CELLS, QUICK_CELLS, BATCH, WIDTH, ROUNDS = 1000, 200, 8, 256, 3


class Cell:
    def __init__(self):
        torch.manual_seed(0)
        self.weights = [torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH ** 0.5
                        for _ in range(4)]

    def __call__(self, x, state):
        a, b, c, d = self.weights
        gate = torch.sigmoid(x @ a + state @ b)
        fresh = torch.tanh(x @ c + (gate * state) @ d)
        return gate * state + (1 - gate) * fresh


def capture(cell, inputs, state, pool, stream):
    """A graph for each input, and the state that each leaves."""
    graphs, states = [], []
    with torch.cuda.stream(stream):
        for x in inputs:
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(*([pool] if pool else []))
            state = cell(x, state)
            graph.capture_end()
            graphs.append(graph)
            states.append(state)
    return graphs, states


def wrong_states(cell, inputs, start, graphs, states, stream):
    with torch.cuda.stream(stream):
        inputs.normal_()
        for graph in graphs:
            graph.replay()
    stream.synchronize()
    wrong, state = 0, start
    for x, found in zip(inputs, states):
        state = cell(x, state)
        wrong += not torch.allclose(found, state, atol=1e-4, rtol=1e-4)
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["private", "shared", "none"], default="none")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    count = QUICK_CELLS if arguments.quick else CELLS
    cell, library, stream = Cell(), Library(), torch.cuda.Stream()
    inputs = torch.randn(count, BATCH, WIDTH, device="cuda")
    start = torch.zeros(BATCH, WIDTH, device="cuda")
    pool = torch.cuda.graph_pool_handle() if arguments.mode == "shared" else None
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            cell(inputs[0], start)
        before, before_reserved = used(), reserved(library)
        graphs, states = capture(cell, inputs, start, pool, stream)
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
        held, now_reserved = used() - before, reserved(library) - before_reserved
        wrong = sum(wrong_states(cell, inputs, start, graphs, states, stream)
                    for _ in range(ROUNDS))
    print(json.dumps({"graphs": count, "held": held, "reserved": now_reserved,
                      "wrong": wrong}))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
