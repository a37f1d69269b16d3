#!/usr/bin/env python3
"""Optimised starts of programs that nobody here tuned for, against their limit: the critical path that
`lab predict --limit` finds."""

import re
import statistics
import subprocess
import time

from harness import FLAT, alternate, arguments, figure, finish, headstart_json, ratio_range, start
from inputs import READY
from predict_programs import PROGRAMS, Program

# The medium that serves one request at a time has a latency for each.
LIMITS = {"flat-10ms-25mbs": 1.15, "flat-10ms-25mbs-serial": 1.20}
MEDIAN = 1.05


# The root as a command finds it in an image, with processes and a folder for temporary files.
NATIVE = 'mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/tmp"; echo begins; exec chroot "$0" "$@"'


def native(root, command):
    """A start in the root itself, everything in memory: from the command until it is ready. `headstart run` shows no folder."""
    process = subprocess.Popen(["unshare", "--mount", "sh", "-ec", NATIVE, root, *command], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line == "begins\n":
            began = time.monotonic()
        elif re.search(READY, line):
            ready_s = time.monotonic() - began
            break
    else:
        raise SystemExit(f"the start in {root} was never ready")
    process.communicate()
    return {"ready_s": ready_s}


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    figures, ratios = [], {medium: [] for medium in FLAT}
    for name, (root, command) in PROGRAMS.items():
        program, folder = Program(name), root()
        fast = program.images["optimised"]
        cases = {medium: lambda medium=medium: start(fast, command, medium=medium, ready=READY) for medium in FLAT}
        native(folder, command)
        runs = alternate({"native": lambda: native(folder, command), **cases}, args.repeats,
                         say=lambda run: f"{name}: {run['ready_s']:.3f} s")
        own_s = statistics.median(run["ready_s"] for run in runs["native"])
        for medium in FLAT:
            said = headstart_json("lab", "predict", fast, "--profile", program.profile, "--emulate", medium, "--own-time", own_s,
                                  "--limit", "--json")
            limit_s = said["rows"][0]["limit_s"]
            ready = [run["ready_s"] for run in runs[medium]]
            ratio = statistics.median(ready) / limit_s
            ratios[medium].append(ratio)
            detail = {"limit_s": limit_s, "limit_in_the_summary_s": runs[medium][-1]["limit_s"], "native_s": own_s, "ready_s": ready, "last": runs[medium][-1]}
            figures.append(figure(f"{name}: optimised start ÷ limit, {medium}", ratio, at_most=LIMITS[medium],
                                  noise=ratio_range(ready, [limit_s] * len(ready)), detail=detail))
    figures.append(figure(f"median of programs, {FLAT[0]}", statistics.median(ratios[FLAT[0]]), at_most=MEDIAN))
    finish("limit", figures, args.repeats)


if __name__ == "__main__":
    main()
