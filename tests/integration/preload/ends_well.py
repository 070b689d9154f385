#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ends_well.py PROGRAM [ARGUMENT ...] [VARIABLE=value ...]

A program under the library must end with code 0."""

import sys

import preload


def main():
    words = [word for word in sys.argv[1:] if "=" not in word]
    settings = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    result, checks = preload.run(words, preload.library(), settings), preload.Checks()
    print(result.out + result.err)
    if result.code == preload.SKIP:
        sys.exit(preload.SKIP)
    checks.that(result.code == 0, f"exit code {result.code}")
    checks.end()


if __name__ == "__main__":
    main()
