#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""debug.py PROGRAM mistakes|correct|others: GCPOOL_DEBUG says in one line what a program does wrong
with its memory, and of correct programs nothing; it adds nothing to captures."""

import os
import re
import subprocess
import sys

import look
import preload

PROGRAM = sys.argv[1]
MARK = "GCPOOL_DEBUG: "
AT_ONCE = {"GCPOOL_TEST_WINDOW": "0", "GCPOOL_TEST_FENCE_BATCH": "1",  # memory comes again
           "GCPOOL_BACKEND": "vmm"}
STACKS = {"GCPOOL_TRACE_STACKS": "8"}
FRAME = r"debug\+0x[0-9a-f]+"


def played(checks, scenario, words, extra=None, code=0):
    settings = {"GCPOOL_DEBUG": words, **AT_ONCE, **(extra or {})}
    run = preload.run([PROGRAM, scenario], preload.library(), settings)
    name = f"{scenario} {words} {extra or ''}"
    checks.that(run.code == code, f"{name}: exit code {run.code}\n{run.out}{run.err}")
    said = [line.split(MARK, 1)[1] for line in run.err.splitlines() if MARK in line]
    return name, run, said, re.findall(r"^block (0x[0-9a-f]+) (\S+)(?: (0x[0-9a-f]+))?$", run.out, re.M)


def one_line(checks, scenario, words, pattern, extra=None):
    """The scenario's mistake, and nothing else, is said. `pattern` has the words of the line."""
    name, run, said, blocks = played(checks, scenario, words, extra)
    if not checks.that(len(said) == 1 and blocks, f"{name}: {len(said)} lines: {run.err}"):
        return ""
    address, _, stream = blocks[0]
    where = f"device 0, stream {stream}" if stream else "device 0, any stream"
    wanted = pattern.replace("BLOCK", f"block {address}").replace("WHERE", re.escape(f"({where})"))
    checks.that(re.match(wanted, said[0]), f"{name}: {said[0]!r} is not {wanted!r}")
    return said[0]


# What finds it, the scenario, and what is said of it.
STACKS_OF_BOTH = f" allocated by {FRAME}.*; freed by {FRAME}"
MISTAKES = (
    ("guard", "overrun", "overrun of BLOCK of 1000 bytes WHERE: 3 bytes written, the first at offset 1000;"
     + STACKS_OF_BOTH),
    ("guard", "overrun_of_a_size_class",
     "overrun of BLOCK of 65536 bytes WHERE: 1 byte written, the first at offset 65536;"),
    ("guard", "overrun_in_a_stream",
     "overrun of BLOCK of 5000 bytes WHERE: 1 byte written, the first at offset 5000;"),
    ("poison", "use_after_free",
     "use after free of BLOCK of 100000 bytes WHERE: 3 bytes written, the first at offset 4097;"
     + STACKS_OF_BOTH),
    ("poison", "use_after_free_in_a_stream",
     "use after free of BLOCK of 100000 bytes WHERE: 1 byte written, the first at offset 5;"),
    ("poison", "use_after_free_of_a_part",
     "use after free of BLOCK of 1048576 bytes WHERE: 4 bytes written, the first at offset 70000;"),
    ("poison", "use_after_free_of_the_rest",
     "use after free of BLOCK of 5242880 bytes WHERE: 4 bytes .* at offset 3145728"))


def mistakes_are_said_in_one_line(checks, _):
    for backend in ("segments", "vmm"):
        for word, scenario, said in MISTAKES:
            for words, extra in ((word, {"GCPSIM_SPEED": "never"}), ("poison,guard", STACKS)):
                if backend == "vmm" or not scenario.endswith("in_a_stream"):
                    one_line(checks, scenario, words, said, {"GCPOOL_BACKEND": backend, **extra})


def a_wrong_free_through_cudart_is_noted_once(checks, directory):
    """It goes through cudart to the driver's function."""
    trace = f"{directory}/run.trace"
    run = preload.run([os.environ["GCPT_RUNTIME"]], preload.library(),
                      {"GCPOOL_DEBUG": "leaks", "GCPOOL_TRACE": trace})
    checks.equal("answers", "0 0 1\n", run.out)
    said = [line for line in run.err.splitlines() if "double free of " in line]
    checks.equal("lines", 1, len(said))
    noted = [line for line in look.tool("events", trace)[1].splitlines() if " free_wrong " in line]
    checks.equal("events", 1, len(noted))


