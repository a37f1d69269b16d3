#!/usr/bin/env python3
"""Prefetch where memory is short: never slower than without, while reading whole files ahead is.

The demo's program starts in a memory cgroup that has room for what cannot be given up (the memory of the program, of the
server and of the kernel, counted without prefetch where memory is free and the server's cache has its least) and for a share
of the hot set in page cache. Three ways, on every medium: without prefetch, with it, and without it while every file that
the start reads anything of is read whole, in the order of the start, beside the program or before it (seeds 000, section 4).
"""

import csv
import functools
import io
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from harness import DRIVES, FLAT, MIB, RESULTS, alternate, arguments, figure, finish, headstart, headstart_path, progress
from harness import ratio_range, scratch, spread_of
from inputs import COMMAND, READY, demo

LIMIT = 1.0
# A single start varies by so much; below it nobody can tell slower from not.
NOISE = 0.03
# The share of the hot set that page cache has room for.
SHARE = 1 / 3
# The least that a server's cache has (docs/CACHE.md).
LEAST_CACHE = "8M"
V1 = Path("/sys/fs/cgroup/memory")
PATIENCE_S = 240


class Group:
    """A memory cgroup of this benchmark, v1 or v2."""

    def __init__(self, limit_bytes=None):
        self.v1 = V1.is_dir()
        self.path = (V1 if self.v1 else Path("/sys/fs/cgroup")) / f"headstart-bench-{os.getpid()}"
        self.path.mkdir()
        if limit_bytes:
            (self.path / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit_bytes))

    def number(self, name):
        return int((self.path / name).read_text())

    def counted(self, file, key):
        """A line of one of its tables."""
        lines = (line.split() for line in (self.path / file).read_text().splitlines())
        return next((int(value) for name, value in lines if name == key), 0)

    def kept_bytes(self):
        """What it has that the kernel cannot give up: all but page cache."""
        usage = self.number("memory.usage_in_bytes" if self.v1 else "memory.current")
        return usage - self.counted("memory.stat", "total_cache" if self.v1 else "file")

    def kills(self):
        """Processes that the kernel ended for want of memory."""
        return self.counted("memory.oom_control" if self.v1 else "memory.events", "oom_kill")

    def run(self, *command):
        """Runs a command in it; what it was like."""
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        words = ["sh", "-c", enter, "sh", *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def group(limit_bytes=None):
    """A group that goes with the block."""
    made = Group(limit_bytes)
    try:
        yield made
    finally:
        made.path.rmdir()


@functools.cache
def whole_files(profile):
    """The files that the start reads anything of, in its order."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", profile, "--csv")))
    return [*dict.fromkeys(row["file"] for row in rows if row["file"])]


def command_with(files, ahead):
    """The demo's program, with whole files read beside it or before it."""
    if not ahead:
        return COMMAND
    end = {"beside": "&", "before": ";"}[ahead]
    script = f'cat "$@" >/dev/null 2>&1 {end} exec python3 -c "$PROGRAM"'
    return ["env", f"PROGRAM={COMMAND[2]}", "sh", "-c", script, "sh", *whole_files(files["profile"])]


def start_in(tight, files, medium, prefetch, ahead=None, *flags):
    """One start in a group: its run summary, with how often the kernel killed; who was killed was never ready."""
    summary = scratch() / "memory-start.json"
    summary.unlink(missing_ok=True)
    done = tight.run(
        headstart_path(), "-q", "run", files["optimized"], "--medium", medium, "--ready", READY, "--json", summary,
        "--prefetch", prefetch, *flags, "--", *command_with(files, ahead))
    if done.returncode != 0 and not tight.kills():
        sys.exit(f"a start failed: {done.stderr}")
    told = json.loads(summary.read_text()) if summary.exists() else {}
    return {**told, "killed": tight.kills(), "survived": done.returncode == 0 and told.get("ready_s") is not None}


def started(limit_bytes, *start):
    with group(limit_bytes) as tight:
        return start_in(tight, *start)


def needed(files):
    """The most bytes that the start has and that the kernel cannot give up, and those of the hot set."""
    with group() as free:
        most, over = [0], threading.Event()

        def watch():
            while not over.wait(0.01):
                most[0] = max(most[0], free.kept_bytes())

        watcher = threading.Thread(target=watch)
        watcher.start()
        summary = start_in(free, files, "none", "off", None, "--cache", LEAST_CACHE)
        over.set()
        watcher.join()
    return most[0], summary["hot_bytes"]


WAYS = {
    "off": ("off", None),
    "warm": ("warm", None),
    "whole files beside": ("off", "beside"),
    "whole files before": ("off", "before"),
}


NAMES = {
    "warm": "with prefetch",
    "whole files beside": "with whole files read beside it",
    "whole files before": "with whole files read before it",
}
# Reading whole files beside the program is a race that it may win; what it read before the program is gone when that needs it.
TARGETS = {"warm": {"at_most": LIMIT + NOISE}, "whole files beside": {}, "whole files before": {"at_least": LIMIT}}
THIRD = "page cache for a third of the hot set"


def say(medium, limit):
    return lambda run: f"{medium} in {limit // MIB} MiB: " + (f"{run['ready_s']:.2f} s" if run["survived"] else "killed")


def judged(medium, limit, detail, results):
    """The figures of one medium. Who does not live where the start without prefetch does is slower than it."""
    survived = {way: all(run["survived"] for run in runs) for way, runs in results.items()}
    if not survived["off"]:
        sys.exit(f"{limit // MIB} MiB are too little for the start without prefetch on {medium}")
    ready = {way: spread_of(runs, "ready_s") for way, runs in results.items() if survived[way]}
    detail = {
        **detail,
        "ready_s": ready,
        "killed": {way: sum(run["killed"] for run in runs) for way, runs in results.items()},
        "store_bytes": {way: spread_of(results[way], "store_bytes", 0) for way in ready},
        "store_requests": {way: spread_of(results[way], "store_requests", 0) for way in ready},
        "end_reason": [run.get("end_reason") for run in results["warm"]],
    }
    title = f"{THIRD}, {medium}"
    figures = [figure(f"starts with prefetch that the kernel ended for want of memory, {title}", detail["killed"]["warm"],
                      at_most=0, detail=detail)]
    for way, name in NAMES.items():
        if not survived[way]:
            progress(f"{medium}, {way}: the kernel ended one")
            continue
        ratio = ready[way]["median"] / ready["off"]["median"]
        both = [[run["ready_s"] for run in results[one]] for one in (way, "off")]
        figures.append(figure(f"start {name} ÷ without, {title}", ratio, noise=ratio_range(*both), **TARGETS[way]))
    return figures


def of_other_media(media):
    """What was measured before on media that are not measured now."""
    part = RESULTS / "parts" / "memory_limit.json"
    before = json.loads(part.read_text())["figures"] if part.exists() else []
    return [each for each in before if THIRD in each["name"] and not each["name"].endswith(tuple(f", {one}" for one in media))]


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--media", nargs="*", default=[*FLAT, *DRIVES, "none"], help="media of the starts")
    args = parser.parse_args()
    files = demo()
    kept, hot = needed(files)
    limit = int(kept + SHARE * hot)
    detail = {"limit_bytes": limit, "kept_bytes": kept, "hot_bytes": hot, "whole_files": len(whole_files(files["profile"]))}
    progress(f"{detail}")
    figures = of_other_media(args.media)
    for medium in args.media:
        cases = {way: lambda how=how: started(limit, files, medium, *how) for way, how in WAYS.items()}
        figures += judged(medium, limit, detail, alternate(cases, args.repeats, say(medium, limit)))
    finish("memory_limit", figures, args.repeats)


if __name__ == "__main__":
    main()
