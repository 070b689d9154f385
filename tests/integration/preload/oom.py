#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""oom.py OOM_PROGRAM

Fills the simulated card in changing block sizes, plain and under the library.
What one phase freed must be there for the next: whatever the library keeps, it
gives back. Its size classes may cost a phase an eighth, not more."""

import sys

import preload

LEAST = 7 / 8


def phases(result):
    """(what, MiB obtained, how it ended) of each phase."""
    found = []
    for line in result.out.splitlines():
        if "obtained" in line:
            what, rest = line.split("obtained")
            found.append((what.strip(), int(rest.split()[0]), rest.split()[-1]))
    return found


def main():
    checks = preload.Checks()
    extra = {"GCPSIM_MEMORY": "256M"}
    plain = preload.run([sys.argv[1]], extra=extra)
    pool = preload.run([sys.argv[1]], preload.library(), extra)
    checks.equal("exit code", (0, 0), (plain.code, pool.code))
    checks.clean(pool, "with the library")
    checks.that(len(phases(plain)) == len(phases(pool)) > 0, "other phases")
    for before, after in zip(phases(plain), phases(pool)):
        print(before, after)
        checks.that(after[1] >= before[1] * LEAST, f"{after} where plain had {before}")
        checks.equal(before[0], before[2], after[2])
    print(pool.out.splitlines()[-1:], pool.err)
    checks.end()


if __name__ == "__main__":
    main()
