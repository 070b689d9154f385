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
    return [{"filename": frame.file or frame.module or "??", "name": frame.function, "line": frame.line}
            for frame in symbols.frames(stack)]


def block(addr, size, requested=0, state="inactive", stack=()):
    return {"address": addr, "size": size, "requested_size": requested, "state": state,
            "frames": list(stack)}


def segment(device, blocks, mapped=False, graph=0):
    """Of such blocks, which lie one behind the other."""
    def total(what, *states):
        return sum(one[what] for one in blocks if one["state"] in states)

    size = sum(one["size"] for one in blocks)
    return {
        "device": device, "address": blocks[0]["address"], "total_size": size,
        "allocated_size": total("size", "active_allocated"),
        "active_size": total("size", "active_allocated", "active_pending_free"),
        "requested_size": total("requested_size", "active_allocated"),
        "stream": 0, "segment_type": "small" if size <= SMALL else "large",
        "segment_pool_id": (0, graph & 0xFFFF), "is_expandable": mapped, "frames": [], "blocks": blocks}


def whole(segments, traces, **settings):
    return {"segments": segments, "device_traces": traces, "external_annotations": [],
            "allocator_settings": {"allocator": "libgcpool", **settings}}


def held_or_waiting(history, time):
    """Blocks that are live, and freed ones whose fence was not there yet and of whose memory
    nothing is live again; by address."""
    live = sorted(history.alive_at(time), key=lambda b: b.addr)
    starts = [one.addr for one in live]
    result = list(live)
    for one in history.blocks:
        if one.start <= time and waits_at(one, time):
            at = bisect.bisect_left(starts, one.addr + one.size) - 1
            if at < 0 or live[at].addr + live[at].size <= one.addr:
                result.append(one)
    return sorted(result, key=lambda b: (b.addr, -b.start))


def blocks_of(place, there, time, symbols):
    """All blocks of a segment by address, so that their sizes add up to it."""
    result, at = [], place.addr
    for one in there:
        end = one.addr + one.size
        if one.addr < at or end > place.addr + place.size:
            continue
        if one.addr > at:
            result.append(block(at, one.addr - at))
        live = one.end is None or one.end > time
        result.append(block(one.addr, one.size, one.requested,
                            "active_allocated" if live else "active_pending_free",
                            frames(symbols, one.stack)))
        at = end
    if at < place.addr + place.size:
        result.append(block(at, place.addr + place.size - at))
    return result


def waits_at(one, time):
    """Freed, and its fence was not there yet."""
    fence = one.fence
    return (one.end is not None and one.end <= time and fence is not None
            and (fence.done is None or fence.done > time))


def joined(segments):
    """Mapped chunks that touch are one segment: blocks lie across them."""
    result = []
    for place in sorted(segments, key=lambda s: s.addr):
        last = result[-1] if result else None
        if (last and place.kind == last.kind == "mapped" and place.device == last.device
                and last.addr + last.size == place.addr):
            result[-1] = histories.Segment(
                last.addr, last.size + place.size, last.device, last.start, last.kind)
        else:
            result.append(place)
    return result


def segments(history, symbols, time):
    there = held_or_waiting(history, time)
    starts = [one.addr for one in there]
    segments = (s for s in history.segments if s.start <= time and (s.end is None or s.end > time))
    for place in joined(segments):
        first = bisect.bisect_left(starts, place.addr)
        last = bisect.bisect_left(starts, place.addr + place.size)
        inside = [one for one in there[first:last] if one.device == place.device]
        graph = next((one.graph for one in inside if one.graph), 0)
        yield segment(place.device, blocks_of(place, inside, time, symbols), place.kind == "mapped", graph)


def trace_entry(action, addr, size, us, stack=()):
    return {"action": action, "device_free" if action == "oom" else "addr": addr, "size": size,
            "stream": 0, "time_us": us, "frames": list(stack)}


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
        if event.kind.startswith(("segment", "vm")):
            place = sizes.get(event.addr)
            device = place.device if place else 0
            if event.kind == "segment_free" and place:
                event = event._replace(bytes=place.size)
        elif action != "oom":
            event = event._replace(bytes=event.more * histories.UNIT)
        entries.append((event.time, device, trace_entry(
            action, event.addr, event.bytes, us(event.time), frames(symbols, event.stack))))
    for one in history.blocks:
        if one.end is None or one.end > time:
            continue
        done = one.fence.done if one.fence else one.end
        if done is not None and done <= time:
            entries.append((done, one.device, trace_entry("free_completed", one.addr, one.size, us(done))))
    entries.sort(key=lambda entry: entry[0])
    for _, device, entry in entries:
        result[device if device < count else 0].append(entry)
    return result


def snapshot(recording, history, symbols, time=None):
    time = recording.end_ns if time is None else time
    return whole(list(segments(history, symbols, time)), traces(recording, history, symbols, time),
                 recording=os.path.basename(recording.path))
