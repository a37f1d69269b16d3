#!/usr/bin/env python3
"""Prefetch where memory is short: never slower than without.

The demo's program starts in a memory cgroup that does not hold what its start needs: three quarters of
the peak that it has where memory is free. With prefetch and without, on every medium.
"""

import json
import subprocess
import sys
from pathlib import Path

from harness import DRIVES, FLAT, MIB, alternate, arguments, figure, finish, headstart_path, progress, scratch, spread_of
from inputs import COMMAND, READY, demo

LIMIT = 1.0
# A single start varies by so much; below it nobody can tell slower from not.
NOISE = 0.03
V1 = Path("/sys/fs/cgroup/memory")


class Group:
    """A memory cgroup of this benchmark, v1 or v2."""

    def __init__(self, name, limit_bytes=None):
        self.v1 = V1.is_dir()
        self.path = (V1 if self.v1 else Path("/sys/fs/cgroup")) / f"headstart-bench-{name}"
        self.path.mkdir(exist_ok=True)
        if limit_bytes:
            (self.path / ("memory.limit_in_bytes" if self.v1 else "memory.max")).write_text(str(limit_bytes))

    def run(self, *command):
        """Runs a command in it; returns its exit code, output, and the peak of memory."""
        enter = f'echo $$ > {self.path}/cgroup.procs && exec "$@"'
        done = subprocess.run(["sh", "-c", enter, "sh", *map(str, command)], capture_output=True, text=True, timeout=600)
        peak = int((self.path / ("memory.max_usage_in_bytes" if self.v1 else "memory.peak")).read_text())
        return done, peak

    def remove(self):
        """The group goes when it is empty."""
        self.path.rmdir()


def started(group, disk, medium, prefetch):
    """One start in a group: its run summary, with the peak added."""
    summary = scratch() / "memory-start.json"
    done, peak = group.run(
        headstart_path(), "-q", "run", disk, "--medium", medium, "--ready", READY, "--json", summary,
        "--prefetch", prefetch, "--", *COMMAND)
    if done.returncode != 0:
        sys.exit(f"a start failed: {done.stderr}")
    return {**json.loads(summary.read_text()), "peak": peak}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    files = demo()
    figures = []
    free = Group("free")
    needs = min(started(free, files["optimized"], "none", mode)["peak"] for mode in ("warm", "off"))
    free.remove()
    for share in (0.75,):
        limit = int(needs * share)
        group = Group("tight", limit)
        for medium in [*FLAT, *DRIVES, "none"]:
            cases = {
                mode: lambda mode=mode: started(group, files["optimized"], medium, mode) for mode in ("warm", "off")
            }
            results = alternate(cases, args.repeats, lambda s: f"{medium} in {limit // MIB} MiB {s['ready_s']:.2f} s")
            ready = {mode: spread_of(results[mode], "ready_s") for mode in cases}
            detail = {
                "limit_bytes": limit,
                "needs_bytes": needs,
                "hot_bytes": results["warm"][0]["hot_bytes"],
                "ready_s": ready,
                "store_bytes": {mode: spread_of(results[mode], "store_bytes", 0) for mode in cases},
                "end_reason": results["warm"][0]["end_reason"],
            }
            ratio = ready["warm"]["median"] / ready["off"]["median"]
            figures.append(figure(
                f"with prefetch ÷ without, {share:.0%} of the memory, {medium}", ratio, at_most=LIMIT + NOISE, detail=detail))
        group.remove()
    finish("memory_limit", figures, args.repeats)


if __name__ == "__main__":
    main()
