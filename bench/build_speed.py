#!/usr/bin/env python3
"""How long building takes by level, and how large the image is, against squashfs at zstd 15.

Judged by processor time, user and system, of the whole process tree: beside other work on the machine it is
what a quiet one would spend. Two cores share it, so half of it is the time there.
"""

import os
import time
from pathlib import Path

from harness import arguments, figure, finish, headstart_path, scratch, spread
from inputs import demo, squashfs

# The default, a fast one, the next that is much smaller; the demo's own, and that of releases.
LEVELS = [None, 3, 13, 15, 19]
CORES = 2
LIMIT_S = 30
LIMIT_RATIO = 1.10
MIB = 1 << 20


def tree_bytes(root):
    """Bytes of the files in a root, each once."""
    seen, total = set(), 0
    for path in root.rglob("*"):
        status = path.lstat()
        if not path.is_symlink() and path.is_file() and status.st_ino not in seen:
            seen.add(status.st_ino)
            total += status.st_size
    return total


def spend(command):
    """Runs a command; the processor time of it and of what it started, and how long it took."""
    before, began = os.times(), time.monotonic()
    status = os.spawnvp(os.P_WAIT, command[0], [str(word) for word in command])
    after = os.times()
    if status != 0:
        raise SystemExit(f"failed with {status}: {command}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, time.monotonic() - began


def build(root, level, repeats):
    """Times and size of an image at a level; the default level when it is none."""
    image = scratch() / "image.hsi"
    codec = [] if level is None else ["--codec", f"zstd:{level}"]
    rounds = []
    for _ in range(repeats):
        image.unlink(missing_ok=True)
        rounds.append(spend([headstart_path(), "-q", "build", root, "-o", image, *codec]))
    spent, took = zip(*rounds)
    size = image.stat().st_size
    image.unlink()
    return {"processor_s": spread(spent), "wall_s": spread(took), "image_bytes": size}


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--root", type=Path, help="this root in place of the demo's")
    args = parser.parse_args()
    root = args.root or demo()["root"]
    name = "build-speed" if args.root else "demo"
    theirs = squashfs(root, name).stat().st_size
    names = {level: "default" if level is None else f"zstd:{level}" for level in LEVELS}
    built = {names[level]: build(root, level, args.repeats) for level in LEVELS}
    for each in built.values():
        each["ratio"] = round(each["image_bytes"] / theirs, 4)
        each["seconds_on_two_cores"] = round(each["processor_s"]["median"] / CORES, 2)
    detail = {"root_mib": round(tree_bytes(root) / MIB, 1), "squashfs_bytes": theirs, "levels": built}
    ours = built["default"]
    finish("build_speed", [
        figure("processor time of a build ÷ 2 cores, default level", ours["seconds_on_two_cores"], unit="s",
               at_most=LIMIT_S, detail=detail),
        figure("image of the default level ÷ squashfs at zstd 15", ours["ratio"], at_most=LIMIT_RATIO),
    ], args.repeats)


if __name__ == "__main__":
    main()
