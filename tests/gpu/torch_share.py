# SPDX-License-Identifier: MIT
"""torch_share.py: tensors that PyTorch hands to another process, each of which is an
allocation of cudaMalloc when run with PYTORCH_NO_CUDA_MEMORY_CACHING=1. Prints how many
were right on both sides. Exit code 0: all; 1: not; 2: PyTorch refuses to hand one over."""

import sys
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing as multiprocessing

SIZES = (1, 100, 5000, 70000, 1 << 20, 5 << 20, 40 << 20)
ROUNDS = 5


def consume(tensors, answers):
    """Doubles each tensor, and says whether it was what it should be."""
    while True:
        item = tensors.get()
        if item is None:
            return
        value, tensor = item
        good = bool((tensor == value).all())
        tensor.mul_(2)
        torch.cuda.synchronize()
        del tensor, item
        answers.put(good)


def refused():
    """Asked here, where it is an error: a queue only prints it, and the answer is missed."""
    try:
        ForkingPickler.dumps(torch.zeros(1, device="cuda"))
    except RuntimeError as error:
        print("refused, 0 of 1: " + str(error).strip().splitlines()[0])
        return True
    return False


def main():
    if refused():
        sys.exit(2)
    context = multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    process = context.Process(target=consume, args=(tensors, answers), daemon=True)
    process.start()
    good = total = 0
    for turn in range(ROUNDS):
        for number, size in enumerate(SIZES):
            value = 1 + turn * len(SIZES) + number
            tensor = torch.full((size,), value, dtype=torch.int32, device="cuda")
            part = tensor[size // 3:]
            torch.cuda.synchronize()
            tensors.put((value, part))
            seen = answers.get(timeout=20)
            total += 1
            good += (seen and bool((part == 2 * value).all())
                     and bool((tensor[:size // 3] == value).all()))
            del tensor, part
    tensors.put(None)
    process.join()
    print(f"tensors right on both sides: {good} of {total}, the other process ended with "
          f"{process.exitcode}")
    sys.exit(0 if good == total and process.exitcode == 0 else 1)


if __name__ == "__main__":
    main()
