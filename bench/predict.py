#!/usr/bin/env python3
"""What `headstart lab predict` says against starts in real time: the demo's boot and its program, from a CD drive and a
hard disk, raw, unoptimized and optimized.

What the program takes with everything in memory is measured between the others and given to the prediction: for a
program from each layout, since what the kernel and the reader do for it is part of that and no medium's. This machine
is slower at one time than at another, which no model of a medium can know, so what a guest took from memory is scaled
by how long it had a processor in the boots that are predicted (`guest_cpu_s`); of that, storage is no part.
"""

from functools import partial

from harness import DRIVES, benchmark, boot, headstart_json, start
from inputs import COMMAND, READY, cache

LAYOUTS = ["raw", "unoptimized", "optimized"]

def boot_of(path, medium):
    return boot(path, medium=medium, flags=["--warm"] if medium == "none" else [])

def start_of(path, medium):
    return start(path, COMMAND, medium=medium, ready=READY, foreign=path.suffix == ".raw")

# The files of each story in the demo's cache by layout, its profile, how it is made, and the layouts from memory.
STORIES = {
    "boot": (["boot.raw", "boot.hsi", "boot-fast.hsi"], "boot.hsp", boot_of, ["raw"]),
    "start": (["root.raw", "root.hsi", "fast.hsi"], "start.hsp", start_of, LAYOUTS),
}

@benchmark(repeats=3, media=DRIVES)
def measure(bench):
    for story, (names, profile, how, warm_layouts) in bench.chosen(STORIES).items():
        files = {layout: cache() / name for layout, name in zip(LAYOUTS, names)}
        cases = {f"none {layout}": partial(how, files[layout], "none") for layout in warm_layouts}
        cases |= {f"{medium} {layout}": partial(how, files[layout], medium)
                  for medium in bench.media for layout in LAYOUTS}
        runs = bench.turns(cases, say="{ready_s:.2f} s")
        for medium in bench.media:
            for layout in LAYOUTS:
                name, warm = f"{medium} {layout}", f"none {layout if layout in warm_layouts else 'raw'}"
                # What the program itself would have taken while these were run.
                pace = runs.ratio(name, warm, "guest_cpu_s") if "guest_cpu_s" in runs[name][0] else 1
                own = round(runs.median(warm) * pace, 3)
                image = files["optimized" if layout == "raw" else layout]
                predicted = headstart_json("lab", "predict", image, "--profile", cache() / profile, "--own-time", own,
                                           "--compare", f"{medium},{layout}")["rows"][0]
                off = [abs(predicted["ready_s"] / ready - 1) for ready in runs.values(name)]
                bench.figure(f"{story}, {name}: predicted is off by",
                             abs(predicted["ready_s"] / runs.median(name) - 1), at_most=0.10,
                             noise=[min(off), max(off)],
                             detail={**runs.detail(), "predicted": predicted, "own_time_s": own})
