# SPDX-License-Identifier: MIT
"""torch_nccl.py: two processes, each with a GPU, that reduce tensors with NCCL: eagerly,
with tensors that come and go, and in a captured graph whose temporaries are allocated
inside. Run with PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of
cudaMalloc, and the capture needs the library (without it that part is left out: argument
eager). Prints how many sums were right. Exit code 77: it wants two devices."""

import os
import sys
import tempfile

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

SIZES = (1, 1000, 65536, 1 << 20, 3 << 20, 16 << 20)
ROUNDS, REPLAYS = 20, 200


def eager(rank):
    """Each tensor is freed while the reduction may still be under way."""
    good = total = 0
    for turn in range(ROUNDS):
        kept = []
        for size in SIZES:
            tensor = torch.full((size,), float(rank + turn), device="cuda")
            distributed.all_reduce(tensor)
            kept.append(tensor + 0)
            del tensor
        total += len(kept)
        good += sum(bool((tensor == 2 * turn + 1).all()) for tensor in kept)
    return good, total


def captured(rank):
    static = torch.zeros(1 << 20, device="cuda")
    for _ in range(2):
        distributed.all_reduce(static.clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        part = static * 2
        distributed.all_reduce(part)
        result = part + 1
        del part
    good = 0
    for turn in range(REPLAYS):
        static.fill_(rank + turn)
        graph.replay()
        noise = torch.full((1 << 20,), -5.0, device="cuda")  # eager work beside
        good += bool((result == 2 * (2 * turn + 1) + 1).all()) and bool((noise == -5).all())
    return good, REPLAYS


def work(rank, path, parts, answers):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", f"file://{path}", None, 2, rank)
    answers.put([part(rank) for part in parts])
    distributed.barrier()
    distributed.destroy_process_group()


def main():
    if torch.cuda.device_count() < 2:
        sys.exit(77)
    parts = [eager] if sys.argv[1:] == ["eager"] else [eager, captured]
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as place:
        processes = [context.Process(target=work, args=(rank, os.path.join(place, "store"), parts,
                                                        answers)) for rank in range(2)]
        for process in processes:
            process.start()
        found = [answers.get(timeout=100) for _ in processes]
        for process in processes:
            process.join(30)
    sums = [tuple(sum(values) for values in zip(*pairs)) for pairs in zip(*found)]
    for part, (good, total) in zip(parts, sums):
        print(f"{part.__name__}: {good} of {total} sums right")
    codes = [process.exitcode for process in processes]
    print(f"the processes ended with {codes}")
    sys.exit(0 if all(good == total for good, total in sums) and codes == [0, 0] else 1)


if __name__ == "__main__":
    main()
