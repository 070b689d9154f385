#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What gcpool-trace makes of a recording: numbers that add up, files that their readers
accept, a comparison that names the call site. PyTorch's own reader of snapshots takes part
where it is there: torch is installed, or GCPT_MEMORY_VIZ names its _memory_viz.py."""

import importlib.util
import json
import os
import pathlib
import pickle
import re
import resource
import site
import subprocess
import time
import types

import look
import preload

from gcpool_trace.symbols import Symbols


def memory_viz():
    """PyTorch's torch/cuda/_memory_viz.py, or None."""
    path = os.environ.get("GCPT_MEMORY_VIZ")
    if not path:
        site.main()  # tests run without (tests/python.in)
        found = importlib.util.find_spec("torch")
        path = os.path.join(os.path.dirname(found.origin), "cuda", "_memory_viz.py") if found else None
    if not path:
        return None
    spec = importlib.util.spec_from_file_location("_memory_viz", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snapshot_of(checks, directory, found, when):
    path = os.path.join(directory, "snapshot.pickle")
    code, _, err = look.tool("snapshot", found.path, path, "--at", when)
    checks.that(code == 0, f"snapshot: {err}")
    with open(path, "rb") as file:
        return pickle.load(file)


def snapshots_add_up(checks, directory):
    for name, extra in (
        ("solver-shared", {}), ("graphs-shared", {}), ("stress-shared", {"GCPOOL_BACKEND": "vmm"})):
        found = look.Recorded(directory, look.command(name), {"GCPOOL_TRACE_STACKS": "8", **extra}, name)
        for when in ("peak", "end"):
            shot = snapshot_of(checks, directory, found, when)
            live = 0
            for segment in shot["segments"]:
                sizes = sum(block["size"] for block in segment["blocks"])
                checks.equal(f"{name} {when}: blocks of a segment", segment["total_size"], sizes)
                at = segment["address"]
                for block in segment["blocks"]:
                    checks.equal(f"{name} {when}: neighbours", at, block["address"])
                    at += block["size"]
                live += segment["allocated_size"]
            if not extra:
                wanted = found.device().peak if when == "peak" else found.device().live
                checks.equal(f"{name} {when}: live", wanted, live)
        order_of_frees(checks, name, shot)
        viz = memory_viz()
        if viz:
            checks.that("total_reserved" in viz.segsum(shot), f"{name}: segsum")
            checks.that("TOTAL MEM" in viz.trace(shot), f"{name}: trace")
            checks.that("snapshot.pickle" in viz.trace_plot(shot), f"{name}: trace_plot")
    print("PyTorch's reader took part" if viz else "PyTorch's reader is not here: left out")


def order_of_frees(checks, name, shot):
    """Each free is requested before it is completed."""
    waiting = {}
    for entry in (entry for trace in shot["device_traces"] for entry in trace):
        if entry["action"] == "free_requested":
            waiting[entry["addr"]] = waiting.get(entry["addr"], 0) + 1
        elif entry["action"] == "free_completed":
            waiting[entry["addr"]] = waiting.get(entry["addr"], 0) - 1
            checks.that(waiting[entry["addr"]] >= 0, f"{name}: completed before it was requested")
    checks.that(waiting, f"{name}: no free")


def summary_says_the_figures(checks, directory):
    found = look.Recorded(
        directory, [look.program("solver-shared"), "--steps", "20", "--size", "1m"],
        {"GCPOOL_TRACE_STACKS": "8"})
    code, out, err = look.tool(found.path)
    checks.that(code == 0 and not err, err)
    checks.that(f"{found.history.counts['allocations']:,} allocations" in out, out)
    checks.that(re.search(r"live at most +4\.0 MiB", out), out)
    checks.that("level_pass at solver.c" in out and "never freed" in out, out)


def names_are_no_orders_to_a_terminal(checks, directory):
    """A program may have any name."""
    name = os.path.join(directory, "\x1b]0;solver\x07\n\x9b")
    os.symlink(look.program("solver-shared"), name)
    found = look.Recorded(directory, [name, "--steps", "2", "--size", "64k"])
    checks.that("\x1b" in found.recording.program, "another name was recorded")
    for words in ((), ("compare", found.path)):
        code, out, err = look.tool(*words, found.path)
        checks.equal(f"{words}", (0, ""), (code, err))
        checks.that("?]0;solver?" in out, f"{words}: {out}")
        checks.that(not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), f"{words}: control characters")


