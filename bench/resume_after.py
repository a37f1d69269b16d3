#!/usr/bin/env python3
"""After a resume: how long the guest's faults wait in the first ten seconds, and how fast the rest of the snapshot comes.

Faults: the server counts each page that it is asked for, and how long that waited (`faults` in the run summary). A page that was
pushed into the page cache before it was touched is no request, and waits for nothing. How many pages the same guest touches is
counted by the same server when nothing is prefetched.

The rest: a mount of the snapshot over HTTP on a link of 10 Mbit/s fills its cache on disk (`--fill`); its server counts what is filled
from the moment the guest is ready.
"""

import json
import math
import subprocess
import time
from pathlib import Path

from harness import alternate, arguments, figure, finish, headstart, headstart_path, progress, scratch, spread
from network import link, serving, shape
from resume import ASK, MEDIA, disk, laid_out, resume, snapshot

COUNTED_S = "10"
LINK_MBIT = 10
WINDOW_BYTES = 16 << 10


def waits(summaries, touched):
    """Median and 99th percentile of the wait of all faults, in seconds, of the worst of these resumes."""

    def at(faults, share):
        # Those that came to the server are the longest.
        place = math.floor((1 - share) * max(touched, faults["requests"]))
        if place >= faults["requests"]:
            return 0.0
        return faults["longest_s"][place] if place < len(faults["longest_s"]) else faults["median_s"]

    return [max(at(summary["faults"], share) for summary in summaries) for share in (0.5, 0.99)]


def filled(fast, of_disk):
    """Bytes a second that come after ready, as the mount's server counts them."""
    place, cache = scratch() / "filled", scratch() / "cache"
    place.mkdir()
    with link() as (server, client):
        inside = lambda *command: ["nsenter", f"--net=/run/netns/{client}", headstart_path(), "-q", *map(str, command)]
        with serving(server, fast) as address:
            shape(server, LINK_MBIT)
            subprocess.run(inside("mount", address, place, "--mode", "0666", "--base", of_disk, "--fill", "--background", "off",
                                  f"--disk-cache={cache}"), check=True)
            status = lambda: next(of for of in json.loads(headstart("status", "--json"))["mounts"] if of["dir"] == str(place))
            status_pid = status()["pid"]
            try:
                guest = subprocess.Popen([headstart_path(), "-q", "resume", place / "disk.img", "--disk", of_disk, *ASK, "--run-after-ready", "60",
                                          "--console", scratch() / "console"])
                console = scratch() / "console"
                until = time.monotonic() + 200
                while not (console.exists() and "\nanswer 42" in console.read_text(errors="replace").replace("\r", "")):
                    assert time.monotonic() < until and guest.poll() is None, "the guest is not ready"
                    time.sleep(0.05)
                at_ready, began = status(), time.monotonic()
                while not (now := status())["cache_fill"]["is_complete"]:
                    assert time.monotonic() < until, now["cache_fill"]
                    time.sleep(0.1)
                seconds = time.monotonic() - began
                guest.terminate()
                guest.wait()
                came = now["cache_fill"]["done_bytes"] - at_ready["cache_fill"]["done_bytes"]
                moved = now["store_bytes"] - at_ready["store_bytes"]
                progress(f"{came:,} bytes filled, {moved:,} moved, in {seconds:.2f} s")
                # What the prefetch had brought counts as filled, and does not come again.
                return {"filled_bytes": came, "moved_bytes": moved, "seconds": seconds, "rate": min(came, moved) / seconds}
            finally:
                subprocess.run(["umount", place], check=True)
                # It still writes to the cache, whose folder is to go.
                while Path(f"/proc/{status_pid}").exists():
                    time.sleep(0.1)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    plain, of_plain = snapshot(), disk()
    fast, of_fast = laid_out()
    stays = ["--run-after-ready", COUNTED_S]
    touched = resume(plain, of_plain, "--no-prefetch", *stays)["faults"]
    cases = {medium: lambda medium=medium: resume(fast, of_fast, "--emulate", medium, *stays)
             for medium in MEDIA if medium != "none"}
    say = "{faults[requests]} faults, {store_bytes:,} bytes"
    results = alternate(cases, args.repeats, say=lambda result: say.format(**result))
    figures = [figure("pages that a guest touches in ten seconds", touched["requests"])]
    for medium, (access, rate) in MEDIA.items():
        if medium == "none":
            continue
        median, late = waits(results[medium], touched["requests"])
        allowed = access + WINDOW_BYTES / rate
        detail = {"runs": [run["faults"] for run in results[medium]],
                  "store_bytes": spread(run["store_bytes"] for run in results[medium])}
        figures.append(figure(f"median added wait of a fault, {medium}", 1000 * median, at_most=5, unit="ms", detail=detail))
        what = f"99th percentile of it ÷ (one access + its transfer), {medium}"
        figures.append(figure(what, late / allowed, at_most=1, detail={"wait_s": late}))
    rest = filled(fast, of_fast)
    what = f"rate of filling after ready ÷ the link's {LINK_MBIT} Mbit/s"
    figures.append(figure(what, rest["rate"] / (LINK_MBIT * 125_000), at_least=0.9, detail=rest))
    assert all(math.isfinite(each["value"]) for each in figures)
    finish("resume_after", figures, args.repeats)


if __name__ == "__main__":
    main()
