# SPDX-License-Identifier: MIT
"""What a recording says happened: blocks, segments, fences and bytes over time.

Live and reserved bytes are exact. Pending bytes are those of blocks that were freed and
whose fence is neither done nor set as a barrier; a block that is merged with its neighbours
before its memory is used again counts until its fence is done."""

import bisect
import collections

from .recording import progress

UNIT = 512
# Calls into the driver that an event stands for, its `more` being how long they took.
CALLS = {
    "pass_alloc": "cuMemAlloc of plain CUDA",
    "pass_free": "cuMemFree of plain CUDA",
    "segment_alloc": "cuMemAlloc",
    "vm_create": "cuMemCreate",
    "vm_map": "cuMemMap",
    "vm_reserve": "cuMemAddressReserve",
    "driver_trim": "cuMemPoolTrimTo",
    "fence_record": "cuCtxRecordEvent",
    "fence_wait": "cuEventSynchronize",
    "fence_order": "cuCtxWaitEvent",
    "context_wait": "cuMemFree, cuCtxSynchronize",
}


class Block:
    __slots__ = ("addr", "size", "requested", "device", "start", "end", "stack", "thread", "graph",
                 "fence", "end_stack")

    def __init__(self, event, start):
        self.addr, self.requested, self.device = event.addr, event.bytes, event.device
        self.size = event.more * UNIT
        self.start, self.end = start, None
        self.stack, self.thread = event.stack, event.thread
        self.graph = event.arg if event.kind.endswith("_graph") else 0
        self.fence, self.end_stack = None, 0


class Fence:
    """All frees of a device between two fences."""

    __slots__ = ("device", "start", "recorded", "done", "how", "bytes", "blocks", "left")

    def __init__(self, device, start):
        self.device, self.start = device, start
        self.recorded = self.done = None
        self.how = ""
        self.bytes = self.blocks = 0
        self.left = {}  # addr -> size: of the blocks that still wait


class Segment:
    __slots__ = ("addr", "size", "device", "start", "end", "kind")

    def __init__(self, addr, size, device, start, kind):
        self.addr, self.size, self.device = addr, size, device
        self.start, self.end, self.kind = start, None, kind


class Point(collections.namedtuple("Point", "time live graph pending reserved sampled")):
    """Bytes of one moment. live: in all blocks that the program holds; graph: of these, in graph
    pools; sampled: in segments of graph pools, when that was asked last."""

    __slots__ = ()

    @property
    def common(self):
        """Live, and not of a graph."""
        return self.live - self.graph

    @property
    def private(self):
        """Of graphs: held, or kept for their next launch."""
        return min(max(self.graph, self.sampled), max(self.graph, self.reserved - self.common))

    @property
    def cached(self):
        return max(0, self.reserved - self.common - self.pending - self.private)


class Device:
    """Bytes now, the open fence and those recorded, and points over time."""

    def __init__(self, number, start):
        self.number = number
        self.live = self.requested = self.graph = self.pending = self.reserved = 0
        self.open = Fence(number, start)
        self.closed = collections.deque()
        self.waits_for = {}  # addr of a freed block -> its fence
        self.points = [Point(start, 0, 0, 0, 0, 0)]
        self.peak = self.peak_time = self.peak_requested = 0
        self.peak_reserved = 0
        self.private = self.sampled = 0

    def point(self, time):
        self.points.append(Point(time, self.live, self.graph, self.pending, self.reserved, self.sampled))
        if self.live > self.peak:
            self.peak, self.peak_time = self.live, time
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def figures(self):
        """In bytes, as all reports name them."""
        return {
            "live at most": self.peak,
            "asked for at most": self.peak_requested,
            "reserved at most": self.peak_reserved,
            "private at most": self.private,
            "live at the end": self.live,
            "reserved at the end": self.reserved,
        }


