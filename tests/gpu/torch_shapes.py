#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Captures PyTorch code at eleven image sizes into CUDA graphs, replays each, and
prints as JSON what the graphs hold in all ("held", MiB of the device), the most that
one capture alone took ("largest"), and how many replays differ from eager runs. Of
callables also what forward passes save for backward passes ("saved", MiB, the sum of the
sizes; "saved_largest", that of the largest).

  torch_shapes.py forward|callables|step --order up|down --mode private|shared|none

forward: a convolution network in torch.no_grad(); callables: make_graphed_callables,
forward and backward; step: a whole training step with its optimizer. Modes: PyTorch's
private pools, one pool that the program shares by hand (its graphs run one at a time),
or no cache of PyTorch's own (PYTORCH_NO_CUDA_MEMORY_CACHING=1, under libgcpool)."""

import argparse
import gc
import json

import torch

SIZES, QUICK_SIZES, BATCH, MIB = 11, 5, 4, 1 << 20


def used():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return (total - free) / MIB


def network(width=48, depth=5):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, width, 3, padding=1), torch.nn.ReLU()]
    for _ in range(depth):
        layers += [torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                               torch.nn.Linear(width, 10)).cuda()


def near(a, b):
    return torch.allclose(a, b, atol=2e-3, rtol=2e-3)


def warm_up(work):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(stream)


def graph_of(work, pool):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        output = work()
    return graph, output


def saved(net, image):
    """MiB that a forward pass keeps for its backward pass: each storage once, without the
    parameters and the image, which are there anyway."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (image, *net.parameters())}
    sizes = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()  # itself, an output would hold itself for good

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = net(image)
    del output  # until now no address was given out twice
    return sum(sizes.values()) / MIB


class Forward:
    """The outputs of replays against those of eager runs."""

    def __init__(self, images, pool, network):
        self.net, self.pool = network().eval(), pool
        with torch.no_grad():
            self.wanted = {image.shape: self.net(image).clone() for image in images}

    def capture(self, image):
        with torch.no_grad():
            graph, output = graph_of(lambda: self.net(image), self.pool)

        def replay():
            graph.replay()
            return near(output, self.wanted[image.shape])

        return replay


class Callables:
    """Outputs and gradients of make_graphed_callables against the module itself."""

    def __init__(self, images, pool, network):
        self.net, self.pool, self.network = network(), pool, network

    def capture(self, image):
        sample = (image.clone().requires_grad_(),)
        graphed = torch.cuda.make_graphed_callables(self.network(), sample, pool=self.pool)

        def replay():
            a, b = image.clone().requires_grad_(), image.clone().requires_grad_()
            x, y = self.net(a), graphed(b)
            x.sum().backward()
            y.sum().backward()
            return near(x, y) and near(a.grad, b.grad)

        return replay

    def saved(self, images):
        sizes = [saved(self.net, image.clone().requires_grad_()) for image in images]
        return {"saved": sum(sizes), "saved_largest": max(sizes)}


class Step:
    """Two networks that start alike, one trained by graphs and one eagerly: the same
    losses. A network for all shapes."""

    def __init__(self, images, pool, network):
        self.pool, self.network = pool, network
        self.eager, self.static = self.trainer(), self.trainer()
        for step in (self.eager, self.static):
            warm_up(lambda step=step: step(images[0]))

    def trainer(self):
        net = self.network()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        wanted = torch.arange(BATCH, device="cuda") % 10

        def step(image):
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(net(image), wanted)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def capture(self, image):
        graph, loss = graph_of(lambda: self.static(image), self.pool)

        def replay():
            graph.replay()
            return near(loss, self.eager(image))

        return replay


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["forward", "callables", "step"])
    parser.add_argument("--order", choices=["up", "down"], default="up")
    parser.add_argument("--mode", choices=["private", "shared", "none"], default="none")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = False
    count = QUICK_SIZES if arguments.quick else SIZES
    sides = [192 + 48 * i for i in range(count)]
    images = [torch.randn(BATCH, 3, side, side, device="cuda") for side in sides]
    images = images[::-1] if arguments.order == "down" else images
    pool = torch.cuda.graph_pool_handle() if arguments.mode == "shared" else None
    subject = {"forward": Forward, "callables": Callables, "step": Step}[arguments.what](
        images, pool, network)
    start, largest, replays = used(), 0, []
    for image in images:
        before = used()
        replays.append(subject.capture(image))
        largest = max(largest, used() - before)
    wrong = sum(not replay() for _ in range(3) for replay in replays)
    figures = {"held": used() - start, "largest": largest, "wrong": wrong}
    if arguments.what == "callables":  # last: it takes memory itself
        figures.update(subject.saved(images))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
