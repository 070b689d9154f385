#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The live view: what `gcpool top` and `gcpool ctl` see of running processes, and that a page
is there only for a living process of the same user that asked for it."""

import curses
import glob
import json
import os
import pickle
import pty
import re
import select
import signal
import subprocess
import sys
import time

import look
import preload

GCPOOL = os.path.join(look.SCRIPTS, "gcpool")


def page_path(pid):
    return f"/dev/shm/gcpool.{os.getuid()}.{os.stat('/proc/self/ns/pid').st_ino}.{pid}"


def gcpool(*words):
    done = subprocess.run([GCPOOL, *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


class Running:
    """A program with a live view, till the end of the block."""

    LOOP = "--no-kernel --size 1m --iterations 1000000000 --pause 100".split()

    def __init__(self, extra=None, loaded=None, program=None):
        env = preload.environment(None if loaded else preload.library(),
                                  {"GCPOOL_LIVE": "1", **(extra or {})})
        self.process = subprocess.Popen(
            loaded or [program or look.program("loop-shared"), *self.LOOP],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid

    def __enter__(self):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            found = [page for page in json.loads(gcpool("top", "--json")[1]) if page["pid"] == self.pid]
            if found and found[0]["devices"] and found[0]["devices"][0]["hits"] > 1000:
                return self
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def figures(self):
        return json.loads(gcpool("top", str(self.pid), "--json")[1])


def figures_grow_while_it_runs(checks, directory):
    with Running() as running:
        first = running.figures()
        time.sleep(0.3)
        second = running.figures()
        device = second["devices"][0]
        checks.that("loop-shared" in second["program"], second["program"])
        checks.that(
            device["allocations"] > first["devices"][0]["allocations"], "allocations stand still"
        )
        checks.that(device["allocations"] - device["frees"] in (0, 1), f"{device}")
        checks.that(device["reserved_bytes"] >= 1 << 20 and device["memory"] == 16 << 30, f"{device}")
        checks.that(second["updated_seconds_ago"] < 5, f"{second}")
        code, out, _ = gcpool("top", "--once")
        checks.that(code == 0 and str(running.pid) in out and "RESERVED" in out, out)
        code, out, _ = gcpool("top", "--once", str(running.pid))
        checks.that(code == 0 and "hits" in out and "driver calls" in out, out)


def figures_are_those_of_the_statistics(checks, directory):
    """Between two calls of ctl the program goes on, so the second is no less than the first."""
    with Running() as running:
        code, out, err = gcpool("ctl", str(running.pid), "stats")
        checks.that(code == 0, err)
        stats = json.loads(out)["devices"][0]
        after = running.figures()["devices"][0]
        checks.that(0 < stats["hits"] <= after["hits"], f"{stats['hits']} and {after['hits']}")
        checks.equal("reserved", stats["reserved_bytes"]["current"], after["reserved_bytes"])
        checks.equal("mapped", (0, 0), (stats["mapped_bytes"], after["mapped_bytes"]))
        checks.equal("handles", 0, running.figures()["handles_used"])


def names_are_no_orders_to_a_terminal(checks, directory):
    name = os.path.join(directory, "\x1b]0;loop\x07")
    os.symlink(look.program("loop-shared"), name)
    with Running(program=name) as running:
        for words in ([], [str(running.pid)]):
            _, out, _ = gcpool("top", "--once", *words)
            checks.that("?]0;loop?" in out and "\x1b" not in out, f"{words}: {out!r}")


def mapped_memory_is_shown(checks, directory):
    with Running({"GCPOOL_BACKEND": "vmm"}) as running:
        code, out, err = gcpool("ctl", str(running.pid), "stats")
        stats, shown = json.loads(out)["devices"][0], running.figures()["devices"][0]
        checks.that(shown["mapped_bytes"] >= 2 << 20, f"{shown}")
        checks.equal("mapped", stats["reserved_bytes"]["current"], stats["mapped_bytes"])
        checks.equal("shown", stats["mapped_bytes"], shown["mapped_bytes"])
        code, out, _ = gcpool("top", "--once", str(running.pid))
        checks.that(", mapped " in out, out)


def lanes_are_shown(checks, directory):
    loaded = [os.environ["GCPT_SHARES"], "lanes_stay"]
    with Running({"LD_PRELOAD": preload.library()}, loaded=loaded) as running:
        shown = running.figures()["devices"][0]
        checks.equal("lanes", 1, shown["lanes"])
        checks.that(16 << 20 <= shown["lane_bytes"] <= shown["private_bytes"], f"{shown}")
        checks.equal("mapped", shown["reserved_bytes"], shown["mapped_bytes"])
        code, out, _ = gcpool("top", "--once", str(running.pid))
        checks.that("graphs share 16.0 MiB in 1 lanes" in out, out)


# A program that loads the library, and allocates in the order of a stream.
LOADS = """
import ctypes, sys, time
cuda, pool = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
cuda.cuInit(0)
p = ctypes.c_void_p()
while pool.gcpool_malloc(ctypes.byref(p), ctypes.c_size_t(1 << 20), 0, None) == 0:
    pool.gcpool_free(p, None)
    time.sleep(0.0001)
