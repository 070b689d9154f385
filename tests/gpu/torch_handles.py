#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Products, convolutions, solves and sparse products of threads that come and go, in
PyTorch, which is linked with the libraries. Prints a sum of all results in full."""

import concurrent.futures
import hashlib

import torch

ROUNDS, TOGETHER = 12, 4


def work(seed):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        a = torch.randn(256, 256, device="cuda", generator=generator)
        image = torch.randn(4, 8, 32, 32, device="cuda", generator=generator)
        kernel = torch.randn(8, 8, 3, 3, device="cuda", generator=generator)
        product = a @ a
        smooth = torch.nn.functional.conv2d(image, kernel)
        solved = torch.linalg.solve(a + 64 * torch.eye(256, device="cuda"), product)
        sparse = torch.sparse.mm(torch.eye(256, device="cuda").to_sparse_csr(), product)
    stream.synchronize()
    return [value.cpu() for value in (product, smooth, solved, sparse)]


def main():
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.linalg.solve(torch.eye(2, device="cuda"), torch.eye(2, device="cuda"))  # loads it
    words = hashlib.sha256()
    for first in range(0, ROUNDS * TOGETHER, TOGETHER):
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as threads:
            for values in threads.map(work, range(first, first + TOGETHER)):
                for value in values:
                    words.update(value.numpy().tobytes())
    print("results:", ROUNDS * TOGETHER, "sum:", words.hexdigest())


if __name__ == "__main__":
    main()
