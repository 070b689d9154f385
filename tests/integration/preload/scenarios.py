#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""scenarios.py SOURCE PROGRAM [SCENARIO ...]

Plays all scenarios of a program (scenarios.h), or those that are named, under the library,
in each of their ways. Each must end as on plain CUDA: with code 0."""

import re
import sys

import preload

SCENARIO = re.compile(r'^SCENARIO(?:_BEFORE_CUDA|_PRIMARY)?\(\s*(\w+)((?:,\s*(?:"[^"]*"\s*)+)*)\)', re.M)


def variables(text):
    return dict(word.split("=", 1) for word in text.split())


def ways(text, of_all):
    """(scenario, variables) of a source, in its order."""
    for name, rest in SCENARIO.findall(text):
        forms = ["".join(re.findall('"([^"]*)"', form))
                 for form in re.findall(r',\s*((?:"[^"]*"\s*)+)', rest)]
        for form in forms or [""]:
            own = variables(form)
            several = [{}] if "GCPOOL_BACKEND" in own else [
                variables(way) for way in of_all.get("Ways", "").split(",")]
            for way in several:
                yield name, {**variables(of_all.get("Environment", "")), **way, **own}


def said_by(result):
    text = preload.without_shortages(result.err)
    return re.findall(r"^libgcpool\[\d+\]: (.*)", text, re.M)


def play(checks, program, name, settings, line):
    env = dict(settings)
    says, loaded = env.pop("SAYS", None), env.pop("LOADED", None)
    form = env.pop("FORM", None)
    result = preload.run([f"{program}_{form}" if form else program, name],
                         None if loaded else preload.library(), env)
    title = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
    print(f"-- {title}\n{result.out}{result.err}", end="")
    if result.code == preload.SKIP:
        return 1
    checks.that(result.code == 0, f"{title}: exit code {result.code}")
    if line:
        wanted = [line] if says else []
        checks.that(said_by(result) == wanted, f"{title}: the library says {said_by(result)}")
    return 0


def main():
    source, program, *chosen = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    of_all, checks = preload.first_comment(text), preload.Checks()
    checks.that(text.count("\nSCENARIO") == len(SCENARIO.findall(text)), "one is not read")
    played = skipped = 0
    for name, settings in ways(text, of_all):
        if name in chosen if chosen else "BY" not in settings:
            settings.pop("BY", None)
            played += 1
            skipped += play(checks, program, name, settings, of_all.get("Says"))
    checks.that(played > 0, "no such scenario")
    print(f"{played} played, of which {skipped} skipped")
    if not checks.wrong and skipped == played:
        sys.exit(preload.SKIP)
    checks.end()


if __name__ == "__main__":
    main()
