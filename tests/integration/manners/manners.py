#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""manners.py MANNERS_PROGRAM CHECK

The library in a process and on a machine that are others': it writes into no file but its own
and the program's stderr, stops no program, and takes no other user's file for its own."""

import os
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
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
            if preload.run([self.program, scenario], extra={"GCPSIM_MEMORY": "256M"}).code:
                sys.exit(preload.SKIP)  # not allowed here, or not without the library either
            for options in ({}, {"GCPOOL_STATS": "text", "GCPOOL_LIVE": "1"}):
                self.play(scenario, {"GCPSIM_MEMORY": "256M", **options})


def main():
    checks = preload.Checks()
    getattr(Manners(sys.argv[1], checks), "check_" + sys.argv[2])()
    checks.end()


if __name__ == "__main__":
    main()
