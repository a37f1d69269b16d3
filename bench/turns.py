#!/usr/bin/env python3
"""Two builds in turns: each script of this folder runs with an earlier build and with this one, one after the other, and
its figures stand side by side.

    bench/turns.py [--repeats N] [--pairs N] PROGRAM CACHE SCRIPT[:REPEATS]...

PROGRAM is the earlier build, and CACHE the folder of its inputs: each build makes its images, profiles and packings itself,
since a build may not read what a later one writes. Optimized starts, for which no script counts processor time, are run
in pairs as well.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

from harness import FLAT, HERE, RESULTS, Bench, Runs, headstart_path, keep, progress, scratch, start
from inputs import COMMAND, READY
from stamp import stamp

BEFORE, NOW = "before", "now"
# What is compared of the pairs of starts, and its limit.
LIMITS = {"ready_s": None, "cpu_s": 0.9, "hot_compressed_bytes": 1.02}

def one_start(build, medium):
    """One optimized start, and the processor time of all that it started."""
    os.environ["HEADSTART"], os.environ["HEADSTART_CACHE"] = build
    used = lambda of=resource.RUSAGE_CHILDREN: sum(resource.getrusage(of)[:2])
    before_s = used()
    summary = start(Path(build[1]) / "fast.hsi", COMMAND, medium=medium, ready=READY)
    return {**{key: summary[key] for key in LIMITS if key in summary}, "cpu_s": used() - before_s}

def pairs(bench, builds, medium):
    """Figures of optimized starts in pairs."""
    runs = bench.turns({name: partial(one_start, build, medium) for name, build in builds.items()},
                       say=f"{medium}: {{ready_s:.2f}} s, {{cpu_s:.2f}} s of processor time")
    for key, limit in LIMITS.items():
        bench.figure(f"optimized start, {key}, now ÷ before, {medium}", runs.ratio(NOW, BEFORE, key), at_most=limit)

def results(script, build):
    """The figures of one run of a script with a build: {name: figure}."""
    script, _, repeats = script.partition(":")
    folder = scratch() / "turn"
    environment = {**os.environ, "HEADSTART": build[0], "HEADSTART_CACHE": build[1], "BENCH_RESULTS": str(folder)}
    words = ["--repeats", repeats] if repeats else []
    subprocess.run([sys.executable, HERE / f"{script}.py", *words], env=environment, check=True,
                   stdout=subprocess.DEVNULL)
    return {each["name"]: each for each in json.loads((folder / "parts" / f"{script}.json").read_text())["figures"]}

def beside(bench, script, builds, rounds):
    """The figures of a script by both builds, in turns."""
    found = {name: [] for name in builds}
    for number in range(rounds):
        for name in [*builds] if number % 2 == 0 else reversed([*builds]):
            progress(f"{number + 1}/{rounds} {script}, {name}")
            found[name].append(results(script, builds[name]))
    for name, last in found[NOW][-1].items():
        runs = Runs({build: [{"value": run[name]["value"]} for run in of if name in run] for build, of in found.items()})
        target = last["target"].split()
        limit = {"at_most" if target[0] == "≤" else "at_least": float(target[1])} if target else {}
        bench.figure(f"{script.partition(':')[0]}: {name}", runs.median(NOW, "value"), **limit)

def add(args, what, measure, *words):
    """Adds figures to those that are kept: a series takes an hour, and may be taken script by script."""
    bench = Bench("turns", args)
    measure(bench, *words)
    path = RESULTS / "parts/turns.json"
    part = json.loads(path.read_text()) if path.exists() else {"figures": []}
    command = f"bench/turns.py --repeats {args.rounds} --pairs {args.pairs} PROGRAM CACHE {what}"
    bench.figures[0]["detail"]["run"] = {"command": command, **stamp(), "load_average": os.getloadavg()[0]}
    names = {each["name"] for each in bench.figures}
    kept = [each for each in part["figures"] if each["name"] not in names]
    keep(path, {"script": "turns", **stamp(), **part, "command": "see each figure's run",
                "figures": kept + bench.figures})

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2, dest="rounds", help="runs of each script (default 2)")
    parser.add_argument("--pairs", type=int, default=9, help="optimized starts of each build (default 9)")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("cache", metavar="CACHE")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT")
    args = parser.parse_args()
    args.repeats, args.medium, args.case = args.pairs, [], []
    now = (headstart_path(), os.environ.get("HEADSTART_CACHE", "/var/cache/headstart"))
    builds = {BEFORE: (args.program, args.cache), NOW: now}
    for medium in FLAT if args.pairs else []:
        add(args, "pairs", pairs, builds, medium)
    for script in args.scripts:
        add(args, script, beside, builds, args.rounds)

if __name__ == "__main__":
    main()
