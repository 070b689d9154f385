# SPDX-License-Identifier: MIT
"""Tests that mutants.py tells a finding from a test that breaks, and what mutate changes."""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import changed

loader = importlib.machinery.SourceFileLoader("mutate", os.path.join(HERE, "mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)

FAILURE = "explore --seed 0x1 --ops 1,2: step 3 of 4 operations: hazard"


class Verdicts(unittest.TestCase):
    def test_what_a_test_says_is_a_finding(self):
        for said in (FAILURE, "not ok 3 - reuse_waits", "x\nWRONG: exit code -6",
                     "pool.c:12: gcp_free: Assertion `block' failed."):
            for code in (1, 2):
                self.assertEqual(changed.verdict(code, said), "FOUND", said)

    def test_a_program_that_ends_within_a_test_has_found_something(self):
        for code, said in ((255, "1..2\nok 1 - a"), (-11, "1..2\nok 1 - a"), (255, "1..1"),
                           (1, "1..1\nok 1 - a\n1..2\nok 1 - b")):
            self.assertEqual(changed.verdict(code, said), "FOUND", said)
        self.assertEqual(changed.finding("1..2\nok 1 - a"), "the program ended in its test 2")

    def test_a_test_that_breaks_has_found_nothing(self):
        for code, said in ((1, "Traceback (most recent call last):"), (127, "sh: no such program"),
                           (77, "WRONG: but skipped"), (-11, ""), (1, "1..1\nok 1 - a"),
                           (77, "1..2\nok 1 - a"), (changed.CANNOT, FAILURE)):
            self.assertEqual(changed.verdict(code, said), "BROKEN", said)

    def test_a_library_that_does_not_load_is_broken(self):
        for words in ("ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded",
                      "x: symbol lookup error: y", "error while loading shared libraries: z"):
            for code in (0, 1):
                self.assertEqual(changed.verdict(code, words + "\n" + FAILURE), "BROKEN")

    def test_a_good_end_is_no_finding(self):
        self.assertEqual(changed.verdict(0, "ok 1 - reuse_waits"), "NOT FOUND")

    def test_slow_is_told_from_not_found(self):
        self.assertEqual(changed.verdict(*changed.started(["sleep", "5"], None, None, 0.2)), "TIMEOUT")
        self.assertEqual(changed.verdict(*changed.started(["/nonexistent"], None, None)), "BROKEN")

    def test_an_explorer_that_could_not_run_has_found_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            build = type("Build", (), {"path": folder})
            os.makedirs(os.path.join(folder, "tests/explore"))
            for status, verdict in ((1, "FOUND"), (2, "BROKEN"), (0, "NOT FOUND")):
                explorer = os.path.join(folder, "tests/explore/explore")
                with open(explorer, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho '{FAILURE}'\nexit {status}\n")
                os.chmod(explorer, 0o755)
                self.assertEqual(changed.verdict(*changed.explorer(build, "x.so")), verdict)


class Changes(unittest.TestCase):
    def changes(self, *lines):
        return [after for _, after, _ in mutate.changes_of(list(lines), 1)]

    def test_a_condition_is_negated_and_swapped(self):
        self.assertEqual(self.changes("\tif (a < b)"), ["if (a <= b)", "if (!(a < b))"])

    def test_a_statement_goes_or_the_function_returns_there(self):
        self.assertEqual(self.changes("\tgcp_free(pool,", "\t\t block);"), [";", "return 0;"])

    def test_declarations_and_comments_stay(self):
        for line in ("\tuint64_t epoch;", "/* if (a) */", " * text;", "#define X 1", "\tbreak;"):
            self.assertEqual(self.changes(line), [], line)


if __name__ == "__main__":
    unittest.main()
