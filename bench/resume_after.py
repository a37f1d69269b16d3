#!/usr/bin/env python3
"""After a resume: how long the guest's faults wait in the first ten seconds, and how fast the rest of the snapshot comes.

Faults: the server counts each page that it is asked for, and how long that waited (`faults` in the run summary). A page
that was pushed into the page cache before it was touched is no request, and waits for nothing. How many pages the same
guest touches is counted by the same server when nothing is prefetched.

The rest: a mount of the snapshot over HTTP on a link of 10 Mbit/s fills its cache on disk (`--fill`); its server counts
what is filled from the moment the guest is ready.
"""

import math
import subprocess
import time
from functools import partial
from pathlib import Path

from harness import benchmark, headstart_json, headstart_path, progress, run, scratch
from mounts import program, wait_until
from network import link, serving, shape
from resume import ASK, DEBIAN, MEDIA

LINK_MBIT = 10
WINDOW_BYTES = 16 << 10

def wait_of(summaries, touched, share):
    """The wait in seconds of this share of all faults, of the worst of these resumes."""

    def at(faults):
        # Those that came to the server are the longest.
        place = math.floor((1 - share) * max(touched, faults["requests"]))
        if place >= faults["requests"]:
            return 0.0
        return faults["longest_s"][place] if place < len(faults["longest_s"]) else faults["median_s"]

    return max(at(summary["faults"]) for summary in summaries)

def filled(fast, of_disk):
    """Bytes a second that come after ready, as the mount's server counts them."""
    place, cache, console = (scratch() / name for name in ("filled", "cache", "console"))
    place.mkdir()
    status = lambda: next(of for of in headstart_json("status")["mounts"] if of["dir"] == str(place))
    with link() as (server, client), serving(server, fast) as (address, _):
        shape(server, LINK_MBIT)
        run("nsenter", f"--net=/run/netns/{client}", headstart_path(), "-q", "mount", address, place, "--mode", "0666",
            "--base", of_disk, "--fill", "--background", "off", f"--disk-cache={cache}")
        pid = status()["pid"]
        try:
            is_ready = lambda: console.exists() and "\nanswer 42" in console.read_text(errors="replace").replace("\r", "")
            with program(headstart_path(), "-q", "resume", place / "disk.img", "--disk", of_disk, *ASK,
                         "--run-after-ready", 60, "--console", console, ready=is_ready):
                at_ready, began = status(), time.monotonic()
                wait_until(lambda: status()["cache_fill"]["is_complete"], step_s=0.1)
                now, seconds = status(), time.monotonic() - began
            came = now["cache_fill"]["done_bytes"] - at_ready["cache_fill"]["done_bytes"]
            moved = now["store_bytes"] - at_ready["store_bytes"]
            progress(f"{came:,} bytes filled, {moved:,} moved, in {seconds:.2f} s")
            # What the prefetch had brought counts as filled, and does not come again.
            return {"filled_bytes": came, "moved_bytes": moved, "seconds": seconds, "rate": min(came, moved) / seconds}
        finally:
            subprocess.run(["umount", place], check=True)
            # It still writes to the cache, whose folder is to go.
            wait_until(lambda: not Path(f"/proc/{pid}").exists(), step_s=0.1)

@benchmark(repeats=3)
def measure(bench):
    fast, of_fast = DEBIAN.laid_out()
    stays = ["--run-after-ready", 10]
    touched = DEBIAN.resume(DEBIAN.snapshot(), DEBIAN.disk(), "--no-prefetch", *stays)["faults"]["requests"]
    media = [*MEDIA][1:]
    runs = bench.turns({medium: partial(DEBIAN.resume, fast, of_fast, "--emulate", medium, *stays) for medium in media},
                       say="{faults[requests]} faults, {store_bytes:,} bytes")
    bench.figure("pages that a guest touches in ten seconds", touched)
    for medium in media:
        access, rate = MEDIA[medium]
        bench.figure(f"median added wait of a fault, {medium}", 1000 * wait_of(runs[medium], touched, 0.5), at_most=5,
                     unit="ms", detail={"runs": runs.values(medium, "faults"), **runs.detail()})
        late_s = wait_of(runs[medium], touched, 0.99)
        bench.figure(f"99th percentile of it ÷ (one access + its transfer), {medium}",
                     late_s / (access + WINDOW_BYTES / rate), at_most=1, detail={"wait_s": late_s})
    rest = filled(fast, of_fast)
    bench.figure(f"rate of filling after ready ÷ the link's {LINK_MBIT} Mbit/s", rest["rate"] / (LINK_MBIT * 125_000),
                 at_least=0.9, detail=rest)