def a_comparison_names_the_call_site(checks, directory):
    small = look.Recorded(directory, look.command("solver-shared"), {"GCPOOL_TRACE_STACKS": "8"}, "small")
    large = look.Recorded(
        directory, [look.program("solver-shared"), "--steps", "20", "--size", "1m"],
        {"GCPOOL_TRACE_STACKS": "8"}, "large")
    code, out, err = look.tool("compare", small.path, large.path)
    checks.that(code == 0 and not err, err)
    change = large.device().peak - small.device().peak
    checks.that(f"+{change / 2**20:.1f} MiB" in out, f"no change of {change}: {out}")
    first = out.split("difference of the peak\n")[1].splitlines()[0]
    checks.that("level_pass < main" in first and "+" in first, f"the first call site is {first}")
    same = look.tool("compare", small.path, small.path)[1]
    checks.that("none: the same blocks" in same, same)


def wrong_frees_are_told_with_their_stacks(checks, directory):
    for misuse, what, stacks in (
        ("double_free", "is freed already", 2), ("interior_free", "is the middle of a block", 1)):
        path = os.path.join(directory, f"{misuse}.trace")
        env = preload.environment(preload.library(), {"GCPOOL_TRACE": path, "GCPOOL_TRACE_STACKS": "8"})
        subprocess.run([os.environ["GCPT_MISUSE"], misuse], env=env, capture_output=True)
        code, out, err = look.tool(path)
        checks.that(code == 0 and what in out, f"{misuse}: {out}{err}")
        told = out[out.find("wrong free at") :].split("\n\n")[0]
        # The wrong call itself is the last of its function, and may have no frame of it.
        seen = sum("misuse.c" in line for line in told.splitlines())
        checks.that(seen >= stacks, f"{misuse}: {told}")


def events_are_lines(checks, directory):
    found = look.Recorded(directory, look.command("solver-shared"))
    lines = look.tool("events", found.path)[1].splitlines()
    checks.equal("lines", len(found.recording.events) + 1, len(lines))
    lines = look.tool("replay", found.path)[1].splitlines()
    allocated = [line.split()[3] for line in lines if line.split()[2] == "a"]
    freed = [line.split()[3] for line in lines if line.split()[2] == "f"]
    checks.equal("what is allocated is freed", sorted(allocated), sorted(freed))


def the_replay_benchmark_reads_recordings(checks, directory):
    found = look.Recorded(directory, look.command("stress-shared"))
    done = subprocess.run([os.environ["GCPT_REPLAY"], found.path], capture_output=True, text=True)
    checks.that(done.returncode == 0 and "peak" in done.stdout, f"{done.stdout}{done.stderr}")


def wrong_calls_are_one_line(checks, directory):
    for words in ((os.path.join(directory, "none"),), ("/dev/null",), ("html", "/etc/passwd", "x")):
        code, _, err = look.tool(*words)
        checks.that(code == 1 and err.startswith("gcpool-trace: ") and err.count("\n") == 1, err)
    checks.equal("no words", 2, look.tool()[0])
    line = "gcpool-trace: no command and no file 'frob', see --help\n"
    checks.equal("no command", (2, "", line), look.tool("frob", "run.trace"))
    found = look.Recorded(directory, look.command("solver-shared"))
    for words, line in (
        ((found.path, "/dev/full"), "gcpool-trace: cannot write /dev/full: No space left on device\n"),
        (("/nonexistent/x",), "gcpool-trace: cannot read /nonexistent/x: No such file or directory\n"),
        (
            (found.path, "/nonexistent/x"),
            "gcpool-trace: cannot write /nonexistent/x: No such file or directory\n")):
        checks.equal(words, (1, "", line), look.tool(*words))
    for word in ("-3", "many", ""):
        code, _, err = look.tool(found.path, "--top", word)
        line = f"gcpool-trace summary: error: argument --top: '{word}' is no number of call sites"
        checks.equal(f"top {word}", (2, line), (code, err.splitlines()[-1]))
    path = os.path.join(directory, "wrong.pickle")
    for word in ("inf", "nan", "-1", "1e300", "soon"):
        code, _, err = look.tool("snapshot", found.path, path, "--at", word)
        line = (
            f"gcpool-trace snapshot: error: argument --at: '{word}' is no number of seconds from 0 to"
            " 1000000000, nor peak, nor end")
        checks.equal(f"at {word}", (2, line), (code, err.splitlines()[-1]))
        checks.that(not os.path.exists(path), f"at {word}: a snapshot")
    for word in ("0", "0.001", "1e9"):
        code, _, err = look.tool("snapshot", found.path, path, "--at", word)
        checks.equal(f"at {word}", (0, ""), (code, err))


