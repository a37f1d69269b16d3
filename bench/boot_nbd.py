#!/usr/bin/env python3
"""A Debian boots under User-mode Linux through NBD, against the same boot through headstart's own FUSE.

`headstart serve` shows the image on a unix socket, `nbdfuse` makes a file of that, and User-mode Linux boots from it.
The clock of such a boot starts before the server does, as that of `headstart boot` does, so that what starting two
more programs takes is in it. Boots are compared at one pace (`Runs.at_pace`).
"""

import json
import os
import subprocess
import time
from pathlib import Path

from harness import benchmark, boot, headstart_path
from inputs import boot_image, boot_profile, optimized
from mounts import nbdfuse, new_folder, program

COUNTS = ("store_requests", "seeks", "demand_requests", "demand_wait_s")

def boot_nbd(image, medium):
    """One cold boot; its summary, with what the server counted until its end."""
    socket = new_folder("served") / "socket"
    words = ["serve", image, "--nbd", f"unix:{socket}", "--medium", medium, "--json"]
    began = time.monotonic()
    with program(headstart_path(), "-q", *words, ready=socket.exists, stdout=subprocess.PIPE) as server:
        with nbdfuse(socket) as disk:
            # The kernel does not read ahead in these files, as it does not in those of `headstart boot` (docs/NBD.md).
            device = disk.stat().st_dev
            Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text("0")
            before_s = time.monotonic() - began
            summary = boot(disk)
    export = json.loads(server.stdout.read())["exports"][0]
    return {"ready_s": summary["ready_s"] + before_s, "before_s": before_s, "guest_cpu_s": summary["guest_cpu_s"],
            **{key: export[key] for key in COUNTS}}

@benchmark(repeats=3, media=["none", "cd-24x-cav"])
def measure(bench):
    plain = boot_image()
    image = optimized(plain, "boot-one", boot_profile(plain, "boot"))
    for medium in bench.media:
        runs = bench.turns({"fuse": lambda: boot(image, medium=medium), "nbd": lambda: boot_nbd(image, medium)},
                           say=f"{medium} {{ready_s:.2f}} s, {{guest_cpu_s:.2f}} s of processor time").at_pace()
        bench.figure(f"ready through NBD ÷ through FUSE, {medium}", runs.ratio("nbd", "fuse"), at_most=1.05)
