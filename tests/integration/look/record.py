#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A recording is what the statistics say, whatever ends the process, and costs the program
nothing but time: killed, forked, a full disk, a file that is in use or is none of ours."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import types

import look
import preload

from gcpool_trace.symbols import Symbols, load_bias

SOLVER = ["--steps", "100", "--size", "256k"]


def figures_are_those_of_the_statistics(checks, directory):
    for name, extra in (("shared", {}), ("static", {}), ("shared", {"GCPOOL_BACKEND": "vmm"})):
        found = look.Recorded(
            directory, [look.program(f"solver-{name}"), *SOLVER], extra, f"{name}{len(extra)}")
        device, stats = found.device(), found.stats["devices"][0]
        words = f"{name} {extra}"
        checks.equal(f"{words} exit code", 0, found.run.code)
        checks.equal(f"{words} notes", [], found.recording.notes)
        checks.equal(f"{words} device", "Simulated CUDA device", found.recording.devices[0][0])
        checks.equal(
            f"{words} allocations", stats["allocation"]["allocated"], found.history.counts["allocations"])
        checks.equal(f"{words} frees", stats["allocation"]["freed"], found.history.counts["frees"])
        checks.equal(f"{words} live", stats["allocated_bytes"]["peak"], device.peak)
        checks.equal(f"{words} asked for", stats["requested_bytes"]["peak"], device.peak_requested)
        checks.equal(f"{words} reserved", stats["reserved_bytes"]["peak"], device.peak_reserved)
        checks.equal(f"{words} fences", stats["fences"], found.history.calls["cuCtxRecordEvent"][0])
        checks.that(found.recording.events == sorted(found.recording.events, key=lambda e: e.time), "order")


def the_program_is_the_same(checks, directory):
    command = look.command("stress-shared")
    plain = preload.run(command, preload.library())
    found = look.Recorded(directory, command, {"GCPOOL_TRACE_STACKS": "8"})
    checks.equal("exit code", plain.code, found.run.code)
    checks.clean(found.run, "recorded")
    checks.that(found.history.counts["allocations"] > 1000, "few allocations were recorded")
    checks.that(len(found.recording.threads) > 1, "one thread was recorded")


def stacks_name_call_sites(checks, directory):
    linked = look.program("solver-linked")
    command = [linked if os.path.exists(linked) else look.program("solver-shared"), *SOLVER]
    found = look.Recorded(directory, command, {"GCPOOL_TRACE_STACKS": "16"})
    symbols = found.symbols()
    allocs = [e for e in found.recording.events if e.kind in ("alloc", "free")]
    checks.that(all(e.stack for e in allocs), "events without a stack")
    paths = [[f.function for f in symbols.frames(s)] for s in found.recording.stacks]
    checks.that(
        any(path[:3] == ["level_pass", "level_pass", "main"] for path in paths),
        f"no stack is level_pass < level_pass < main: {paths[:3]}")
    names = {name for path in paths for name in path}
    checks.that(not any("gcp_" in name for name in names), "frames of the library itself")


def frames_of(path, values, like=None):
    """The functions at these addresses of a file, as a stack of a recording names them; its
    parts are those of the file `like`."""
    parts = load_bias(like or path)
    places = [value - base + at for value in values for at, size, base in parts if 0 <= value - base < size]
    module = look.Module(0, 1 << 32, 1 << 33, 0, path)
    stack = [module.start + place + 1 for place in places]
    recording = types.SimpleNamespace(
        path=path, pid=0, host="", modules=[module], stacks={1: stack}, events=[])
    return [frame.function for frame in Symbols(recording).frames(1)]