def no_recording_is_written_over(checks, directory):
    """run.*.trace may stand for several recordings: the second word is where to write."""
    first, second = (look.Recorded(directory, look.command("solver-shared"), {}, name)
                     for name in ("one", "two"))
    before = pathlib.Path(second.path).read_bytes()
    for words in ((), ("html",), ("snapshot",), ("events",)):
        code, out, err = look.tool(*words, first.path, second.path)
        line = f"gcpool-trace: {second.path} is a recording, and is not written over\n"
        checks.equal(f"{words}", (1, "", line), (code, out, err))
        checks.equal(f"{words}: the second recording", before, pathlib.Path(second.path).read_bytes())
    other = os.path.join(directory, "other.txt")
    for _ in range(2):
        checks.equal("what is no recording", 0, look.tool(first.path, other)[0])


def data_of(path, *words):
    """What a report has in its script."""
    code, _, err = look.tool("html", path, path + ".html", *words)
    if code:
        return err
    text = pathlib.Path(path + ".html").read_text(encoding="utf-8")
    return json.loads(re.search(r'<script id="data"[^>]*>([^<>&]*)</script>', text)[1])


def the_map_has_blocks_wherever_the_program_works(checks, directory):
    """First many large blocks, then many more small ones, which all took less of the map."""
    path = os.path.join(directory, "many")
    events = []
    for at in range(24000):
        time, addr = at * 33333, at % 12000 << 20
        size, units = (1 << 20, 2048) if at < 12000 else (512, 1)
        events += [(time, "alloc", addr, size, 0, units), (time + 30000, "free", addr, size, 0, units)]
    look.forge(path, events)
    data = data_of(path)
    checks.equal("blocks", (20000, 24000), (len(data["blocks"]), data["blocks_all"]))
    drawn = {int(row[3] * 100) for row in data["blocks"]}
    checks.equal("bins of time with blocks", set(range(80)), drawn)
    data = data_of(path, "--from", "0.5", "--to", "0.6")
    checks.equal("window", [0.5, 0.6], data["window"])
    checks.that(2990 < data["blocks_all"] == len(data["blocks"]) < 3010, f"{data['blocks_all']} blocks")
    checks.that(all(row[4] >= 0.5 and row[3] <= 0.6 for row in data["blocks"]), "blocks of other times")
    curve = data["devices"][0]["curve"]
    checks.equal("curve", (0.5, 0.6), (curve[0][0], curve[-1][0]))
    checks.that("is no number of seconds" in str(data_of(path, "--from", "nan")), "--from nan")


def many_handles_take_no_longer_each(checks, directory):
    """Each is unmapped and mapped while all the others are mapped."""
    path = os.path.join(directory, "handles")
    events = [(at, "vm_map", at << 21, 2 << 20, at + 1, 100) for at in range(16000)]
    for at in range(16000):
        events += [(at + 16000, "vm_unmap", at << 21, 2 << 20, 0, 100),
                   (at + 16000, "vm_map", at << 21, 2 << 20, at + 1, 100)]
    look.forge(path, events)
    before = time.process_time()
    code, out, _ = look.tool(path)
    spent = time.process_time() - before
    checks.that(code == 0 and "32,000" in out, out)
    checks.that(spent < 15, f"{spent:.1f} s for 32,000 mappings")