def wrong_frees_are_said_with_both_stacks(checks, _):
    for words in ("poison", "guard", "leaks"):
        for scenario in ("double_free", "double_free_in_a_stream"):
            one_line(checks, scenario, words, "double free of BLOCK of 3000 bytes WHERE;"
                     f"{STACKS_OF_BOTH}.*; and again by {FRAME}", STACKS)
        name, _, said, blocks = played(checks, "foreign_free", words, STACKS)
        inside = hex(int(blocks[0][0], 16) + 512)
        line = (f"free of {inside}, which begins no block: it lies 512 bytes into block "
                f"{blocks[0][0]} of 3000")
        checks.that(len(said) == 1 and said[0].startswith(line), f"{name}: {said}")
        stacks = said and re.search(f"allocated by {FRAME}.*; wrong free by {FRAME}", said[0])
        checks.that(stacks, f"{name}: {said}")


def leaks_are_said_at_exit(checks, _):
    name, run, said, blocks = played(checks, "leaks", "leaks", STACKS)
    checks.equal(f"{name}: lines", len(blocks) + 1, len(said))
    for address, _, stream in blocks:
        lines = [line for line in said if line.startswith(f"never freed: block {address} of ")]
        known = len(lines) == 1 and re.search(f"allocated by {FRAME}", lines[0])
        checks.that(known, f"{name}: {address}: {lines}")
        if stream:
            checks.that(f"stream {stream})" in lines[0], f"{name}: {lines}")
    checks.that(any("(pinned host memory)" in line for line in said), f"{name}: {said}")
    checks.that("3 blocks were never freed, together 76.2 KiB" in said[-1], f"{name}: {said[-1:]}")
    for words in ("poison,guard", "off"):
        checks.equal(f"lines of {words}", [], played(checks, "leaks", words)[2])
    gone = played(checks, "contexts_that_come_and_go", "leaks")[2]
    checks.equal("leaks of contexts that are gone", [], gone)


def stacks_name_call_sites(checks, _):
    """The places are those that addr2line knows, and go as deep as asked for."""
    line = one_line(checks, "overrun", "guard", "overrun of BLOCK", STACKS)
    part = line.split("allocated by ")[1].split(";")[0].split(" < ") if "allocated by" in line else []
    names = []
    for frame in part:
        file, _, offset = frame.partition("+")
        if file == "debug":
            done = subprocess.run(
                ["addr2line", "-fe", PROGRAM, hex(int(offset, 16) - 1)], capture_output=True, text=True)
            names.append(done.stdout.split("\n")[0])
    checks.that(names[:2] == ["allocated", "overrun"], f"functions are {names} of {line}")
    line = one_line(checks, "overrun", "guard", "overrun of BLOCK")
    checks.that(" < " not in line, f"frames that were not asked for: {line}")


def correct_programs_are_left_alone(checks, directory):
    for scenario in (
        "new_memory_has_a_pattern", "sizes_are_those_of_the_program",
        "allocations_wait_for_no_work", "plain_free_of_streamed_memory",
        "free_comes_after_all_work", "free_in_a_stream_of_another_context",
        "captures_are_left_alone", "contexts_that_come_and_go", "memory_that_was_given_back"):
        for extra in ({}, {"GCPOOL_REUSE": "completed"}, {"GCPOOL_DECAY": "1", "GCPSIM_MEMORY": "2G"}):
            name, run, said, _ = played(checks, scenario, "poison,guard", extra)
            checks.equal(f"{name}: lines", [], said)
            checks.clean(run, name)


def programs_do_the_same(checks, directory):
    """Others of the tests, which look at their results themselves."""
    for name in ("solver-shared", "solver-static", "stress-shared", "graphs-shared", "life-shared"):
        for extra in ({"GCPSIM_SPEED": "random", "GCPSIM_SEED": "7"}, {"GCPOOL_BACKEND": "vmm"}):
            run = preload.run(look.command(name), preload.library(),
                              {"GCPOOL_DEBUG": "poison,guard", **extra})
            checks.equal(f"{name} {extra}: exit code", 0, run.code)
            checks.that(MARK not in run.err, f"{name} {extra}: {run.err}")
            checks.clean(run, f"{name} {extra}")


TESTS = {
    "mistakes": [
        mistakes_are_said_in_one_line, wrong_frees_are_said_with_both_stacks,
        a_wrong_free_through_cudart_is_noted_once, leaks_are_said_at_exit, stacks_name_call_sites],
    "correct": [correct_programs_are_left_alone],
    "others": [programs_do_the_same],
}


def main():
    look.each(preload.Checks(), TESTS[sys.argv[2]])


if __name__ == "__main__":
    main()
