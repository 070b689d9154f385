#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ipc_async.py IPC_PROGRAM

A block of stream-ordered memory is exported to another process: plain CUDA makes no
handle of it, the library does. A process without the library is refused."""

import sys

import preload

CASES = [
    # with the library, more environment, arguments, exit code
    (False, {}, [], 4),
    (True, {}, [], 0),
    (True, {}, ["--size", "3m"], 0),
    (True, {"GCPOOL_BACKEND": "vmm"}, [], 0),
    (True, {"GCPOOL_ASYNC": "0"}, [], 4),
    (True, {}, ["--child-plain"], 3),
    (True, {}, ["--child-off"], 3),
]


def main():
    checks = preload.Checks()
    for pooled, extra, arguments, code in CASES:
        library = preload.library() if pooled else None
        result = preload.run([sys.argv[1], "--async"] + arguments, library, extra)
        words = " ".join(["library" if pooled else "plain", str(extra)] + arguments)
        print(words, result.code, result.out + result.err)
        checks.that(result.code == code, f"{words}: exit code {result.code}")
        checks.clean(result, words)
    checks.end()


if __name__ == "__main__":
    main()