def sizes_of_a_header_are_not_believed(checks, directory):
    path = os.path.join(directory, "forged")
    good = (4096, 1 << 20, 48, 21840, 0)
    wrong = ((0, 1 << 31), (1, (1 << 32) - 4096), (1, 4096), (2, 40), (3, 1 << 30), (4, (1 << 32) - 1))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, before[1]))
    for at, value in wrong:
        sizes = [value if i == at else size for i, size in enumerate(good)]
        look.forge(path, [(1000, "alloc", 1 << 30, 512, 0, 1)], "x", sizes)
        line = f"gcpool-trace: {path} has a header that makes no sense\n"
        checks.equal(f"{sizes}", (1, "", line), look.tool(path))
    resource.setrlimit(resource.RLIMIT_AS, before)
    name = os.path.join(directory, "\x1b]0;x\x07\x9b")
    look.forge(name, [], "x", (0, 0, 0, 0, 0))
    line = f"gcpool-trace: {directory}/?]0;x?? has a header that makes no sense\n"
    checks.equal("name", line, look.tool(name)[2])


def functions_of_python_have_names(checks, directory):
    """A map of CPython beside a recording, and those of others, which are not believed."""
    path = os.path.join(directory, "python.trace")
    stack = (0x7000100F, 0x70002020, 0x7000300F, 0x7000400F)
    lines = ("70001000 f py::take:/app/pool.py", "70003000 f py::Model.step:/app/model.py", "wrong line",
             "70004000 f py::<module>:/app/main.py")
    interpreter = look.Module(path="/usr/bin/python3.13", start=0x70002000, end=0x70003000, offset=0, time=0)
    recording = types.SimpleNamespace(
        path=path, stacks={1: stack}, modules=[interpreter], pid=0, host="", events=[])
    wanted = "take at pool.py < Model.step at model.py < <module> at main.py"
    for kind, good in (("file", True), ("link", False), ("shared", False), ("fifo", False)):
        place = path + ".map"
        if kind == "fifo":
            os.mkfifo(place)
        else:
            real = place + ".real" if kind == "link" else place
            pathlib.Path(real).write_text("\n".join(lines))
            os.chmod(real, 0o666 if kind == "shared" else 0o600)
        if kind == "link":
            os.symlink(real, place)
        checks.equal(kind, good, Symbols(recording).path(1) == wanted)
        os.unlink(place)


def the_report_comes_with_the_recording(checks, directory):
    """gcpool record: twice in one place, of several processes, and with the program's exit code."""
    launcher = [os.path.join(look.SCRIPTS, "gcpool"), "record"]
    env = preload.environment(None, {})
    env.pop("LD_PRELOAD", None)
    solver = ["--library", preload.library(), look.program("solver-shared")]
    solver += ["--steps", "2", "--size", "64k"]

    def record(*words):
        done = subprocess.run([*launcher, *words], env=env, cwd=directory, capture_output=True, text=True)
        return done.returncode, done.stderr

    for _ in range(2):
        code, err = record(*solver)
        name = re.fullmatch(r"gcpool: report (gcpool\.\d+)\.html, recording \1\.trace\n", err)
        checks.that(code == 0 and name, f"{code} {err}")
        text = pathlib.Path(directory, f"{name[1]}.html").read_text()
        checks.that("level_pass at solver.c" in text, "no call site")
    for _ in range(2):
        code, err = record("-o", "one.html", "--stacks", "0", "--size", "8M", *solver)
        checks.that(code == 0 and "report one.html, recording one." in err, err)
    both = " ".join(solver[2:])
    code, err = record("-o", "two.html", "--", "sh", "-c", f"{both}; {both}; exit 7")
    said = re.findall(r"report two\.(\d+)\.html, recording two\.\1\.trace", err)
    checks.that(code == 7 and len(said) == 2, err)
    none = "gcpool: no process allocated from the pool: there is no recording\n"
    checks.equal("no CUDA", (0, none), record("true"))
    checks.equal("killed", (137, none), record("sh", "-c", "kill -9 $$"))
    code, err = record("/nowhere")
    checks.that(code == 127 and err.count("\n") == 1 and "/nowhere" in err, f"no program: {code} {err}")
    for words, line in (
        (("-o", "x.txt", "true"), "'x.txt' does not end in .html"),
        (("-o", "/nowhere/x.html", "true"), "cannot write into the directory of '/nowhere/x.html'")):
        code, err = record(*words)
        line = f"gcpool record: error: argument -o: {line}"
        checks.equal(f"{words}", (2, line), (code, err.splitlines()[-1]))


def main():
    look.each(preload.Checks(), look.tests())


if __name__ == "__main__":
    main()
