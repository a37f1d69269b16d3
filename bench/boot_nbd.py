#!/usr/bin/env python3
"""A Debian boots under User-mode Linux through NBD, against the same boot through headstart's own FUSE.

`headstart serve` shows the image on a unix socket, `nbdfuse` makes a file of that, and User-mode Linux boots from it. The
clock of such a boot starts before the server does, as that of `headstart boot` does, so that what starting two more
programs takes is in it. Boots are compared at one pace (`harness.at_pace`).
"""

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path

from harness import alternate, arguments, at_pace, boot, figure, finish, headstart_path, ratio_range, scratch, spread_of
from inputs import boot_image, boot_profile, optimized

MEDIA = ["none", "cd-24x-cav"]
# docs/GUESTS.md: what NBD may cost.
AT_MOST = 1.05


def wait_for(exists, process):
    """Until something is there that the process makes."""
    while not exists():
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended with {process.returncode}")
        time.sleep(0.002)


@contextlib.contextmanager
def server(image, medium, place):
    """The image on a unix socket; what the server printed at its end is in what this gives."""
    socket, printed = place / "socket", {}
    process = subprocess.Popen(
        [headstart_path(), "-q", "serve", image, "--nbd", f"unix:{socket}", "--medium", medium, "--json"],
        stdout=subprocess.PIPE, text=True)
    try:
        wait_for(socket.exists, process)
        yield socket, printed
    finally:
        process.terminate()
        printed.update(json.loads(process.communicate(timeout=60)[0] or "{}"))


def without_guesses(mount_point):
    """The kernel does not read ahead in the files of this mount, as it does not in those of `headstart boot` (docs/NBD.md)."""
    device = mount_point.stat().st_dev
    Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text("0")


def boot_nbd(image, medium):
    """One cold boot; its summary, with what the server counted until its end."""
    place = scratch() / f"nbd-{time.monotonic_ns()}"
    disk = place / "disk"
    disk.mkdir(parents=True)
    began = time.monotonic()
    with server(image, medium, place) as (socket, printed):
        fuse = subprocess.Popen(["nbdfuse", "--readonly", disk, f"nbd+unix:///?socket={socket}"])
        wait_for((disk / "nbd").exists, fuse)
        without_guesses(disk)
        before = time.monotonic() - began
        try:
            summary = boot(disk / "nbd")
        finally:
            subprocess.run(["umount", disk], check=True)
            fuse.wait(timeout=30)
    export = printed["exports"][0]
    counted = {key: export[key] for key in ("store_requests", "seeks", "demand_requests", "demand_wait_s")}
    return {"ready_s": summary["ready_s"] + before, "before_s": before, "guest_cpu_s": summary["guest_cpu_s"], **counted}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = boot_image()
    fast = optimized(image, "boot-one", boot_profile(image, "boot"))
    figures = []
    for medium in MEDIA:
        cases = {"fuse": lambda: boot(fast, medium=medium), "nbd": lambda: boot_nbd(fast, medium)}
        results = at_pace(alternate(
            cases, args.repeats, say=lambda result: f"ready after {result['ready_s']:.2f} s from {medium}, of {result['guest_cpu_s']:.2f} s"))
        ready = {name: [result["ready_s"] for result in runs] for name, runs in results.items()}
        spreads = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
        detail = {
            "ready_s": spreads,
            "measured_s": {name: spread_of(runs, "measured_s") for name, runs in results.items()},
            "guest_cpu_s": {name: spread_of(runs, "guest_cpu_s") for name, runs in results.items()},
            "before_the_guest_s": spread_of(results["nbd"], "before_s"),
            **{key: {name: spread_of(runs, key) for name, runs in results.items()}
               for key in ("store_requests", "seeks", "demand_requests", "demand_wait_s")},
        }
        figures.append(figure(
            f"ready through NBD ÷ through FUSE, {medium}", spreads["nbd"]["median"] / spreads["fuse"]["median"],
            at_most=AT_MOST, noise=ratio_range(ready["nbd"], ready["fuse"]), detail=detail))
    finish("boot_nbd", figures, args.repeats)


if __name__ == "__main__":
    main()
