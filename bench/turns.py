#!/usr/bin/env python3
"""Two builds in turns: each script of this folder runs with an earlier build and with this one, one after the other, and its figures
stand side by side.

Each build makes its images, profiles and packings itself, in a cache folder of its own, since a build may not read what a later one
writes. Optimised starts, for which no script counts processor time, are run in pairs as well.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from harness import FLAT, HERE, RESULTS, alternate, arguments, figure, finish, headstart_path, progress, ratio_range, scratch, spread, start
from inputs import COMMAND, READY
from stamp import stamp

BEFORE, NOW = "before", "now"
CPU_LIMIT = 0.9
HOT_BYTES_LIMIT = 1.02


def with_build(build):
    """Commands of this script use that build from now on."""
    os.environ["HEADSTART"], os.environ["HEADSTART_CACHE"] = build


def one_start(build, medium):
    """One optimised start, and the processor time of all that it started."""
    with_build(build)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = start(Path(build[1]) / "fast.hsi", COMMAND, medium=medium, ready=READY)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"ready_s": summary["ready_s"], "hot_compressed_bytes": summary["hot_compressed_bytes"],
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def starts(builds, medium, repeats):
    """Figures of optimised starts in pairs."""
    cases = {name: lambda build=build: one_start(build, medium) for name, build in builds.items()}
    runs = alternate(cases, repeats, lambda run: f"{medium}: {run['ready_s']:.2f} s, {run['cpu_s']:.2f} s of processor time")
    detail = {name: {key: spread(run[key] for run in of) for key in of[0]} for name, of in runs.items()}
    for key, limit in {"ready_s": None, "cpu_s": CPU_LIMIT, "hot_compressed_bytes": HOT_BYTES_LIMIT}.items():
        ours, theirs = ([run[key] for run in runs[name]] for name in (NOW, BEFORE))
        yield figure(f"optimised start, {key}, now ÷ before, {medium}", statistics.median(ours) / statistics.median(theirs),
                     at_most=limit, noise=ratio_range(ours, theirs), detail=detail)
        detail = {}


def results(script, build):
    """The figures of one run of a script with a build: {name: figure}. A script is its name, and `:` and repeats if need be."""
    script, _, repeats = script.partition(":")
    folder = scratch() / "turn"
    environment = {**os.environ, "HEADSTART": build[0], "HEADSTART_CACHE": build[1], "BENCH_RESULTS": str(folder)}
    words = ["--repeats", repeats] if repeats else []
    subprocess.run([sys.executable, HERE / f"{script}.py", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    return {each["name"]: each for each in json.loads((folder / "parts" / f"{script}.json").read_text())["figures"]}


def beside(script, builds, rounds):
    """The figures of a script by both builds, in turns."""
    found = {name: [] for name in builds}
    for number in range(rounds):
        order = list(builds) if number % 2 == 0 else list(reversed(builds))
        for name in order:
            progress(f"{number + 1}/{rounds} {script}, {name}")
            found[name].append(results(script, builds[name]))
    for name, last in found[NOW][-1].items():
        values = {build: [run[name]["value"] for run in of if name in run] for build, of in found.items()}
        target = last["target"].split()
        limit = {} if not target else {"at_most" if target[0] == "≤" else "at_least": float(target[1])}
        yield figure(f"{script.partition(':')[0]}: {name}", statistics.median(values[NOW]), noise=[min(values[NOW]), max(values[NOW])], **limit,
                     detail={build: values[build] for build in builds})


def keep(script, args, figures):
    """Adds figures to those that are kept: a series takes an hour, and may be taken script by script."""
    path = RESULTS / "parts" / "turns.json"
    kept = json.loads(path.read_text())["figures"] if path.exists() else []
    command = f"bench/turns.py --repeats {args.repeats} --pairs {args.pairs} PROGRAM CACHE {script}"
    figures[0]["detail"] = {"run": {"command": command, **stamp(), "load_average": os.getloadavg()[0]}, **figures[0]["detail"]}
    names = {each["name"] for each in figures}
    finish("turns", [each for each in kept if each["name"] not in names] + figures, args.repeats, command="see each figure's run")


def main():
    parser = arguments(__doc__, repeats=2)
    parser.add_argument("--pairs", type=int, default=9, help="optimised starts of each build (default 9)")
    parser.add_argument("before", nargs=2, metavar=("PROGRAM", "CACHE"), help="the earlier build, and the folder of its inputs")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="scripts of this folder, without .py; `:3` behind one is its --repeats")
    args = parser.parse_args()
    now = (headstart_path(), os.environ.get("HEADSTART_CACHE", "/var/cache/headstart"))
    builds = {BEFORE: tuple(args.before), NOW: now}
    for medium in FLAT if args.pairs else []:
        keep("pairs", args, list(starts(builds, medium, args.pairs)))
    for script in args.scripts:
        keep(script, args, list(beside(script, builds, args.repeats)))


if __name__ == "__main__":
    main()
