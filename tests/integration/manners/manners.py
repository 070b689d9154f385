#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""manners.py MANNERS_PROGRAM CHECK

The library in a process and on a machine that are others': it writes into no file but its own
and the program's stderr, stops no program, and takes no other user's file for its own."""

import errno
import glob
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SCRIPTS = os.path.join(HERE, "..", "..", "..", "scripts")
sys.path.insert(0, os.path.join(HERE, "..", "preload"))

import preload  # noqa: E402

SECONDS = 20  # more than any of these programs takes


class Manners:
    def __init__(self, program, checks):
        self.program, self.checks = os.path.abspath(program), checks

    def begin(self, scenario, options=None, library=True, **how):
        env = preload.environment(preload.library() if library else None, options)
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
            for options in (None, {"GCPOOL_LOG": "debug", "GCPOOL_STATS": "text",
                                   "GCPOOL_STATS_EVERY": "1", "GCPOOL_HELP": "1"}):
                self.play(scenario, options)

    def check_stderr_moves(self):
        process = self.begin("stderr_is_another_terminal_or_pipe_later", {"GCPOOL_STATS": "json"},
                             stderr=subprocess.PIPE, text=True)
        _, said = process.communicate(timeout=SECONDS)
        for word in ("out of memory", '"final": true'):
            self.checks.that(word in said, f"no {word!r} in {said!r}")

    def check_file(self):
        """A file as stderr from the beginning gets it all."""
        with tempfile.TemporaryFile() as said:
            process = self.begin("probes_for_memory", {"GCPOOL_STATS": "json"}, stderr=said)
            self.checks.equal("exit code", 0, self.end(process))
            said.seek(0)
            text = said.read().decode()
            self.checks.that("out of memory" in text and '"final": true' in text, text)

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
        for options in (None, {"GCPOOL_LOG": "debug", "GCPOOL_STATS": "text", "GCPOOL_HELP": "1"}):
            reader, writer = self.full_pipe()
            began = time.monotonic()
            process = self.begin("probes_for_memory", options, stderr=writer)
            self.checks.equal(f"{options}: exit code", 0, self.end(process))
            took = time.monotonic() - began
            self.checks.that(took < 5, f"{options}: {took:.1f} s")
            os.close(reader)
            os.close(writer)

    def check_room_for_one(self):
        """Many write to one pipe that nothing reads, and find room at the same time."""
        reader, writer = self.full_pipe()
        os.read(reader, 4096)
        options = {"GCPOOL_LOG": "debug", "GCPOOL_HELP": "1", "GCPOOL_STATS": "text"}
        processes = [self.begin("probes_for_memory", options, stderr=writer)
                     for _ in range(8)]
        self.checks.equal("exit codes", [0] * 8, [self.end(process) for process in processes])
        os.close(reader)
        os.close(writer)

    def check_slow_reader(self):
        """What is read late, and in small parts, is whole."""
        reader, writer = self.full_pipe()
        process = self.begin("probes_for_memory", {"GCPOOL_STATS": "json"}, stderr=writer)
        os.close(writer)
        said = b""
        while True:
            time.sleep(0.01)
            part = os.read(reader, 2000)
            if not part:
                break
            said += part
        os.close(reader)
        self.checks.equal("exit code", 0, self.end(process))
        said = said.lstrip(b"f")
        self.checks.that(said.startswith(b"libgcpool[") and said.endswith(b"}\n"), f"{said!r}")

    def background(self, options, library):
        """How a job in the background of a terminal ends that stops those which write."""
        pid, master = pty.fork()
        if pid == 0:
            mode = termios.tcgetattr(0)
            mode[3] |= termios.TOSTOP
            termios.tcsetattr(0, termios.TCSANOW, mode)
            process = self.begin("probes_for_memory", options, library, preexec_fn=os.setpgrp)
            state = 2
            for _ in range(10 * SECONDS):
                time.sleep(0.1)
                done, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
                if done:
                    state = 3 if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
                    break
            if state > 1:
                os.kill(process.pid, signal.SIGKILL)
            os._exit(state)
        said = b""
        try:
            while True:
                said += os.read(master, 4096)
        except OSError:
            pass
        os.close(master)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said

    def check_background(self):
        try:
            os.close(pty.openpty()[0])
        except OSError as error:  # a chroot without /dev/pts
            print(f"left out: {error}")
            sys.exit(preload.SKIP)
        for options in ({}, {"GCPOOL_STATS": "text", "GCPOOL_HELP": "1"}):
            code, said = self.background(options, True)
            self.checks.equal(f"{options}: ends as", self.background(options, False)[0], code)
            self.checks.that(b"out of memory" in said, f"{said!r}")

    # --- locked memory ----------------------------------------------------------------

    def check_locked_memory(self):
        if preload.sanitized():
            sys.exit(preload.SKIP)
        for scenario in ("memory_is_locked_before", "memory_is_locked_later"):
            if preload.run([self.program, scenario], extra={"GCPSIM_MEMORY": "64M"}).code:
                sys.exit(preload.SKIP)  # not allowed here, or not without the library either
            for options in ({}, {"GCPOOL_STATS": "text", "GCPOOL_LIVE": "1"}):
                self.play(scenario, {"GCPSIM_MEMORY": "64M", **options})

    # --- recordings -------------------------------------------------------------------

    def until(self, what, there):
        """Waits until `there` gives something, and returns it."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            found = there()
            if found:
                return found
            time.sleep(0.02)
        self.checks.that(False, f"not within {SECONDS} s: {what}")
        return None

    def working(self, scenario, options, words=(), **how):
        """A program that works until its stdin is closed."""
        env = preload.environment(preload.library(), options)
        return subprocess.Popen([*words, self.program, scenario], env=env, text=True,
                                stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdout=subprocess.DEVNULL, **how)

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

    def left_alone(self, path, words):
        """A program that would record there says why not, and the file stays."""
        before = os.stat(path).st_ino
        result = self.play("probes_for_memory", {"GCPOOL_TRACE": path})
        self.checks.that(words in result.err, f"{result.err!r}")
        self.checks.equal("the same file", before, os.stat(path).st_ino)

    def check_recording_of_a_process_without_its_first_thread(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            process = self.working("first_thread_ends", {"GCPOOL_TRACE": path})
            self.recorded(path)
            self.left_alone(path, "is written by another process")
            self.told(process)

    def check_recording_of_a_process_elsewhere(self):
        """Of which nothing can be seen here."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            self.play("probes_for_memory", {"GCPOOL_TRACE": path})
            with open(path, "rb") as file:
                ended = file.read(4096)
            for at, change in ((96, b"elsewhere\0"), (416, b"\1\2\3\4\5\6\7\0")):
                header = bytearray(ended)
                header[64:72] = bytes(8)  # when it ended
                header[at:at + len(change)] = change
                with open(path, "wb") as file:
                    file.write(header)
                self.left_alone(path, "on another host or in another container")
            with open(path, "wb") as file:
                file.write(ended)
            self.checks.that("GCPOOL_TRACE" not in
                             self.play("probes_for_memory", {"GCPOOL_TRACE": path}).err,
                             "one that ended is left alone")

    def check_recordings_begin_together(self):
        """Of processes with the same name one records."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace")
            processes = [self.working("works_until_told", {"GCPOOL_TRACE": path})
                         for _ in range(6)]
            first = self.recorded(path)
            time.sleep(0.5)
            said = [self.told(process) for process in processes]
            self.checks.equal("the others", 5, sum("is written by another process" in line
                                                   for line in said))
            self.checks.equal("the same file", first, os.stat(path).st_ino)
            self.checks.equal("files", ["trace"], os.listdir(directory))

    def container(self):
        """Words before a command that give it process numbers of its own."""
        for words in ([], ["--map-root-user"]):
            words = ["unshare", *words, "--pid", "--fork", "--kill-child", "--mount-proc"]
            try:
                if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                    return words
            except FileNotFoundError:
                pass
        sys.exit(preload.SKIP)

    def check_recordings_of_containers(self):
        """They share a directory, and each has a process 1."""
        words = self.container()
        with tempfile.TemporaryDirectory() as directory:
            options = {"GCPOOL_TRACE": os.path.join(directory, "%p.trace")}
            path = os.path.join(directory, "1.trace")
            first = self.working("works_until_told", options, words)
            before = self.recorded(path)
            second = self.working("works_until_told", options, words)
            self.checks.that("in another container" in self.told(second), "nothing was said")
            self.checks.equal("the same file", before, os.stat(path).st_ino)
            self.checks.equal("the first says", "", self.told(first))

    # --- signals ----------------------------------------------------------------------

    def check_exit_in_a_handler(self):
        """The handler may have interrupted the library anywhere, in this thread or another."""
        with tempfile.TemporaryDirectory() as directory:
            for options in ({"GCPOOL_STATS": "text"}, {"GCPOOL_TRACE": f"{directory}/trace"},
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
        """What `gcpool top` or `gcpool ctl` does for that user: code and stderr."""
        code = (f"import os, sys; sys.path.insert(0, {SCRIPTS!r}); from gcpool_trace import live;"
                f"os.setgroups([]); os.setresgid(*[{user}] * 3); os.setresuid(*[{user}] * 3);"
                "live.main()")
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        return done.returncode, done.stderr

    def check_live_of_two_users(self):
        """No user has another one's process write a file, or show that user's page."""
        if os.getuid() != 0:
            sys.exit(preload.SKIP)
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
        at, stats = struct.calcsize("<8s4I9Q"), 2
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
