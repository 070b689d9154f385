#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The HTML report in a real browser, headless Chromium: it needs no network, runs without an
error, and shows the numbers of the recording. Exit code 77 without Chromium."""

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


def browser():
    return next((shutil.which(name) for name in BROWSERS if shutil.which(name)), None)


def document_of(path):
    """The document once its scripts have run, and what they have said."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += ["--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1280,2400"]
        done = subprocess.run(
            [*command, "--dump-dom", f"file://{path}"], capture_output=True, text=True, timeout=180,
            errors="replace")
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line or "SCRIPT ERROR" in line]
    return done.stdout, said


def text_of(document, name):
    found = re.search(rf'id="{name}"[^>]*>(.*?)</(?:table|div|p|ul|pre)>', document, re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", found[1])) if found else ""


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
