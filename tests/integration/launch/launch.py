"""Tests scripts/gcpool and scripts/gcpool-compare on the simulated device.

The build hands over: GCPT_SCRIPTS (the directory of the scripts), GCPT_LIBRARY,
GCPT_PATH (simulated libraries), GCPT_SOLVER and GCPT_ALLOCATE (programs)."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.environ["GCPT_SCRIPTS"]
LIBRARY = os.path.realpath(os.environ["GCPT_LIBRARY"])
SOLVER = [os.environ["GCPT_SOLVER"], "--steps", "10", "--size", "64k"]


def environment(**extra):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_", "LD_PRELOAD"))}
    env["LD_LIBRARY_PATH"] = os.environ["GCPT_PATH"]
    env.update(extra)
    return env


def run(script, *args, **extra):
    return subprocess.run([os.path.join(SCRIPTS, script), *args], env=environment(**extra),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120)


def launched(*args, **extra):
    """What the program sees, by name."""
    done = run("gcpool", "--library", LIBRARY, *args, "env", **extra)
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


class Launcher(unittest.TestCase):
    def test_adds_itself_once(self):
        once = launched()["LD_PRELOAD"]
        self.assertIn(LIBRARY, once.split(":"))
        self.assertEqual(launched(LD_PRELOAD=once)["LD_PRELOAD"], once)
        self.assertEqual(launched(LD_PRELOAD="")["LD_PRELOAD"], LIBRARY)

    def test_keeps_what_is_preloaded(self):
        env = launched(LD_PRELOAD="libm.so.6 libdl.so.2")
        self.assertEqual(env["LD_PRELOAD"], LIBRARY + ":libm.so.6 libdl.so.2")

    def test_options_become_variables(self):
        env = launched("--stats", "--count", "--log", "debug", "--set", "SEGMENT=64M",
                       "--set", "GCPOOL_QUOTA=1G", "--stats-file", "a b")
        wanted = {"STATS": "text", "MODE": "count", "LOG": "debug", "SEGMENT": "64M",
                  "QUOTA": "1G", "STATS_FILE": "a b"}
        for name, value in wanted.items():
            self.assertEqual(env["GCPOOL_" + name], value)
        self.assertEqual(launched("--stats", "json")["GCPOOL_STATS"], "json")
        self.assertEqual(launched("--stats=json")["GCPOOL_STATS"], "json")
        self.assertEqual(launched("--off")["GCPOOL_MODE"], "off")

    def test_hands_arguments_and_exit_code_on(self):
        done = run("gcpool", "--library", LIBRARY, "--", "sh", "-c",
                   'printf "%s|" "$@"; exit 7', "sh", "a b", "*", "--stats")
        self.assertEqual((done.returncode, done.stdout), (7, "a b|*|--stats|"))

    def test_says_what_is_wrong(self):
        for args, words in (
            ((), "no program to run"),
            (("--frobnicate", "true"), "unknown option '--frobnicate'"),
            (("--set", "segment", "true"), "--set needs NAME=VALUE"),
            (("--log",), "--log needs a value"),
            (("--library", "/nonexistent", "true"), "no file '/nonexistent'"),
        ):
            done = run("gcpool", *(("--library", LIBRARY) + args))
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(words, done.stderr)

    def test_finds_a_library_beside_itself(self):
        with tempfile.TemporaryDirectory() as place:
            for name in ("bin", "lib"):
                os.mkdir(os.path.join(place, name))
            script = os.path.join(place, "bin", "gcpool")
            with open(os.path.join(SCRIPTS, "gcpool")) as source, open(script, "w") as copy:
                copy.write(source.read())
            done = subprocess.run(["sh", script, "--where"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2)
            library = os.path.join(os.path.realpath(place), "lib", "libgcpool.so")
            open(library, "w").close()
            done = subprocess.run(["sh", script, "--where"], capture_output=True, text=True)
            self.assertEqual(done.stdout.strip(), library)


class Compare(unittest.TestCase):
    def compare(self, *command, runs="1", **extra):
        done = run("gcpool-compare", "-n", runs, "--library", LIBRARY, "--json", "-",
                   "--", *command, **extra)
        return done, json.loads(done.stdout) if done.stdout else None

    def test_a_solver_reaches_the_driver_less_often(self):
        done, result = self.compare(*SOLVER, runs="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        plain, pool = result["plain"], result["pool"]
        self.assertEqual(result["agree"], {"exit_code": "same", "output": "same"})
        self.assertEqual(plain["allocations"], pool["allocations"])
        self.assertEqual(plain["requested_bytes"], pool["requested_bytes"])
        self.assertEqual(plain["driver_calls"], plain["allocations"] + plain["frees"])
        self.assertLess(pool["driver_calls"], plain["driver_calls"] / 2)
        saved = pool["reports"][0]["devices"][0]["saved"]
        self.assertEqual(saved["allocs"], pool["hits"])
        self.assertLess(result["ratios"]["driver_calls"], 0.5)

    def test_the_table_names_both_sides(self):
        done = run("gcpool-compare", "-n", "1", "--library", LIBRARY, "--", *SOLVER)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("plain CUDA", "libgcpool", "calls that reached the driver",
                      "wall time, s", "peak asked for, MiB"):
            self.assertIn(words, done.stdout)

    def test_processes_are_added(self):
        twice = '"$@" && "$@"'
        done, result = self.compare("sh", "-c", twice, "sh", *SOLVER)
        single = self.compare(*SOLVER)[1]
        self.assertEqual(result["plain"]["processes"], 2)
        self.assertEqual(result["plain"]["allocations"], 2 * single["plain"]["allocations"])

    def test_a_python_program_is_compared(self):
        code = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
        done, result = self.compare(sys.executable, "-c", code, *SOLVER)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(result["pool"]["processes"], 1)

    def test_a_difference_is_reported(self):
        show = 'echo $GCPOOL_MODE; "$@"'
        done, result = self.compare("sh", "-c", show, "sh", *SOLVER)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(result["agree"]["output"], "differs")

    def test_output_that_varies_by_itself_is_no_difference(self):
        show = 'echo $$; "$@"'
        done, result = self.compare("sh", "-c", show, "sh", *SOLVER, runs="2")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(result["agree"]["output"], "varies")

    def test_a_failing_program_shows_its_last_words(self):
        allocate = os.environ["GCPT_ALLOCATE"]
        done, result = self.compare(allocate, GCPOOL_QUOTA="64M")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(result["exit_code"], {"plain": 0, "pool": 200})
        self.assertIn("pool run ended with exit code 200", done.stderr)
        self.assertIn("error 2", done.stderr)

    def test_a_program_without_cuda_cannot_be_compared(self):
        done, result = self.compare("true")
        self.assertEqual((done.returncode, result), (2, None))
        self.assertIn("no statistics from the plain runs", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
