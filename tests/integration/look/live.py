#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The live view: what `gcpool top` and `gcpool ctl` see of running processes, and that a page
is there only for a living process of the same user that asked for it."""

import glob
import json
import os
import pathlib
import pickle
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

import look
import preload

from gcpool_trace import live

GCPOOL = os.path.join(look.SCRIPTS, "gcpool")


def page_path(pid, user=None):
    user = os.getuid() if user is None else user
    return f"/dev/shm/gcpool.{user}/{os.stat('/proc/self/ns/pid').st_ino}.{pid}"


def gcpool(*words):
    return look.said(live.main, *words)


class Running:
    """A program with a live view, till the end of the block."""

    LOOP = "--no-kernel --size 1m --iterations 1000000000 --pause 100".split()

    def __init__(self, extra=None, loaded=None, program=None):
        env = preload.environment(None if loaded else preload.library(),
                                  {"GCPOOL_LIVE": "1", **(extra or {})})
        self.process = subprocess.Popen(
            loaded or [program or look.program("loop-shared"), *self.LOOP], env=env,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid

    def __enter__(self):
        if preload.soon(lambda: any(page.pid == self.pid and page.devices and page.devices[0]["hits"] > 1000
                            for page in live.pages())):
            return self
        raise TimeoutError(f"no page of process {self.pid} with a device and hits")

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()

    def figures(self):
        return json.loads(gcpool("top", str(self.pid), "--json")[1])


def figures_grow_while_it_runs(checks, directory):
    first = ORDINARY.figures()
    checks.that(preload.soon(lambda: ORDINARY.figures()["devices"][0]["allocations"] >
                     first["devices"][0]["allocations"]), "allocations stand still")
    second = ORDINARY.figures()
    device = second["devices"][0]
    checks.that("loop-shared" in second["program"], second["program"])
    checks.equal("user", pwd.getpwuid(os.getuid()).pw_name, second["user"])
    checks.that(device["allocations"] - device["frees"] in (0, 1), f"{device}")
    checks.that(device["reserved_bytes"] >= 1 << 20 and device["memory"] == 16 << 30, f"{device}")
    checks.that(preload.soon(lambda: ORDINARY.figures()["updated_seconds_ago"] < 1), f"{second}")
    code, out, _ = gcpool("top", "--once")
    checks.that(code == 0 and str(ORDINARY.pid) in out and "RESERVED" in out, out)
    code, out, _ = gcpool("top", "--once", str(ORDINARY.pid))
    checks.that(code == 0 and "hits" in out and "driver calls" in out, out)


def figures_are_those_of_the_statistics(checks, directory):
    """Between two calls of ctl the program goes on, so the second is no less than the first."""
    code, out, err = gcpool("ctl", str(ORDINARY.pid), "stats")
    checks.that(code == 0, err)
    stats = json.loads(out)["devices"][0]
    after = ORDINARY.figures()["devices"][0]
    checks.that(0 < stats["hits"] <= after["hits"], f"{stats['hits']} and {after['hits']}")
    checks.equal("reserved", stats["reserved_bytes"]["current"], after["reserved_bytes"])
    checks.equal("mapped", (0, 0), (stats["mapped_bytes"], after["mapped_bytes"]))
    for name in ("name", "uuid", "pci"):
        checks.equal(name, stats[name], after[name])
    checks.equal("memory", stats["memory_bytes"], after["memory"])
    checks.that(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", stats["uuid"]), stats)
    checks.equal("pci", "0000:01:00.0", stats["pci"])


def names_are_no_orders_to_a_terminal(checks, directory):
    name = os.path.join(directory, "\x1b]0;loop\x07")
    os.symlink(look.program("loop-shared"), name)
    with Running(program=name) as running:
        for words in ([], [str(running.pid)]):
            _, out, _ = gcpool("top", "--once", *words)
            checks.that("?]0;loop?" in out and "\x1b" not in out, f"{words}: {out!r}")


def a_recording_is_named_from_any_directory(checks, directory):
    extra = {"GCPOOL_TRACE": "live.trace"}
    before = os.getcwd()
    os.chdir(directory)
    try:
        running = Running(extra)
    finally:
        os.chdir(before)
    with running:
        checks.equal("recording", os.path.join(directory, "live.trace"), running.figures()["trace"])


def mapped_memory_is_shown(checks, directory):
    with Running({"GCPOOL_BACKEND": "vmm"}) as running:
        code, out, err = gcpool("ctl", str(running.pid), "stats")
        stats, shown = json.loads(out)["devices"][0], running.figures()["devices"][0]
        checks.that(shown["mapped_bytes"] >= 2 << 20, f"{shown}")
        checks.equal("mapped", stats["reserved_bytes"]["current"], stats["mapped_bytes"])
        checks.equal("shown", stats["mapped_bytes"], shown["mapped_bytes"])
        code, out, _ = gcpool("top", "--once", str(running.pid))
        checks.that(re.search(r" mapped bytes [\d.]+ MiB", out), out)


def lanes_are_shown(checks, directory):
    loaded = [os.environ["GCPT_SHARES"], "lanes_stay"]
    with Running({"LD_PRELOAD": preload.library()}, loaded=loaded) as running:
        shown = running.figures()["devices"][0]
        checks.equal("lanes", 1, shown["lanes"])
        checks.that(16 << 20 <= shown["lane_bytes"] <= shown["private_bytes"], f"{shown}")
        checks.equal("mapped", shown["reserved_bytes"], shown["mapped_bytes"])
        code, out, _ = gcpool("top", "--once", str(running.pid))
        checks.that(re.search(r"lane bytes 16.0 MiB\b", out) and re.search(r"lanes 1\b", out), out)


def requests_are_done(checks, directory):
    path = os.path.join(directory, "snapshot.pickle")
    code, _, err = gcpool("ctl", str(ORDINARY.pid), "snapshot", path)
    checks.that(code == 0, err)
    with open(path, "rb") as file:
        shot = pickle.load(file)
    reserved = sum(segment["total_size"] for segment in shot["segments"])
    checks.equal("reserved", ORDINARY.figures()["devices"][0]["reserved_bytes"], reserved)
    checks.that(all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in shot["segments"]),
                "sizes")
    trims = ORDINARY.figures()["devices"][0]["trims"]
    code, out, err = gcpool("ctl", str(ORDINARY.pid), "trim")
    checks.that(code == 0 and "went back" in out, f"{out}{err}")
    checks.that(ORDINARY.figures()["devices"][0]["trims"] > trims, "nothing was given back")
    checks.equal("left in /dev/shm", [], glob.glob(f"{page_path(ORDINARY.pid)}.*"))


def a_quota_changes_while_it_runs(checks, directory):
    with Running({"GCPOOL_BACKEND": "vmm"}) as running:
        for word in ("50%", "none", "2M", "1M"):  # it has 1 MiB at a time, in 2
            checks.equal(word, (0, f"the quota is {word}\n", ""),
                         gcpool("ctl", str(running.pid), "quota", word))
        checks.equal("exit code", 2, running.process.wait(timeout=60))
        checks.that("refused by the quota" in running.process.stderr.read(), "no line says why")


def a_process_that_does_not_answer_is_said(checks, directory):
    os.kill(ORDINARY.pid, signal.SIGSTOP)
    before, live.ANSWER_S = live.ANSWER_S, 1
    code, _, err = gcpool("ctl", str(ORDINARY.pid), "stats")
    live.ANSWER_S = before
    checks.that(code == 1 and "does not answer" in err, f"{code} {err}")
    os.kill(ORDINARY.pid, signal.SIGCONT)
    after = subprocess.run([GCPOOL, "ctl", str(ORDINARY.pid), "stats"], stdout=subprocess.DEVNULL)
    checks.equal("after it went on", 0, after.returncode)


def dead_processes_are_told_from_living_ones(checks, directory):
    with Running() as running:
        pid = running.pid
        checks.equal("rights", 0o600, os.stat(page_path(pid)).st_mode & 0o777)
        raw = pathlib.Path(page_path(pid)).read_bytes()
        os.kill(pid, signal.SIGKILL)
        running.process.wait()
        pathlib.Path(page_path(pid)).write_bytes(raw)  # any look may have removed it
        os.chmod(page_path(pid), 0o600)
        shown = [page["pid"] for page in json.loads(gcpool("top", "--json")[1])]
        checks.that(pid not in shown, "a dead process is shown")
        checks.that(not os.path.exists(page_path(pid)), "the page of a dead process is still there")
        code, _, err = gcpool("top", "--once", str(pid))
        checks.that(code == 1 and err.count("\n") == 1, f"{code} {err}")
    # One that was killed while it wrote, before and after its first words; gone at a look.
    last = int(open("/proc/sys/kernel/pid_max").read()) - 1
    for head in (b"", live.HEAD.pack(live.MAGIC, live.VERSION, *[0] * 7, 1, 1, 0, 0, 0, b"")):
        pathlib.Path(page_path(last)).write_bytes(head.ljust(live.PAGE, b"\0"))
        checks.equal("code", 0, gcpool("top", "--json")[0])
        checks.that(not os.path.exists(page_path(last)), f"{len(head)}: the page is still there")
    # One of the same number that is another process now.
    with Running() as running:
        raw = bytearray(pathlib.Path(page_path(running.pid)).read_bytes())
        raw[16:20] = os.getpid().to_bytes(4, "little")
        pathlib.Path(page_path(os.getpid())).write_bytes(raw)
        shown = [page["pid"] for page in json.loads(gcpool("top", "--json")[1])]
        checks.that(os.getpid() not in shown and running.pid in shown, f"shown are {shown}")


def the_page_goes_with_the_process(checks, directory):
    env = preload.environment(preload.library(), {"GCPOOL_LIVE": "1"})
    for words in (["loop-shared", "--iterations", "5"], ["life-shared", "--fork"]):
        process = subprocess.Popen([look.program(words[0]), *words[1:]], env=env, stdout=subprocess.DEVNULL)
        process.wait()
        checks.that(not os.path.exists(page_path(process.pid)), f"{words}: the page is still there")


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
        print("left out: containers_keep_their_pages: no namespaces of processes here")
        return
    pages = "/dev/shm/gcpool.*/*.1"
    before = set(glob.glob(pages))
    first = subprocess.Popen([*apart, look.program("loop-shared"), *Running.LOOP], env=env,
                             stdout=subprocess.DEVNULL)
    preload.soon(lambda: set(glob.glob(pages)) - before)
    found = {path: os.stat(path).st_ino for path in set(glob.glob(pages)) - before}
    checks.equal("pages of the first", 1, len(found))
    for what, words in (
        ("another one ends", [look.program("loop-shared"), "--iterations", "5"]),
        ("another one looks", [GCPOOL, "top", "--once"])):
        subprocess.run([*apart, *words], env=env, stdout=subprocess.DEVNULL, check=True)
        still = {path: os.stat(path).st_ino for path in set(glob.glob(pages)) - before}
        checks.equal(what, found, still)
    gcpool("top", "--once")
    checks.equal("the host looks", set(found), set(glob.glob(pages)) - before)
    first.kill()
    first.wait()
    for path in set(glob.glob(pages)) - before:
        os.unlink(path)


# A program that allocates on the second device alone.
SECOND = """
import ctypes, time
cuda, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(found), 1) == 0
assert cuda.cuCtxSetCurrent(found) == 0
while cuda.cuMemAlloc_v2(ctypes.byref(found), ctypes.c_size_t(1 << 20)) == 0:
    cuda.cuMemFree_v2(found)
    time.sleep(0.0001)
