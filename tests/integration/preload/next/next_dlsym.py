#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""next_dlsym.py OTHER PROGRAM

The program under OTHER, which has a dlsym, and under the library and OTHER: both print the
same."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import preload


def main():
    other, program = sys.argv[1:]
    checks = preload.Checks()
    plain = preload.run([program, "dlsym"], other)
    both = preload.run([program, "dlsym"], preload.library() + ":" + other)
    print(both.out + both.err)
    checks.equal("exit code", 0, both.code)
    checks.equal("output", plain.out, both.out)
    checks.that("NULL" not in plain.out, "the other library is not there")
    checks.end()


if __name__ == "__main__":
    main()
