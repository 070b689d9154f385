#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The HTML report in a real browser, headless Chromium: it needs no network, runs without an
error, and shows the numbers of the recording; cursor, zoom, sorting and the filter work.
Exit code 77 without Chromium."""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import look
import preload

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# What a person does: each step says in the document what came of it.
STEPS = """
<script>
window.addEventListener("error", (event) => document.body.append("SCRIPT ERROR " + event.message));
setTimeout(() => {
	const say = (name, value) => {
		const mark = document.createElement("pre");
		mark.className = "step";
		mark.textContent = name + "=" + value;
		document.body.append(mark);
	};
	const fire = (element, kind, x, y) => {
		const box = element.getBoundingClientRect();
		element.dispatchEvent(new MouseEvent(kind, { bubbles: true, cancelable: true, view: window,
			clientX: box.left + x, clientY: box.top + y, detail: 1 }));
	};
	const map = document.querySelector("#map canvas");
	const box = map.getBoundingClientRect();
	let hit = "";
	for (let y = 1; y < box.height && !hit; y += 2)
		for (let x = 100; x < box.width && !hit; x += 7) {
			fire(map, "mousemove", x, y);
			hit = document.getElementById("block").textContent;
		}
	say("block", hit.split("\\n")[0]);
	const memory = document.querySelector("#memory canvas");
	const all = document.getElementById("all");
	const before = memory.toDataURL();
	fire(map, "mousedown", box.width * 0.3, 40);
	fire(map, "mouseup", box.width * 0.5, 40);
	say("zoomed", memory.toDataURL() !== before && !all.hidden);
	fire(map, "dblclick", 200, 40);
	say("back", memory.toDataURL() === before && all.hidden);
	document.querySelector("#memory-legend button").click();
	say("hidden", memory.toDataURL() !== before);
	document.querySelector("#memory-legend button").click();
	say("shown", memory.toDataURL() === before);
	fire(memory, "mousemove", 500, 80);
	say("legend", document.getElementById("memory-legend").textContent);
	const rows = () => document.querySelectorAll("#lives tr").length;
	const every = rows();
	const filter = document.getElementById("filter");
	filter.value = "no such call site";
	filter.dispatchEvent(new Event("input"));
	say("filtered", every + "," + rows());
	filter.value = "";
	filter.dispatchEvent(new Event("input"));
	document.querySelectorAll("#sites th")[3].click();
	say("sorted", document.querySelectorAll("#sites tr")[1].children[3].textContent);
}, 300);
</script>
</body>"""


def browser():
    return next((shutil.which(name) for name in BROWSERS if shutil.which(name)), None)


def ran(command, tries=3):
    """On a slow machine the browser hangs now and then: it is started again."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120, errors="replace")
    except subprocess.TimeoutExpired:
        return ran(command, tries - 1) if tries > 1 else sys.exit("the browser hangs")