def functions_are_named_only_by_their_own_name(checks, directory):
    """A stripped file exports some functions; all others lie behind one of these."""
    stripped = os.path.join(directory, "libstripped.so")
    subprocess.run(["strip", "-o", stripped, preload.library()], check=True)
    listed = subprocess.run(["nm", "-S", preload.library()], capture_output=True, text=True, check=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    inside = {row[2]: [] for row in rows if len(row) == 4 and row[2] in "Tt"}
    for row in rows:
        if len(row) == 4 and row[2] in "Tt" and int(row[1], 16) > 8:
            inside[row[2]].append((row[3], int(row[0], 16) + 4))
    own = sorted(row for row in inside["t"] if not row[0].startswith("gcp_"))[:20]
    exported = [(name.split("@")[0], value) for name, value in inside["T"] if name.startswith("gcpool_")]
    named = frames_of(stripped, [value for _, value in exported])
    checks.equal("exported", [name for name, _ in exported], named)
    for function in frames_of(stripped, [value for _, value in own]):
        checks.that(function.startswith("libstripped.so+0x"), f"{function} is another function")


def only_files_are_modules(checks, directory):
    """A recording that others have written names an option of nm, a FIFO, a folder."""
    seen = os.path.join(directory, "seen")
    for name in ("addr2line", "nm"):
        tool = os.path.join(directory, name)
        pathlib.Path(tool).write_text(f'#!/bin/sh\necho {name} "$@" >>{seen}\n')
        os.chmod(tool, 0o755)
    fifo = os.path.join(directory, "fifo")
    os.mkfifo(fifo)
    for name in ("--plugin=evil.so", "module.so"):
        os.symlink(preload.library(), os.path.join(directory, name))
    before, path = os.getcwd(), os.environ["PATH"]
    os.chdir(directory)
    os.environ["PATH"] = f"{directory}:{path}"
    signal.alarm(60)
    try:
        for wrong in ("--plugin=evil.so", "module.so", fifo, directory):
            named = frames_of(wrong, [4096], preload.library())
            checks.equal(wrong, f"{os.path.basename(wrong)}+0x1001", named[0])
            checks.that(not os.path.exists(seen), f"{wrong}: a tool was called")
        frames_of(os.path.join(directory, "module.so"), [4096])
    finally:
        signal.alarm(0)
        os.chdir(before)
        os.environ["PATH"] = path
    called = pathlib.Path(seen).read_text().splitlines()
    checks.equal("tools", 3, len(called))
    for line in called:
        checks.that(line.startswith("addr2line") or f" -- {directory}/" in line, line)


def graphs_are_told_from_the_rest(checks, directory):
    found = look.Recorded(directory, look.command("graphs-shared"))
    checks.that(any(block.graph for block in found.history.blocks), "no block belongs to a graph")
    checks.that(found.history.counts["captures"], "no capture was recorded")


def start_long(path, extra=None, iterations=100000000):
    env = preload.environment(preload.library(), {"GCPOOL_TRACE": path, **(extra or {})})
    return subprocess.Popen(
        [look.program("loop-shared"), "--no-kernel", "--size", "64k", "--iterations", str(iterations)],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_events(path, least=200000):
    """Till there is a recording of some size."""
    preload.soon(lambda: os.path.exists(path) and os.path.getsize(path) > least)


def a_killed_process_leaves_all_it_did(checks, directory):
    path = os.path.join(directory, "killed.trace")
    process = start_long(path)
    wait_for_events(path, 3 << 20)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()
    found = look.Recording(path)
    checks.that(not found.ended and any("killed" in note for note in found.notes), f"notes: {found.notes}")
    kinds = [event.kind for event in found.events if event.kind in ("alloc", "free")]
    checks.that(len(kinds) > 10000, f"{len(kinds)} events of a killed process")
    checks.that(all(a != b for a, b in zip(kinds, kinds[1:])), "an allocation or a free is missing")
    code, out, err = look.tool(path)
    checks.that(code == 0 and "killed" in out and not err, f"summary: {code} {err}")


def a_file_that_is_cut_off_is_read_as_far_as_it_goes(checks, directory):
    found = look.Recorded(directory, [look.program("solver-shared"), *SOLVER], {"GCPOOL_TRACE_STACKS": "4"})
    raw = pathlib.Path(found.path).read_bytes()
    cut = os.path.join(directory, "cut.trace")
    last = None
    for length in (0, 7, 100, 4095, 4096, 4100, 100000, 1 << 20, 2000000, len(raw) - 1):
        pathlib.Path(cut).write_bytes(raw[:length])
        code, out, err = look.tool(cut)
        checks.that("Traceback" not in err, f"cut to {length}: {err}")
        if length < 4096:
            checks.that(
                code == 1 and err.count("\n") == 1 and "gcpool-trace: " in err,
                f"cut to {length}: {code} {err}")
        else:
            checks.that(code == 0 and out.count("cut off") == 1, f"cut to {length}: {code} {err} {out[:200]}")
            events = len(look.Recording(cut).events)
            checks.that(last is None or events >= last, f"cut to {length}: fewer events than before")
            last = events
    checks.that(last and last <= len(found.recording.events), "no events of a file that is cut off")


def bytes_that_make_no_sense_are_one_line(checks, directory):
    found = look.Recorded(directory, look.command("solver-shared"))
    raw = bytearray(pathlib.Path(found.path).read_bytes())
    path = os.path.join(directory, "wrong.trace")
    for at, value in ((0, b"X"), (8, b"\xff"), (20, b"\0\0\0\0"), (24, b"\0\0\0\0"), (16, b"\1\0\0\0")):
        wrong = bytearray(raw)
        wrong[at : at + len(value)] = value
        pathlib.Path(path).write_bytes(wrong)
        code, _, err = look.tool(path)
        checks.that(
            "Traceback" not in err and (code == 0 or err.count("\n") == 1), f"byte {at}: {code} {err}")


def a_full_file_keeps_the_newest(checks, directory):
    found = look.Recorded(
        directory,
        [look.program("loop-shared"), "--no-kernel", "--size", "64k", "--iterations", "250000"],
        {"GCPOOL_TRACE_SIZE": "8M"})
    checks.that(os.path.getsize(found.path) <= (8 << 20) + 4096, "the file is larger than it may be")
    checks.that(found.recording.lost > 0 and any("overwritten" in n for n in found.recording.notes), "lost")
    first = next(e for e in found.recording.events if e.kind == "alloc")
    last = [e for e in found.recording.events if e.kind == "free"][-1]
    checks.that(
        first.time > found.recording.start_ns + (last.time - found.recording.start_ns) // 4,
        "the oldest events are still there")
    checks.equal("live at the end", 0, found.device().live)
    checks.that(found.history.segments, "a segment was overwritten")


def a_limit_of_the_file_is_one_line(checks, directory):
    """The process is stopped while the limit is set: there is room for one chunk and a half. Of
    those that are there before one is full still, whichever is being written over in the end."""
    path, chunk = os.path.join(directory, "small.trace"), 1 << 20
    for times in (1, 4, 16):  # it may have ended before it was stopped
        process = start_long(path, {}, times * 1000000)
        wait_for_events(path, 2 * chunk)
        process.send_signal(signal.SIGSTOP)
        state = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if state.si_code == os.CLD_STOPPED:
            break
        process.communicate()
    limit = os.path.getsize(path) + chunk + chunk // 2
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    process.send_signal(signal.SIGCONT)
    _, said = process.communicate(timeout=120)
    checks.that(process.returncode == 0, f"exit code {process.returncode}: {said}")
    checks.that(said.count("GCPOOL_TRACE") == 1 and "keeping the newest" in said, said)
    checks.that(limit - chunk < os.path.getsize(path) <= limit, f"{os.path.getsize(path)} bytes")
    found = look.Recording(path)
    checks.that(found.ended and found.lost and len(found.events) > 10000, f"{len(found.events)} events")


def a_full_disk_is_one_line(checks, directory):
    """A file system of some MiB, where such may be mounted."""
    small = ["unshare", "-rm", "sh", "-ec"]
    if subprocess.run(
        [*small, f"mount -t tmpfs -o size=1m none {directory}"], capture_output=True
    ).returncode:
        print("skipped: no file system can be mounted here")
        return
    command = f"{look.program('loop-shared')} --no-kernel --size 64k --iterations 150000"
    for size, words, left in (
        ("5m", "keeping the newest", ["x.trace"]), ("8k", "recording nothing", [])):
        script = (
            f"mount -t tmpfs -o size={size} none {directory}; {command} >&2; "
            f"ls {directory}; exec {sys.executable} {look.SCRIPTS}/gcpool-trace {directory}/x.trace")
        env = preload.environment(None, {})
        env.pop("LD_PRELOAD", None)
        script = script.replace(
            command, f"LD_PRELOAD={preload.library()} GCPOOL_TRACE={directory}/x.trace {command}")
        done = subprocess.run([*small, script], env=env, capture_output=True, text=True, timeout=120)
        checks.that(words in done.stderr and done.stderr.count("GCPOOL_TRACE") == 1, f"{size}: {done.stderr}")
        checks.that(
            (done.returncode == 0) == bool(left), f"{size}: exit code {done.returncode}: {done.stderr}")
        checks.equal(f"{size} files", left, done.stdout.splitlines()[: len(left)])


def files_of_others_are_left_alone(checks, directory):
    short = [look.program("loop-shared"), "--no-kernel", "--iterations", "10", "--size", "64k"]

    def said(path, extra=None):
        env = preload.environment(preload.library(), {"GCPOOL_TRACE": path, **(extra or {})})
        done = subprocess.run(short, env=env, capture_output=True, text=True, timeout=60)
        checks.equal(f"{path} exit code", 0, done.returncode)
        return done.stderr

    text = os.path.join(directory, "train.py")
    pathlib.Path(text).write_text("import torch\n" * 100)
    checks.that("it exists" in said(text), "a file of the user")
    with open(text) as file:
        checks.equal("a file of the user", "import torch\n" * 100, file.read())
    checks.that("it exists" in said("/dev/null"), "/dev/null")
    checks.that("no such directory" in said(os.path.join(directory, "no", "such")), "no directory")
    checks.equal("files", ["train.py"], os.listdir(directory))


def nothing_is_recorded_without_the_library_for_it(checks, directory):
    """It is not there, or another one: one line, and the program does the same."""
    command = [look.program("solver-shared"), "--steps", "5", "--size", "64k"]
    plain = preload.run(command, preload.library())
    library = shutil.copy(preload.library(), directory)
    path = os.path.join(directory, "trace")
    for extra in ({"GCPOOL_TRACE": path}, {"GCPOOL_LIVE": "1"}, {"GCPOOL_DEBUG": "all"}):
        for _ in range(2):
            done = preload.run(command, library, extra)
            one = "no libgcpool-observe.so of this version" in done.err and done.err.count("\n") == 1
            checks.that(one, f"{extra}: {done.err!r}")
            checks.equal(f"{extra}: output", (plain.code, plain.out), (done.code, done.out))
            checks.clean(done, f"{extra}")
            shutil.copy(library, os.path.join(directory, "libgcpool-observe.so"))
        os.unlink(os.path.join(directory, "libgcpool-observe.so"))
    checks.that(not os.path.exists(path), "something was recorded")


def the_library_for_it_is_found_by_a_relative_path(checks, directory):
    beside = os.path.dirname(preload.library())
    for name in ("libgcpool.so", "libgcpool-observe.so"):
        shutil.copy(os.path.join(beside, name), directory)
    path = os.path.join(directory, "trace")
    words = f"cd {directory} && LD_PRELOAD=./libgcpool.so exec {look.program('solver-shared')}"
    done = preload.run(["sh", "-c", words], None, {"GCPOOL_TRACE": path})
    checks.equal("exit code", 0, done.code)
    checks.that(os.path.exists(path), f"no recording: {done.err}")


def no_recording_where_nothing_is_pooled(checks, directory):
    path = os.path.join(directory, "none.trace")
    env = preload.environment(preload.library(), {"GCPOOL_TRACE": path, "GCPOOL_MODE": "off"})
    done = subprocess.run([look.program("loop-shared"), "--iterations", "10"], env=env, capture_output=True)
    checks.that(done.returncode == 0 and not os.path.exists(path), "mode off")
    env = preload.environment(preload.library(), {"GCPOOL_TRACE": path})
    subprocess.run(["true"], env=env, check=True)
    checks.that(not os.path.exists(path), "a program without CUDA")


def a_forked_child_writes_nothing(checks, directory):
    # The program ends with a report of its own: the file is the parent's alone.
    found = look.Recorded(directory, [look.program("life-shared"), "--fork"])
    checks.equal("exit code", 0, found.run.code)
    checks.equal("files", ["run.json", "run.trace"], sorted(os.listdir(directory)))
    checks.that(found.recording.ended, f"notes: {found.recording.notes}")
    pattern = os.path.join(directory, "each.%p.trace")
    env = preload.environment(preload.library(), {"GCPOOL_TRACE": pattern})
    done = subprocess.run([look.program("life-shared"), "--spawn"], env=env, capture_output=True, text=True)
    checks.equal("spawn exit code", 0, done.returncode)
    each = [name for name in os.listdir(directory) if name.startswith("each.")]
    checks.that(
        each
        and all(
            look.Recording(os.path.join(directory, name)).pid == int(name.split(".")[1]) for name in each),
        f"files {each}")


def memory_that_is_out_is_recorded(checks, directory):
    found = look.Recorded(
        directory, [look.program("oom-shared")], {"GCPSIM_MEMORY": "256M", "GCPOOL_TRACE_STACKS": "4"})
    checks.that(found.history.refused, "no shortage was recorded")
    checks.that(found.history.counts["refused by the driver"] > 0, "the driver refused nothing")


def segments_that_go_back_are_recorded(checks, directory):
    """Whether the driver takes them without a wait, or refuses that (its cuMemFreeAsync)."""
    for name, extra in (
        ("without", {}), ("refused", {"GCPSIM_FAIL": "cuMemFreeAsync:1+:1"})):
        extra = {"GCPSIM_MEMORY": "256M", "GCPOOL_BACKEND": "segments", **extra}
        found = look.Recorded(directory, [look.program("oom-shared")], extra, name)
        device, stats = found.device(), found.stats["devices"][0]
        checks.equal(f"{name} a wait: reserved", stats["reserved_bytes"]["current"], device.reserved)
        checks.equal(f"{name} a wait: peak", stats["reserved_bytes"]["peak"], device.peak_reserved)
        count = sum(event.kind == "segment_free" for event in found.recording.events)
        checks.equal(f"{name} a wait: segments gone", stats["segment"]["freed"], count)
        checks.that(count > 20, f"{name} a wait: {count} segments went back")


def threads_that_are_cancelled_leave_the_recording(checks, directory):
    for stacks in ("0", "8"):
        command = [os.environ["GCPT_WATCHED"], "a_cancelled_thread_leaves_no_lock"]
        extra = {"GCPOOL_TRACE_STACKS": stacks}
        found = look.Recorded(directory, command, extra, f"cancelled{stacks}")
        checks.equal(f"{stacks} frames: exit code", 0, found.run.code)
        checks.equal(f"{stacks} frames: allocations", 24001, found.history.counts["allocations"])


def stacks_lead_to_the_callers(checks, directory):
    command = [os.environ["GCPT_WATCHED"], "calls_lie_in_calls"]
    extra = {"GCPOOL_TRACE_STACKS": "8"}
    found = look.Recorded(directory, command, extra)
    symbols = found.symbols()
    for kind in ("alloc", "free"):
        events = [event for event in found.recording.events if event.kind == kind]
        names = [frame.function for frame in symbols.frames(events[-1].stack)]
        checks.equal(kind, ["innermost", "middle", "outermost", "calls_lie_in_calls"], names[:4])


def a_library_at_the_place_of_another_has_its_own_names(checks, directory):
    plugins = os.environ["GCPT_PLUGINS"].split(":")
    found = look.Recorded(directory, [os.environ["GCPT_RELOAD"], *plugins], {"GCPOOL_TRACE_STACKS": "8"})
    checks.equal("exit code", 0, found.run.code)
    symbols = found.symbols()
    stacks = [event.stack for event in found.recording.events if event.kind == "alloc"]
    names = [symbols.program_frames(stack)[0].function for stack in stacks]
    checks.equal("sites", ["first_plugin", "other_plugin", "first_plugin"], names)


def trampolines_of_python_are_left(checks, directory):
    """Code without tables, by which CPython calls each function."""
    if os.uname().machine != "x86_64":
        return
    command = [os.environ["GCPT_WATCHED"], "trampolines_are_left"]
    extra = {"GCPOOL_TRACE_STACKS": "16"}
    found = look.Recorded(directory, command, extra)
    symbols = found.symbols()
    for kind in ("alloc", "free"):
        event = [event for event in found.recording.events if event.kind == kind][-1]
        names = [frame.function for frame in symbols.frames(event.stack)]
        named = [name for name in names if not name.startswith("0x")]
        checks.equal(kind, ["innermost", "behind_both", "between_them", "trampolines_are_left"], named[:4])
        checks.equal(f"{kind}: trampolines", 2, sum(name.startswith("0x") for name in names))


PROGRAM = """
import ctypes, sys
runtime = ctypes.CDLL("libcudart.so.13")
def take(size):
    pointer = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer
class Model:
    def step(self):
        return take(1 << 20)
def train():
    return [Model().step() for _ in range(4)]
kept = train()
"""


def python_programs_have_their_functions(checks, directory):
    """Python 3.12 or newer, where there is one: GCPT_PYTHON, or that of the tests."""
    python = os.environ.get("GCPT_PYTHON", sys.executable)
    code = "import sys; print(hasattr(sys, 'activate_stack_trampoline'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if "True" not in done.stdout:
        print("left out: this Python is older than 3.12")
        return
    script = os.path.join(directory, "train.py")
    pathlib.Path(script).write_text(PROGRAM)
    command = [os.path.join(look.SCRIPTS, "gcpool"), "record", "--library", preload.library(), python, script]
    env = preload.environment(None, {})
    done = subprocess.run(command, env=env, cwd=directory, capture_output=True, text=True)
    checks.equal("exit code", 0, done.returncode)
    (name,) = [name for name in os.listdir(directory) if name.endswith(".trace")]
    out = look.tool(os.path.join(directory, name))[1]
    frames = ("take at train.py", "Model.step at train.py", "train at train.py", "<module> at train.py")
    checks.that(" < ".join(frames[: 4 if os.uname().machine == "x86_64" else 1]) in out, out)
    pid = name.split(".")[1]
    checks.that(not os.path.exists(f"/tmp/perf-{pid}.map"), "the map is left in /tmp")


def main():
    look.each(preload.Checks(), look.tests())


if __name__ == "__main__":
    main()
