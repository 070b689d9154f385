#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The time of torch.empty of 1 MiB, created and dropped."""

import time

import torch


def run(count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        torch.empty(1 << 18, device="cuda")
    return (time.perf_counter() - start) / count * 1e6


if __name__ == "__main__":
    run(200)
    print(f"empty: {min(run(2000) for _ in range(3)):.2f} us")
