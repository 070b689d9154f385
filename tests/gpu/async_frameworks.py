# SPDX-License-Identifier: MIT
"""async_frameworks.py cupy|torch|jax: a step of a framework whose allocator is
cudaMallocAsync; prints its time and a number that must be the same in every run."""

import sys
import time


def timed(step, count):
    for _ in range(20):
        step()
    start = time.perf_counter()
    for _ in range(count):
        result = step()
    return (time.perf_counter() - start) / count * 1e6, result


def cupy():
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    base = cupy.arange(1 << 20, dtype=cupy.float64)

    def step():
        values = cupy.sort((base * 7919) % 1048583)
        return float((values * base + 1).sum())

    return timed(step, 200)


def torch():
    import torch as framework

    if framework.cuda.get_allocator_backend() != "cudaMallocAsync":
        sys.exit("PyTorch uses another allocator")
    framework.manual_seed(0)
    layers = [framework.nn.Linear(1024, 1024) for _ in range(8)]
    net = framework.nn.Sequential(*layers).cuda()
    optimizer = framework.optim.SGD(net.parameters(), lr=0.01)
    x = framework.randn(256, 1024, device="cuda")

    def step():
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    took, loss = timed(step, 200)
    return took, loss.item()


def jax():
    import jax as framework

    function = framework.jit(lambda a: framework.numpy.sort(a).cumsum()[-1])
    values = framework.random.uniform(framework.random.PRNGKey(0), (1 << 20,))
    return timed(lambda: float(function(values * 2)), 200)


if __name__ == "__main__":
    us, value = {"cupy": cupy, "torch": torch, "jax": jax}[sys.argv[1]]()
    print(f"us a step: {us:.1f}\nresult: {value:.12g}")
