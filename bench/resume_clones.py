#!/usr/bin/env python3
"""Many guests go on from one mounted snapshot: how much memory they take that they do not share.

`headstart mount` shows the snapshot; each guest maps it privately, and its pages come from one page cache. Counted is the PSS of
the guests' memory (QEMU's own is another mapping) when all are ready. A guest's own pages are those that it wrote.
"""

import subprocess
import time
from pathlib import Path

from harness import MIB, arguments, figure, finish, headstart, headstart_path, progress, scratch
from resume import ASK, laid_out

STAYS = ["--run-after-ready", "600"]


def memory_of(pid, path):
    """Bytes of a process's mapping of this file: resident, proportional, and written by itself."""
    found = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0] and " " in line and not rest.strip().endswith("kB"):
            inside = line.endswith(path)
        elif inside and name in found:
            found[name] += int(rest.split()[0]) << 10
    return found


def qemus_of(parents):
    """The QEMU below each of these processes."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        name, fields = text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2:].split()
        children.setdefault(int(fields[1]), []).append((int(stat.parent.name), name))
    found, waiting = [], list(parents)
    while waiting:
        for pid, name in children.get(waiting.pop(), []):
            waiting.append(pid)
            if name.startswith("qemu-system"):
                found.append(pid)
    return found


def clones(count, memory, of_disk):
    """Starts so many guests; waits until all are ready; the memory of each, and what ends them."""
    consoles = [scratch() / f"console-{number}" for number in range(count)]
    command = [headstart_path(), "-q", "resume", str(memory), "--disk", str(of_disk), *ASK, *STAYS, "--console"]
    guests = [subprocess.Popen([*command, str(console)]) for console in consoles]
    until = time.monotonic() + 600
    ready = lambda console: console.exists() and any(line.startswith("answer 42") for line in console.read_text(errors="replace").splitlines())
    while not all(map(ready, consoles)):
        assert time.monotonic() < until and all(guest.poll() is None for guest in guests), "a guest is not ready"
        time.sleep(0.2)
    figures = [memory_of(pid, "/disk.img") for pid in qemus_of(guest.pid for guest in guests)]
    for guest in guests:
        guest.terminate()
    for guest in guests:
        guest.wait()
    return figures


def main():
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--clones", type=int, default=20)
    args = parser.parse_args()
    fast, of_fast = laid_out()
    place = scratch() / "snapshot"
    place.mkdir(mode=0o755)
    headstart("mount", fast, place, "--mode", "0666", "--base", of_fast)
    try:
        [one] = clones(1, place / "disk.img", of_fast)
        progress(f"one guest: {one}")
        all_of_them = clones(args.clones, place / "disk.img", of_fast)
    finally:
        subprocess.run(["umount", place], check=True)
    shared = one["Rss"] - one["Anonymous"]
    total, wrote = (sum(each[key] for each in all_of_them) for key in ("Pss", "Anonymous"))
    detail = {"one": one, "clones": all_of_them, "count": len(all_of_them)}
    finish("resume_clones", [
        figure(f"memory of {args.clones} guests ÷ (one guest's touched pages + what each wrote)", total / (one["Rss"] + wrote), at_most=1.3, detail=detail),
        figure("memory of the guests that none shares", wrote / MIB / args.clones, unit="MiB each"),
        figure("touched pages of one guest that are shared", shared / MIB, unit="MiB"),
    ], args.repeats)


if __name__ == "__main__":
    main()
