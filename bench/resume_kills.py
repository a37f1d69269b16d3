#!/usr/bin/env python3
"""Guests go on from a mounted snapshot while its server is killed in the middle of it: all must answer, and none may see a
wrong byte.

The guest computes the digest of a program, which it reads through its memory and its disk; the right one is known from the
root that the disk was made from.
"""

import hashlib
import os
import random
import signal
import subprocess
import time

from harness import benchmark, headstart_json, headstart_path, progress
from mounts import mounted
from resume import DEBIAN

FILE = "usr/bin/perl"
# A resume takes about a second.
LATEST_S = 1.0

def resumed_and_killed(fast, of_fast, digest, moment):
    """Whether a guest answers rightly whose server is killed at this moment, in seconds."""
    ask = ["--type", "root", "--type", f"sha256sum /{FILE}", "--ready", f"^{digest} ", "--ready-timeout", "120"]
    # A supervisor of its own for each: it replaces the first server that dies at once, and later ones after pauses.
    with mounted(fast, "--mode", "0666", "--base", of_fast) as place:
        guest = subprocess.Popen([headstart_path(), "-q", "resume", place / "disk.img", "--disk", of_fast, *ask])
        time.sleep(moment)
        served = next(mount for mount in headstart_json("status")["mounts"] if mount["dir"] == str(place))
        os.kill(served["pid"], signal.SIGKILL)
        return guest.wait() == 0

@benchmark(repeats=1, flags={"--kills": (100, "servers that are killed")})
def measure(bench):
    kills, wrong = bench.args.kills, 0
    fast, of_fast = DEBIAN.laid_out()
    digest = hashlib.sha256((DEBIAN.root() / FILE).read_bytes()).hexdigest()
    moments = random.Random(7)
    for number in range(kills):
        wrong += not resumed_and_killed(fast, of_fast, digest, moments.random() * LATEST_S)
        progress(f"{number + 1} kills: {wrong} guests did not answer rightly")
    bench.figure(f"guests that did not answer rightly, {kills} kills of their server", wrong, at_most=0)
