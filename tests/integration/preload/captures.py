#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""captures.py CAPTURES_PROGRAM

The table of what allocating and freeing does to a capture. Plain CUDA refuses
as facts say; under the library every call succeeds, every capture stays valid
and every captured graph computes the right words."""

import sys

import preload


ROWS = 60
FIELDS = 5  # code, state, end, result, mode


def rows(result):
    """(mode, thread, call) -> (code, state, end, result, mode)."""
    found = {}
    for line in result.out.splitlines():
        words = line.split()
        names, fields = words[:-FIELDS], words[-FIELDS:]
        found[names[0], names[1], " ".join(names[3:])] = tuple(fields)
    return found


def code_wanted(call, library):
    return {"out of memory": "2", "trim": "0" if library else "-"}.get(call, "0")


def plain_wanted(mode, thread, call):
    harmless = call in ("mem info", "trim") or mode == "relaxed"
    if harmless or (mode == "thread-local" and thread == "another"):
        return (code_wanted(call, False), "active", "0", "right", "kept")
    return ("900", "invalidated", "901", "-", "kept")


def main():
    checks = preload.Checks()
    plain = preload.run([sys.argv[1]])
    pool = preload.run([sys.argv[1]], preload.library())
    checks.that(len(rows(plain)) == len(rows(pool)) == ROWS, f"rows missing\n{pool.err}")
    for key, found in rows(plain).items():
        checks.equal(f"plain {key}", plain_wanted(*key), found)
    for key, found in rows(pool).items():
        wanted = (code_wanted(key[2], True), "active", "0", "right", "kept")
        checks.equal(f"with the library {key}", wanted, found)
    checks.equal("exit codes", (0, 0), (plain.code, pool.code))
    checks.clean(pool, "with the library")
    invalidated = pool.figures.get("invalidated", 0)
    checks.that(invalidated == 0, f"{invalidated} captures invalidated")
    checks.end()


if __name__ == "__main__":
    main()
