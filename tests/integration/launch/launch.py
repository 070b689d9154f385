# SPDX-License-Identifier: MIT
"""Tests scripts/gcpool and scripts/gcpool-compare on the simulated device.

The build hands over: GCPT_SCRIPTS (the directory of the scripts), GCPT_LIBRARY,
GCPT_PATH (simulated libraries), GCPT_SOLVER and GCPT_MISUSE (programs)."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = os.environ["GCPT_SCRIPTS"]
LIBRARY = os.path.realpath(os.environ["GCPT_LIBRARY"])
SOLVER = [os.environ["GCPT_SOLVER"], "--steps", "10", "--size", "64k"]


def environment(**extra):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_", "LD_PRELOAD", "ASAN_"))}
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

    def test_takes_nothing_of_the_current_directory(self):
        with tempfile.TemporaryDirectory() as place:
            there = os.path.join(place, "@LIBDIR@", "gcpool", "gcpool_trace")
            os.makedirs(there)
            for name in ("../../libgcpool.so", "__init__.py", "live.py"):
                with open(os.path.join(there, name), "w") as file:
                    file.write("print('code of this directory runs')\n")
            for script in ("gcpool", "gcpool-trace"):  # with the rest of the sources, or alone
                shutil.copy(os.path.join(SCRIPTS, script), os.path.join(place, script))
            for words in ([SCRIPTS + "/gcpool", "--where"], [SCRIPTS + "/gcpool-trace", "--help"],
                          [place + "/gcpool", "--where"], [place + "/gcpool", "top"]):
                done = subprocess.run(words, cwd=place, env=environment(), capture_output=True,
                                      text=True, timeout=60)
                self.assertNotIn("@LIBDIR@", done.stdout, words)
                self.assertNotIn("code of this directory", done.stdout + done.stderr, words)

    def test_says_that_the_library_cannot_be_loaded(self):
        program = os.environ.get("GCPT_STATIC")
        if not program or not shutil.which("ldd"):
            self.skipTest("no static libc here, or no ldd")
        done = run("gcpool", "--library", LIBRARY, "--stats", program)
        self.assertEqual((done.returncode, done.stderr), (
            0, "gcpool: '%s' is statically linked: the library is not loaded into it\n" % program))
        self.assertEqual(run("gcpool", "--library", LIBRARY, program).stderr, "")
        if os.getuid():
            return
        with tempfile.TemporaryDirectory() as place:
            copy = shutil.copy(program, place)
            os.chown(copy, 65534, 65534)
            os.chmod(copy, 0o4755)
            done = run("gcpool", "--library", LIBRARY, "--stats", copy)
            self.assertEqual(done.stderr, "gcpool: '%s' runs with the rights of another user or"
                             " group: the library is not loaded into it\n" % copy)

    def test_options_become_variables(self):
        env = launched("--stats", "--log", "debug", "--set", "SEGMENT=64M",
                       "--set", "GCPOOL_QUOTA=1G", "--stats-file", "a b")
        wanted = {"STATS": "text", "LOG": "debug", "SEGMENT": "64M",
                  "QUOTA": "1G", "STATS_FILE": "a b"}
        for name, value in wanted.items():
            self.assertEqual(env["GCPOOL_" + name], value)
        self.assertEqual(launched("--stats", "json")["GCPOOL_STATS"], "json")
        self.assertEqual(launched("--stats=json")["GCPOOL_STATS"], "json")
        self.assertEqual(launched("--off")["GCPOOL_MODE"], "off")
        self.assertEqual(launched("--as", "24G")["GCPOOL_QUOTA"], "24G")
        self.assertEqual(launched("--handles")["LD_PRELOAD"].split(":")[-2:], [
            LIBRARY, os.path.join(os.path.dirname(LIBRARY), "libgcpool-handles.so")])

    def test_hands_arguments_and_exit_code_on(self):
        done = run("gcpool", "--library", LIBRARY, "--", "sh", "-c",
                   'printf "%s|" "$@"; exit 7', "sh", "a b", "*", "--stats")
        self.assertEqual((done.returncode, done.stdout), (7, "a b|*|--stats|"))

    def test_says_what_is_wrong(self):
        for args, words in (
            ((), "no program to run, see --help"),
            (("--",), "no program to run, see --help"),
            (("--frobnicate", "true"), "unknown option '--frobnicate', see --help"),
            (("-x", "true"), "unknown option '-x', see --help"),
            (("--set", "segment", "true"), "--set needs NAME=VALUE, not 'segment'"),
            (("--set", "segment=1", "true"), "--set needs NAME=VALUE, not 'segment=1'"),
            (("--set", "A B=1", "true"), "--set needs NAME=VALUE, not 'A B=1'"),
            (("--set",), "--set needs a value, see --help"),
            (("--log",), "--log needs a value, see --help"),
            (("--log", "./app"), "--log needs off, error, warn, info or debug, not './app'"),
            (("--stats-file", "./app"),
             "no program to run ('./app' is the file of --stats-file), see --help"),
            (("--stats-file",), "--stats-file needs a value, see --help"),
            (("--library",), "--library needs a value, see --help"),
            (("--library", "/nonexistent", "true"), "no file '/nonexistent'"),
            (("--options", "true"), "--options runs no program, and there is 'true'"),
            (("--version", "true"), "--version runs no program, and there is 'true'"),
            (("--library", os.path.join(SCRIPTS, "gcpool"), "--version"),
             "'%s' is not libgcpool: %s: invalid ELF header" % ((os.path.join(
                 SCRIPTS, "gcpool"),) * 2)),
            (("--where", "true"), "--where runs no program, and there is 'true'")):
            done = run("gcpool", *(("--library", LIBRARY) + args))
            self.assertEqual((done.returncode, done.stdout), (2, ""), args)
            self.assertEqual(done.stderr, "gcpool: %s\n" % words)

    def test_prints_options_with_the_values_in_force(self):
        done = run("gcpool", "--library", LIBRARY, "--options")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [line for line in done.stdout.splitlines() if "GCPOOL_" in line]
        self.assertTrue(any("GCPOOL_QUOTA" in row for row in rows))
        self.assertFalse([row for row in rows if row.startswith("*")])
        done = run("gcpool", "--library", LIBRARY, "--set", "QUOTA=8G", "--options",
                   GCPOOL_MODE="off")
        changed = [line.split()[1:4] for line in done.stdout.splitlines()
                   if line.startswith("*")]
        self.assertIn(["GCPOOL_MODE", "pool", "off"], changed)
        self.assertTrue(any(row[0] == "GCPOOL_QUOTA" for row in changed))
        self.assertEqual(done.stderr, "")

    def test_complains_of_wrong_options_as_the_library_does(self):
        done = run("gcpool", "--library", LIBRARY, "--set", "QOUTA=8G", "--options")
        self.assertEqual(done.returncode, 2)
        self.assertIn("GCPOOL_QOUTA is not an option", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("GCPOOL_QUOTA", done.stdout)



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
        self.assertLess(pool["driver_calls"], (pool["allocations"] + pool["frees"]) / 2)
        for side in (plain, pool):
            self.assertGreater(side["seconds"], 0)
            self.assertGreater(side["peak_host_bytes"], 1 << 20)
        self.assertEqual(set(result["ratios"]), {"seconds", "peak_host_bytes"})

    def test_a_difference_is_reported(self):
        show = 'echo $GCPOOL_MODE; "$@"'
        done, result = self.compare("sh", "-c", show, "sh", *SOLVER)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(result["agree"]["output"], "differs")

    def test_a_failing_program_shows_its_last_words(self):
        allocate = os.environ["GCPT_MISUSE"]
        done, result = self.compare(allocate, GCPOOL_QUOTA="64M")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(result["exit_code"], {"plain": 0, "pool": 200})
        self.assertIn("pool run ended with exit code 200", done.stderr)
        self.assertIn("error 2", done.stderr)

    def test_a_program_without_cuda_cannot_be_compared(self):
        done, result = self.compare("true")
        self.assertEqual((done.returncode, result), (2, None))
        self.assertIn("no statistics: the program made no CUDA allocation", done.stderr)

    def test_a_program_that_is_not_there_is_told_once(self):
        done, result = self.compare("/nonexistent")
        self.assertEqual((done.returncode, result), (2, None))
        self.assertIn("/nonexistent", done.stderr)
        self.assertNotIn("no statistics", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