"""


def a_library_that_is_only_loaded_is_shown(checks, directory):
    with Running(loaded=[sys.executable, "-c", LOADS, preload.library()]) as running:
        first = sum(device["allocations"] for device in running.figures()["devices"])
        time.sleep(0.3)
        second = sum(device["allocations"] for device in running.figures()["devices"])
        checks.that(0 < first < second, f"{first} and {second} allocations")


def requests_are_done_by_threads_that_are_cancelled(checks, directory):
    loaded = [os.environ["GCPT_WATCHED"], "cancelled_threads_come_and_go"]
    with Running({"LD_PRELOAD": preload.library()}, loaded=loaded) as running:
        for _ in range(3):
            code, _, err = gcpool("ctl", str(running.pid), "stats")
            checks.that(code == 0, err)


def requests_are_done_in_the_next_call(checks, directory):
    with Running() as running:
        path = os.path.join(directory, "snapshot.pickle")
        code, _, err = gcpool("ctl", str(running.pid), "snapshot", path)
        checks.that(code == 0, err)
        with open(path, "rb") as file:
            shot = pickle.load(file)
        reserved = sum(segment["total_size"] for segment in shot["segments"])
        checks.equal("reserved", running.figures()["devices"][0]["reserved_bytes"], reserved)
        checks.that(
            all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in shot["segments"]),
            "sizes",
        )
        trims = running.figures()["devices"][0]["trims"]
        code, out, err = gcpool("ctl", str(running.pid), "trim")
        checks.that(code == 0 and "went back" in out, f"{out}{err}")
        checks.that(running.figures()["devices"][0]["trims"] > trims, "nothing was given back")
        checks.equal(
            "left in /dev/shm",
            [],
            [n for n in os.listdir("/dev/shm") if n.startswith(f"gcpool.{running.pid}")],
        )


def a_process_that_makes_no_call_is_said(checks, directory):
    with Running() as running:
        os.kill(running.pid, signal.SIGSTOP)
        code, _, err = gcpool("ctl", str(running.pid), "stats")
        checks.that(code == 1 and "made no call" in err, f"{code} {err}")
        os.kill(running.pid, signal.SIGCONT)
        checks.that(gcpool("ctl", str(running.pid), "stats")[0] == 0, "not after it went on")


def dead_processes_are_told_from_living_ones(checks, directory):
    with Running() as running:
        pid = running.pid
        checks.equal("rights", 0o600, os.stat(page_path(pid)).st_mode & 0o777)
        os.kill(pid, signal.SIGKILL)
        running.process.wait()
        checks.that(os.path.exists(page_path(pid)), "no page is left behind: nothing is tested")
        shown = [page["pid"] for page in json.loads(gcpool("top", "--json")[1])]
        checks.that(pid not in shown, "a dead process is shown")
        checks.that(not os.path.exists(page_path(pid)), "the page of a dead process is still there")
        code, _, err = gcpool("top", "--once", str(pid))
        checks.that(code == 1 and err.count("\n") == 1, f"{code} {err}")
    # One of the same number that is another process now.
    with Running() as running:
        with open(page_path(running.pid), "rb") as file:
            raw = bytearray(file.read())
        raw[16:20] = os.getpid().to_bytes(4, "little")
        with open(page_path(os.getpid()), "wb") as file:
            file.write(raw)
        shown = [page["pid"] for page in json.loads(gcpool("top", "--json")[1])]
        checks.that(os.getpid() not in shown and running.pid in shown, f"shown are {shown}")


def the_page_goes_with_the_process(checks, directory):
    env = preload.environment(preload.library(), {"GCPOOL_LIVE": "1"})
    for words in (
        ["loop-shared", "--iterations", "5"],
        ["life-shared", "--fork"],
    ):
        process = subprocess.Popen(
            [look.program(words[0]), *words[1:]], env=env, stdout=subprocess.DEVNULL
        )
        process.wait()
        checks.that(not os.path.exists(page_path(process.pid)), f"{words}: the page is still there")
    off = preload.environment(preload.library(), {"GCPOOL_LIVE": "1", "GCPOOL_MODE": "off"})
    subprocess.run(
        [look.program("loop-shared"), "--iterations", "5"],
        env=off,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    subprocess.run(["true"], env=env, check=True)


def container():
    """Words before a command that give it process numbers of its own, and /dev/shm as it is:
    a container with --ipc=host. None: not allowed here."""
    for words in ([], ["--map-root-user"]):
        words = ["unshare", *words, "--pid", "--fork", "--kill-child", "--mount-proc"]
        try:
            if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
                return words
        except FileNotFoundError:
            pass
    return None


def containers_keep_their_pages(checks, directory):
    """Process 1 of a container is not process 1 of another, nor of the host."""
    env = preload.environment(preload.library(), {"GCPOOL_LIVE": "1"})
    apart = container()
    if not apart:
        print("no namespaces of processes here: the name of a page is looked at alone")
        process = subprocess.Popen([look.program("loop-shared"), *Running.LOOP], env=env,
                                   stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not os.path.exists(page_path(process.pid)) and time.monotonic() < end:
            time.sleep(0.05)
        checks.that(os.path.exists(page_path(process.pid)), "no page of that name")
        process.kill()
        process.wait()
        gcpool("top", "--once")  # takes the page away
        return
    pages = "/dev/shm/gcpool.*.1"
    before = set(glob.glob(pages))
    first = subprocess.Popen([*apart, look.program("loop-shared"), *Running.LOOP], env=env,
                             stdout=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not set(glob.glob(pages)) - before and time.monotonic() < end:
        time.sleep(0.05)
    found = {path: os.stat(path).st_ino for path in set(glob.glob(pages)) - before}
    checks.equal("pages of the first", 1, len(found))
    for what, words in (
        ("another one ends", [look.program("loop-shared"), "--iterations", "5"]),
        ("another one looks", [GCPOOL, "top", "--once"]),
    ):
        subprocess.run([*apart, *words], env=env, stdout=subprocess.DEVNULL, check=True)
        still = {path: os.stat(path).st_ino for path in set(glob.glob(pages)) - before}
        checks.equal(what, found, still)
    gcpool("top", "--once")
    checks.equal("the host looks", set(found), set(glob.glob(pages)) - before)
    first.kill()
    first.wait()
    for path in set(glob.glob(pages)) - before:
        os.unlink(path)


def metrics_are_text_for_prometheus(checks, directory):
    path = os.path.join(directory, "gcpool.prom")
    with Running() as running:
        code, _, err = gcpool("top", "--prometheus", path, "--once")
        checks.that(code == 0, err)
    with open(path) as file:
        text = file.read()
    form = re.compile(
        r'^(# (HELP|TYPE) gcpool_\w+ .+|gcpool_\w+\{pid="\d+",program="[^"\n]*"(,device="\d+")?\} \d+)$'
    )
    wrong = [line for line in text.splitlines() if not form.match(line)]
    checks.equal("lines of another form", [], wrong)
    checks.that(f'gcpool_hits_total{{pid="{running.pid}"' in text, text[:500])


def the_terminal_is_filled(checks, directory):
    """In a terminal of its own, as a person sees it."""
    with Running() as running:
        try:
            pid, fd = pty.fork()
        except OSError as error:  # a chroot without /dev/pts
            print(f"left out: the_terminal_is_filled: {error}")
            return
        if pid == 0:
            os.environ.update(TERM="xterm", LINES="40", COLUMNS="140")
            os.execv(GCPOOL, [GCPOOL, "top", str(running.pid), "--interval", "0.2"])
        seen, end = b"", time.monotonic() + 30
        while b"driver calls" not in seen and time.monotonic() < end:
            if select.select([fd], [], [], 0.5)[0]:
                seen += os.read(fd, 65536)
        os.write(fd, b"q")
        while time.monotonic() < end and os.waitpid(pid, os.WNOHANG)[0] == 0:
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    os.read(fd, 65536)
                except OSError:
                    pass
        checks.that(b"driver calls" in seen and b"reserved" in seen, seen[-500:])


def wrong_words_are_one_line(checks, directory):
    for words, code in (
        (("ctl", "1", "stats"), 1),
        (("top", "1"), 1),
        (("ctl", "1", "explode"), 2),
        (("top", "x"), 2),
    ):
        found, _, err = gcpool(*words)
        checks.that(found == code and "Traceback" not in err, f"{words}: {found} {err}")
    for word in ("inf", "nan", "-1", "0", "1e30", "soon"):
        found, out, err = gcpool("top", "--interval", word, "--once")
        line = (
            f"gcpool top: error: argument --interval: '{word}' is no number of seconds above 0, and"
            " at most 86400"
        )
        checks.equal(f"every {word}", (2, "", line), (found, out, err.strip().split("\n")[-1]))
    with Running() as running:
        for words, line in (
            (("trim", "much"), "gcpool ctl: 'much' is no number of bytes, as 1G or 500M\n"),
            (("trim", "1e30"), "gcpool ctl: '1e30' is no number of bytes, as 1G or 500M\n"),
            (("trim", "-5"), "gcpool ctl: '-5' is no number of bytes, as 1G or 500M\n"),
            (
                ("stats", "all"),
                "gcpool ctl: stats takes no word behind it, and there is 'all'\n",
            ),
            (("snapshot",), "gcpool ctl: snapshot needs a file to write, for PyTorch's memory_viz\n"),
            (
                ("snapshot", f"{directory}/none/x"),
                f"gcpool ctl: cannot write {directory}/none/x: No such file or directory\n",
            ),
        ):
            found, _, err = gcpool("ctl", str(running.pid), *words)
            checks.equal(words, (1, line), (found, err))


def main():
    assert curses  # what top needs
    if sys.argv[1:] == ["containers"]:
        look.each(preload.Checks(), [containers_keep_their_pages])
        return
    look.each(
        preload.Checks(),
        [
            figures_grow_while_it_runs,
            figures_are_those_of_the_statistics,
            names_are_no_orders_to_a_terminal,
            mapped_memory_is_shown,
            lanes_are_shown,
            a_library_that_is_only_loaded_is_shown,
            requests_are_done_in_the_next_call,
            requests_are_done_by_threads_that_are_cancelled,
            dead_processes_are_told_from_living_ones,
            the_page_goes_with_the_process,
            metrics_are_text_for_prometheus,
            the_terminal_is_filled,
            wrong_words_are_one_line,
            a_process_that_makes_no_call_is_said,  # last: it takes 10 s
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
