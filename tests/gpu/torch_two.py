# SPDX-License-Identifier: MIT
"""torch_two.py: one process with two GPUs: tensors go back and forth between them, and
are freed at once, from two threads. Prints how many arrived as they were. Exit code 77:
it wants two devices."""

import sys
import threading

import torch

SIZES = (1, 5000, 70000, 1 << 20, 6 << 20)
ROUNDS = 60


def play(number, found):
    good = total = 0
    stream = torch.cuda.Stream(device=number)
    with torch.cuda.device(number), torch.cuda.stream(stream):
        for turn in range(ROUNDS):
            for size in SIZES:
                value = turn * 10 + number + 1
                there = torch.full((size,), value, dtype=torch.int32, device=f"cuda:{number}")
                other = there.to(f"cuda:{1 - number}", non_blocking=True)
                del there
                other += 1
                back = other.to(f"cuda:{number}", non_blocking=True)
                del other
                noise = torch.full((size,), -1, dtype=torch.int32, device=f"cuda:{1 - number}")
                good += bool((back == value + 1).all()) and bool((noise == -1).all())
                total += 1
    found.append((good, total))


def main():
    if torch.cuda.device_count() < 2:
        sys.exit(77)
    found = []
    threads = [threading.Thread(target=play, args=(number, found)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good, total = (sum(values) for values in zip(*found))
    print(f"tensors as they were: {good} of {total}")
    sys.exit(0 if good == total == 2 * ROUNDS * len(SIZES) else 1)


if __name__ == "__main__":
    main()
