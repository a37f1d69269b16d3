#!/usr/bin/env python3
"""Optimized starts of programs that nothing here was tuned for, against their limit: the critical path that
`lab predict --limit` finds."""

import re
import statistics
import subprocess
import sys
import time
from functools import partial

from harness import FLAT, benchmark
from inputs import READY
from predict_programs import PROGRAMS, Program

# The medium that serves one request at a time has a latency for each.
LIMITS = {"flat-10ms-25mbs": 1.15, "flat-10ms-25mbs-serial": 1.20}
# The root as a command finds it in an image, with processes and a folder for temporary files.
NATIVE = 'mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/tmp"; echo begins; exec chroot "$0" "$@"'

def native(program):
    """A start in the root itself, everything in memory: from the command until it is ready. `headstart run` shows no
    folder."""
    words = ["unshare", "--mount", "sh", "-ec", NATIVE, program.root, *program.command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line == "begins\n":
            began = time.monotonic()
        elif re.search(READY, line):
            ready_s = time.monotonic() - began
            process.communicate()
            return {"ready_s": ready_s}
    sys.exit(f"the start in {program.root} was never ready")

@benchmark(repeats=5, media=FLAT)
def measure(bench):
    ratios = {medium: [] for medium in bench.media}
    for name in bench.chosen(PROGRAMS):
        program = Program(name)
        native(program)
        runs = bench.turns({"native": partial(native, program), **{
            medium: partial(program.start, "optimized", medium) for medium in bench.media}},
            say=f"{name}: {{ready_s:.3f}} s")
        for medium in bench.media:
            said = program.predicted("optimized", "--emulate", medium, "--own-time", runs.median("native"), "--limit")
            ready, limit_s = runs.median(medium), said["limit_s"]
            ratios[medium].append(ready / limit_s)
            bench.figure(f"{name}: optimized start ÷ limit, {medium}", ready / limit_s, at_most=LIMITS[medium],
                         noise=[round(end / limit_s, 3) for end in ready.noise],
                         detail={**runs.detail(), "limit_s": limit_s,
                                 "limit_in_the_summary_s": runs[medium][-1]["limit_s"]})
    if not bench.args.case and FLAT[0] in ratios:
        bench.figure(f"median of programs, {FLAT[0]}", statistics.median(ratios[FLAT[0]]), at_most=1.05)
