# SPDX-License-Identifier: MIT
"""Tests what scripts/demo, test, trial and gpu-check say of bad input and of a machine
that lacks something: before anything is installed or built.

The build hands over: GCPT_SCRIPTS (the directory of the scripts)."""

import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPTS = os.environ["GCPT_SCRIPTS"]
ROOT = os.path.dirname(SCRIPTS)
WRONG_ARGUMENT, MISSING = 2, 3


def run(*command, **extra):
    env = {name: value for name, value in os.environ.items() if name not in ("BUILD", "SEED")}
    env.update(extra)
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)


def script(name, *args, **extra):
    return run(os.path.join(SCRIPTS, name), *args, **extra)


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
        self.root = os.path.join(place.name, "with a space")
        for name in ("scripts/lib.sh", "tests/systems/check"):
            target = os.path.join(self.root, name)
            os.makedirs(os.path.dirname(target))
            shutil.copy(os.path.join(ROOT, name), target)

    def build_place(self):
        done = library_call("echo $BUILD", ROOT=self.root, TMPDIR=self.shared)
        self.assertIn("takes no path with a colon or a space", done.stdout)
        return done.stdout.splitlines()[-1]

    def other_user(self, words):
        """A line of shell as another user."""
        if os.getuid() != 0:
            self.skipTest("only root can be two users")
        subprocess.run(["sh", "-euc", words], cwd=self.shared, user=65534, group=65534,
                       extra_groups=[], check=True)

    def test_a_path_with_a_space_is_built_in_a_place_of_this_user(self):
        place = self.build_place()
        self.assertRegex(place, f"^{self.shared}/gcpool-build-\\w{{10}}/build$")
        self.assertEqual(self.build_place(), place)
        os.chmod(os.path.dirname(place), 0o777)
        self.assertNotEqual(self.build_place(), place)

    def test_a_place_of_another_user_is_not_built_in(self):
        name = subprocess.run(["cksum"], input=f"{self.root}/build\n", capture_output=True,
                              text=True, check=True).stdout.split()[0]
        self.other_user(f"mkdir gcpool-build-0-{name}")
        place = os.path.dirname(self.build_place())
        self.assertEqual((os.stat(place).st_uid, os.stat(place).st_mode & 0o777), (0, 0o700))
        os.rmdir(place)
        self.other_user(f"mkdir -m 700 {place}")
        self.assertEqual(os.stat(os.path.dirname(self.build_place())).st_uid, 0)
        os.rmdir(place)
        self.other_user(f"ln -s '{self.root}' {place}")
        self.assertNotEqual(os.path.dirname(self.build_place()), place)

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


class BadInput(unittest.TestCase):
    def test_is_told_in_a_line(self):
        for name, args, words in (
            ("demo", ("fast",), "demo: takes no argument 'fast'"),
            ("test", ("--frobnicate",), "test: no such option: --frobnicate"),
            ("test", ("--all", "unit"), "test: --all stands alone"),
            ("trial", ("soon",), "trial: MINUTES must be a number, not 'soon'"),
            ("trial", ("-3",), "trial: MINUTES must be a number, not '-3'"),
            ("trial", ("0",), "trial: MINUTES must be above 0"),
            ("trial", ("0.0",), "trial: MINUTES must be above 0"),
            ("test-summary", (), "test-summary: FILE is needed, Meson's testlog.json"),
            ("trial", ("2", "--frobnicate"), "unrecognized arguments: --frobnicate"),
            ("gpu-check", ("--only", "everything"), "gpu-check: no such check: everything"),
            ("gpu-check", ("--frobnicate",), "unrecognized arguments: --frobnicate"),
        ):
            with self.subTest(name=name, args=args):
                done = script(name, *args)
                self.assertEqual(done.returncode, WRONG_ARGUMENT, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")


class GpuCheck(unittest.TestCase):
    def test_lists_on_stdout(self):
        done = script("gpu-check", "--list")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("safety: stress", done.stdout)
        self.assertNotIn(": \n", done.stdout)

    def test_without_a_gpu_refuses_and_touches_nothing(self):
        results = os.path.join(ROOT, "tests", "gpu", "results", "checks.md")
        before = os.stat(results).st_mtime_ns
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "libcuda.so.1"), "w") as driver:
                driver.write("no driver")
            done = script("gpu-check", LD_LIBRARY_PATH=place)
        self.assertEqual(done.returncode, WRONG_ARGUMENT)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertIn("no usable GPU here", done.stderr)
        self.assertEqual(os.stat(results).st_mtime_ns, before)


