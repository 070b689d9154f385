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


def run(command, pooled, simulated=True, **extra):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_", "LD_PRELOAD"))}
    # The build puts the simulated libraries into the path by itself.
    places = env.get("LD_LIBRARY_PATH", "").split(":")
    own = os.environ["GCPT_PATH"].split(":")
    env["LD_LIBRARY_PATH"] = ":".join(own if simulated else
                                      [place for place in places if place not in own])
    env.update(extra)
    before = [LAUNCHER, "--library", LIBRARY, "--"] if pooled else []
    return subprocess.run(before + command, env=env, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120)


def gpu_here():
    ask = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"
    return run([sys.executable, "-c", ask], False, simulated=False).returncode == 0


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

    def test_without_the_wheel_it_says_so(self):
        done = run([sys.executable, "-IS", os.path.join(EXAMPLES, "frameworks.py")], False)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (SKIP, "the wheel of gcpool is not installed\n", ""))

    def test_frameworks_on_a_gpu(self):
        for name, extra in (("cupy_graph.py", {}),
                            ("torch_graph.py", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})):
            with self.subTest(name):
                if not gpu_here():
                    self.skipTest("%s: no GPU here" % name)
                done = run([sys.executable, os.path.join(EXAMPLES, name)], True,
                           simulated=False, **extra)
                if done.returncode == SKIP:
                    self.skipTest("%s: %s" % (name, done.stdout.strip()))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
