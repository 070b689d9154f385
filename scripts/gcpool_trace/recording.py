# SPDX-License-Identifier: MIT
"""A recording (GCPOOL_TRACE) as it lies in its file: events, stacks, modules.

The format is that of interpose/observe/trace_format.h. A file of a process that was killed is read
as far as it was written; what is missing is said in `notes`, a line for each thing."""

import argparse
import collections
import os
import struct
import sys

MAGIC = b"GCPTRACE"
VERSION = 1
HEADER = struct.Struct("<8s8I7Q")
CHUNK = struct.Struct("<IIQQ40x")
EVENT = struct.Struct("<QQQQIIHBBI")
MODULE = struct.Struct("<QQQQQ")
EVENTS, RARE, STACKS, MODULES = 1, 2, 3, 4
HEADER_BYTES, CHUNK_BYTES, FRAMES_MAX = 4096, 1 << 20, 64
CHUNK_SLOTS = (CHUNK_BYTES - CHUNK.size) // EVENT.size // 16 * 16

KINDS = {
    1: "thread",
    2: "device",
    3: "sample",
    4: "out_of_memory",
    6: "context",
    7: "device_name",
    10: "alloc",
    11: "alloc_graph",
    12: "free",
    13: "free_graph",
    14: "free_async",
    16: "pass_alloc",
    17: "pass_free",
    18: "host_alloc",
    19: "host_free",
    20: "free_wrong",
    30: "segment_alloc",
    31: "segment_free",
    32: "segment_refused",
    33: "vm_reserve",
    34: "vm_unreserve",
    35: "vm_map",
    36: "vm_unmap",
    37: "vm_create",
    38: "vm_release",
    39: "driver_trim",
    40: "fence_record",
    41: "fence_done",
    42: "fence_wait",
    43: "fence_order",
    44: "context_wait",
    45: "host_segment_alloc",
    46: "host_segment_free",
    50: "capture_begin",
    51: "capture_end",
}

Event = collections.namedtuple("Event", "time addr bytes arg more stack thread kind device")
Module = collections.namedtuple("Module", "time start end offset path")


class Wrong(Exception):
    """The file cannot be read: one line that says why."""


def text(raw):
    """Up to the first zero."""
    return raw.split(b"\0")[0].decode("utf-8", "replace")


def text_of(*words):
    return text(b"".join(struct.pack("<Q", word) for word in words))


def seconds_of(word, least, most):
    """Of an argument. nan, which is neither below nor above, is refused."""
    try:
        found = float(word)
    except ValueError:
        found = -1
    if not least <= found <= most:
        raise argparse.ArgumentTypeError(f"{word!r} is no number of seconds from {least} to {most}")
    return found


