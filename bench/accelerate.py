#!/usr/bin/env python3
"""Starts from an aged ext4 on emulated media, without and with what `headstart accelerate` recorded.

A start of Python; also with lists that do not fit: cut in half, and of another file system. The files of the demo's root
are copied in a random order. A FUSE file at the medium's pace (`lab disk`) lies below a loop device without a cache
(--direct-io). `warm` begins together with the command.

And the boot of an installed Debian to its drawn desktop (`desktop.py`), under QEMU's translator: as it is today, with
read-ahead of what was recorded (step 1), also laid anew (steps 1 and 2), with a list of files and offsets that is read
ahead as ureadahead and libprefetch do, and, of a cloud's volume, with all of the volume read beside the boot. The storage
wait is the guest kernel's own count, as in `live.py`; seeks are those of the medium. `--case desktop` is that alone.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial

import desktop
from harness import benchmark, headstart, headstart_path, run, scratch
from inputs import cache, kept
from mounts import mounted, new_folder, program

PROGRAM = "import json,decimal,asyncio,http.client,xml.dom.minidom,email,unittest,sqlite3,ctypes,multiprocessing"
MEDIA = ["hdd-2010", "hdd-7200", "cloud-volume", "sd-uhs1", "emmc-2010"]

def aged(seed, draft):
    """The demo's root on an ext4, its files in a random order."""
    root = cache() / "root"
    with draft.open("wb") as file:
        file.truncate(1300 << 20)
    run("mkfs.ext4", "-q", draft)
    with mounted(draft, "loop") as target:
        shutil.copytree(root, target, symlinks=True, dirs_exist_ok=True, copy_function=lambda _, to: None)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
        files = [file for file in files if os.path.isfile(file) and not os.path.islink(file)]
        random.Random(seed).shuffle(files)
        for file in files:
            shutil.copy2(file, f"{target}/{os.path.relpath(file, root)}")

@contextmanager
def on(medium, disk):
    """The disk's file system, as from the medium, with nothing in a cache."""
    folder = new_folder("medium")
    served = folder / disk.name
    with program(headstart_path(), "-q", "lab", "disk", disk, folder, "--emulate", medium, ready=served.exists,
                 end=signal.SIGINT, stdout=subprocess.DEVNULL):
        device = run("losetup", "--find", "--show", "--read-only", "--direct-io=on", served).strip()
        try:
            with mounted(device, "ro,noload") as root:
                yield root
        finally:
            run("losetup", "--detach", device)

def start(medium, disk, pages):
    with on(medium, disk) as root:
        began = time.monotonic()
        warm = pages and subprocess.Popen([headstart_path(), "-q", "accelerate", "warm", "--root", root, "--list", pages],
                                          stderr=subprocess.DEVNULL)
        run("chroot", root, "python3", "-c", PROGRAM)
        ready_s = time.monotonic() - began
        if warm:
            warm.wait()
    return {"ready_s": ready_s}

def recorded(disk, draft):
    with on("none", disk) as root:
        headstart("-q", "accelerate", "record", "--root", root, "--list", draft, "--", "chroot", root, "python3", "-c", PROGRAM)

def python_starts(bench):
    disk, other = (kept(f"aged-{seed}.ext4", [], partial(aged, seed)) for seed in (15, 16))
    lists = {disk: kept("aged-15.pages", [disk], partial(recorded, disk)),
             other: kept("aged-16.pages", [other], partial(recorded, other))}
    cut = scratch() / "cut.pages"
    cut.write_bytes(lists[disk].read_bytes()[:lists[disk].stat().st_size // 2])
    cut.chmod(0o600)
    for medium in bench.media:
        cases = {f"{medium}, without": partial(start, medium, disk, None),
                 f"{medium}, with": partial(start, medium, disk, lists[disk]),
                 f"{medium}, list cut in half": partial(start, medium, disk, cut),
                 f"{medium}, list of another disk": partial(start, medium, disk, lists[other])}
        runs = bench.turns(bench.chosen(cases), say="{ready_s:.2f} s")
        for name in list(cases)[1:]:
            flash = medium.startswith(("sd", "emmc"))
            bench.figure(f"start of Python, {name}, ÷ without", runs.ratio(name, f"{medium}, without"),
                         at_most=1.02 if flash else None)

def boots(bench):
    """Boots to a drawn desktop."""
    disks = desktop.disks()
    bench.more["desktop"] = desktop.told()
    cases = {"desktop, warm": partial(desktop.start, "none", disks["installed"], "plain")}
    for medium in bench.media:
        for name, (disk, *how) in desktop.CASES.items():
            if name != "volume" or medium == "cloud-volume":
                cases[f"desktop, {medium}, {name}"] = partial(desktop.start, medium, disks[disk], *how)
    runs = bench.turns(bench.chosen(cases), say="ready {up_s:.1f} s, storage wait {wait_s:.2f} s, {seeks} seeks, "
                       "{store_requests} requests, {store_bytes:,} bytes")
    for medium in bench.media:
        turns, flash, cloud = (medium.startswith(kind) for kind in ("hdd", ("sd", "emmc"), "cloud"))
        of = lambda name: name if name == "desktop, warm" else f"desktop, {medium}, {name}"
        for one, other, key, what, goal in (
                ("step 1", "today", "wait_s", "storage wait", 0.5 if turns else 1.02 if flash else None),
                ("steps 1 and 2", "today", "wait_s", "storage wait", 0.15 if turns else 1.02 if flash else None),
                ("steps 1 and 2", "today", "seeks", "seeks", 0.05 if turns else None),
                ("steps 1 and 2", "today", "up_s", "ready", 0.5 if turns else None),
                ("step 1", "by file", "wait_s", "storage wait", 1 / 1.5 if turns else None),
                ("step 1", "desktop, warm", "up_s", "ready", 1.2 if cloud else None),
                ("step 1", "volume", "up_s", "ready", None)):
            if of(other) in cases:
                ratio = runs.ratio(of(one), of(other), key)
                bench.figure(f"desktop: {what}, {one} ÷ {other}, {medium}", ratio, at_most=goal)

@benchmark(repeats=3, media=MEDIA)
def measure(bench):
    words = bench.args.case
    if not words or not all("desktop" in word for word in words):
        python_starts(bench)
    if not words or any("desktop" in word for word in words):
        boots(bench)
