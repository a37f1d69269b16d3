#!/usr/bin/env python3
"""A start of Python from an aged ext4 on emulated media, without and with what `headstart accelerate` recorded; and with
lists that do not fit: cut in half, and of another file system.

The files of the demo's root are copied in a random order, as years of updates leave them. A FUSE file at the medium's
pace (`lab disk`) lies below a loop device without a cache (--direct-io). `warm` begins together with the command.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial

from harness import benchmark, headstart, headstart_path, run, scratch
from inputs import cache, kept
from mounts import new_folder, program

PROGRAM = "import json,decimal,asyncio,http.client,xml.dom.minidom,email,unittest,sqlite3,ctypes,multiprocessing"
MEDIA = ["hdd-2010", "cloud-volume", "sd-uhs1", "emmc-2010"]

@contextmanager
def mounted(device, options):
    folder = new_folder("accelerate")
    run("mount", "-o", options, device, folder)
    try:
        yield folder
    finally:
        run("umount", folder)

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

@benchmark(repeats=5, media=MEDIA)
def measure(bench):
    disk, other = (kept(f"aged-{seed}.ext4", [], partial(aged, seed)) for seed in (15, 16))
    lists = {disk: kept("aged-15.pages", [disk], partial(recorded, disk)),
             other: kept("aged-16.pages", [other], partial(recorded, other))}
    cut = scratch() / "cut.pages"
    cut.write_bytes(lists[disk].read_bytes()[:lists[disk].stat().st_size // 2])
    cut.chmod(0o600)
    for medium in bench.args.medium:
        cases = {f"{medium}, without": partial(start, medium, disk, None),
                 f"{medium}, with": partial(start, medium, disk, lists[disk]),
                 f"{medium}, list cut in half": partial(start, medium, disk, cut),
                 f"{medium}, list of another disk": partial(start, medium, disk, lists[other])}
        runs = bench.turns(bench.chosen(cases), say="{ready_s:.2f} s")
        for name in list(cases)[1:]:
            flash = medium.startswith(("sd", "emmc"))
            bench.figure(f"start of Python, {name}, ÷ without", runs.ratio(name, f"{medium}, without"),
                         at_most=1.02 if flash else None)
