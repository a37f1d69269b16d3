#!/usr/bin/env python3
"""Guests go on from a mounted snapshot while its server is killed again and again: all must answer, and none may see a wrong byte.

The guest computes the digest of a program, which it reads through its memory and its disk; the right one is known from the root that
the disk was made from.
"""

import hashlib
import json
import os
import signal
import subprocess
import time

from harness import arguments, figure, finish, headstart, headstart_path, progress, scratch
from resume import laid_out, root

FILE = "usr/bin/perl"


def server_of(place):
    """The process that serves a mount, and how many died before it."""
    statuses = json.loads(headstart("status", place, "--json"))
    servers = [status for status in statuses if status.get("pid")]
    return (servers[0]["pid"], servers[0]["restarts"]) if servers else (None, 0)


def main():
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--kills", type=int, default=100)
    args = parser.parse_args()
    fast, of_fast = laid_out()
    digest = hashlib.sha256((root() / FILE).read_bytes()).hexdigest()
    place = scratch() / "snapshot"
    place.mkdir()
    killed = answered = wrong = 0
    while killed < args.kills:
        headstart("mount", fast, place, "--mode", "0666", "--emulate", "flat-10ms-25mbs")
        try:
            ask = ["--type", "root", "--type", f"sha256sum /{FILE}", "--ready", f"^{digest} ", "--ready-timeout", "120"]
            guest = subprocess.Popen([headstart_path(), "-q", "resume", place / "disk.img", "--disk", of_fast, *ask])
            while guest.poll() is None and killed < args.kills:
                server, _ = server_of(place)
                if server:
                    os.kill(server, signal.SIGKILL)
                    killed += 1
                time.sleep(0.1)
            is_right = guest.wait() == 0
            answered, wrong = answered + is_right, wrong + (not is_right)
            progress(f"{killed} kills, {answered} guests answered rightly, {wrong} did not")
        finally:
            subprocess.run(["umount", place], check=True)
    finish("resume_kills", [figure(f"guests that did not answer rightly, {killed} kills of their server", wrong, at_most=0,
                                   detail={"answered": answered, "kills": killed})], args.repeats)


if __name__ == "__main__":
    main()
