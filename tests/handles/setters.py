#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""setters.py PROGRAM DIRECTORY...

Each setter that the libraries in these directories export stands in the table of
handles, with its getter. PROGRAM (setters.c) looks names up in the table. Skipped
where none of the libraries is; a made-up setter is always looked up, too."""

import glob
import os
import subprocess
import sys

SKIP = 77
LIBRARIES = {
    "cublas": "libcublas.so.1[23]", "cudnn": "libcudnn.so.9",
    "cusolverDn": "libcusolver.so.1[12]", "cusolverSp": "libcusolver.so.1[12]"}


def exported(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", path], check=True,
                             capture_output=True, text=True).stdout
    return [line.split()[-1].split("@")[0] for line in listing.splitlines() if line.strip()]


def looked_up(program, kind, names):
    return subprocess.run([program, kind], input="\n".join(names) + "\n", check=True,
                          capture_output=True, text=True).stdout.splitlines()


def main():
    program, places = sys.argv[1], sys.argv[2:]
    wrong, seen = [], 0
    for kind, pattern in LIBRARIES.items():
        if f"unknown {kind}SetTiling" not in looked_up(program, kind, [f"{kind}SetTiling"]):
            wrong.append(f"{kind}: a made-up setter is not noticed")
        for path in sorted({os.path.realpath(p) for place in places
                            for p in glob.glob(os.path.join(place, pattern))}):
            seen += 1
            lines = looked_up(program, kind, exported(path))
            known = sum(line.startswith("has ") for line in lines)
            print(f"{kind} in {os.path.basename(path)}: {known} settings")
            wrong += [f"{path}: {line}" for line in lines
                      if line.startswith(("unknown ", "missing "))]
    print("\n".join("WRONG: " + line for line in wrong))
    if not seen:
        print("none of the libraries is here: cuBLAS, cuDNN, cuSOLVER")
    sys.exit(1 if wrong else 0 if seen else SKIP)


if __name__ == "__main__":
    main()
