#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a text file as a C string: embed.py kernels.ptx kernels_ptx.c

Used by the build and by scripts/gpu-check."""

import sys


def embed(source, name="gcpt_ptx"):
    lines = [f"extern const char {name}[];", f"const char {name}[] ="]
    for line in source.splitlines():
        escaped = line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        lines.append(f'\t"{escaped}\\n"')
    return "\n".join(lines) + ";\n"


if __name__ == "__main__":
    with open(sys.argv[1]) as source, open(sys.argv[2], "w") as target:
        target.write(embed(source.read()))