def progress(words):
    """In one line of a terminal, which the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def began(path):
    """When a recording was begun, in ns of real time; 0: the file is none."""
    try:
        with open(path, "rb") as file:
            raw = file.read(HEADER.size)
    except OSError:
        return 0
    return HEADER.unpack(raw)[10] if raw.startswith(MAGIC) and len(raw) == HEADER.size else 0


class Recording:
    """path, pid, host, program, realtime_ns, start_ns, end_ns (the last event's time if the
    process was killed), ended, events (by time), stacks (number -> addresses), modules,
    threads and devices (number -> name), contexts (address -> device), lost, notes."""

    def __init__(self, path):
        self.path = path
        self.notes = []
        self.events, self.stacks, self.modules = [], {}, []
        self.threads, self.devices, self.contexts = {}, {}, {}
        try:
            with open(path, "rb") as file:
                self.header_read(file.read(HEADER_BYTES))
                self.chunks_read(file)
        except OSError as error:
            raise Wrong(f"cannot read {path}: {error.strerror}") from error
        progress("sorting events")
        self.events.sort(key=lambda event: event.time)
        self.rare_take()
        self.end_ns = self.end_ns or (self.events[-1].time if self.events else self.start_ns)

    def header_read(self, raw):
        if not raw.startswith(MAGIC):
            raise Wrong(f"{self.path} is not a recording of libgcpool")
        if len(raw) < HEADER_BYTES:
            raise Wrong(f"{self.path} is cut off in its header: nothing of it can be read")
        (
            _,
            version,
            *sizes,
            self.frames,
            self.pid,
            _,
            start_ticks,
            self.realtime_ns,
            self.start_ns,
            self.end_ns,
            self.chunks,
            self.lost,
            self.lost_stacks,
        ) = HEADER.unpack_from(raw)
        if version > VERSION:
            raise Wrong(
                f"{self.path} has version {version} of the format, this gcpool-trace reads {VERSION}"
            )
        if sizes != [HEADER_BYTES, CHUNK_BYTES, EVENT.size, CHUNK_SLOTS] or self.frames > FRAMES_MAX:
            raise Wrong(f"{self.path} has a header that makes no sense")
        # About: the two clocks differ by the time that the machine slept.
        ticks_ns = start_ticks * 10**9 // os.sysconf("SC_CLK_TCK")
        self.process_start_ns = self.realtime_ns - max(0, self.start_ns - ticks_ns) - 10**9
        names = raw[HEADER.size :]
        self.host = text(names[:64])
        self.program = text(names[64:320])
        self.ended = self.end_ns != 0
        if not self.ended:
            self.notes.append("the process was killed or still runs: read as far as it is written")
        if self.lost:
            self.notes.append(f"the file was full: the oldest {self.lost:,} events were overwritten")
        if self.lost_stacks:
            self.notes.append(f"{self.lost_stacks:,} call stacks found no room and are missing")

    def chunks_read(self, file):
        for index in range(self.chunks):
            progress(f"reading {index} of {self.chunks} MiB")
            raw = file.read(CHUNK_BYTES)
            if len(raw) >= CHUNK.size:
                self.chunk_read(raw)
            if len(raw) < CHUNK_BYTES:
                self.notes.append(f"the file is cut off: {index} of {self.chunks} MiB are whole")
                return

    def chunk_read(self, raw):
        content, _, number, used = CHUNK.unpack_from(raw)
        if content in (EVENTS, RARE):
            self.slots_read(raw, number)
        elif content == STACKS:
            self.stacks_read(raw, number)
        elif content == MODULES:
            self.modules_read(raw, used)

    def slots_read(self, raw, number):
        slots = min(CHUNK_SLOTS, (len(raw) - CHUNK.size) // EVENT.size)
        part = memoryview(raw)[CHUNK.size : CHUNK.size + slots * EVENT.size]
        stamp = number * CHUNK_SLOTS
        add = self.events.append
        for time, addr, size, arg, more, stack, thread, kind, device, found in EVENT.iter_unpack(part):
            stamp += 1
            if found == stamp & 0xFFFFFFFF and found:
                add(Event(time, addr, size, arg, more, stack, thread, KINDS.get(kind, kind), device))

    def stacks_read(self, raw, number):
        words = 1 + self.frames
        entry = struct.Struct(f"<{words}Q")
        count = (CHUNK_BYTES - CHUNK.size) // entry.size
        whole = (len(raw) - CHUNK.size) // entry.size
        for i in range(min(count, whole)):
            values = entry.unpack_from(raw, CHUNK.size + i * entry.size)
            if values[0]:
                frames = values[1:]
                end = frames.index(0) if 0 in frames else len(frames)
                self.stacks[number * count + i + 1] = frames[:end]

    def modules_read(self, raw, used):
        at, end = CHUNK.size, min(CHUNK.size + used, len(raw))
        while at + MODULE.size <= end:
            time, start, stop, offset, length = MODULE.unpack_from(raw, at)
            at += MODULE.size
            path = raw[at : at + length].decode("utf-8", "replace")
            at += (length + 7) // 8 * 8
            self.modules.append(Module(time, start, stop, offset, path))

    def rare_take(self):
        """Names of threads, devices and contexts."""
        for event in self.events:
            if event.kind == "thread":
                self.threads[event.thread] = f"{text_of(event.bytes, event.arg)} ({event.addr})"
            elif event.kind == "device":
                self.devices[event.device] = (text_of(event.addr, event.arg), event.bytes)
            elif event.kind == "device_name" and event.device in self.devices:
                name, memory = self.devices[event.device]
                name += text_of(event.addr, event.bytes, event.arg)
                self.devices[event.device] = (name, memory)
            elif event.kind == "context":
                self.contexts[event.addr] = event.device

    def seconds(self, time):
        """Since the recording began."""
        return (time - self.start_ns) / 1e9
