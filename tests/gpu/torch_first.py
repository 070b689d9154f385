#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Captures PyTorch code that the process has not run before, so that its libraries and
kernels are first used inside the capture. Prints as JSON what the graph holds ("first",
MiB), what a graph of the same code holds that is captured later ("later"), and how many of
the two differ from an eager run ("wrong"); or what "refused" it.

  torch_first.py network|product [--used]     cuDNN and cuBLAS; cuBLAS alone

--used: the code has run before, outside of a capture, in another stream. So what the
libraries set up for a stream is set up inside the first capture all the same.

Exit code: 0 both right, 1 not, 2 refused."""

import gc
import json
import os
import sys
import time

import torch

from torch_shapes import BATCH, MIB, near, network
from yardstick import Library

SIDE, WIDTH = 640, 4096


def work_of(what):
    if what == "product":
        a = torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH ** 0.5
        return lambda: a @ a
    image, net = torch.randn(BATCH, 3, SIDE, SIDE, device="cuda"), network().eval()
    return lambda: net(image)


def reserved(library):
    if library:
        return library.stats().reserved_bytes.current / MIB
    return torch.cuda.memory_reserved() / MIB


def reserved_at_least(library):
    """Without what is cached, and without graphs that have just been destroyed: CUDA tells
    of their end on a thread of its own."""
    gc.collect()
    torch.cuda.synchronize()
    time.sleep(0.2)
    torch.cuda.empty_cache()
    if library:
        library.trim()
    return reserved(library)


def capture(work, library):
    """The graph, its output after a launch, and what it holds."""
    before = reserved_at_least(library)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = work()
    graph.replay()
    torch.cuda.synchronize()
    return graph, output, reserved(library) - before


def play(work, library):
    graph, output, first = capture(work, library)
    found = output.clone()
    del graph, output
    wanted = work()
    graph, output, later = capture(work, library)
    wrong = int(not near(found, wanted)) + int(not near(output, wanted))
    return {"first": first, "later": later, "wrong": wrong}


def main():
    work, library = work_of(sys.argv[1]), Library()
    try:
        with torch.no_grad():
            if "--used" in sys.argv[2:]:
                work()
            found = play(work, library)
    except RuntimeError as error:
        print(json.dumps({"refused": str(error).strip().splitlines()[0]}), flush=True)
        os._exit(2)  # a lost capture may leave the process unusable
    print(json.dumps(found))
    sys.exit(1 if found["wrong"] else 0)


if __name__ == "__main__":
    main()
