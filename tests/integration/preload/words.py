#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""words.py WORDS_PROGRAM [check_NAME ...]

What the library says and writes: one line for memory that is out, and statistics that
name what they are of, and where they go when the process does not end by exit or the disk is
full."""

import json
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time

import preload

MIB = 1 << 20


class Words:
    def __init__(self, program, checks):
        self.program, self.checks = program, checks

    def play(self, scenario, **options):
        result = preload.run([self.program, scenario], preload.library(), options)
        self.checks.that(result.code == 0, f"{scenario}: exit code {result.code}\n"
                                           f"{result.out}{result.err}")
        return result

    def says(self, text, *words):
        for word in words:
            self.checks.that(word in text, f"no {word!r} in:\n{text}")

    def shortages(self, result):
        return [line for line in result.err.splitlines() if "]: out of memory: " in line]

    def report(self, scenario, **options):
        """The JSON that the process writes at its end."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "stats")
            result = self.play(scenario, GCPOOL_STATS="json", GCPOOL_STATS_FILE=path, **options)
            self.checks.equal(f"{scenario}: stderr", "", result.err)
            self.checks.that(os.path.exists(path), f"{scenario}: no report")
            lines = pathlib.Path(path).read_text().splitlines()
        self.checks.equal(f"{scenario}: reports", 1, len(lines))
        return json.loads(lines[0])

    # --- memory that is out ---------------------------------------------------------

    def check_shortage(self):
        result = self.play("probes", GCPSIM_MEMORY="1g")
        lines = self.shortages(result)
        self.checks.equal("lines of 100 refusals", 10, len(lines))
        self.says(lines[0], "cuMemAlloc of 4.0 GiB on device 0 refused by the driver",
                  "the device has 1.0 GiB, of which free 1.0 GiB", "the program holds 0 B",
                  "cached 0 B", "held by graphs 0 B", "no quota")
        self.says(lines[-1], "(said 10 times, not again)")
        result = self.play("a_quota_is_used_up", GCPSIM_MEMORY="1g", GCPOOL_QUOTA="50%")
        self.checks.equal("lines", 1, len(self.shortages(result)))
        self.says(self.shortages(result)[0], "refused by the quota (GCPOOL_QUOTA)",
                  "the program holds 256.0 MiB", "quota 512.0 MiB")
        result = self.play("other_memory_is_refused", GCPSIM_MEMORY="1g")
        self.checks.equal("lines", 1, len(self.shortages(result)))
        self.says(self.shortages(result)[0],
                  "cuMemAllocAsync of 4.0 GiB on device 0 refused by the driver")
        result = self.play("probes", GCPSIM_MEMORY="1g", GCPOOL_LOG="error")
        self.checks.equal("said below its level", "", result.err)

    def check_shortage_of_pinned_memory(self):
        result = self.play("pinned_memory_is_refused", GCPOOL_HOST_QUOTA="2M")
        lines = self.shortages(result)
        self.checks.equal("lines", 1, len(lines))
        self.says(lines[0], "cuMemHostAlloc of 64.0 MiB of pinned memory refused by the quota "
                  "(GCPOOL_HOST_QUOTA)", "the program holds 1.0 MiB", "quota 2.0 MiB")

    # --- statistics -------------------------------------------------------------------

    def check_report(self):
        report = self.report("blocks_are_left", GCPOOL_TEST_FENCE_BATCH="7")
        self.checks.equal("schema", 3, report["schema"])
        self.checks.equal("arguments", [self.program, "blocks_are_left"], report["arguments"])
        self.checks.equal("host", socket.gethostname(), report["hostname"])
        self.checks.equal("option", "7", report["options"].get("GCPOOL_TEST_FENCE_BATCH"))
        self.checks.that("GCPOOL_MODE" not in report["options"], "a default is named")
        self.checks.equal("CUDA", "13.0", report["cuda"])
        started = time.mktime(time.strptime(report["started"], "%Y-%m-%dT%H:%M:%SZ"))
        self.checks.that(abs(started - time.timezone - time.time()) < 60, report["started"])
        device = report["devices"][0]
        self.checks.equal("device", "Simulated CUDA device", device["name"])
        self.checks.equal("memory", 16 << 30, device["memory_bytes"])

        report = self.report("nothing_is_kept")
        times = {name: sorted(time) for name, time in report["host"]["driver_calls"].items()}
        self.checks.equal("times of pinned memory",
                          [["count", "max_ns", "mean_ns", "min_ns", "ns"]],
                          [list(row) for row in {tuple(row) for row in times.values()}])

    def check_names(self):
        """A program's name and arguments may be any bytes, and are cut somewhere."""
        for name, shown in ((b"caf\xe9", "caf\ufffd"), ("x" * 2035 + "\u20ac" * 9, None),
                            (b"\xed\xa0\x80\xc0\xaf", "\ufffd" * 5), ("\u20ac\U0001f600", None)):
            with tempfile.TemporaryDirectory() as directory:
                path = os.path.join(directory, "stats")
                env = preload.environment(preload.library(), {
                    "GCPOOL_STATS": "json", "GCPOOL_STATS_FILE": path})
                done = subprocess.run([name, "blocks_are_left"], executable=self.program, env=env,
                                      stdout=subprocess.DEVNULL)
                self.checks.equal("exit code", 0, done.returncode)
                raw = pathlib.Path(path).read_bytes()
            report = json.loads(raw.decode("utf-8", "replace"))
            self.checks.that(b"\xef\xbf\xbd" not in raw, "bytes that are no characters")
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError as error:
                self.checks.that(False, f"{name!r}: {error}")
            self.checks.equal("program", shown or name, report["program"])

    def check_controls(self):
        """What a terminal obeys, in names, arguments and options."""
        env = preload.environment(preload.library(), {
            "GCPOOL_STATS": "text", "GCPOOL_TRACE": "/nowhere/\x1b[2J\n\x7f\x9b\xe9\xc0\u20ac"})
        done = subprocess.run(["\x1b]0;a\x07\n\x7f", "blocks_are_left"],
                              executable=self.program, env=env, capture_output=True, text=True)
        self.checks.equal("exit code", 0, done.returncode)
        self.says(done.stderr, " ?]0;a???\n", " ?]0;a???, blocks_are_left\n",
                  "GCPOOL_TRACE=/nowhere/?[2J????\xe9\xc0\u20ac")
        self.checks.that(not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.stderr), "control characters")

    def check_text(self):
        result = self.play("blocks_are_left", GCPOOL_STATS="1", GCPOOL_TEST_FENCE_BATCH="7")
        self.says(result.err, f"{self.program}, blocks_are_left\n", f" {socket.gethostname()}\n",
                  "Simulated CUDA device\n", "16.0 GiB", "GCPOOL_TEST_FENCE_BATCH=7",
                  "\n  reserved_bytes         current=", " MiB, peak=")
        self.checks.that("MiB bytes" not in result.err, "MiB bytes")
        quiet = self.play("blocks_are_left", GCPOOL_STATS="off")
        self.checks.equal("off", "", quiet.err)

    def check_full_disk(self):
        result = self.play("blocks_are_left", GCPOOL_STATS="text",
                           GCPOOL_STATS_FILE="/dev/full")
        self.says(result.err, "cannot write the statistics to /dev/full (no space left on the "
                  "device), writing them to stderr", "Simulated CUDA device\n")
        result = self.play("blocks_are_left", GCPOOL_STATS="text",
                           GCPOOL_STATS_FILE="/nonexistent/stats")
        self.says(result.err, "(no such directory)", "Simulated CUDA device\n")
        result = self.play("blocks_are_left", GCPOOL_LOG="info", GCPOOL_LOG_FILE="/dev/full")
        self.says(result.err, "is in ")

    def ended(self, scenario, options, **how):
        env = preload.environment(preload.library(), options)
        return subprocess.run([os.path.abspath(self.program), scenario], env=env, stdout=subprocess.DEVNULL,
                              **how).returncode

    def check_signals(self):
        """A write of the library's that fails sends the program no signal."""
        reader, writer = os.pipe()
        os.close(reader)
        for options in ({"GCPOOL_LGO": "1"}, {"GCPOOL_STATS": "text"}):
            self.checks.equal(f"{options}: a pipe that nothing reads", 0,
                              self.ended("blocks_are_left", options, stderr=writer))
        os.close(writer)

        most = 1 << 40  # the simulated device has files, too

        def no_larger():
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "file")
            with open(path, "wb") as file:
                file.truncate(most)  # takes no room
            for options in ({"GCPOOL_STATS": "json", "GCPOOL_STATS_FILE": path},
                            {"GCPOOL_LOG": "debug", "GCPOOL_LOG_FILE": path}):
                self.checks.equal(f"{options}: a file that is full", 0,
                                  self.ended("blocks_are_left", options,
                                             stderr=subprocess.PIPE, preexec_fn=no_larger))

    # --- ends -------------------------------------------------------------------------

    def check_ends(self):
        self.checks.equal("fork", True, self.report("forks")["final"])

    # --- limits -----------------------------------------------------------------------

    def check_nothing_kept(self):
        kept = self.report("nothing_is_kept")
        self.checks.that(kept["devices"][0]["reserved_bytes"]["current"] > 0, "nothing kept")
        report = self.report("nothing_is_kept", GCPOOL_CACHE_LIMIT="0",
                             GCPOOL_HOST_CACHE_LIMIT="0")
        self.checks.equal("reserved", 0, report["devices"][0]["reserved_bytes"]["current"])
        self.checks.equal("pinned", 0, report["host"]["allocated_bytes"]["current"])
        report = self.report("nothing_is_kept", GCPOOL_CACHE_LIMIT="none",
                             GCPOOL_HOST_CACHE_LIMIT="unlimited")
        self.checks.that(report["devices"][0]["reserved_bytes"]["current"] > 0,
                         "no limit is one")
        self.checks.that(report["host"]["allocated_bytes"]["current"] > 0, "the same, pinned")


def main():
    checks = preload.Checks()
    for name in sys.argv[2:] or [name for name in dir(Words) if name.startswith("check_")]:
        print("--", name, flush=True)
        getattr(Words(sys.argv[1], checks), name)()
    os.environ["GCPT_BACKEND"] = "auto"
    for check in ("shortage", "nothing_kept"):
        getattr(Words(sys.argv[1], checks), "check_" + check)()
    checks.end()


if __name__ == "__main__":
    main()
