# SPDX-License-Identifier: MIT
"""A recording as PyTorch's memory snapshot, which torch/cuda/_memory_viz.py and
https://pytorch.org/memory_viz read: what is there at one moment, and what happened before."""

import bisect
import os

from . import history as histories

ACTIONS = {
    "alloc": "alloc",
    "alloc_graph": "alloc",
    "free": "free_requested",
    "free_graph": "free_requested",
    "free_async": "free_requested",
    "segment_alloc": "segment_alloc",
    "segment_free": "segment_free",
    "vm_map": "segment_map",
    "vm_unmap": "segment_unmap",
    "out_of_memory": "oom",
}
SMALL = 1 << 20


def frames(symbols, stack):
    return [
        {"filename": frame.file or frame.module or "??", "name": frame.function, "line": frame.line}
        for frame in symbols.frames(stack)
    ]


def gap(addr, size):
    return {"address": addr, "size": size, "requested_size": 0, "state": "inactive", "frames": []}


def held_or_waiting(history, time):
    """Blocks that are live, and freed ones whose fence was not there yet and of whose memory
    nothing is live again; by address."""
    live = sorted(history.alive_at(time), key=lambda b: b.addr)
    starts = [block.addr for block in live]
    result = list(live)
    for block in history.blocks:
        if block.start <= time and waits_at(block, time):
            at = bisect.bisect_left(starts, block.addr + block.size) - 1
            if at < 0 or live[at].addr + live[at].size <= block.addr:
                result.append(block)
    return sorted(result, key=lambda b: (b.addr, -b.start))


def blocks_of(segment, blocks, time, symbols):
    """All blocks of a segment by address, so that their sizes add up to it."""
    result, at = [], segment.addr
    for block in blocks:
        end = block.addr + block.size
        if block.addr < at or end > segment.addr + segment.size:
            continue
        if block.addr > at:
            result.append(gap(at, block.addr - at))
        live = block.end is None or block.end > time
        result.append(
            {
                "address": block.addr,
                "size": block.size,
                "requested_size": block.requested,
                "state": "active_allocated" if live else "active_pending_free",
                "frames": frames(symbols, block.stack),
            }
        )
        at = end
    if at < segment.addr + segment.size:
        result.append(gap(at, segment.addr + segment.size - at))
    return result


def waits_at(block, time):
    """Freed, and its fence was not there yet."""
    fence = block.fence
    return (
        block.end is not None
        and block.end <= time
        and fence is not None
        and (fence.done is None or fence.done > time)
    )


def joined(segments):
    """Mapped chunks that touch are one segment: blocks lie across them."""
    result = []
    for segment in sorted(segments, key=lambda s: s.addr):
        last = result[-1] if result else None
        if (
            last
            and segment.kind == last.kind == "mapped"
            and segment.device == last.device
            and last.addr + last.size == segment.addr
        ):
            result[-1] = histories.Segment(
                last.addr, last.size + segment.size, last.device, last.start, last.kind
            )
        else:
            result.append(segment)
    return result


def segments(history, symbols, time):
    there = held_or_waiting(history, time)
    starts = [block.addr for block in there]
    result = []
    for segment in joined(history.segments_at(time)):
        first = bisect.bisect_left(starts, segment.addr)
        last = bisect.bisect_left(starts, segment.addr + segment.size)
        inside = [b for b in there[first:last] if b.device == segment.device]
        parts = blocks_of(segment, inside, time, symbols)
        live = [p for p in parts if p["state"] == "active_allocated"]
        active = [p for p in parts if p["state"] != "inactive"]
        graph = next((b.graph for b in inside if b.graph), 0)
        result.append(
            {
                "device": segment.device,
                "address": segment.addr,
                "total_size": segment.size,
                "allocated_size": sum(p["size"] for p in live),
                "active_size": sum(p["size"] for p in active),
                "requested_size": sum(p["requested_size"] for p in live),
                "stream": 0,
                "segment_type": "small" if segment.size <= SMALL else "large",
                "segment_pool_id": (0, graph & 0xFFFF),
                "is_expandable": segment.kind == "mapped",
                "frames": [],
                "blocks": parts,
            }
        )
    return result


def trace_entry(action, event, symbols, us):
    entry = {
        "action": action,
        "addr": event.addr,
        "size": event.bytes,
        "stream": 0,
        "time_us": us,
        "frames": frames(symbols, event.stack),
    }
    if action == "oom":
        entry["device_free"] = entry.pop("addr")
    return entry


def traces(recording, history, symbols, time):
    """One list for each device. free_completed follows when the fence is there."""
    count = max([*history.devices, *recording.devices, 0]) + 1
    result = [[] for _ in range(count)]
    sizes = {segment.addr: segment for segment in history.segments}

    def us(ns):
        return (recording.realtime_ns + ns - recording.start_ns) // 1000

    entries = []
    for event in recording.events:
        action = ACTIONS.get(event.kind)
        if not action or event.time > time:
            continue
        device = event.device
        if event.kind.startswith("segment") or event.kind.startswith("vm"):
            segment = sizes.get(event.addr)
            device = segment.device if segment else 0
            if event.kind == "segment_free" and segment:
                event = event._replace(bytes=segment.size)
        elif action != "oom":
            event = event._replace(bytes=event.more * histories.UNIT)
        entries.append((event.time, device, trace_entry(action, event, symbols, us(event.time))))
    for block in history.blocks:
        if block.end is None or block.end > time:
            continue
        done = block.fence.done if block.fence else block.end
        if done is not None and done <= time:
            entries.append(
                (
                    done,
                    block.device,
                    {
                        "action": "free_completed",
                        "addr": block.addr,
                        "size": block.size,
                        "stream": 0,
                        "time_us": us(done),
                        "frames": [],
                    },
                )
            )
    entries.sort(key=lambda entry: entry[0])
    for _, device, entry in entries:
        result[device if device < count else 0].append(entry)
    return result


def snapshot(recording, history, symbols, time=None):
    time = recording.end_ns if time is None else time
    return {
        "segments": segments(history, symbols, time),
        "device_traces": traces(recording, history, symbols, time),
        "allocator_settings": {"allocator": "libgcpool", "recording": os.path.basename(recording.path)},
        "external_annotations": [],
    }
