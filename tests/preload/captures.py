#!/usr/bin/env python3
"""captures.py CAPTURES_PROGRAM

The table of what allocating and freeing does to a capture. Plain CUDA refuses
as facts say; under the library every call succeeds, every capture stays valid
and every captured graph computes the right words."""

import sys

import preload


def rows(result):
    """(mode, thread, call) -> (code, state, end, result)."""
    found = {}
    for line in result.out.splitlines():
        *names, code, state, end, words = line.split()
        mode, thread, call = names[0], names[1], " ".join(names[3:])
        found[mode, thread, call] = (int(code), state, int(end), words)
    return found


def plain_wanted(mode, thread, call):
    harmless = call == "mem info" or mode == "relaxed"
    if harmless or (mode == "thread-local" and thread == "another"):
        return (0, "active", 0, "right")
    return (900, "invalidated", 901, "-")


def main():
    checks = preload.Checks()
    plain = preload.run([sys.argv[1]])
    pool = preload.run([sys.argv[1]], preload.library())
    checks.that(len(rows(plain)) == len(rows(pool)) == 36, f"rows missing\n{pool.err}")
    for key, found in rows(plain).items():
        checks.equal(f"plain {key}", plain_wanted(*key), found)
    for key, found in rows(pool).items():
        checks.equal(f"with the library {key}", (0, "active", 0, "right"), found)
    checks.equal("exit codes", (0, 0), (plain.code, pool.code))
    checks.clean(pool, "with the library")
    invalidated = pool.figures.get("invalidated", 0)
    checks.that(invalidated == 0, f"{invalidated} captures invalidated")
    checks.end()


if __name__ == "__main__":
    main()
