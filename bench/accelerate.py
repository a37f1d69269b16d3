#!/usr/bin/env python3
"""Starts from an aged ext4 on emulated media, without and with what `headstart accelerate` recorded.

A start of Python; also with lists that do not fit: cut in half, of another disk with the same UUID, and of before half of the
system's packages were upgraded; from a cloud's volume also from memory, with a list of files that is read ahead, and
with all of the volume read beside the start, or before it. The files of the demo's root are copied in a random order. A FUSE file at the medium's pace (`lab disk`) lies below a loop device without a cache
(--direct-io). `warm` begins together with the command.

And the desktop of an installed Debian on a disk that its package manager has aged (`desktop.py`), from the session's
first program until it is drawn: as it is today, with read-ahead of what was recorded (step 1), also laid anew (steps 1
and 2), with a list of files and offsets that is read ahead as ureadahead and libprefetch do, and, of a cloud's volume,
with all of it read beside the start. `--case desktop` is that alone.

And what recording costs: the processors' time of a start, with all that it starts, without and with
`accelerate record`, from memory and in turns. The trace is paid by the start itself, so the difference has it; the
recorder tells its own part. Work of the kernel's own threads is in what the whole machine took, which has others' too.
The goal is of the desktop's start, the nearest to a boot that runs on this machine's kernel; beginning and end of a
recording weigh more on a start of a second. `--case recording` is that alone.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import desktop
from harness import benchmark, headstart, headstart_path, machine_cpu_s, measured, run, scratch
from inputs import cache, kept
from mounts import mounted, new_folder, program

PROGRAM = "import json,decimal,asyncio,http.client,xml.dom.minidom,email,unittest,sqlite3,ctypes,multiprocessing"
# A list of another disk would not be looked at otherwise.
UUID = "6f2828d1-717e-4eb1-b35f-1d9eebe1dac8"
MEDIA = ["hdd-2010", "hdd-7200", "cloud-volume", "sd-uhs1", "emmc-2010", "flat-1ms-20mbs-serial"]

def is_flash(medium):
    """The last of the media is the SD card that the goals name."""
    return medium.startswith(("sd", "emmc")) or medium.endswith("-serial")

def aged(seed, draft):
    """The demo's root on an ext4, its files in a random order."""
    root = cache() / "root"
    with draft.open("wb") as file:
        file.truncate(1300 << 20)
    run("mkfs.ext4", "-q", "-U", UUID, draft)
    with mounted(draft, "loop") as target:
        shutil.copytree(root, target, symlinks=True, dirs_exist_ok=True, copy_function=lambda _, to: None)
        files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
        files = [file for file in files if os.path.isfile(file) and not os.path.islink(file)]
        random.Random(seed).shuffle(files)
        for file in files:
            shutil.copy2(file, f"{target}/{os.path.relpath(file, root)}")