class History:
    """blocks, segments, fences, devices, calls (name -> count, ns, max ns), counts, refused and
    wrong frees; all of one recording."""

    def __init__(self, recording):
        self.recording = recording
        self.blocks, self.segments, self.fences, self.refused, self.wrong = [], [], [], [], []
        self.devices = {}
        self.calls = {}
        self.counts = collections.Counter()
        self.sites = collections.Counter()  # stack -> allocations
        self.live = {}
        self.host_live, self.host_bytes, self.host_peak = {}, 0, 0
        self.segment_at, self.handles = {}, {}
        self.mapped, self.mapped_at = {}, []  # addr -> segment; its keys in order
        self.fence_of = {}
        self.before_add()
        for number, event in enumerate(recording.events):
            if number % 100000 == 0:
                progress(f"following {number:,} of {len(recording.events):,} events")
            if event.kind in CALLS:
                name = CALLS[event.kind]
                count, ns, most = self.calls.get(name, (0, 0, 0))
                self.calls[name] = (count + 1, ns + event.more, max(most, event.more))
            handler = getattr(self, f"on_{event.kind}", None)
            if handler:
                handler(event)
        self.fences.extend(fence for d in self.devices.values() for fence in d.closed)
        self.fences.sort(key=lambda fence: fence.recorded)
        self.blocks.extend(self.live.values())
        self.blocks.sort(key=lambda block: block.start)

    def device(self, number):
        if number not in self.devices:
            self.devices[number] = Device(number, self.recording.start_ns)
        return self.devices[number]

    def device_of(self, context):
        return self.device(self.recording.contexts.get(context, 0))

    # --- blocks ---------------------------------------------------------------------------

    def before_add(self):
        """Blocks whose allocation was overwritten: their free tells that there were."""
        if not self.recording.lost:
            return
        seen, first = set(), None
        for event in self.recording.events:
            if event.kind in ("alloc", "alloc_graph"):
                first = first or event.time
                seen.add(event.addr)
            elif event.kind in ("free", "free_graph", "free_async"):
                first = first or event.time
                if event.addr not in seen:
                    self.block_start(event._replace(stack=0), first)
                    seen.add(event.addr)

    def block_start(self, event, time):
        old = self.live.pop(event.addr, None)
        if old:
            self.block_end(old, time)
        block = self.live[event.addr] = Block(event, time)
        device = self.device(event.device)
        device.live += block.size
        device.requested += block.requested
        device.graph += block.size if block.graph else 0
        fence = device.waits_for.pop(block.addr, None)
        if fence:
            device.pending -= fence.left.pop(block.addr)
        device.point(time)
        return block

    def block_end(self, block, time):
        block.end = time
        device = self.device(block.device)
        device.live -= block.size
        device.requested -= block.requested
        device.graph -= block.size if block.graph else 0
        self.blocks.append(block)
        return device

    def on_alloc(self, event):
        self.counts["allocations"] += 1
        self.sites[event.stack] += 1
        self.block_start(event, event.time)

    on_alloc_graph = on_alloc

    def on_free(self, event):
        block = self.live.pop(event.addr, None)
        if not block:
            return
        self.counts["frees"] += 1
        block.end_stack = event.stack
        device = self.block_end(block, event.time)
        if not block.graph:
            fence = block.fence = device.open
            fence.left[block.addr] = block.size
            device.waits_for[block.addr] = fence
            fence.bytes += block.size
            fence.blocks += 1
            device.pending += block.size
        device.point(event.time)

    on_free_graph = on_free_async = on_free

    def on_host_alloc(self, event):
        self.counts["pinned allocations"] += 1
        self.host_live[event.addr] = event
        self.host_bytes += event.bytes
        self.host_peak = max(self.host_peak, self.host_bytes)

    def on_host_free(self, event):
        block = self.host_live.pop(event.addr, None)
        if block:
            self.counts["pinned frees"] += 1
            self.host_bytes -= block.bytes

    def on_free_wrong(self, event):
        self.wrong.append(event)

    def on_out_of_memory(self, event):
        self.refused.append(event)

    # --- segments --------------------------------------------------------------------------

    def on_segment_alloc(self, event):
        device = self.device_of(event.arg)
        segment = Segment(event.addr, event.bytes, device.number, event.time, "segment")
        self.segment_at[event.addr] = segment
        self.segments.append(segment)
        device.reserved += event.bytes
        device.point(event.time)

    def on_segment_free(self, event):
        segment = self.segment_at.pop(event.addr, None)
        if segment:
            segment.end = event.time
            device = self.device(segment.device)
            device.reserved -= segment.size
            device.point(event.time)

    def on_segment_refused(self, event):
        self.counts["refused by the driver"] += 1

    def on_vm_create(self, event):
        self.handles[event.addr] = (event.device, event.bytes)
        device = self.device(event.device)
        device.reserved += event.bytes
        device.point(event.time)

    def on_vm_release(self, event):
        number, size = self.handles.pop(event.addr, (0, 0))
        device = self.device(number)
        device.reserved -= size
        device.point(event.time)

    def on_vm_map(self, event):
        number, _ = self.handles.get(event.arg, (0, 0))
        segment = Segment(event.addr, event.bytes, number, event.time, "mapped")
        if event.addr not in self.mapped:
            bisect.insort(self.mapped_at, event.addr)
        self.mapped[event.addr] = segment
        self.segments.append(segment)

    def on_vm_unmap(self, event):
        first = bisect.bisect_left(self.mapped_at, event.addr)
        last = bisect.bisect_left(self.mapped_at, event.addr + event.bytes)
        for addr in self.mapped_at[first:last]:
            self.mapped.pop(addr).end = event.time
        del self.mapped_at[first:last]

    # --- fences ------------------------------------------------------------------------------

    def on_fence_record(self, event):
        if event.arg not in self.recording.contexts:
            return
        device = self.device_of(event.arg)
        fence, device.open = device.open, Fence(device.number, event.time)
        fence.recorded = event.time
        device.closed.append(fence)
        self.fence_of[event.addr] = fence

    def fence_finish(self, handle, time, how):
        """The fence and all older ones of its device."""
        last = self.fence_of.get(handle)
        if not last or last.done:
            return
        device = self.device(last.device)
        while device.closed and not last.done:
            fence = device.closed.popleft()
            fence.done, fence.how = time, how
            device.pending -= sum(fence.left.values())
            for addr in fence.left:
                device.waits_for.pop(addr)
            fence.left = {}
            self.fences.append(fence)
        device.point(time)

    def on_fence_done(self, event):
        self.counts["fences seen done"] += 1
        self.fence_finish(event.addr, event.time, "done")

    def on_fence_wait(self, event):
        self.fence_finish(event.addr, event.time, "waited for")

    def on_fence_order(self, event):
        self.fence_finish(event.addr, event.time, "barrier")

    # --- captures and samples -------------------------------------------------------------------

    def on_capture_end(self, _):
        self.counts["captures"] += 1

    def on_sample(self, event):
        device = self.device(event.device)
        device.sampled = event.more * 4096
        device.private = max(device.private, device.sampled)
        device.point(event.time)

    # --- questions ------------------------------------------------------------------------------

    def driver_ns(self):
        return sum(ns for _, ns, _ in self.calls.values())

    def never_freed(self):
        return [block for block in self.blocks if block.end is None]

    def main_device(self):
        """The one with the highest peak."""
        return max(self.devices.values(), key=lambda device: device.peak, default=Device(0, 0))

    def alive_at(self, time):
        return [b for b in self.blocks if b.start <= time and (b.end is None or b.end > time)]

    def by_site(self, blocks, site):
        """(site, (bytes, blocks)), largest first; `site` gives that of a stack."""
        names = {stack: site(stack) for stack in {block.stack for block in blocks}}
        size, count = collections.Counter(), collections.Counter()
        for block in blocks:
            size[names[block.stack]] += block.size
            count[names[block.stack]] += 1
        return [(name, (total, count[name])) for name, total in size.most_common()]

    def at_peak(self):
        """Blocks alive at the peak of the device with the highest one."""
        device = self.main_device()
        return [b for b in self.alive_at(device.peak_time) if b.device == device.number]