def document_of(path):
    """The document once its scripts have run, and what they have said."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += ["--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1280,2400"]
        done = ran([*command, "--dump-dom", f"file://{path}"])
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line or "SCRIPT ERROR" in line]
    return done.stdout, said


def text_of(document, name):
    found = re.search(rf'id="{name}"[^>]*>(.*?)</(?:table|div|p|ul|pre)>', document, re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", found[1])) if found else ""


def steps_of(document):
    return dict(
        html.unescape(step).split("=", 1)
        for step in re.findall(r'<pre class="step">(.*?)</pre>', document, re.S))


def made(checks, directory, name, extra=None):
    steps = ["--steps", "50", "--size", "1m"] if name.startswith("solver") else []
    found = look.Recorded(
        directory, [look.program(name), *steps], {"GCPOOL_TRACE_STACKS": "8", **(extra or {})}, name)
    path = os.path.join(directory, f"{name}.html")
    code, _, err = look.tool("html", found.path, path)
    checks.that(code == 0, f"{name}: {err}")
    return found, path


def the_file_needs_no_network(checks, directory):
    _, path = made(checks, directory, "solver-shared")
    text = pathlib.Path(path).read_text(encoding="utf-8")
    links = re.findall(r"""(?:src|href)\s*=\s*["']?(?!data:|#)[^"'\s>]+|@import|url\((?!data:)""", text)
    shown = [link for link in links if "//" in link]
    checks.equal("links", [], shown)
    checks.that("default-src 'none'" in text, "no policy")


def numbers_are_those_of_the_recording(checks, directory):
    for name in ("solver-shared", "graphs-shared", "stress-shared"):
        found, path = made(checks, directory, name)
        document, said = document_of(path)
        checks.equal(f"{name}: errors", [], said)
        checks.that('data-ready="yes"' in document, f"{name}: the script did not end")
        facts = text_of(document, "facts")
        numbers = re.findall(r"<b>(.*?)</b><span>(.*?)</span>", document)
        values = {label: value for value, label in numbers}
        counts = found.history.counts
        checks.equal(f"{name}: allocations", f"{counts['allocations']:,}", values.get("allocations"))
        checks.equal(f"{name}: frees", f"{counts['frees']:,}", values.get("frees"))
        peak = found.stats["devices"][0]["allocated_bytes"]["peak"] if name == "solver-shared" else None
        if peak:
            checks.equal(f"{name}: live", f"{peak / 2**20:.1f} MiB", values.get("live at most"))
        checks.that("live at most" in facts, f"{name}: facts are {facts[:200]}")
        site = {
            "solver-shared": "level_pass", "graphs-shared": "capture at",
            "stress-shared": "round_keep"}
        checks.that(site[name] in text_of(document, "sites"), f"{name}: call sites")


def data_of_the_report_is_the_recording(checks, directory):
    found, path = made(checks, directory, "stress-shared")
    text = pathlib.Path(path).read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', text, re.S)[1])
    curve = data["devices"][0]["curve"]
    checks.that(all(a[0] < b[0] for a, b in zip(curve, curve[1:])), "times of the curve do not grow")
    top = max(row[1] + row[2] for row in curve)
    checks.equal("peak of the curve", found.device().peak, top)
    reserved = max(sum(row[1:]) for row in curve)
    checks.that(reserved >= found.device().peak_reserved, "reserved bytes of the curve")
    checks.equal("blocks", len(found.history.blocks), data["blocks_all"])
    behind = sum(row[1] for row in data["fences"])
    wanted = sum(fence.bytes for fence in found.history.fences if fence.recorded)
    checks.equal("bytes behind fences", wanted, behind)


def cursor_zoom_and_filter_work(checks, directory):
    _, path = made(checks, directory, "stress-shared")
    text = pathlib.Path(path).read_text(encoding="utf-8")
    at = text.rindex("</body>")
    pathlib.Path(path).write_text(text[:at] + STEPS + text[at + len("</body>") :], encoding="utf-8")
    document, said = document_of(path)
    checks.equal("errors", [], said)
    checks.equal("errors, and the word in the script", 1, document.count("SCRIPT ERROR"))
    steps = steps_of(document)
    checks.that(steps.get("block", "").startswith("0x"), f"steps are {steps}")
    for step in ("zoomed", "back", "hidden", "shown"):
        checks.equal(step, "true", steps.get(step))
    checks.that(re.search(r"live .*B.*cached .*Bat ", steps.get("legend", ""), re.S), f"legend: {steps}")
    every, filtered = steps.get("filtered", "0,0").split(",")
    checks.that(int(every) > 10 and int(filtered) == 1, f"filter: {steps}")
    checks.that(int(steps.get("sorted", "0").replace(",", "")) > 100, f"sorting: {steps}")


def the_name_of_a_program_is_no_script(checks, directory):
    path = os.path.join(directory, "named")
    for name in ("<!--<script>", "</script><script>document.title='x'</script>", "a\u2028b & c"):
        look.forge(path, [(1000, "alloc", 1 << 30, 512, 0, 1)], name)
        checks.equal(name, 0, look.tool("html", path, path + ".html")[0])
        document, said = document_of(path + ".html")
        checks.equal(f"{name}: errors", [], said)
        checks.that('data-ready="yes"' in document, f"{name}: the script did not end")
        checks.that(name in text_of(document, "head"), f"{name}: {text_of(document, 'head')}")


def main():
    if not browser():
        print("skipped: no Chromium here (Debian: chromium)")
        sys.exit(preload.SKIP)
    look.each(preload.Checks(), look.tests())


if __name__ == "__main__":
    main()
