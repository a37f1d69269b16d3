#!/usr/bin/env python3
"""Guests go on from a mounted snapshot while its server is killed in the middle of it: all must answer, and none may see a wrong byte.

The guest computes the digest of a program, which it reads through its memory and its disk; the right one is known from the root that
the disk was made from.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import time

from harness import arguments, figure, finish, headstart, headstart_path, progress, scratch
from resume import laid_out, root

FILE = "usr/bin/perl"
# A resume takes about a second.
LATEST_S = 1.0


def server_of(place):
    """The process that serves a mount now; none while there is no server."""
    mounts = json.loads(headstart("status", "--json"))["mounts"]
    return next((mount["pid"] for mount in mounts if mount["dir"] == str(place)), None)


def resumed_and_killed(images, digest, place, moment):
    """Whether a guest answers rightly whose server is killed at this moment, in seconds."""
    fast, of_fast = images
    # A supervisor of its own for each: it replaces the first server that dies at once, and later ones after pauses.
    headstart("mount", fast, place, "--mode", "0666", "--base", of_fast)
    try:
        ask = ["--type", "root", "--type", f"sha256sum /{FILE}", "--ready", f"^{digest} ", "--ready-timeout", "120"]
        guest = subprocess.Popen([headstart_path(), "-q", "resume", place / "disk.img", "--disk", of_fast, *ask])
        time.sleep(moment)
        os.kill(server_of(place), signal.SIGKILL)
        return guest.wait() == 0
    finally:
        subprocess.run(["umount", place], check=True)


def main():
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--kills", type=int, default=100)
    args = parser.parse_args()
    images = laid_out()
    digest = hashlib.sha256((root() / FILE).read_bytes()).hexdigest()
    place = scratch() / "snapshot"
    place.mkdir()
    moments = random.Random(7)
    right = []
    for number in range(args.kills):
        right.append(resumed_and_killed(images, digest, place, moments.random() * LATEST_S))
        progress(f"{number + 1} kills: {right.count(False)} guests did not answer rightly")
    finish("resume_kills", [figure(f"guests that did not answer rightly, {args.kills} kills of their server", right.count(False), at_most=0)],
           args.repeats)


if __name__ == "__main__":
    main()
