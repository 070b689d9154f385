# SPDX-License-Identifier: MIT
"""Runs one misuse on the simulated device and checks how it ends:
misuse.py PROGRAM [--misuse NAME] [--plain CODE] [--code CODE] [--say LINE]...
          [NAME=VALUE]...

  --misuse NAME of the table in misuse.c (allocate, which does nothing wrong)
  --plain CODE  exit code on plain CUDA (0)
  --code CODE   exit code under the library (as --plain)
  --say LINE    a line of the library on stderr; without any, it must be silent.
                "libgcpool[pid]: " is left out
  --more        after these lines, it may say more
  --log LINE    the same in the file that GCPOOL_LOG_FILE=@ stands for
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--misuse", default="allocate")
    parser.add_argument("--plain", type=int, default=0)
    parser.add_argument("--code", type=int)
    parser.add_argument("--say", action="append", default=[])
    parser.add_argument("--log", action="append", default=[])
    parser.add_argument("--more", action="store_true")
    parser.add_argument("environment", nargs="*")
    return parser.parse_intermixed_args()


def run(options, library, log):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_")) and name != "LD_PRELOAD"}
    env.update(GCPSIM_MEMORY="1G", LD_LIBRARY_PATH=os.environ["GCPT_PATH"])
    # The pools live as long as the process, by design: they are no leak.
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    env.update(pair.split("=", 1) for pair in options.environment)
    if env.get("GCPOOL_LOG_FILE") == "@":
        env["GCPOOL_LOG_FILE"] = log
    if library:
        first = os.environ.get("GCPT_FIRST", "")
        env["LD_PRELOAD"] = ":".join(path for path in (first, library) if path)
    done = subprocess.run([options.program, options.misuse], env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def lines_of(text):
    """What the library said, without the process id and the commit it was built from."""
    return [re.sub(r"^libgcpool\[\d+\]: (version \S+(?= \())?(?(1) \([^)]*\))", r"\1", line)
            for line in text.splitlines()]


def check(what, got, wanted):
    if got != wanted:
        print("%s:\n  wanted %r\n  got    %r" % (what, wanted, got))
        return 1
    return 0


def main():
    options = arguments()
    options.say = [line.replace("@PROGRAM@", options.program) for line in options.say]
    if options.code is None:
        options.code = options.plain
    with tempfile.TemporaryDirectory() as directory:
        log = os.path.join(directory, "log")
        code, said = run(options, None, log)
        wrong = check("exit code, plain", code, options.plain)
        code, said = run(options, os.environ["GCPT_LIBRARY"], log)
        wrong += check("exit code", code, options.code)
        said = lines_of(said)
        if options.more:
            said = said[: len(options.say)]
        wrong += check("said on stderr", said, options.say)
        if os.path.exists(log):
            with open(log) as file:
                wrong += check("said in the log", lines_of(file.read()), options.log)
        else:
            wrong += check("said in the log", [], options.log)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
