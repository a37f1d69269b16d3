#!/usr/bin/env python3
"""Prefetch where memory is short: never slower than without, while reading whole files ahead is.

The demo's program starts in a memory cgroup that has room for what cannot be given up (the memory of the program, of
the server and of the kernel, counted without prefetch where memory is free and the server's cache has its least) and
for a share of the hot set in page cache. Three ways, on every medium: without prefetch, with it, and without it while
every file that the start reads anything of is read whole, in the order of the start, beside the program or before it
(seeds 000, section 4).
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

from harness import DRIVES, FLAT, MIB, benchmark, headstart, headstart_path, progress, scratch
from inputs import COMMAND, READY, demo
from mounts import wait_until

# A single start varies by so much; below it slower cannot be told from not.
NOISE = 0.03
# The share of the hot set that page cache has room for.
SHARE = 1 / 3
# The least that a server's cache has (docs/CACHE.md).
LEAST_CACHE = "8M"
V1 = Path("/sys/fs/cgroup/memory")

class Group:
    """A memory cgroup of this benchmark, v1 or v2."""

    def __init__(self, limit_bytes=None):
        self.v1 = V1.is_dir()
        self.path = (V1 if self.v1 else Path("/sys/fs/cgroup")) / f"headstart-bench-{os.getpid()}"
        self.path.mkdir()
        if limit_bytes:
            (self.path / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit_bytes))

    def counted(self, file, key):
        """A line of one of its tables."""
        lines = (line.split() for line in (self.path / file).read_text().splitlines())
        return next((int(value) for name, value in lines if name == key), 0)

    def kept_bytes(self):
        """What it has that the kernel cannot give up: all but page cache."""
        usage = int((self.path / ("memory.usage_in_bytes" if self.v1 else "memory.current")).read_text())
        return usage - self.counted("memory.stat", "total_cache" if self.v1 else "file")

    def kills(self):
        """Processes that the kernel ended for want of memory."""
        return self.counted("memory.oom_control" if self.v1 else "memory.events", "oom_kill")

    def run(self, *command):
        """Runs a command in it; what it was like."""
        words = ["sh", "-c", f'echo $$ > {self.path}/cgroup.procs && exec "$@"', "sh", *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)

@contextmanager
def group(limit_bytes=None):
    """A group that goes with the block."""
    made = Group(limit_bytes)
    try:
        yield made
    finally:
        # A server that has unmounted is about to end.
        wait_until(lambda: not (made.path / "cgroup.procs").read_text(), patience_s=20)
        made.path.rmdir()

@functools.cache
def whole_files(profile):
    """The files that the start reads anything of, in its order."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", profile, "--csv")))
    return [*dict.fromkeys(row["file"] for row in rows if row["file"])]

def start_in(tight, files, medium, prefetch, ahead=None, *flags):
    """One start in a group: its run summary, with how often the kernel killed; one that was killed is never ready.
    `ahead` reads whole files beside the program (`&`) or before it (`;`)."""
    summary = scratch() / "memory-start.json"
    summary.unlink(missing_ok=True)
    script = f'cat "$@" >/dev/null 2>&1 {ahead} exec python3 -c "$PROGRAM"'
    with_files = ["env", f"PROGRAM={COMMAND[2]}", "sh", "-c", script, "sh", *whole_files(files["profile"])]
    done = tight.run(headstart_path(), "-q", "run", files["optimized"], "--medium", medium, "--ready", READY,
                     f"--json={summary}", "--prefetch", prefetch, *flags, "--", *(with_files if ahead else COMMAND))
    if done.returncode != 0 and not tight.kills():
        sys.exit(f"a start failed: {done.stderr}")
    told = json.loads(summary.read_text()) if summary.exists() else {}
    survived = done.returncode == 0 and told.get("ready_s") is not None
    return {**told, "killed": tight.kills(), "survived": survived}

def started(limit_bytes, *how):
    with group(limit_bytes) as tight:
        return start_in(tight, *how)

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

# Each way: its prefetch, the end of the command that reads whole files, what a figure calls it, and its target.
# Reading whole files beside the program is a race that it may win; what it read before the program is gone when that
# needs it.
WAYS = {
    "off": ("off", None, None, {}),
    "warm": ("warm", None, "with prefetch", {"at_most": 1 + NOISE}),
    "whole files beside": ("off", "&", "with whole files read beside it", {}),
    "whole files before": ("off", ";", "with whole files read before it", {"at_least": 1}),
}
THIRD = "page cache for a third of the hot set"

@benchmark(repeats=3, media=[*FLAT, *DRIVES, "none"])
def measure(bench):
    files = demo()
    kept, hot = needed(files)
    limit = int(kept + SHARE * hot)
    detail = {"limit_bytes": limit, "kept_bytes": kept, "hot_bytes": hot,
              "whole_files": len(whole_files(files["profile"]))}
    progress(f"{detail}")
    for medium in bench.media:
        runs = bench.turns({way: lambda how=how: started(limit, files, medium, *how[:2]) for way, how in WAYS.items()},
                           say=f"{medium} in {limit // MIB} MiB: {{killed}} killed")
        if not all(runs.values("off", "survived")):
            sys.exit(f"{limit // MIB} MiB are too little for the start without prefetch on {medium}")
        bench.figure(f"starts with prefetch that the kernel ended for want of memory, {THIRD}, {medium}",
                     sum(runs.values("warm", "killed")), at_most=0, detail={**detail, **runs.detail()})
        for way, (_, _, name, target) in [*WAYS.items()][1:]:
            if all(runs.values(way, "survived")):
                bench.figure(f"start {name} ÷ without, {THIRD}, {medium}", runs.ratio(way, "off"), **target)
            else:
                # It does not live where the start without prefetch does.
                progress(f"{medium}, {way}: the kernel ended one")
