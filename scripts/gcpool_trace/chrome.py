# SPDX-License-Identifier: MIT
"""A recording as Chrome's trace JSON, which Perfetto opens: counters for each device, lives
of blocks, epochs from fence to ready, captures, and calls into the driver on their threads."""

CALLS = {
    "segment_alloc": "cuMemAlloc",
    "vm_create": "cuMemCreate",
    "vm_map": "cuMemMap",
    "vm_reserve": "cuMemAddressReserve",
    "fence_record": "cuCtxRecordEvent",
    "fence_wait": "cuEventSynchronize",
    "fence_order": "cuCtxWaitEvent",
    "context_wait": "wait for the device",
    "driver_trim": "cuMemPoolTrimTo",
    "pass_alloc": "cuMemAlloc (plain)",
    "pass_free": "cuMemFree (plain)",
    "host_segment_alloc": "cuMemHostAlloc",
}


def thin(points, most):
    """So many points at most: of each stretch of time the one with most live bytes, and the
    last one."""
    if len(points) <= most:
        return list(points)
    result, width = [], max(1, -(-2 * len(points) // most))
    for at in range(0, len(points), width):
        part = points[at : at + width]
        top = max(part, key=lambda point: (point.live, point.reserved))
        result += [top] if top is part[-1] else [top, part[-1]]
    return result


def trace(recording, history, symbols, most_blocks=20000):
    parts = (
        moments(recording, history),
        spans("blocks", blocks(recording, history, symbols, most_blocks)),
        spans("epochs", (
            (fence.recorded, fence.done, 0, f"epoch: {fence.how}",
             {"bytes": fence.bytes, "blocks": fence.blocks})
            for fence in history.fences if fence.recorded and fence.done)),
        spans("captures", (
            (begin.time, end.time, begin.thread, "capture", {}) for begin, end in history.captures)))
    events = [{"pid": recording.pid, **event} for part in parts for event in part]
    for event in events:
        if "ts" in event:  # us since the recording began
            event["ts"] = (event["ts"] - recording.start_ns) / 1000
    return {"traceEvents": events, "displayTimeUnit": "ns",
            "otherData": {"recorded by": "libgcpool", "notes": recording.notes}}


def moments(recording, history):
    """Names, bytes of the devices, calls into the driver."""
    yield {"ph": "M", "name": "process_name", "args": {"name": recording.program}}
    for number, name in recording.threads.items():
        yield {"ph": "M", "tid": number, "name": "thread_name", "args": {"name": name}}
    for device in history.devices.values():
        for point in thin(device.points, 50000):
            yield {"ph": "C", "name": f"device {device.number} bytes", "ts": point.time,
                   "args": {"live": point.common, "graph": point.private, "pending": point.pending,
                            "cached": point.cached}}
    for event in recording.events:
        made = {"tid": event.thread, "args": {"bytes": event.bytes}}
        if event.kind in CALLS:
            yield {"ph": "X", "cat": "driver", "name": CALLS[event.kind], "dur": event.more / 1000,
                   "ts": event.time - event.more, **made}
        elif event.kind == "out_of_memory":
            yield {"ph": "i", "s": "p", "name": "out of memory", "ts": event.time, **made}


def spans(category, rows):
    """Of (begin, end, thread, name, what is said of it)."""
    for number, (begin, end, thread, name, said) in enumerate(rows):
        span = {"cat": category, "id": number, "tid": thread, "name": name}
        yield {"ph": "b", "ts": begin, **span, "args": said}
        yield {"ph": "e", "ts": end, **span}


def blocks(recording, history, symbols, most):
    """The largest, if they are many."""
    largest = sorted(history.blocks, key=lambda block: -block.size)[:most]
    for block in sorted(largest, key=lambda block: block.start):
        yield (block.start, recording.end_ns if block.end is None else block.end, block.thread,
               f"{block.requested:,} bytes",
               {"address": f"0x{block.addr:x}", "size": block.size,
                "site": str(symbols.site(block.stack) or "")})
