# SPDX-License-Identifier: MIT
"""Checks that want two GPUs: each function returns rows; with one they are left out."""

import programs
from bench import FAIL, SKIPPED, Row, number, verdict
from frameworks import missing, script

STYLES = ("static", "shared", "linked")
ONE_DEVICE = 77  # what the programs end with


def cross_device_wait(bench):
    """Work of one device is not held back behind another's."""
    rows = []
    for style in STYLES:
        for bytes in ("4k", "1m", "3m"):
            command = [bench.program(f"cross_device_wait-{style}"), "--block", bytes]
            command += ["--ns", bench.scale(3000000000, 1500000000)]
            plain, pooled = bench.pair(command) if style == "static" else (
                None, bench.run(command, bench.library))
            if pooled.code == ONE_DEVICE:
                return [Row("kernels of two devices that wait for each other",
                            verdict=SKIPPED, details="one device only")]
            text = ["" if not r else r.out.split("was ")[-1].strip() if r.code in (0, 1)
                    else f"code {r.code}" for r in (plain, pooled)]
            rows.append(Row(f"work beside another device's, blocks of {bytes}, {style}", *text,
                            "not held back", verdict(pooled.code == 0),
                            "" if pooled.code == 0 else pooled.tail()))
    return rows


def staging(bench):
    """Pinned memory of one device that another copies from."""
    rows = []
    for style in STYLES:
        command = [bench.program(f"staging_devices-{style}"), "--rounds", bench.scale(300, 50)]
        result = bench.run(command, bench.library)
        if result.code == ONE_DEVICE:
            return [Row("pinned memory used by two devices", verdict=SKIPPED,
                        details="one device only")]
        rows.append(Row(f"pinned memory used by two devices, {style}", "",
                        result.out.split("rounds: ")[-1].strip() or f"code {result.code}",
                        "wrong words: 0", verdict(result.code == 0),
                        "" if result.code == 0 else result.tail()))
    return rows


def torch_loader(bench):
    """PyTorch loads through pinned memory, beside captures and another device's kernel."""
    what = "PyTorch, loaders beside captures and the other GPU's kernel"
    if missing("torch"):
        return [Row(what, verdict=SKIPPED, details="no torch here")]
    runs = bench.pair(script(bench, "torch_loader.py", bench.scale(8, 5)), timeout=120)
    if any(run.code == ONE_DEVICE for run in runs):
        return [Row(what, verdict=SKIPPED, details="one device only")]
    if any("pinned blocks:" not in run.out for run in runs):
        return [Row(what, verdict=FAIL, details="\n".join(run.tail() for run in runs))]
    text = [f"{number(run.out, 'pinned blocks:'):.0f} blocks, "
            f"{number(run.out, 'raw:'):.0f} us a batch" for run in runs]
    return [Row(what, *text, "sums right, it still runs, at most 96 blocks",
                verdict(runs[1].code == 0), "" if runs[1].code == 0 else runs[1].tail())]


def contexts(bench):
    rows = programs.contexts(bench)
    for row in rows:
        row.check = f"all devices: {row.check}"
    return rows
