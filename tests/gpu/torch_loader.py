#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch loads data through pinned memory, beside captures of another thread, while a
kernel runs on the second GPU all the time. Checked by sums.

  torch_loader.py [SECONDS]    how long that kernel runs, about; default 8

Two loaders, one after the other: batches through cudaHostAlloc and cudaFreeHost
themselves (torch_pinned.py), then torch.utils.data.DataLoader with pin_memory, two
worker processes, and PyTorch's cache of pinned memory emptied after each fourth batch.

Plain cudaFreeHost waits for the work of its own device alone. So the kernel of the
other device must still run at the end, and pinned blocks must come back: prints how
many different ones there were, and how much pinned memory the library had at most.
Outside of captures a window of it may be pending, and during one another window (256 MiB
each, GCPOOL_HOST_WINDOW). Exit code 0: all as it should be; 1: something was
wrong; 77: there are no two GPUs."""

import sys
import threading
import time

import torch

import torch_pinned
import yardstick

BATCH = (16, 3, 128, 128)  # 3 MiB of int32
RAW, LOADED, BATCHES = 240, 80, 8
MIB = 1 << 20
PINNED_MOST = (2 * 256 + 32) * MIB  # two windows, and what is in use
CYCLES_PER_SECOND = 1.9e9
ONE_DEVICE = 77


class Batches(torch.utils.data.Dataset):
    """The same every time."""

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.made = [torch.randint(0, 1 << 20, BATCH, generator=generator, dtype=torch.int32)
                     for _ in range(BATCHES)]
        self.sums = [int(batch.sum(dtype=torch.int64)) for batch in self.made]

    def __len__(self):
        return LOADED

    def __getitem__(self, i):
        return self.made[i % BATCHES]


class Captures(threading.Thread):
    """Captures a graph with temporaries, for 20 ms each, and replays it."""

    def __init__(self):
        super().__init__()
        self.enough, self.done, self.wrong = threading.Event(), 0, 0
        self.failed = None

    def run(self):
        try:
            torch.cuda.set_device(0)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                static = torch.zeros(1 << 16, device="cuda")
                stream.synchronize()
                while not self.enough.is_set():
                    self.one(static, stream)
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error

    def one(self, static, stream):
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        output = (static * 2 + 1).sqrt().square() - 1
        time.sleep(0.02)
        graph.capture_end()
        static.fill_(self.done % 1000)
        graph.replay()
        stream.synchronize()
        self.wrong += abs(float(output[77]) - 2 * (self.done % 1000)) > 0.01
        self.done += 1


def raw(data):
    """wrong batches, different blocks"""
    lib, streams, sums = torch_pinned.runtime(), [torch.cuda.Stream() for _ in range(4)], []
    blocks, allocate = set(), lib.cudaHostAlloc

    def noting(pointer, size, flags):
        code = allocate(pointer, size, flags)
        blocks.add(pointer._obj.value)
        return code

    lib.cudaHostAlloc = noting
    for i in range(RAW):
        stream = streams[i % len(streams)]
        with torch.cuda.stream(stream):
            arrived = torch_pinned.upload_raw(lib, data.made[i % BATCHES], stream)
            sums.append(arrived.sum(dtype=torch.int64))
    for stream in streams:  # the whole device cannot be waited for beside a capture
        stream.synchronize()
    return sum(int(s) != data.sums[i % BATCHES] for i, s in enumerate(sums)), len(blocks)


def loaded(data):
    """wrong batches"""
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2,
                                         pin_memory=True, prefetch_factor=2)
    empty, sums = getattr(torch._C, "_host_emptyCache", lambda: None), []
    for i, batch in enumerate(loader):
        arrived = batch.cuda(non_blocking=True)
        sums.append(arrived.sum(dtype=torch.int64))
        del batch
        if i % 4 == 3:
            empty()
    torch.cuda.current_stream().synchronize()
    return sum(int(s) != data.sums[i % BATCHES] for i, s in enumerate(sums))


def timed(what, count, work):
    start = time.perf_counter()
    result = work()
    print(f"{what}: {(time.perf_counter() - start) / count * 1e6:.0f} us a batch", flush=True)
    return result


def main(seconds):
    if torch.cuda.device_count() < 2:
        print("there is one GPU")
        return ONE_DEVICE
    data = Batches()
    with torch.cuda.device(1):
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            torch.cuda._sleep(1000)
        other.synchronize()
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda").sum().item()
    with torch.cuda.device(1), torch.cuda.stream(other):
        torch.cuda._sleep(int(seconds * CYCLES_PER_SECOND))
    captures = Captures()
    captures.start()
    wrong, blocks = timed("raw", RAW, lambda: raw(data))
    wrong += timed("loader", LOADED, lambda: loaded(data))
    captures.enough.set()
    captures.join()
    still, pinned = not other.query(), yardstick.Library().host_peak()
    print(f"wrong batches: {wrong}, captures: {captures.done}, wrong replays: {captures.wrong}, "
          f"pinned blocks: {blocks}, pinned MiB: {pinned / MIB:.0f}, "
          f"kernel on the other GPU: {'runs' if still else 'has ended'}"
          + (f", a capture failed: {captures.failed}" if captures.failed else ""))
    torch.cuda.synchronize(1)
    good = still and not (wrong or captures.wrong or captures.failed)
    good = good and pinned <= PINNED_MOST
    return 0 if good and captures.done > 0 else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 8))
