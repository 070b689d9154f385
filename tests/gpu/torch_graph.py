#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Captures PyTorch code into CUDA graphs and compares replays with eager runs:
a forward pass, make_graphed_callables, and a whole training step. Prints one
line for each; exit code 0 when all agree.

With PyTorch's cache switched off, plain CUDA refuses every allocation inside a
capture: this then needs libgcpool."""

import sys

import torch

WIDTH, BATCH, STEPS = 512, 128, 12


def model_new():
    torch.manual_seed(0)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    return torch.nn.Sequential(*layers).cuda()


def batches(count):
    generator = torch.Generator("cuda").manual_seed(1)
    return [torch.randn(BATCH, WIDTH, device="cuda", generator=generator) for _ in range(count)]


def warm_up(work):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)


def forward():
    model, data = model_new(), batches(STEPS)
    static = data[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        warm_up(lambda: model(static))
        with torch.cuda.graph(graph):
            output = model(static)
        for batch in data:
            static.copy_(batch)
            graph.replay()
            junk = [torch.full((BATCH, WIDTH), 7.0, device="cuda") for _ in range(8)]
            del junk
            if not torch.equal(output, model(batch)):
                return False
    return True


def graphed_callables():
    model, data = model_new(), batches(STEPS)
    graphed = torch.cuda.make_graphed_callables(model_new(), (data[0].clone().requires_grad_(),))
    for batch in data:
        a, b = batch.clone().requires_grad_(), batch.clone().requires_grad_()
        x, y = model(a), graphed(b)
        x.sum().backward()
        y.sum().backward()
        if not (torch.equal(x, y) and torch.equal(a.grad, b.grad)):
            return False
    return True


def trainer():
    """A training step on a static batch, and how to feed it."""
    model = model_new()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    static = torch.zeros(BATCH, WIDTH, device="cuda")
    wanted = torch.ones(BATCH, WIDTH, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(static), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return step, static


def training_step():
    data = batches(STEPS)
    eager, eager_input = trainer()
    step, static = trainer()
    warm_up(step)
    for _ in range(3):
        eager()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    for batch in data:
        eager_input.copy_(batch)
        static.copy_(batch)
        graph.replay()
        if abs(eager().item() - loss.item()) > 1e-5 * abs(loss.item()):
            return False
    return True


def main():
    failed = 0
    for case in (forward, graphed_callables, training_step):
        try:
            words = "equal to eager" if case() else "DIFFERS from eager"
        except RuntimeError as error:
            words = "refused: " + str(error).strip().splitlines()[0]
        failed += words != "equal to eager"
        print(f"{case.__name__}: {words}", flush=True)
        if words.startswith("refused"):
            break  # a lost capture may leave the process unusable
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
