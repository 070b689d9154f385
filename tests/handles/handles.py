#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""handles.py PROGRAM CASE

One case of cases.c or cases_life.c: plain, under both libraries with handles left alone,
with them pooled, and pooled with waits. Every run must be right by the program's own
checks, without a hazard; left alone, all is as plain; pooled, the libraries have
created and destroyed as many handles as CASES says."""

import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "integration", "preload"))

import preload

NEVER, RANDOM = {"GCPSIM_SPEED": "never"}, {"GCPSIM_SPEED": "random"}
ALL = ("cublas", "cudnn", "cusolver")


class Case:
    """What a case must give when handles are pooled.

    created, destroyed: by the library named first in ALL, or {library: number}
    plain:    whether plain CUDA can run it
    sync:     what is created if each destroy waits, where that differs
    schedule: of the simulated device; more: further environment"""

    def __init__(self, created, destroyed=0, plain=True, sync=None, schedule=None, more=None):
        self.created, self.destroyed, self.plain = created, destroyed, plain
        self.sync = created if sync is None else sync
        self.schedules = [schedule] if schedule else [NEVER, RANDOM]
        self.more = more or {}


def each(number):
    """cuSOLVER has two sorts of handles, which are counted together."""
    return {name: number * (1 + (name == "cusolver")) for name in ALL}


CASES = {
    "pairs": Case(each(1)),
    "roundtrip": Case(each(1)),
    "workspace": Case(1),
    "environment": Case(2),
    "refuse": Case(2, 1),
    "order": Case(each(1), schedule=NEVER),
    "order_contexts": Case(3, sync=2, schedule=NEVER),
    "ahead": Case(9, sync=1, schedule=NEVER),
    "threads": Case(each(4)),
    "churn": Case(None),
    "create_fails": Case(1),
    "twice": Case(2, plain=False),  # the library touches what it has freed
    "behind": Case(None),
    "capture": Case(1, 1, plain=False),
    "capture_unknown": Case(3, 2, plain=False),
    "cancelled": Case(None),
    "context_ends": Case(6),
    "device_reset": Case(3),
    "context_stays": Case(2),
    "fork": Case(2),
    "plugin": Case(0),
    "versions": Case(1),
    "first": Case(2, 1),  # the first one had no context
    "lookups": Case(0),
}


def environment(extra):
    """The stand-ins come first; `extra` may name others before them."""
    path = [os.environ["GCPT_HANDLES"], os.environ["GCPT_PATH"]]
    extra = dict(extra)
    return {**extra, "LD_LIBRARY_PATH": ":".join(filter(None, [extra.get("FIRST", ""), *path]))}


def run(command, library=None, extra=None):
    return preload.run(command, library, environment(extra or {}))


def both():
    return preload.library() + ":" + os.environ["GCPT_HANDLES_LIBRARY"]


def counts(out):
    """{library: (created, destroyed)}"""
    found = re.findall(r"^lib(\w+)\.so\.\d+: created (\d+), destroyed (\d+)$", out, re.M)
    return {name: (int(created), int(destroyed)) for name, created, destroyed in found}


def without_counts(out):
    """And without numbers of handles altogether."""
    return re.sub(r"created \d+, destroyed \d+", "", out)


def good(checks, result, name, reported=True):
    checks.that(result.code == 0, f"{name}: code {result.code}\n{result.out}{result.err}")
    checks.clean(result, name, reported)


def check_counts(checks, result, wanted, destroyed, name):
    if wanted is None:
        return
    wanted = wanted if isinstance(wanted, dict) else {"cublas": wanted}
    found = counts(result.out)
    for library, number in wanted.items():
        checks.equal(f"{name}: {library}, created and destroyed", (number, destroyed),
                     found.get(library))


def case_check(checks, program, name, case, schedule):
    command = [program, name]
    extra = {**schedule, **case.more}
    reported = name != "lookups"  # calls no function of the driver
    plain = run(command, None, extra)
    alone = run(command, both(), {**extra, "GCPOOL_HANDLES": "0"})
    pooled = run(command, both(), extra)
    sync = run(command, both(), {**extra, "GCPOOL_HANDLES": "sync"})
    if case.plain:
        good(checks, plain, f"{name}, plain", reported)
        good(checks, alone, f"{name}, left alone", reported)
        checks.equal(f"{name}, left alone", plain.out, alone.out)
    for result, created, how in ((pooled, case.created, "pooled"), (sync, case.sync, "sync")):
        good(checks, result, f"{name}, {how}", reported)
        check_counts(checks, result, created, case.destroyed, f"{name}, {how}")
    return plain, pooled, sync


# --- what single cases say besides --------------------------------------------------


def order_check(checks, plain, pooled, sync):
    checks.that(plain.out.count(": done") == 4, f"plain does not wait: {plain.out}")
    checks.that(pooled.out.count(": pending") == 4, f"pooled waits: {pooled.out}")
    checks.that(sync.out.count(": done") == 4, f"sync does not wait: {sync.out}")


def ahead_check(checks, _, pooled, __):
    checks.that(pooled.figures.get("cuCtxSynchronize", 1) > 1, "nothing waited")


def fork_check(checks, plain, pooled, sync):
    for result in (pooled, sync):
        checks.equal("what the child finds", without_counts(plain.out),
                     without_counts(result.out))


def plugin_check(checks, plain, pooled, sync):
    del sync
    checks.equal("plain unloads", 3, plain.out.count("older: unloaded"))
    checks.equal("pooled stays", 3, pooled.out.count("older: stays"))


def versions_check(checks, plain, pooled, sync):
    del plain, sync
    checks.that("older: created 1, destroyed 0" in pooled.out, pooled.out)


def lookups_check(checks, plain, pooled, sync):
    """Only what the caller finds in a library is exchanged; misses are as plain."""
    del sync
    ours = os.path.basename(os.environ["GCPT_HANDLES_LIBRARY"])
    for before, after in zip(plain.out.splitlines(), pooled.out.splitlines()):
        how, _, found = before.partition(": ")
        if how.startswith("by default") or how == "next" or found.startswith("none") \
                or how in ("setter", "unknown") or "created" in before:
            wanted = before
        else:
            wanted = f"{how}: {ours}, no error"
        if how == "by default" and not found.startswith("none"):
            wanted = f"{how}: {ours}, no error"
        checks.equal("look-up", wanted, after)


MORE_CHECKS = {
    "order": order_check, "ahead": ahead_check, "fork": fork_check,
    "plugin": plugin_check, "versions": versions_check, "lookups": lookups_check}


# --- further tests, with an environment of their own ----------------------------------


def unknown_setter(checks, program):
    """A library with a setter that no table knows is left alone, and says so."""
    newer = {"FIRST": os.environ["GCPT_NEWER"], "GCPOOL_LOG": "info"}
    for how in ("1", "sync"):
        result = run([program, "pairs"], both(), {**newer, "GCPOOL_HANDLES": how})
        good(checks, result, "unknown setter")
        checks.equal("created and destroyed", (10, 10), counts(result.out).get("cublas"))
        checks.equal("the others", (1, 0), counts(result.out).get("cudnn"))
        words = "libcublas.so.13 has the unknown cublasSetTiling"
        checks.equal("messages", 1, result.err.count(words))


def messages(checks, program):
    """Static libraries are out of reach: said once, at info, if handles are pooled."""
    for handles, wanted in (("0", 0), ("1", 1), ("sync", 1)):
        extra = {"GCPOOL_LOG": "info", "GCPOOL_HANDLES": handles}
        result = run([program, "pairs"], both(), extra)
        checks.equal(f"GCPOOL_HANDLES={handles}", wanted, result.err.count("out of reach"))
    quiet = run([program, "pairs"], both(), {"GCPOOL_HANDLES": "1"})
    checks.equal("said at warn", "", quiet.err)


def statistics(checks, program):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "stats")
        extra = {"GCPOOL_HANDLES": "1", "GCPOOL_STATS": "json", "GCPOOL_STATS_FILE": path}
        run([program, "pairs", "twice"], both(), extra)
        with open(path) as file:
            rows = next(json.loads(line)["handles"] for line in file if '"handles"' in line)
        row = next(row for row in rows if row["kind"] == "cublas")
        wanted = {"kind": "cublas", "library": "libcublas.so.13", "created": 2, "reused": 11,
                  "destroyed": 0, "used": 0, "peak": 2}
        checks.equal("statistics", wanted, row)
        checks.equal("rows", 4, len(rows))
        text = run([program, "pairs"], both(), {"GCPOOL_STATS": "text"}).err
        row = r"^handles\n  cublas +created=1, reused=9, peak=1, library=libcublas.so.13$"
        checks.that(re.search(row, text, re.M), text)
        none = run([program, "pairs"], both(), {"GCPOOL_HANDLES": "0", "GCPOOL_STATS": "text"}).err
        checks.that(not re.search(r"^handles", none, re.M), none)


def modes(checks, program):
    """Without the pool there is none of handles either, and look-ups are as plain."""
    plain = run([program, "lookups"])
    result = run([program, "pairs"], both(), {"GCPOOL_MODE": "off"})
    good(checks, result, "off")
    checks.equal("pairs", (10, 10), counts(result.out).get("cublas"))
    found = run([program, "lookups"], both(), {"GCPOOL_MODE": "off"})
    checks.equal("look-ups", plain.out, found.out)


def libraries(checks, program):
    """In either order; alone each of them is as plain, and the second says what is missing."""
    pool, handles = both().split(":")
    for preloaded, made, message in ((f"{handles}:{pool}", (1, 0), ""),
                                     (handles, (10, 10), "libgcpool-handles.so needs"),
                                     (pool, (10, 10), "")):
        result = run([program, "pairs"], preloaded, {"GCPOOL_HANDLES": "1"})
        good(checks, result, preloaded)
        checks.equal(preloaded, made, counts(result.out).get("cublas"))
        checks.that(result.err.count("\n") == (message != "") and message in result.err, result.err)


def fence_fails(checks, program):
    """What cannot be fenced its library destroys, behind all work."""
    fails = {"GCPSIM_FAIL": "cuCtxRecordEvent:1+:1"}
    result = run([program, "pairs"], both(), fails)
    good(checks, result, "handles")
    checks.equal("handles", (10, 10), counts(result.out).get("cublas"))
    result = run([program, "order"], both(), {**fails, **NEVER})
    good(checks, result, "order")
    checks.equal("all work done", 4, result.out.count(": done"))


def seeds(checks, program):
    """Threads that come and go as they like, under several schedules."""
    for seed in range(1, 9):
        result = run([program, "churn", "order"], both(), {"GCPSIM_SEED": str(seed), **RANDOM})
        good(checks, result, f"seed {seed}")
        created, destroyed = counts(result.out)["cublas"]
        checks.that(created <= 4 and destroyed == 0, f"seed {seed}: {result.out}")


FURTHER = {
    function.__name__: function
    for function in (unknown_setter, messages, statistics, modes, libraries, fence_fails,
                     seeds)}


def main():
    program, name = sys.argv[1:]
    checks = preload.Checks()
    if name in FURTHER:
        FURTHER[name](checks, program)
        checks.end()
    case = CASES[name]
    for schedule in case.schedules:
        results = case_check(checks, program, name, case, schedule)
        if name in MORE_CHECKS:
            MORE_CHECKS[name](checks, *results)
    checks.end()


if __name__ == "__main__":
    main()
