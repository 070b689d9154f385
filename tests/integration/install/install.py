# SPDX-License-Identifier: MIT
"""Tests what `meson install` installs: install.py MESON

Installs into a staging directory and uses what is there on the simulated device. The
build hands over directories and programs in GCPT_ variables."""

import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ENV = os.environ
SKIP = 77
PREFIX = ENV["GCPT_PREFIX"]
SOLVER = [ENV["GCPT_SOLVER"], "--steps", "10", "--size", "64k"]
CXX = shutil.which(ENV.get("CXX", "c++"))
# What a program that includes gcpool.h may be written in.
C_DIALECTS = ["c89", "gnu89", "c99", "c11", "c17"]
CXX_DIALECTS = ["c++98", "c++11", "c++14", "c++17", "c++20"]

# A script in Python with 1 MiB of device memory.
ALLOCATES = """
import ctypes
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(found), 0) == 0
assert cuda.cuCtxSetCurrent(found) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(found), ctypes.c_size_t(1 << 20)) == 0
"""


def run(command, **extra):
    env = {name: value for name, value in ENV.items()
           if not name.startswith(("GCPOOL_", "GCPSIM_", "LD_PRELOAD", "DESTDIR"))}
    env["LD_LIBRARY_PATH"] = ENV["GCPT_PATH"]
    env.update(extra)
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=120)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = os.path.realpath(tempfile.mkdtemp(prefix="gcpool-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.place)
        done = run([MESON, "install", "-C", ENV["GCPT_BUILD"], "--no-rebuild"],
                   DESTDIR=cls.place)
        assert done.returncode == 0, done.stdout + done.stderr

    def at(self, directory, *names):
        """Where a file of the prefix lies in the staging directory."""
        path = os.path.join(PREFIX, ENV["GCPT_" + directory], *names)
        return os.path.join(self.place, path.lstrip("/"))

    def read(self, *names):
        return pathlib.Path(self.at(*names)).read_text()

    def compiles(self, command, text, ending):
        source = os.path.join(self.place, "probe" + ending)
        pathlib.Path(source).write_text(text)
        done = run([*command, "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                    "-I" + self.at("INCLUDEDIR"), source])
        self.assertEqual(done.returncode, 0, " ".join(command) + "\n" + done.stderr)

    def test_everything_is_there(self):
        for where, name in (
            ("BINDIR", "gcpool"), ("BINDIR", "gcpool-compare"), ("LIBDIR", "libgcpool.so"),
            ("LIBDIR", "gcpool/gcpool-info"), ("LIBDIR", "pkgconfig/gcpool.pc"),
            ("INCLUDEDIR", "gcpool.h"), ("MANDIR", "man1/gcpool.1"),
            ("MANDIR", "man1/gcpool-compare.1"), ("MANDIR", "man1/gcpool-trace.1"),
            ("BINDIR", "gcpool-trace"), ("LIBDIR", "gcpool/gcpool_trace/recording.py"),
            ("LIBDIR", "gcpool/gcpool_trace/live.py"), ("LIBDIR", "libgcpool-observe.so"),
            ("DATADIR", "bash-completion/completions/gcpool-trace"), ("MANDIR", "man7/gcpool.7"),
            ("DATADIR", "bash-completion/completions/gcpool"),
            ("DATADIR", "zsh/site-functions/_gcpool"),
            ("DATADIR", "zsh/site-functions/_gcpool-compare"),
            ("DATADIR", "zsh/site-functions/_gcpool-trace"),
            ("DATADIR", "fish/vendor_completions.d/gcpool.fish"),
            ("DATADIR", "fish/vendor_completions.d/gcpool-compare.fish"),
            ("DATADIR", "fish/vendor_completions.d/gcpool-trace.fish"),
            ("DATADIR", "doc/gcpool/README.md"), ("DATADIR", "doc/gcpool/COPYING"),
            ("DATADIR", "doc/gcpool/CHANGELOG.md"), ("DATADIR", "doc/gcpool/SECURITY.md"),
            ("DATADIR", "doc/gcpool/docs/install.md"), ("DATADIR", "doc/gcpool/examples/README.md")):
            self.assertTrue(os.path.isfile(self.at(where, name)), name)

    def test_nothing_else_is_there(self):
        """No test's library or program, and nothing that names the machine."""
        binaries = []
        for directory, _, names in os.walk(self.place):
            for name in names:
                with open(os.path.join(directory, name), "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        binaries.append(name)
        self.assertEqual(sorted(binaries), ["gcpool-info", "libgcpool-handles.so", "libgcpool-observe.so",
                                            "libgcpool.so"])
        for name in ("gcpool", "gcpool-compare", "gcpool-trace"):
            self.assertNotIn(ENV["GCPT_SOURCES"], self.read("BINDIR", name))

    def test_the_launcher_finds_the_library_that_was_installed_with_it(self):
        library = self.at("LIBDIR", "libgcpool.so")
        launcher = self.at("BINDIR", "gcpool")
        self.assertEqual(run([launcher, "--where"]).stdout, library + "\n")
        self.assertRegex(run([launcher, "--version"]).stdout,
                         r"^libgcpool %s( \(\S+\))?, %s\n$" % (
                             re.escape(ENV["GCPT_VERSION"]), re.escape(library)))
        self.assertIn("GCPOOL_MODE", run([launcher, "--options"]).stdout)
        link = os.path.join(self.place, "link")
        os.symlink(launcher, link)
        self.assertEqual(run([link, "--where"]).stdout, library + "\n")

    def test_a_program_runs(self):
        done = run([self.at("BINDIR", "gcpool"), "--stats", "json", "--", *SOLVER])
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stderr.splitlines()[-1])
        self.assertGreater(report["devices"][0]["hits"], 0)

    def test_a_recording_is_shown(self):
        trace = os.path.join(self.place, "run.trace")
        done = run([self.at("BINDIR", "gcpool"), "--", *SOLVER], GCPOOL_TRACE=trace)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run([self.at("BINDIR", "gcpool-trace"), trace])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("live at most", done.stdout)
        done = run([self.at("BINDIR", "gcpool"), "top", "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsInstance(json.loads(done.stdout), list)

    def test_pkg_config_names_header_and_library(self):
        if not shutil.which("pkg-config"):
            self.skipTest("no pkg-config here")
        pc = self.at("LIBDIR", "pkgconfig")

        def ask(*words):
            done = run(["pkg-config", *words, "gcpool"], PKG_CONFIG_PATH=pc,
                       PKG_CONFIG_ALLOW_SYSTEM_CFLAGS="1")
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()

        self.assertEqual(ask("--modversion"), ENV["GCPT_VERSION"])
        self.assertEqual(ask("--cflags"), "-I" + os.path.join(PREFIX, ENV["GCPT_INCLUDEDIR"]))
        self.assertEqual(ask("--libs"), "")
        self.assertEqual(ask("--variable=library"),
                         os.path.join(PREFIX, ENV["GCPT_LIBDIR"], "libgcpool.so"))

    def test_the_manual_has_every_option_and_no_placeholder(self):
        page = self.read("MANDIR", "man7", "gcpool.7")
        table = run([self.at("BINDIR", "gcpool"), "--options"]).stdout
        names = re.findall(r"^[* ] (GCPOOL_\w+)", table, re.M)
        self.assertGreater(len(names), 20)
        self.assertEqual(re.findall(r"^\.BR (GCPOOL_\w+) = ", page, re.M), names)
        for name in ("man1/gcpool.1", "man1/gcpool-compare.1", "man7/gcpool.7"):
            self.assertNotRegex(self.read("MANDIR", name), r"@[A-Z]+@")

    def test_the_manual_has_every_option_of_the_launcher(self):
        for script, page in (("gcpool", "gcpool.1"), ("gcpool-compare", "gcpool-compare.1")):
            said = run([self.at("BINDIR", script), "--help"]).stdout
            text = self.read("MANDIR", "man1", page).replace("\\-", "-")
            for option in sorted(set(re.findall(r"--[a-z][a-z-]+", said))):
                self.assertIn(option, text, page)

    def test_the_header_is_clean_in_every_dialect(self):
        text = '#include <gcpool.h>\nint main(void) { return GCPOOL_VERSION == 0; }\n'
        for dialect in C_DIALECTS:
            self.compiles([*CC, "-std=" + dialect, "-pedantic"], text, ".c")
        for dialect in CXX_DIALECTS if CXX else []:
            # C++98 has no <stdint.h> without a warning about long long.
            self.compiles([CXX, "-std=" + dialect, "-pedantic", "-Wno-long-long"], text, ".cpp")

    def test_the_python_module_reads_the_structures_as_the_compiler_does(self):
        sys.path.insert(0, os.path.join(ENV["GCPT_SOURCES"], "packaging", "python"))
        sys.dont_write_bytecode = True
        import gcpool

        structures = gcpool._structures()
        lines = ["#include <gcpool.h>", "#include <stdio.h>", "int main(void) {"]
        wanted = []
        for name in ("gcpool_stats", "gcpool_host_stats"):
            lines.append('printf("%%zu\\n", sizeof(struct %s));' % name)
            wanted.append(ctypes.sizeof(structures[name]))
            for field, _ in structures[name]._fields_:
                lines.append('printf("%%zu\\n", offsetof(struct %s, %s));' % (name, field))
                wanted.append(getattr(structures[name], field).offset)
        source, program = (os.path.join(self.place, "sizes" + end) for end in (".c", ""))
        pathlib.Path(source).write_text("\n".join(lines) + "\nreturn 0; }\n")
        done = run([*CC, "-I" + self.at("INCLUDEDIR"), source, "-o", program])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([int(word) for word in run([program]).stdout.split()], wanted)



class Packaging(unittest.TestCase):
    def test_python_says_that_the_library_is_not_there(self):
        module = os.path.join(ENV["GCPT_SOURCES"], "packaging", "python")
        done = run([sys.executable, "-m", "gcpool"], PYTHONPATH=module,
                   PYTHONDONTWRITEBYTECODE="1")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("libgcpool is not in this process; start it with: gcpool", done.stderr)
        done = run([sys.executable, "-c", "import gcpool; gcpool.statistics()"],
                   PYTHONPATH=module, PYTHONDONTWRITEBYTECODE="1")
        self.assertIn("RuntimeError: libgcpool is not in this process", done.stderr)


if __name__ == "__main__":
    MESON = sys.argv[1]
    CC = shlex.split(ENV["GCPT_CC"])
    if not MESON:
        print("no command meson here to install with")
        sys.exit(SKIP)
    unittest.main(argv=sys.argv[:1])
