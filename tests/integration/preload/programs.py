#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""programs.py SOURCE PROGRAM

Runs a program of ../programs as its first comment says, once for each line of

  Run: [MEMORY:] SCRIPT [ARGUMENT ...]    a script of this folder; @ is the program

and, in the first of its styles, for each line `Once: ...` of the same form: what does not
depend on how a program reaches CUDA. MEMORY is segments, mapped or both; without it, both in
that style of programs that are `Tried: everywhere`, and mapped, the library's default, else.
Where there are several devices memory is mapped only if it is asked for."""

import os
import subprocess
import sys

import found
import preload


def memories(words, both):
    memory = words.pop(0)[:-1] if words[0].endswith(":") else "both" if both else "mapped"
    if os.environ.get("GCPT_EMULATOR"):
        return ["segments"]
    return ["segments", "mapped"] if memory == "both" else [memory]


def main():
    source, program = sys.argv[1:]
    here, wrong = os.path.dirname(os.path.abspath(__file__)), []
    with open(source, encoding="utf-8") as file:
        says = preload.first_comment(file.read())
    style = says.get("Styles", found.STYLES).split()[0]
    first = program.endswith("-" + style) or os.environ.get("GCPT_EMULATOR")
    for run in [*says["Run"], *(says.get("Once", []) if first else [])]:
        words = run.split()
        for memory in memories(words, first and says.get("Tried") == "everywhere"):
            several = any(word.startswith("GCPSIM_DEVICES=") for word in words)
            backend = "segments" if memory == "segments" else "vmm" if several else "auto"
            print(f"-- {memory} {' '.join(words)}", flush=True)
            code = subprocess.run(
                [sys.executable, os.path.join(here, words[0]),
                 *(program if word == "@" else word for word in words[1:])],
                env={**os.environ, "GCPT_BACKEND": backend}, check=False).returncode
            if code not in (0, preload.SKIP):
                wrong.append(f"{memory} {' '.join(words)}: exit code {code}")
    print("\n".join(wrong) or "all right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