class Machine(unittest.TestCase):
    VARIED = ("id", "sudo", "apt-get")  # made up or left out by some

    @classmethod
    def setUpClass(cls):
        """A directory of all other commands of this machine, without ninja."""
        cls.others = tempfile.TemporaryDirectory()
        for where in os.environ["PATH"].split(":"):
            for name in os.listdir(where) if os.path.isdir(where) else []:
                path = os.path.join(cls.others.name, name)
                if name not in ("ninja", *cls.VARIED) and not os.path.lexists(path):
                    os.symlink(os.path.join(where, name), path)

    @classmethod
    def tearDownClass(cls):
        cls.others.cleanup()

    def tools(self, place, without, **programs):
        """A directory of the commands that vary, but some, and some made up."""
        for name in self.VARIED:
            path = shutil.which(name)
            if path and name not in without and name not in programs:
                os.symlink(path, os.path.join(place, name))
        for name, text in programs.items():
            path = os.path.join(place, name)
            with open(path, "w") as file:
                file.write("#!/bin/sh\n" + text)
            os.chmod(path, 0o755)

    def install(self, words, *without, **programs):
        """A line of shell on a machine without Ninja."""
        with tempfile.TemporaryDirectory() as place:
            self.tools(place, without, **programs)
            return library_call(words, PATH=f"{place}:{self.others.name}",
                                BUILD=os.path.join(place, "build"))

    def goes_on(self, *without, **programs):
        done = self.install("meson_find() { echo and builds; }; tools_install soon",
                            *without, **programs)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertTrue(done.stdout.endswith("and builds\n"), done.stdout)
        return done.stdout

    def test_without_sudo_goes_on(self):
        said = self.goes_on("sudo", id="echo 1000\n", **{"apt-get": "exit 1\n"})
        self.assertRegex(said, "going on without .*ninja-build.*: not root, and there is no sudo")

    def test_asks_for_no_password(self):
        said = self.goes_on(id="echo 1000\n", sudo='[ "$1" != -n ] && echo asked; exit 1\n',
                            **{"apt-get": "exit 1\n"})
        self.assertIn("sudo wants a password", said)
        self.assertNotIn("asked", said)

    def test_without_apt_goes_on(self):
        self.assertIn("there is no apt-get here", self.goes_on("apt-get", "sudo"))

    def test_without_a_compiler_says_so(self):
        done = self.install("CC=gcpt-no-cc; tools_install soon", "apt-get")
        self.assertEqual(done.returncode, MISSING, done.stdout)
        self.assertEqual(done.stderr, "demo: no C compiler with its headers here: install gcc and"
                                      " libc6-dev, or set CC\n")

    def test_meson_comes_from_pypi(self):
        """With a pip that writes what it was told to install."""
        with tempfile.TemporaryDirectory() as place:
            done = self.install(
                f"TOOLS='{place}/with a space'; pip_is_there() {{ :; }};"
                " pip_run() { mkdir -p \"$TOOLS/bin\" \"$TOOLS/mesonbuild\"; echo \"pip $*\" >&2;"
                " printf '#!/bin/sh\\n' >\"$TOOLS/bin/ninja\"; chmod +x \"$TOOLS/bin/ninja\";"
                " : >\"$TOOLS/mesonbuild/__init__.py\";"
                " echo 'def main(): print(\"1.2.3\")' >\"$TOOLS/mesonbuild/mesonmain.py\"; };"
                " meson_find; meson --version; command -v ninja; cat \"$TOOLS/log\"")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout.splitlines()[-3:], [
            "1.2.3", f"{place}/with a space/bin/ninja",
            f"pip install --upgrade --target {place}/with a space meson ninja"])

    def test_without_pip_says_so(self):
        done = self.install("TOOLS=/nonexistent; pip_is_there() { false; };"
                            " python3() { false; }; meson_find")
        self.assertEqual(done.returncode, MISSING, done.stdout)
        self.assertEqual(done.stderr, "demo: this Python has neither pip nor ensurepip, to fetch"
                                      " Meson and Ninja: install python3-pip or python3-venv\n")

    def test_modules_of_the_current_directory_are_not_run(self):
        with tempfile.TemporaryDirectory() as place:
            for name in ("pip", "zipfile", "ctypes", "venv"):
                with open(os.path.join(place, name + ".py"), "w") as file:
                    file.write("print('code of this directory runs')\n")
            done = library_call(f"cd '{place}'; pip_is_there python3 && pip_python=python3 &&"
                                " pip_run --version; gpu_name")
        self.assertNotIn("this directory", done.stdout + done.stderr)

    def test_old_headers_are_not_taken(self):
        for version, code in ((12040, 1), (12050, 0), (13000, 0)):
            with tempfile.TemporaryDirectory() as place:
                os.makedirs(os.path.join(place, "include", "crt"))
                for name in ("cuda.h", "cuda_runtime_api.h", "crt/host_config.h"):
                    with open(os.path.join(place, "include", name), "w") as header:
                        header.write(f"#define CUDA_VERSION {version}\n")
                done = library_call(f"cuda_usable '{place}' || exit 1")
                self.assertEqual(done.returncode, code, done.stderr)

    def test_headers_without_those_of_the_runtime_are_said(self):
        with tempfile.TemporaryDirectory() as place:
            os.mkdir(os.path.join(place, "include"))
            with open(os.path.join(place, "include", "cuda.h"), "w") as header:
                header.write("#define CUDA_VERSION 13000\n")
            done = library_call("cuda_usable() { false; }; cuda_headers_fetch() { false; };"
                                "pip_find() { :; }; cuda_find", CUDA_HOME=place)
        self.assertEqual(done.returncode, MISSING)
        self.assertIn("the CUDA headers here, of 13.0, are incomplete (no cuda_runtime_api.h or"
                      " crt/host_config.h): fetching them into build-cuda/", done.stdout)


if __name__ == "__main__":
    unittest.main()
