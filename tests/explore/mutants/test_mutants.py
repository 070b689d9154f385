# SPDX-License-Identifier: MIT
"""Tests that mutants.py tells a finding from a test that breaks."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import generated
import mutants

FAILURE = "explore --seed 0x1 --ops 1,2: step 3 of 4 operations: hazard"


class Verdicts(unittest.TestCase):
    def test_what_a_test_says_is_a_finding(self):
        for said in (FAILURE, "not ok 3 - reuse_waits", "x\nWRONG: exit code -6",
                     "pool.c:12: gcp_free: Assertion `block' failed."):
            self.assertEqual(mutants.verdict_of(1, said), "FOUND", said)

    def test_a_program_that_ends_within_a_test_has_found_something(self):
        for code, said in ((255, "1..2\nok 1 - a"), (-11, "1..2\nok 1 - a"), (255, "1..1"),
                           (1, "1..1\nok 1 - a\n1..2\nok 1 - b")):
            self.assertEqual(mutants.verdict_of(code, said), "FOUND", said)
        self.assertEqual(mutants.what_it_said("1..2\nok 1 - a"),
                         "the program ended in its test 2")

    def test_a_test_that_breaks_has_found_nothing(self):
        for code, said in ((1, "Traceback (most recent call last):"), (2, "explore: cannot run"),
                           (127, "sh: no such program"), (77, "WRONG: but skipped"),
                           (-11, ""), (1, "1..1\nok 1 - a"), (77, "1..2\nok 1 - a")):
            self.assertEqual(mutants.verdict_of(code, said), "BROKEN", said)

    def test_a_library_that_does_not_load_is_broken(self):
        for words in ("ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded",
                      "x: symbol lookup error: y", "error while loading shared libraries: z"):
            for code in (0, 1):
                self.assertEqual(mutants.verdict_of(code, words + "\n" + FAILURE), "BROKEN")

    def test_a_good_end_is_no_finding(self):
        self.assertEqual(mutants.verdict_of(0, "ok 1 - reuse_waits"), "NOT FOUND")

    def test_slow_is_told_from_not_found(self):
        mutants.TIMEOUT_S = 0.2
        trials = mutants.Trials.__new__(mutants.Trials)
        self.assertEqual(trials.started(["sleep", "5"], None, None)[0], "TIMEOUT")
        self.assertEqual(trials.started(["/nonexistent/program"], None, None)[0], "BROKEN")

    def test_a_test_ends_with_its_first_finding(self):
        trials = mutants.Trials.__new__(mutants.Trials)
        for words in ("not ok 3 - reuse_waits", "WRONG: exit code -6"):
            verdict, _, said = trials.started(
                [sys.executable, "-c", f"import time; print('{words}'); time.sleep(60);"
                 "print('af' + 'ter')"], None, None)
            self.assertEqual((verdict, mutants.what_it_said(said) in words), ("FOUND", True))
            self.assertNotIn("after", said)

    def test_a_library_that_does_not_load_is_no_finding_of_a_test(self):
        trials = mutants.Trials.__new__(mutants.Trials)
        for words in ("x.so cannot be preloaded\nWRONG: no library",
                      "WRONG: not there: x.so cannot be preloaded"):
            self.assertEqual(trials.started(["printf", words + "\n"], None, None)[0], "BROKEN")

    def test_an_explorer_that_could_not_run_has_found_nothing(self):
        trials = mutants.Trials.__new__(mutants.Trials)
        with tempfile.TemporaryDirectory() as folder:
            for status, verdict in ((1, "FOUND"), (2, "BROKEN"), (0, "NOT FOUND")):
                explorer = os.path.join(folder, "explore")
                with open(explorer, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\necho '{FAILURE}'\nexit {status}\n")
                os.chmod(explorer, 0o755)
                self.assertEqual(trials.started([explorer], None, None)[0], verdict)

    def test_what_takes_long_is_tried_first(self):
        judged = [(None, "unit/fence", "NOT FOUND", 0.5, "1 run", ""),
                  (None, "preload/live_view", "NOT FOUND", 14, "1 run", ""),
                  (None, "explore", "NOT FOUND", 12, "0 of 500", "")]
        planned = [("a", "unit/fence", 0), ("b", "explore", 100), ("c", "explore", 1000),
                   ("d", "preload/live_view", 0)]
        self.assertEqual("".join(plan[0] for plan in mutants.longest_first(planned, judged)),
                         "dcba")

    def test_each_test_runs_without_a_bug_with_the_most_seeds(self):
        planned = [("a", "explore", 100), ("b", "explore", 500), ("a", "unit/fence", 0)]
        self.assertEqual(mutants.unchanged(planned),
                         [(None, "explore", 500), (None, "unit/fence", 0)])

    def test_the_files_to_change_are_there(self):
        root = generated.pathlib.Path(__file__).resolve().parents[3]
        for source in generated.FILES:
            self.assertTrue((root / source).is_file(), source)

    def test_objects_are_named_as_the_build_names_them(self):
        for source, name in (("capture/order.c", "capture/libcapture.a.p/order.c.o"),
                             ("pool/timeline/fence.c", "pool/libpool.a.p/timeline_fence.c.o")):
            self.assertEqual(generated.object_of(source), name)

    def test_a_change_that_is_none_gives_the_same_object(self):
        for after, same in (("#include <assert.h>\nvoid f(int i) { { assert(i); } }\n", True),
                            ("#include <assert.h>\nvoid f(int i) { { assert(!i); } }\n", False)):
            with tempfile.TemporaryDirectory() as folder:
                place = generated.pathlib.Path(folder)
                (place / "a.c").write_text("#include <assert.h>\nvoid f(int i) { assert(i); }\n")
                (place / "a.mutant.7.c").write_text(after)
                trial = generated.Trial(OneFile(place), "a.c", place / "a.mutant.7.c", 0, [])
                trial.looked_for = lambda _: "other code"
                self.assertEqual(trial.verdict(), "same code" if same else "other code")


class OneFile:
    """A build of one file."""

    def __init__(self, path):
        self.path = self.root = path

    def compiling(self, source):
        return f"cc -O1 -o {source}.o -c {source}", f"{source}.o", self.root / source


if __name__ == "__main__":
    unittest.main()
