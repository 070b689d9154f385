#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nvtx.py TOOL LOADS PLUGIN: tools that are injected through NVTX are told of segments and blocks: each
block is a region of the bytes asked for inside the heap of its segment, for as long as the
program holds it; and nothing changes for the program."""

import os
import sys

import look
import preload


class Told:
    """What the tool was told, replayed: heaps and regions that are there, and what is wrong."""

    def __init__(self, path):
        self.heaps, self.regions, self.wrong = {}, {}, []
        self.made = self.gone = self.most = self.most_regions = self.heaps_gone = 0
        self.sizes = []
        with open(path) as file:
            for line in file:
                words = line.split()
                getattr(self, "on_" + words[0])(*words[1:])

    def on_heap(self, addr, size, *words):
        if words != ("usage", "1", "type", "1"):
            self.wrong.append(f"a heap is {words}")
        self.heaps[int(addr, 16)] = int(size)

    def on_heapgone(self, addr):
        self.heaps_gone += 1
        if self.heaps.pop(int(addr, 16), None) is None:
            self.wrong.append(f"heap {addr} goes and was not there")
        if any(heap == int(addr, 16) for _, heap in self.regions.values()):
            self.wrong.append(f"heap {addr} goes before its regions")

    def on_region(self, addr, size, _, heap):
        start, length, home = int(addr, 16), int(size), int(heap, 16)
        if home not in self.heaps or not home <= start <= start + length <= home + self.heaps[home]:
            self.wrong.append(f"region {addr} of {size} is not in heap {heap}")
        if start in self.regions:
            self.wrong.append(f"region {addr} is there already")
        self.regions[start] = (length, home)
        self.sizes.append(length)
        self.made += 1
        self.most_regions = max(self.most_regions, len(self.regions))
        self.most = max(self.most, sum(length for length, _ in self.regions.values()))

    def on_regiongone(self, addr):
        if self.regions.pop(int(addr, 16), None) is None:
            self.wrong.append(f"region {addr} goes and was not there")
        self.gone += 1


def told(checks, directory, command, extra=None, tool=None):
    log = os.path.join(directory, "told")
    extra = {"NVTX_INJECTION64_PATH": tool or sys.argv[1], "NVTX_TOOL_LOG": log, **(extra or {})}
    done = look.Recorded(directory, command, extra)
    checks.equal("exit code", 0, done.run.code)
    checks.clean(done.run, "with a tool")
    if not os.path.exists(log):
        print("skipped: built without NVTX's headers")
        sys.exit(preload.SKIP)
    return Told(log), done


def regions_are_what_the_program_holds(checks, directory):
    words = ["--steps", "20", "--size", "100000"]
    seen, done = told(checks, directory, [look.program("solver-shared"), *words])
    checks.equal("wrong", [], seen.wrong[:5])
    checks.equal("regions made", done.history.counts["allocations"], seen.made)
    checks.equal("regions gone", done.history.counts["frees"], seen.gone)
    checks.equal("bytes asked for", done.stats["devices"][0]["requested_bytes"]["peak"], seen.most)
    checks.that(any(size % 512 for size in seen.sizes), "every region is as large as its block")
    checks.equal("regions left", 0, len(seen.regions))


def mapped_memory_is_told_as_segments_are(checks, directory):
    """A block may lie in several handles, with a region in each: together what was asked for."""
    words = ["--steps", "20", "--size", "5000000"]
    extra = {"GCPOOL_BACKEND": "vmm"}
    seen, done = told(checks, directory, [look.program("solver-shared"), *words], extra)
    checks.equal("wrong", [], seen.wrong[:5])
    checks.that(seen.made > done.history.counts["allocations"], f"{seen.made} regions")
    checks.equal("regions gone", seen.made, seen.gone)
    checks.equal("bytes asked for", done.stats["devices"][0]["requested_bytes"]["peak"], seen.most)
    place = os.path.join(directory, "short")
    os.mkdir(place)
    extra.update({"GCPSIM_MEMORY": "512M"})
    seen, done = told(checks, place, [look.program("oom-shared")], extra)
    checks.equal("short of memory: wrong", [], seen.wrong[:5])
    checks.that(seen.heaps_gone > 10, f"short of memory: {seen.heaps_gone} handles were moved")
    place = os.path.join(directory, "threads")
    os.mkdir(place)
    seen, done = told(checks, place, look.command("stress-shared"), {"GCPOOL_BACKEND": "vmm"})
    checks.equal("threads: wrong", [], seen.wrong[:5])


def compute_sanitizer_gets_segments(checks, directory):
    """It refuses heaps in mapped memory."""
    tool = os.path.join(directory, "libsanitizer-collection.so")
    os.symlink(os.path.abspath(sys.argv[1]), tool)
    words = ["--steps", "20", "--size", "5000000"]
    extra = {"GCPOOL_BACKEND": "vmm"}
    seen, done = told(checks, directory, [look.program("solver-shared"), *words], extra, tool)
    checks.equal("wrong", [], seen.wrong[:5])
    checks.equal("regions made", done.history.counts["allocations"], seen.made)
    checks.that(seen.heaps and min(seen.heaps.values()) > 2 << 20, "heaps are segments")


def segments_that_go_back_are_no_heaps(checks, directory):
    extra = {"GCPOOL_BACKEND": "segments", "GCPSIM_MEMORY": "256M"}
    seen, done = told(checks, directory, [look.program("oom-shared")], extra)
    checks.equal("wrong", [], seen.wrong[:5])
    gone = done.stats["devices"][0]["segment"]["freed"]
    checks.that(gone > 20 and seen.heaps_gone == gone, f"{seen.heaps_gone} of {gone} heaps went")


def threads_that_are_cancelled_leave_no_lock(checks, directory):
    command = [os.environ["GCPT_WATCHED"], "a_cancelled_thread_leaves_no_lock"]
    seen, done = told(checks, directory, command)
    checks.equal("wrong", [], seen.wrong[:5])


def a_tool_is_loaded_while_a_constructor_calls(checks, directory):
    """The loader's lock is held by the constructor."""
    extra = {
        "NVTX_INJECTION64_PATH": sys.argv[1], "NVTX_TOOL_LOG": os.path.join(directory, "told")}
    done = preload.run([sys.argv[2], sys.argv[3]], preload.library(), extra)
    checks.equal(f"exit code {done.out}{done.err}", 0, done.code)


def threads_and_graphs_agree(checks, directory):
    for name in ("stress-shared", "graphs-shared"):
        place = os.path.join(directory, name)
        os.mkdir(place)
        seen, done = told(checks, place, look.command(name))
        checks.equal(f"{name}: wrong", [], seen.wrong[:5])
        checks.equal(f"{name}: regions made", done.history.counts["allocations"], seen.made)
        if name == "graphs-shared":
            held = done.stats["devices"][0]["allocation"]["peak"]
            checks.that(seen.most_regions > held, "freed blocks of graphs are no regions any more")


def a_tool_that_hears_nothing_changes_nothing(checks, directory):
    """A profiler's library, which knows nothing of memory, and a path that leads nowhere."""
    for tool in (os.path.join(directory, "none.so"), preload.library()):
        done = preload.run(
            [look.program("solver-shared"), "--steps", "5", "--size", "64k"], preload.library(),
            {"NVTX_INJECTION64_PATH": tool})
        checks.equal(f"{tool}: exit code", 0, done.code)
        checks.equal(f"{tool}: messages", "", done.err)
        checks.clean(done, tool)


def main():
    look.each(preload.Checks(), look.tests())


if __name__ == "__main__":
    main()
