#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains two small models and prints their losses and the time of a step as JSON.
Knows nothing of allocators: scripts/gpu-check chooses by the environment."""

import argparse
import json
import statistics
import time

import torch


def model_of(width, depth, out):
    layers = []
    for _ in range(depth):
        layers += [torch.nn.Linear(width, width), torch.nn.GELU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, out)).cuda()


def train(width, depth, batch, steps):
    torch.manual_seed(0)
    model = model_of(width, depth, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(batch, width, device="cuda")
    wanted = torch.randn(batch, 64, device="cuda")
    losses, times = [], []

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(data), wanted)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step() for _ in range(10)]  # warm up
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses += [step() for _ in range(steps)]
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps * 1e6)
    return {
        "losses": [loss.item() for loss in losses], "step_us": statistics.median(times)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    models = {
        "MLP": train(width=2048, depth=8, batch=1024, steps=arguments.steps),
        "small MLP": train(width=256, depth=6, batch=64, steps=arguments.steps)}
    print(json.dumps({"models": models}))


if __name__ == "__main__":
    main()
