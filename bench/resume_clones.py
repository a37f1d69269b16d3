#!/usr/bin/env python3
"""Many guests go on from one mounted snapshot: how much memory they take that they do not share.

`headstart mount` shows the snapshot; each guest maps it privately, and its pages come from one page cache. Counted is the
PSS of the guests' memory (QEMU's own is another mapping) when all are ready. A guest's own pages are those that it wrote.
"""

from contextlib import ExitStack
from pathlib import Path

from harness import MIB, benchmark, headstart_path, progress, scratch
from mounts import descendants, mounted, program, wait_until
from resume import ASK, DEBIAN

def memory_of(guest, path):
    """Bytes of a guest's mapping of this file in QEMU: resident, proportional, and written by itself."""
    pid = next(pid for pid in descendants(guest.pid)
               if Path(f"/proc/{pid}/comm").read_text().startswith("qemu-system"))
    found, is_inside = {"Rss": 0, "Pss": 0, "Anonymous": 0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if "-" in name.split(" ")[0] and " " in line and not rest.strip().endswith("kB"):
            is_inside = line.endswith(path)
        elif is_inside and name in found:
            found[name] += int(rest.split()[0]) << 10
    return found

def clones(count, memory, of_disk):
    """Starts so many guests; waits until all are ready; the memory of each."""
    says = lambda path: path.exists() and "\nanswer 42" in path.read_text(errors="replace").replace("\r", "")
    words = ["resume", memory, "--disk", of_disk, *ASK, "--run-after-ready", 600, "--console"]
    consoles = [scratch() / f"console-{number}" for number in range(count)]
    for console in consoles:
        console.unlink(missing_ok=True)
    with ExitStack() as stack:
        guests = [stack.enter_context(program(headstart_path(), "-q", *words, console)) for console in consoles]
        for console, guest in zip(consoles, guests):
            wait_until(lambda: says(console), guest, step_s=0.2)
        return [memory_of(guest, "/disk.img") for guest in guests]

@benchmark(repeats=1, flags={"--clones": (20, "guests")})
def measure(bench):
    count = bench.args.clones
    fast, of_fast = DEBIAN.laid_out()
    with mounted(fast, "--mode", "0666", "--base", of_fast) as place:
        [one] = clones(1, place / "disk.img", of_fast)
        progress(f"one guest: {one}")
        all_of_them = clones(count, place / "disk.img", of_fast)
    shared = one["Rss"] - one["Anonymous"]
    total, wrote = (sum(each[key] for each in all_of_them) for key in ("Pss", "Anonymous"))
    bench.figure(f"memory of {count} guests ÷ (one guest's touched pages + what each wrote)", at_most=1.3,
                 value=total / (one["Rss"] + wrote), detail={"one": one, "clones": all_of_them})
    bench.figure("memory of the guests that none shares", wrote / MIB / count, unit="MiB each")
    bench.figure("touched pages of one guest that are shared", shared / MIB, unit="MiB")