def upgraded(disk, draft):
    """The same after upgrades of half of its packages: each of their files is written anew and renamed, as dpkg does."""
    shutil.copyfile(disk, draft)
    with mounted(draft, "loop") as target:
        lists = sorted(Path(target, "var/lib/dpkg/info").glob("*.list"))
        for listed in random.Random(17).sample(lists, len(lists) // 2):
            for name in listed.read_text().splitlines():
                file = Path(f"{target}{name}")
                if file.is_file() and not file.is_symlink():
                    new = Path(f"{file}.dpkg-new")
                    shutil.copy2(file, new)
                    new.rename(file)

@contextmanager
def shown(medium, disk, *where, ready):
    """The disk, as from the medium. Then `medium.json` has what the medium counted."""
    with (scratch() / "medium.json").open("w") as told, program(
            headstart_path(), "-q", "lab", "disk", disk, *where, "--emulate", medium, "--json", ready=ready,
            end=signal.SIGINT, stdout=told):
        yield

@contextmanager
def on(medium, disk):
    """The disk's file system, as from the medium, with nothing in a cache, and its device."""
    folder = new_folder("medium")
    served = folder / disk.name
    with shown(medium, disk, folder, ready=served.exists):
        device = run("losetup", "--find", "--show", "--read-only", "--direct-io=on", served).strip()
        # What its last user has set stays.
        run("blockdev", "--setra", 256, device)
        try:
            with mounted(device, "ro,noload") as root:
                yield root, device
        finally:
            run("losetup", "--detach", device)

def start(medium, disk, command, beside=None, waits=False):
    """A start, with another program beside it, or behind it."""
    with on(medium, disk) as (root, device):
        began = time.monotonic()
        other = beside and subprocess.Popen([*map(str, beside(root, device))], stderr=subprocess.DEVNULL)
        if waits:
            other.wait()
        run(*command(root))
        ready_s = time.monotonic() - began
        if other:
            other.wait()
    return {"ready_s": ready_s, **json.loads((scratch() / "medium.json").read_text())}

def warm(pages):
    return lambda root, _: [headstart_path(), "-q", "accelerate", "warm", "--root", root, "--list", pages]

def python(root):
    return ["chroot", root, "python3", "-c", PROGRAM]

def recorded(disk, command, draft):
    with on("none", disk) as (root, _):
        headstart("accelerate", "record", "--root", root, "--list", draft, "--", *command(root))

def python_starts(bench):
    disk, other = (kept(f"aged-{seed}.ext4", [], partial(aged, seed)) for seed in (15, 16))
    lists = {disk: kept("aged-15.pages", [disk], partial(recorded, disk, python)),
             other: kept("aged-16.pages", [other], partial(recorded, other, python))}
    later = kept("aged-15-upgraded.ext4", [disk], partial(upgraded, disk))
    cut = scratch() / "cut.pages"
    cut.write_bytes(lists[disk].read_bytes()[:lists[disk].stat().st_size // 2])
    cut.chmod(0o600)
    baselines = {"warm": partial(start, "none", disk, python)}
    for name, beside, waits in (("files read ahead", desktop.read_files(lists[disk]), False),
                                ("volume read beside", desktop.read_volume(disk), False),
                                ("volume read first", desktop.read_volume(disk), True)):
        baselines[name] = partial(start, "cloud-volume", disk, python, beside, waits)
    for medium in bench.media:
        cases = {f"{medium}, without": partial(start, medium, disk, python),
                 f"{medium}, with": partial(start, medium, disk, python, warm(lists[disk])),
                 f"{medium}, list cut in half": partial(start, medium, disk, python, warm(cut)),
                 f"{medium}, list of another disk": partial(start, medium, disk, python, warm(lists[other])),
                 f"{medium}, upgraded, without": partial(start, medium, later, python),
                 f"{medium}, list of before upgrades": partial(start, medium, later, python, warm(lists[disk]))}
        without, with_list, *others, upgraded_without, before_upgrades = cases
        if medium == "cloud-volume":
            cases.update({f"{medium}, {name}": case for name, case in baselines.items()})
        runs = bench.turns(bench.chosen(cases), say="{ready_s:.2f} s, medium busy {medium_busy_s:.3f} s, "
                           "{store_requests} requests, {store_bytes:,} bytes")
        for name, base in [(name, without) for name in (with_list, *others)] + [(before_upgrades, upgraded_without)]:
            # The time of a start has the machine's own load; the medium's is its model's.
            for key, what in (("ready_s", ""), ("medium_busy_s", ", medium busy")):
                bench.figure(f"start of Python, {name}{what}, ÷ without", runs.ratio(name, base, key),
                             at_most=1.02 if is_flash(medium) else None)
        for name in baselines if medium == "cloud-volume" else ():
            for contender in (without, with_list):
                goal = 1.2 if (contender, name) == (with_list, "warm") else None
                bench.figure(f"start of Python, {contender} ÷ {name}", runs.ratio(contender, f"{medium}, {name}"),
                             at_most=goal)

def desktops(bench):
    """An aged system's desktop. Its storage wait is what it takes longer than from memory."""
    disk = desktop.disk()
    pages = kept("desktop.pages", [disk], partial(recorded, disk, desktop.session))
    laid = kept("desktop-laid.ext4", [disk, pages], partial(desktop.make_laid, disk, pages))
    # As every boot is recorded: the places in the list are those before.
    after = kept("desktop-laid.pages", [laid], partial(recorded, laid, desktop.session))
    bench.more["desktop"] = desktop.told()
    ways = {"today": (disk,), "step 1": (disk, warm(pages)), "steps 1 and 2": (laid, warm(after)),
            "by file": (disk, desktop.read_files(pages)), "volume": (disk, desktop.read_volume(disk))}
    cases = {"desktop, warm": partial(start, "none", disk, desktop.session)}
    for medium in bench.media:
        for name, (of, *beside) in ways.items():
            if name != "volume" or medium == "cloud-volume":
                cases[f"desktop, {medium}, {name}"] = partial(start, medium, of, desktop.session, *beside)
    runs = bench.turns(bench.chosen(cases), say="ready {ready_s:.1f} s, medium busy {medium_busy_s:.1f} s, {seeks} seeks, "
                       "{store_requests} requests, {store_bytes:,} bytes")
    least = runs.median("desktop, warm")
    for case in runs:
        for each in runs[case]:
            each["wait_s"] = max(0.0, each["ready_s"] - least)
    for medium in bench.media:
        turns, flash, cloud = medium.startswith("hdd"), is_flash(medium), medium.startswith("cloud")
        of = lambda name: name if name == "desktop, warm" else f"desktop, {medium}, {name}"
        for one, other, key, goal in (("step 1", "today", "wait_s", 0.5 if turns else None),
                                      ("steps 1 and 2", "today", "wait_s", 0.15 if turns else None),
                                      ("steps 1 and 2", "today", "seeks", 0.05 if turns else None),
                                      ("step 1", "today", "ready_s", 1.02 if flash else None),
                                      ("steps 1 and 2", "today", "ready_s", 0.5 if turns else 1.02 if flash else None),
                                      ("step 1", "by file", "wait_s", 1 / 1.5 if turns else None),
                                      ("step 1", "desktop, warm", "ready_s", 1.2 if cloud else None),
                                      ("step 1", "volume", "ready_s", None)):
            if of(other) in cases:
                ratio = runs.ratio(of(one), of(other), key)
                bench.figure(f"desktop: {key}, {one} ÷ {other}, {medium}", ratio, at_most=goal)

def spent(*command):
    """Runs a command; gives its output and the processors' time that it took, with all that it has started, and that
    the whole machine took meanwhile."""
    took = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before_s, (_, busy_before_s) = took(), machine_cpu_s()
    said = run(*command)
    return said, {"processor_s": took() - before_s, "machine_s": machine_cpu_s()[1] - busy_before_s}

def costs(disk, command, is_recorded):
    """A start from memory, recorded or not. What it prints is not mixed with what the recorder does."""
    with on("none", disk) as (root, _):
        words = ["sh", "-c", 'exec "$@" >&2', "sh", *command(root)]
        if not is_recorded:
            return {**spent(*words)[1], "recorder_s": 0, "bytes": 0}
        pages = new_folder("recorded") / "pages"
        said, took = spent(headstart_path(), "-q", "accelerate", "record", "--root", root, "--list", pages, "--json", "--",
                           *words)
    told = json.loads(said)
    return {**took, "recorder_s": told["recorder_s"], "bytes": told["bytes"]}

def recordings(bench):
    starts = {"Python": (lambda: kept("aged-15.ext4", [], partial(aged, 15)), python, None),
              "a desktop": (desktop.disk, desktop.session, 0.01)}
    name = lambda start, kind: f"recording a start of {start}: {kind}"
    chosen = bench.chosen({name(start, kind): (start, kind) for start in starts for kind in ("not", "recorded")})
    disks = {start: starts[start][0]() for start in dict.fromkeys(start for start, _ in chosen.values())}
    cases = {case: partial(costs, disks[start], starts[start][1], kind == "recorded")
             for case, (start, kind) in chosen.items()}
    # A hundredth is less than one start differs from the next.
    runs = bench.turns(cases, repeats=5 * bench.repeats, say="{processor_s:.2f} s of the processors, of which the recorder "
                       "{recorder_s:.3f} s; the machine {machine_s:.2f} s; {bytes:,} bytes")
    for start in disks:
        pairs = [*zip(runs.get(name(start, "recorded"), []), runs.get(name(start, "not"), []))]
        if not pairs:
            continue
        more = measured([one["processor_s"] / other["processor_s"] - 1 for one, other in pairs], runs)
        bench.figure(f"recording a start of {start}: processor time more, ÷ not recorded", more, at_most=starts[start][2])
        own = measured([one["recorder_s"] / other["processor_s"] for one, other in pairs], runs)
        bench.figure(f"recording a start of {start}: of that the recorder", own)

@benchmark(repeats=3, media=MEDIA)
def measure(bench):
    words = bench.args.case
    others = [word for word in words if "recording" not in word]
    if not words or (others and not all("desktop" in word for word in others)):
        python_starts(bench)
    if not words or any("desktop" in word for word in others):
        desktops(bench)
    if len(others) < len(words) or not words:
        recordings(bench)
