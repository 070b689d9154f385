#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""musl.py SOURCE - a program of musl, which has no CUDA, runs under the library as
without it. Skipped where there is no musl-gcc."""

import os
import shutil
import subprocess
import sys
import tempfile

import preload


def main():
    if os.environ.get("GCPT_EMULATOR"):
        print("musl-gcc builds for this machine, the library is of another")
        sys.exit(preload.SKIP)
    if not shutil.which("musl-gcc"):
        print("no musl-gcc here")
        sys.exit(preload.SKIP)
    checks = preload.Checks()
    with tempfile.TemporaryDirectory() as place:
        program = os.path.join(place, "program")
        subprocess.run(["musl-gcc", "-o", program, sys.argv[1]], check=True)
        plain = preload.run([program])
        pooled = preload.run([program], preload.library(), {"GCPOOL_STATS": "text"})
    checks.that(plain.code == 0, f"musl itself: exit code {plain.code}\n{plain.err}")
    checks.equal("exit code", plain.code, pooled.code)
    checks.equal("output", plain.out, pooled.out)
    checks.equal("stderr", "", pooled.err)
    checks.end()


if __name__ == "__main__":
    main()
