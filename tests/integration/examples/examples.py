# SPDX-License-Identifier: MIT
"""Runs examples/ on the simulated device: examples.py PROGRAM...

PROGRAM is an example that is built, example_NAME. The build hands over: GCPT_LIBRARY,
GCPT_SOURCES, GCPT_PATH (simulated libraries). What needs a GPU runs where one is."""

import os
import subprocess
import sys
import unittest

EXAMPLES = os.path.join(os.environ["GCPT_SOURCES"], "examples")
LAUNCHER = os.path.join(os.environ["GCPT_SOURCES"], "scripts", "gcpool")
MODULE = os.path.join(os.environ["GCPT_SOURCES"], "packaging", "python")
LIBRARY = os.environ["GCPT_LIBRARY"]
PROGRAMS = {os.path.basename(program).replace("example_", ""): program
            for program in sys.argv[1:]}
SKIP = 77


def run(command, pooled, **extra):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_", "LD_PRELOAD"))}
    env["LD_LIBRARY_PATH"] = os.environ["GCPT_PATH"]
    env.update(extra)
    before = [LAUNCHER, "--library", LIBRARY, "--"] if pooled else []
    return subprocess.run(before + command, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)


class Examples(unittest.TestCase):
    def program(self, name):
        if name not in PROGRAMS:
            self.skipTest("no compiler for %s here" % name)
        return [PROGRAMS[name]]

    def test_the_loop_gives_the_same_and_says_which_allocator_served(self):
        plain, pooled = (run(self.program("loop"), side) for side in (False, True))
        self.assertEqual((plain.returncode, pooled.returncode), (0, 0), pooled.stderr)
        self.assertEqual(plain.stdout, "1000 steps, 0 wrong bytes\n")
        self.assertEqual(pooled.stdout, plain.stdout)
        self.assertIn("allocations came from plain CUDA", plain.stderr)
        self.assertIn("allocations came from libgcpool", pooled.stderr)

    def test_the_graph_works_only_with_the_library(self):
        plain, pooled = (run(self.program("graph"), side) for side in (False, True))
        self.assertEqual(plain.returncode, 2, plain.stdout)
        self.assertTrue(plain.stdout.startswith("refused: "))
        self.assertEqual((pooled.returncode, pooled.stdout), (0, "100 replays, 0 wrong\n"))

    def test_python_asks_for_statistics(self):
        command = [sys.executable, os.path.join(EXAMPLES, "driver.py")]
        plain = run(command, False, PYTHONPATH=MODULE)
        self.assertEqual(plain.stdout, "1000 steps\nplain CUDA: start this with gcpool\n")
        pooled = run(command, True, PYTHONPATH=MODULE)
        self.assertEqual((pooled.returncode, pooled.stderr), (0, ""))
        self.assertRegex(pooled.stdout, r"^1000 steps\n9[789]\d of 1000 allocations without a call")

    def test_a_program_chooses_the_library(self):
        command = [sys.executable, os.path.join(EXAMPLES, "frameworks.py")]
        plain = run(command, False, PYTHONPATH=MODULE, LIBGCPOOL_PATH=LIBRARY)
        self.assertEqual((plain.returncode, plain.stdout),
                         (SKIP, "plain CUDA: start this with gcpool\n"))
        done = run(command, True, PYTHONPATH=MODULE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("pool: equal\n", done.stdout)
        self.assertIn("one pool: 2 allocations, 1 of them without", done.stdout)
        self.assertRegex(done.stdout, r"given back: [1-9]\d* MiB\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
