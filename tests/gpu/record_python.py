#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""record_python.py GCPOOL OUT - records a PyTorch training run with `gcpool record` (CPython 3.12
or newer) and checks that call stacks have the functions of the program, from its own caches off
and on. The report stays in OUT: docs/pictures/report.png is a picture of it. 77: no torch here."""

import importlib.util
import os
import re
import subprocess
import sys

# What runs: 10 steps of a small model, whose functions are looked for.
PROGRAM = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters())

def batch_make():
    return torch.randn(4096, 2048, device="cuda")

def train_step():
    loss = model(batch_make()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

def train():
    for _ in range(10):
        train_step()
    torch.cuda.synchronize()

train()
"""
NAMES = ("batch_make at train.py", "train_step at train.py", "train at train.py", "<module> at train.py")


def main():
    launcher, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    if not importlib.util.find_spec("torch") or not hasattr(sys, "activate_stack_trampoline"):
        sys.exit(77)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "train.py"), "w") as file:
        file.write(PROGRAM)
    failed = False
    for caching, words in (("1", "PyTorch's cache off"), ("0", "its cache on")):
        report = os.path.join(out, f"report-{caching}.html")
        env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": caching}
        if caching == "0":
            del env["PYTORCH_NO_CUDA_MEMORY_CACHING"]
        command = [launcher, "record", "-o", report, sys.executable, "train.py"]
        done = subprocess.run(command, cwd=out, env=env, capture_output=True, text=True)
        print(f"{words}: exit code {done.returncode}, {done.stderr.strip()}")
        trace = re.search(r"recording (\S+)", done.stderr)
        if done.returncode or not trace:
            failed = True
            continue
        tool = os.path.join(os.path.dirname(launcher), "gcpool-trace")
        shown = subprocess.run([tool, os.path.join(out, trace[1])], capture_output=True, text=True).stdout
        print(shown[shown.find("live at the peak") :])
        missing = [name for name in NAMES if name not in shown]
        if caching == "1" and missing:
            print(f"WRONG: not in any call stack: {missing}")
            failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
