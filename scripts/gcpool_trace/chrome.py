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
    pid = recording.pid

    def us(time):
        return (time - recording.start_ns) / 1000

    events = [{"ph": "M", "pid": pid, "name": "process_name", "args": {"name": recording.program}}]
    for number, name in recording.threads.items():
        events.append(
            {"ph": "M", "pid": pid, "tid": number, "name": "thread_name", "args": {"name": name}}
        )
    for device in history.devices.values():
        for point in thin(device.points, 50000):
            events.append(
                {
                    "ph": "C",
                    "pid": pid,
                    "name": f"device {device.number} bytes",
                    "ts": us(point.time),
                    "args": {
                        "live": point.common,
                        "graph": point.private,
                        "pending": point.pending,
                        "cached": point.cached,
                    },
                }
            )
    for event in recording.events:
        if event.kind in CALLS:
            took = event.more / 1000
            events.append(
                {
                    "ph": "X",
                    "pid": pid,
                    "tid": event.thread,
                    "cat": "driver",
                    "name": CALLS[event.kind],
                    "ts": us(event.time) - took,
                    "dur": took,
                    "args": {"bytes": event.bytes},
                }
            )
        elif event.kind == "out_of_memory":
            events.append(
                {
                    "ph": "i",
                    "s": "p",
                    "pid": pid,
                    "tid": event.thread,
                    "name": "out of memory",
                    "ts": us(event.time),
                    "args": {"bytes": event.bytes},
                }
            )
    events += spans(recording, history, symbols, most_blocks, us)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"recorded by": "libgcpool", "notes": recording.notes},
    }


def spans(recording, history, symbols, most_blocks, us):
    """What begins and ends: blocks (the largest, if they are many), epochs, captures."""
    pid = recording.pid
    blocks = sorted(history.blocks, key=lambda b: -b.size)[:most_blocks]
    for number, block in enumerate(sorted(blocks, key=lambda b: b.start)):
        site = symbols.site(block.stack)
        end = us(recording.end_ns if block.end is None else block.end)
        shared = {
            "cat": "blocks",
            "id": number,
            "pid": pid,
            "tid": block.thread,
            "name": f"{block.requested:,} bytes",
        }
        yield {
            "ph": "b",
            "ts": us(block.start),
            **shared,
            "args": {"address": f"0x{block.addr:x}", "size": block.size, "site": str(site or "")},
        }
        yield {"ph": "e", "ts": end, **shared}
    for number, fence in enumerate(history.fences):
        if fence.recorded and fence.done:
            shared = {"cat": "epochs", "id": number, "pid": pid, "tid": 0, "name": f"epoch: {fence.how}"}
            yield {
                "ph": "b",
                "ts": us(fence.recorded),
                **shared,
                "args": {"bytes": fence.bytes, "blocks": fence.blocks},
            }
            yield {"ph": "e", "ts": us(fence.done), **shared}
    for number, (begin, end) in enumerate(history.captures):
        shared = {"cat": "captures", "id": number, "pid": pid, "tid": begin.thread, "name": "capture"}
        yield {"ph": "b", "ts": us(begin.time), **shared}
        yield {"ph": "e", "ts": us(end.time), **shared}
