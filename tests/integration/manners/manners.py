#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""manners.py MANNERS_PROGRAM CHECK

The library in a process and on a machine that are others': it writes into no file but its own
and the program's stderr, stops no program, and takes no other user's file for its own."""

import errno
import glob
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "..", "scripts")
sys.path.insert(0, os.path.join(HERE, "..", "preload"))

import preload  # noqa: E402

SECONDS = 60  # more than any of these programs takes


class Manners:
    def __init__(self, program, checks):
        self.program, self.checks = os.path.abspath(program), checks

    def begin(self, scenario, options=None, **how):
        env = preload.environment(preload.library(), options)
        how.setdefault("stdout", subprocess.DEVNULL)
        return subprocess.Popen([self.program, scenario], env=env, **how)

    def end(self, process):
        """The exit code; None: it had to be killed."""
        try:
            return process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def play(self, scenario, options=None):
        result = preload.run([self.program, scenario], preload.library(), options)
        self.checks.that(result.code == 0, f"{scenario}: exit code {result.code}\n"
                                           f"{result.out}{result.err}")
        return result

    # --- descriptor 2 -----------------------------------------------------------------

    def check_descriptor(self):
        """Statistics, help and messages go to what was opened as stderr, or nowhere."""
        for scenario in ("a_file_takes_the_place_of_stderr", "a_file_takes_it_after_an_allocation",
                         "a_file_that_is_closed_on_exec_takes_it", "a_connection_takes_it"):
            for options in (None, {"GCPOOL_LOG": "debug", "GCPOOL_STATS": "text"}):
                self.play(scenario, options)

    # --- a write does not wait --------------------------------------------------------

    def full_pipe(self):
        """One that blocks, as a shell makes it."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"f")
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        return reader, writer

    def check_full_pipe(self):
        for options in (None, {"GCPOOL_LOG": "debug", "GCPOOL_STATS": "text"}):
            reader, writer = self.full_pipe()
            process = self.begin("probes_for_memory", options, stderr=writer)
            self.checks.equal(f"{options}: exit code", 0, self.end(process))
            os.close(reader)
            os.close(writer)

    # --- recordings -------------------------------------------------------------------

    def until(self, what, there):
        """Waits until `there` gives something, and returns it."""
        found = preload.soon(there)
        self.checks.that(found, f"not within a minute: {what}")
        return found

    def working(self, scenario, options, words=(), **how):
        """A program that works until its stdin is closed."""
        env = preload.environment(preload.library(), options)
        return subprocess.Popen([*words, self.program, scenario], env=env, text=True,
                                stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdout=subprocess.PIPE, **how)

    def told(self, process):
        """Ends it; what it has said."""
        _, said = process.communicate(timeout=SECONDS)
        self.checks.equal("exit code", 0, process.returncode)
        return said

    def recorded(self, path):
        """The inode of the recording there, once it has begun."""
        return self.until("a recording", lambda: os.path.exists(path) and
                          os.path.getsize(path) > 1 << 20 and os.stat(path).st_ino)

    def check_recording_deletes_nothing(self):
        """A name that the program's user may have given is none of the library's."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "results")

            def measured():
                with open(f"{path}.{os.getpid()}", "w") as file:
                    file.write("a year")

            process = self.begin("probes_for_memory", {"GCPOOL_TRACE": path},
                                 stderr=subprocess.DEVNULL, preexec_fn=measured)
            self.checks.equal("exit code", 0, self.end(process))
            self.checks.equal("files", ["results", f"results.{process.pid}"],
                              sorted(os.listdir(directory)))

    def check_recordings_begin_together(self):
        """Of processes with the same name one records."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            processes = [self.working("works_until_told", {"GCPOOL_TRACE": path})
                         for _ in range(6)]
            first = self.recorded(path)
            for process in processes:
                process.stdout.read(1)
            said = [self.told(process) for process in processes]
            self.checks.equal("the others", 5, sum("it exists" in line
                                                   for line in said))
            self.checks.equal("the same file", first, os.stat(path).st_ino)
            self.checks.equal("files", ["trace"], os.listdir(directory))

    # --- signals ----------------------------------------------------------------------

    def check_exit_in_a_handler(self):
        """The handler may have interrupted the library anywhere, in this thread or another."""
        with tempfile.TemporaryDirectory() as directory:
            for options in ({"GCPOOL_STATS": "text"}, {"GCPOOL_TRACE": f"{directory}/%p"},
                            {"GCPOOL_DEBUG": "leaks", "GCPOOL_THREAD": "1", "GCPOOL_LIVE": "1"}):
                for what in ("ends_in_a_signal_handler", "ends_beside_a_signal_handler"):
                    begun = [self.begin(what, {"MANNERS_AFTER": str(9000 * i + 137), **options},
                                        stderr=subprocess.DEVNULL) for i in range(1, 5)]
                    self.checks.equal(f"{what} {options}", [0] * 4, [*map(self.end, begun)])

    # --- two users --------------------------------------------------------------------

    USER, OTHER = 65534, 65533
    LIVE = {"GCPOOL_LIVE": "1"}

    def said_until(self, process, word):
        """Waits until it has said the word."""
        fd, said = process.stderr.fileno(), b""
        os.set_blocking(fd, False)

        def there():
            nonlocal said
            try:
                said += os.read(fd, 4096)
            except BlockingIOError:
                pass
            return word.encode() in said

        self.until(f"{word!r} said", there)
        os.set_blocking(fd, True)

    def live(self, user, *words):
        """What `gcpool top` or `gcpool ctl` does for that user: code and stderr. The user may not
        read where the interpreter's modules are: all are there before."""
        code = (f"import locale, os, sys; sys.path.insert(0, {SCRIPTS!r});"
                "from gcpool_trace import live;"
                f"os.setgroups([]); os.setresgid(*[{user}] * 3); os.setresuid(*[{user}] * 3);"
                "live.main()")
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        return done.returncode, done.stderr

    def check_live_of_two_users(self):
        """No user has another one's process write a file, or show that user's page."""
        if os.getuid() != 0:
            sys.exit(preload.SKIP)
        preload.alone()
        for user in (self.USER, self.OTHER):
            shutil.rmtree(f"/dev/shm/gcpool.{user}", ignore_errors=True)
        try:
            self.acts_for_another()
            self.has_more_rights_later()
            self.has_another_users_directory()
        finally:
            for user in (self.USER, self.OTHER):
                shutil.rmtree(f"/dev/shm/gcpool.{user}", ignore_errors=True)

    def acts_for_another(self):
        process = self.working("acts_for_a_user_at_first", self.LIVE)
        self.said_until(process, "real and effective user differ")
        self.checks.equal("pages", [], glob.glob(f"/dev/shm/gcpool*{process.pid}"))
        self.told(process)

    def has_more_rights_later(self):
        process = self.working("user_becomes_root", self.LIVE)
        page = self.until("a page", lambda: glob.glob(f"/dev/shm/gcpool.{self.USER}/*.{process.pid}"))
        self.until("root", lambda: os.stat(f"/proc/{process.pid}").st_uid == 0 or None)
        code, said = self.live(self.USER, "ctl", str(process.pid), "stats")
        self.checks.that(code == 1 and "has ended, or runs another" in said, f"{code} {said}")
        # And without that: the user may write the page.
        at, stats = struct.calcsize("<8s2I"), 2
        with open(page[0], "r+b", buffering=0) as file:
            for where, number in ((at + 8, stats), (at, 1)):
                os.pwrite(file.fileno(), struct.pack("<I", number), where)
            answer = self.until("an answer", lambda: os.pread(file.fileno(), 16, at)[4] and
                                struct.unpack("<4I", os.pread(file.fileno(), 16, at)))
        self.checks.equal("the answer", (1, 1, stats, errno.EPERM), answer)
        self.checks.equal("files", page, glob.glob(f"/dev/shm/gcpool.{self.USER}/*"))
        self.told(process)

    def has_another_users_directory(self):
        place = f"/dev/shm/gcpool.{self.OTHER}"
        for user, mode in ((self.USER, 0o777), (self.OTHER, 0o770)):
            os.mkdir(place)
            os.chmod(place, mode)
            os.chown(place, user, user)
            process = self.working("is_another_user", self.LIVE)
            self.said_until(process, "GCPOOL_LIVE: cannot make")
            self.checks.equal("files", [], os.listdir(place))
            code, said = self.live(self.OTHER, "top", "--once")
            self.checks.that(code == 1 and "is not a directory of its user alone" in said,
                             f"{code} {said}")
            self.told(process)
            os.rmdir(place)


def main():
    checks = preload.Checks()
    getattr(Manners(sys.argv[1], checks), "check_" + sys.argv[2])()
    checks.end()


if __name__ == "__main__":
    main()
