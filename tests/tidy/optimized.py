# SPDX-License-Identifier: MIT
"""Builds the library with link-time optimization, which takes statements of assembler
away from their functions, and with flags that fortify, as packages have them; checks
what it exports and needs: optimized.py MESON SOURCES CUDA TABLE. TABLE is the program
that prints the tables of hooks. Exit code 77: no meson."""

import os
import subprocess
import sys
import tempfile


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-3000:])
        sys.exit(1)


def main():
    meson, sources, cuda, table = sys.argv[1:]
    if not meson:
        print("no command meson here to set up a build with")
        sys.exit(77)
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as place:
        run(meson, "setup", place, sources, "-Db_lto=true", "-Doptimization=1", "-Dcuda=" + cuda,
            "-Dc_args=-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2")
        run("ninja", "-C", place, "libgcpool.so")
        for check in (("exports", table, os.path.join(sources, "interpose", "gcpool.h")),
                      ("glibc",)):
            run(sys.executable, os.path.join(here, "binary.py"),
                os.path.join(place, "libgcpool.so"), *check)


if __name__ == "__main__":
    main()