"""


def devices_are_named(checks, directory):
    env = {"GCPSIM_DEVICES": "2", "LD_PRELOAD": preload.library()}
    with Running(env, loaded=[sys.executable, "-c", SECOND]) as running:
        found = [(device["number"], device["pci"], device["uuid"][-4:])
                 for device in running.figures()["devices"] if device["allocations"]]
        checks.equal("devices", [(1, "0000:02:00.0", "0001")], found)


# A program that does what it is told, line by line.
TOLD = """
import ctypes, sys
cuda, p = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0) == 0
assert cuda.cuCtxSetCurrent(p) == 0
def alloc(mib):
    return cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(mib << 20))
def left():
    found = (ctypes.c_size_t * 2)()
    cuda.cuMemGetInfo_v2(found, ctypes.byref(found, 8))
    return found[0] >> 20
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Told:
    """Runs with GCPOOL_CONTROL=1, on a device of 1 GiB that all with the same file have."""

    def __init__(self, directory, *within, **extra):
        env = {"GCPOOL_CONTROL": "1", "GCPOOL_WAKE_WAIT": "0", "GCPOOL_BACKEND": "vmm", "GCPSIM_MEMORY": "1G",
               "GCPSIM_SHARED": os.path.join(directory, "shared"), **extra}
        self.process = subprocess.Popen(
            [*within, sys.executable, "-c", TOLD], env=preload.environment(preload.library(), env),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def does(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            said = self.process.stdout.readline().strip()
        return said

    def asked(self, *words):
        """What gcpool ctl says: its line without the name of the process."""
        _, out, err = gcpool("ctl", str(self.process.pid), *words)
        return re.sub(r"^(gcpool ctl: )?process \d+(: | could not: )", "", out + err).strip()


def processes_help_each_other(checks, directory):
    def has(process):
        """One that is slow to answer is left out, and asked again after a second."""
        return any(process.does("alloc(600)") == "0" or time.sleep(1.05) for _ in range(8))

    def helped(process, name):
        return json.loads(gcpool("ctl", str(process.process.pid), "stats")[1]).get(name, 0)

    with Told(directory) as one, Told(directory) as other:
        for turn in range(4):
            checks.that(has((one, other)[turn % 2]), f"turn {turn}: no memory")
            (one, other)[turn % 2].does("cuda.cuMemFree_v2(p)")
            time.sleep(1.05)
        got, given = helped(one, "help_got_bytes"), helped(other, "help_given_bytes")
        checks.that(0 < got <= given, f"{got} of {given}")
        checks.that(has(one), "no memory")
        asked, begin = helped(other, "help_asked"), time.monotonic()
        checks.equal("none has any", "2", other.does("alloc(600)", "alloc(600)"))
        took = int(time.monotonic() - begin)
        checks.that(helped(other, "help_asked") - asked <= 1 + took, "asked again within a second")
        one.does("cuda.cuMemFree_v2(p)")
        for _ in range(8):
            # What it had may have gone by an answer that came late.
            one.does("alloc(600)", "cuda.cuMemFree_v2(p)")
            os.kill(one.process.pid, signal.SIGSTOP)
            os.waitpid(one.process.pid, os.WUNTRACED)  # until then its thread may answer
            if int(other.does("left()")) < 600:
                break
            os.kill(one.process.pid, signal.SIGCONT)
        time.sleep(1.05)
        checks.equal("no answer", "2", other.does("alloc(600)"))


def a_process_sleeps_when_it_is_told(checks, directory):
    asleep = "asleep, the host keeps 600.0 MiB; what stays: from CUDA itself 0 B, pinned "
    with Told(directory) as one, Told(directory) as other:
        one.does("alloc(600)")
        checks.that(one.asked("sleep").startswith(asleep), "not asleep")
        checks.equal("twice", "the process is asleep already", one.asked("sleep"))
        checks.equal("quota", "the process is asleep", one.asked("quota", "1G"))
        other.does("alloc(600)")
        checks.equal("full", "still asleep, the device has no memory for it (error 2)", one.asked("wake"))
        checks.equal("a call", "2", one.does("cuda.cuMemsetD8_v2(p, 1, 1)"))
        other.does("cuda.cuMemFree_v2(p)")  # and gives it when it is asked
        woken = any(time.sleep(1.05) or "awake after" in one.asked("wake") for _ in range(8))
        checks.that(woken, "not awake")
        checks.equal("awake", "the process is awake", one.asked("wake"))
        one.does("cuda.cuIpcGetMemHandle(ctypes.create_string_buffer(64), p)")
        checks.equal("exported", "629145600 bytes are open to other processes", one.asked("sleep"))


def a_process_sleeps_into_a_file(checks, directory):
    """Its name is gone, and what cannot be kept there leaves the process awake."""
    small, file = os.path.join(directory, "small"), look.program("loop-shared")
    os.mkdir(small)
    within = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=16m none {small}; exec "$0" "$@"']
    if subprocess.run([*within, "true"], capture_output=True).returncode != 0:
        within = []
    with Told(directory, *within) as one:
        one.does("alloc(60)", "cuda.cuMemsetD8_v2(p, 7, ctypes.c_size_t(60 << 20))")
        refused = {os.path.join(directory, "none"): "no such directory", file: "not a directory",
                   **({small: "no space left on the device"} if within else {})}
        for place, why in refused.items():
            checks.equal(why, f"there can be no file of 60.0 MiB: {why}", one.asked("sleep", "--to", place))
            checks.equal("awake", "the process is awake", one.asked("wake"))
        said = one.asked("sleep", "5", "--to", directory)
        checks.that(said.startswith("asleep, a file keeps 60.0 MiB; "), said)
        with open(f"/proc/{one.process.pid}/maps", encoding="utf-8") as maps:
            checks.that(re.search(rf"{directory}/gcpool\..* \(deleted\)", maps.read()), "no file is mapped")
        left = [name for name in os.listdir(directory) if name.startswith("gcpool.")]
        checks.equal("names", ([], []), (left, glob.glob(page_path(one.process.pid) + ".to")))
        checks.equal("content", "[7, 7, 7, 7]", one.does(
            "(lambda b: cuda.cuMemcpyDtoH_v2(b, p, ctypes.c_size_t(4)) or list(b.raw))"
            "(ctypes.create_string_buffer(4))"))
        checks.equal("memory again", "asleep, the host keeps 60.0 MiB", one.asked("sleep").split(";")[0])
        checks.equal("wrong", "gcpool ctl: --to is of sleep alone", one.asked("trim", "--to", directory))


def a_process_whose_cgroup_has_no_room_stays_awake(checks, directory):
    group = ("cd /sys/fs/cgroup && mount -t tmpfs none . && cd . && echo 67108864 >memory.max &&"
             " printf 'anon 1048576\\nshmem 0\\n' >memory.stat && exec \"$0\" \"$@\"")
    within = ["unshare", "-m", "sh", "-c", group]
    if subprocess.run([*within, "true"], capture_output=True).returncode != 0:
        print("left out: a_process_whose_cgroup_has_no_room_stays_awake: no namespaces here")
        return
    with Told(directory, *within) as one:
        one.does("alloc(600)")
        line = "the host has no memory for it: it may take 56.6 MiB of 600.0 MiB"
        checks.equal("no room", line, one.asked("sleep"))


def a_process_that_works_stays_awake(checks, directory):
    with Told(directory, GCPSIM_SPEED="1") as one:
        one.does("alloc(64)", "cuda.cuMemsetD8Async(p, 1, ctypes.c_size_t(64 << 20), None)")
        checks.equal("busy", "work of the device was not done in time", one.asked("sleep", "0.2"))
        checks.equal("and works", "0", one.does("cuda.cuCtxSynchronize()"))


def a_row_fits_its_terminal(checks, directory):
    for width, there, left in (
        (45, ("PID", "USED", "RESERVED"), ("ALLOC/S",)),
        (80, ("PID", "USER", "GPU", "USED", "CACHED", "RESERVED", "ALLOC/S", "PROGRAM"), ("PCI",)),
        (120, ("CACHED", "PENDING", "DRIVER/S", "PCI"), ("UUID",)), (170, ("PCI", "UUID"), ())):
        done = subprocess.run([GCPOOL, "top", "--once"], capture_output=True, text=True,
                              env={**os.environ, "COLUMNS": str(width)})
        head, *rows = done.stdout.splitlines()
        row = next(row for row in rows if row.split()[0] == str(ORDINARY.pid))
        checks.that(all(name in head for name in there), f"{width}: {head}")
        checks.that(not any(name in head for name in left), f"{width}: {head}")
        checks.that((" loop-sha" in row) == (width > 45) and len(row) <= width, f"{width}: {row}")
        checks.that(re.search(r" \d\.?\dM ", row), row)  # reserved
    done = subprocess.run([GCPOOL, "top", "--once", str(ORDINARY.pid)], capture_output=True,
                          text=True, env={**os.environ, "COLUMNS": "80"})
    wide = [line for line in done.stdout.splitlines()[1:] if len(line) > 80]
    checks.equal("wide lines", [], wide)
    checks.that("GPU-" in done.stdout and "0000:01:00.0" in done.stdout, done.stdout)


def root_sees_all_users_and_trusts_no_page(checks, directory):
    """As root: a process of another user, and pages that say what is not so."""
    if os.getuid() != 0 or not shutil.which("setpriv"):
        print("left out: root_sees_all_users_and_trusts_no_page: not root")
        return
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    probe = [*other, "test", "-x", look.program("loop-shared"), "-a", "-r", preload.library()]
    if subprocess.run(probe).returncode != 0:
        print("left out: root_sees_all_users_and_trusts_no_page: another user cannot read the build")
        return
    loaded = [*other, look.program("loop-shared"), *Running.LOOP]
    with Running({"LD_PRELOAD": preload.library()}, loaded=loaded) as running:
        found = {page["pid"]: page["user"] for page in json.loads(gcpool("top", "--json")[1])}
        checks.equal("user", pwd.getpwuid(65534).pw_name, found.get(running.pid))
        page = page_path(running.pid, 65534)
        done = subprocess.run([*other, GCPOOL, "top", "--json"], capture_output=True, text=True)
        checks.that(str(running.pid) in done.stdout, done.stderr)
        # A page of this user that is said to be of a process of root.
        raw = bytearray(pathlib.Path(page).read_bytes())
        raw[16:20] = os.getpid().to_bytes(4, "little")
        forged = page_path(os.getpid(), 65534)
        pathlib.Path(forged).write_bytes(raw)
        os.chown(forged, 65534, 65534)
        for user in (1, 2, 3):
            place = os.path.dirname(page_path(running.pid, user))
            os.mkdir(place, 0o700)
            os.chown(place, user, user)
        strange = page_path(running.pid, 1)
        os.symlink(page, strange)
        fifo = page_path(running.pid, 2)
        os.mkfifo(fifo)
        os.chown(fifo, 2, 2)
        short = page_path(running.pid, 3)
        open(short, "w").close()
        os.chown(short, 3, 3)
        try:
            code, out, err = gcpool("top", "--json")
            shown = [page["pid"] for page in json.loads(out)]
            checks.equal("shown", (0, 1, 0), (code, shown.count(running.pid), shown.count(os.getpid())))
        finally:
            for path in (forged, strange, fifo, short):
                if os.path.lexists(path):
                    os.unlink(path)
            for user in (1, 2, 3):
                os.rmdir(os.path.dirname(page_path(running.pid, user)))
        os.kill(running.pid, signal.SIGSTOP)
        raw = pathlib.Path(page).read_bytes()
        for name, value in (("peak", "Infinity"), ("peak", 400 * "1"), ("device", '"0} 1\\nfalse 1"'),
                            ("version", '"\\ud800"'), ("devices", 50000 * "[")):
            head, name = list(live.HEAD.unpack_from(raw)), f'"{name}": '
            report = raw[live.HEAD.size:][:head[-3]].decode().replace(name, f'{name}{value}, "": ').encode()
            head[-3] = len(report)
            pathlib.Path(page).write_bytes(live.HEAD.pack(*head) + report)
            checks.that(running.pid not in [page.pid for page in live.pages()], name + value[:20])


def metrics_are_text_for_prometheus(checks, directory):
    path = os.path.join(directory, "gcpool.prom")
    code, _, err = gcpool("top", "--prometheus", path, "--once")
    checks.that(code == 0, err)
    text = pathlib.Path(path).read_text()
    form = re.compile(
        r"^(# (HELP|TYPE) gcpool_\w+ .+|"
        r'gcpool_\w+\{pid="\d+",program="[^" \n]*"(,device="\d+",uuid="GPU-[-0-9a-f]{36}")?\} \d+)$'
    )
    wrong = [line for line in text.splitlines() if not form.match(line)]
    checks.equal("lines of another form", [], wrong)
    checks.that(f'gcpool_hits_total{{pid="{ORDINARY.pid}",program="loop-shared",' in text, text[:500])
    checks.equal("rights", 0o640, os.stat(path).st_mode & 0o777)
    seen, words = set(), ("--prometheus", path, "--interval", "0.1")
    with subprocess.Popen([GCPOOL, "top", str(ORDINARY.pid), *words]) as shown:
        checks.that(preload.soon(lambda: seen.add(pathlib.Path(path).read_text()) or len(seen) > 3),
                    "the figures of one process stay as they were")
        shown.kill()
    device = {"device": 0, "allocation": {"allocated": 1, "freed": 0}, "driver_calls": {}, "x 1\ny": 4}
    checks.that("x 1\ny" not in live.figures_of(device, {}), "a name is an order to a reader of metrics")


def wrong_words_are_one_line(checks, directory):
    for words, code in (
        (("ctl", "1", "stats"), 1), (("top", "1"), 1), (("ctl", "1", "explode"), 2),
        (("top", "x"), 2)):
        found, _, err = gcpool(*words)
        checks.that(found == code and "Traceback" not in err, f"{words}: {found} {err}")
    for word in ("inf", "nan", "-1", "0", "1e30", "soon"):
        found, out, err = gcpool("top", "--interval", word, "--once")
        line = (f"gcpool top: error: argument --interval: '{word}' is no number of seconds from 0.01 to"
                " 86400")
        checks.equal(f"every {word}", (2, "", line), (found, out, err.strip().split("\n")[-1]))
    for words, line in (
        (("trim", "much"), "gcpool ctl: 'much' is no number of bytes, as 1G or 500M\n"),
        (("trim", "1e30"), "gcpool ctl: '1e30' is no number of bytes, as 1G or 500M\n"),
        (("trim", "-5"), "gcpool ctl: '-5' is no number of bytes, as 1G or 500M\n"),
        (("stats", "all"), "gcpool ctl: stats takes no word behind it, and there is 'all'\n"),
        (("quota", "0"), "gcpool ctl: a quota is 1 to 16T, 1% to 100%, or none, and not '0'\n"),
        (("quota", "101%"), "gcpool ctl: a quota is 1 to 16T, 1% to 100%, or none, and not '101%'\n"),
        (("snapshot",), "gcpool ctl: snapshot needs a file to write, for PyTorch's memory_viz\n"),
        (("snapshot", f"{directory}/none/x"),
         f"gcpool ctl: cannot write {directory}/none/x: No such file or directory\n"),
    ):
        found, _, err = gcpool("ctl", str(ORDINARY.pid), *words)
        checks.equal(words, (1, line), (found, err))


def sizes_are_short(checks, directory):
    for value, wanted in ((0, "0"), (1023, "1023"), (14 << 20, "14M"), (1536 << 20, "1.5G"),
                          (9999 << 10, "9.8M"), (80 << 30, "80G"), (1 << 42, "4.0T")):
        checks.equal(str(value), wanted, live.memory(value))


def a_terminal_is_filled_until_it_is_left(checks, directory):
    try:
        screen, other = os.openpty()
    except OSError as error:  # a chroot without /dev/pts
        print(f"left out: a terminal: {error}")
        return
    process = subprocess.Popen([GCPOOL, "top", "--interval", "0.2"], stdout=other)
    os.close(other)
    seen = b""
    while seen.count(b"\x1b[2J") < 3:
        seen += os.read(screen, 65536)
    process.send_signal(signal.SIGINT)
    try:
        checks.equal("exit code", 0, process.wait(60))
    finally:
        process.kill()
    checks.that(b"ALLOC/S" in seen and b"loop-shared" in seen, f"no list: {seen[-400:]}")


def main():
    global ORDINARY  # what most tests look at
    apart = containers_keep_their_pages
    preload.alone()
    with Running() as ORDINARY:
        look.each(preload.Checks(),
                  [apart] if sys.argv[1:] == ["containers"] else
                  [test for test in look.tests() if test is not apart])


if __name__ == "__main__":
    sys.exit(main())
