#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""transcript.py [VARIABLE=value ...] PROGRAM [ARGUMENT ...]

Runs the program plain and under the library on the simulated device: output and
exit code must be equal, and the driver must have seen no hazard, no access to
memory that is not allocated, and no wrong use. With --pooled first, the library
must also have saved most of the driver's allocations."""

import sys

import preload


def main():
    words = sys.argv[1:]
    pooled = words[0] == "--pooled"
    words = words[1:] if pooled else words
    extra = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        extra[name] = value
    checks = preload.Checks()
    plain = preload.run(words, extra=extra)
    pool = preload.run(words, preload.library(), extra)
    print(pool.out + pool.err)
    checks.that(plain.code == 0, f"plain: exit code {plain.code}")
    checks.equal("exit code", plain.code, pool.code)
    checks.equal("output", plain.out, pool.out)
    checks.equal("error output", plain.err, preload.without_shortages(pool.err))
    # There is no report without CUDA, or where a program ends at once (quick_exit).
    checks.clean(plain, "plain", False)
    checks.clean(pool, "with the library", "hazards" in plain.figures)
    print("driver calls, plain: ", plain.figures)
    print("driver calls, pooled:", pool.figures)
    if pooled:
        before = plain.figures.get("cuMemAlloc_v2", 0)
        after = pool.figures.get("cuMemAlloc_v2", 0)
        checks.that(0 < after * 2 < before, f"allocations: {before}, then {after}")
    checks.end()


if __name__ == "__main__":
    main()
