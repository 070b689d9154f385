# SPDX-License-Identifier: MIT
"""Tests that the scripts of the sources take no other user's directory for their own.

The build hands over: GCPT_SCRIPTS (the directory of the scripts)."""

import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = os.environ["GCPT_SCRIPTS"]
ROOT = os.path.dirname(SCRIPTS)
WRONG_ARGUMENT = 2


def run(*command, **extra):
    env = {name: value for name, value in os.environ.items() if name not in ("BUILD", "SEED")}
    env.update(extra)
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)


def library_call(words, **extra):
    """A line of shell after scripts/lib.sh."""
    return run("sh", "-eu", "-c", f'. "$ROOT/scripts/lib.sh"; {words}', "demo",
               **{"ROOT": ROOT, **extra})


class Places(unittest.TestCase):
    """Where other users can write, nothing is taken that may be theirs."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        os.chmod(place.name, 0o755)
        self.shared = os.path.join(place.name, "tmp")
        os.mkdir(self.shared)
        os.chmod(self.shared, 0o1777)
        self.root = os.path.join(place.name, "sources")
        for name in ("scripts/lib.sh", "tests/systems/check"):
            target = os.path.join(self.root, name)
            os.makedirs(os.path.dirname(target))
            shutil.copy(os.path.join(ROOT, name), target)

    def other_user(self, words):
        """A line of shell as another user."""
        if os.getuid() != 0:
            self.skipTest("only root can be two users")
        subprocess.run(["sh", "-euc", words], cwd=self.shared, user=65534, group=65534,
                       extra_groups=[], check=True)

    def test_nothing_is_built_in_a_path_that_the_loader_does_not_take(self):
        for place in ("with a space", "with:a colon"):
            done = library_call("echo not reached", BUILD=place)
            self.assertEqual((done.returncode, done.stdout), (WRONG_ARGUMENT, ""))
            self.assertIn("takes no path with a colon or a space", done.stderr)

    def test_a_system_of_another_user_is_not_entered(self):
        self.other_user("mkdir -p systems/bookworm && : >systems/bookworm/ready")
        tools = os.path.join(self.root, "tools")
        os.mkdir(tools)
        for name in ("chroot", "debootstrap", "mount", "umount", "git", "tar"):
            with open(os.path.join(tools, name), "w") as file:
                file.write(f"#!/bin/sh\necho ran {name}\n")
            os.chmod(os.path.join(tools, name), 0o755)
        done = run(os.path.join(self.root, "tests", "systems", "check"), "bookworm", "--dir",
                   os.path.join(self.shared, "systems"), TMPDIR=self.shared,
                   PATH=f"{tools}:{os.environ['PATH']}")
        self.assertEqual(done.returncode, WRONG_ARGUMENT, done.stdout + done.stderr)
        self.assertIn("is not this user's alone", done.stderr)
        self.assertNotIn("ran", done.stdout)


if __name__ == "__main__":
    unittest.main()
