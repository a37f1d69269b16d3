#!/usr/bin/env python3
"""`kill -9` of the server at random moments of starts and boots: each must come to its end, and every block be right.

A start is `headstart mount --fs` and a program in the mounted root; a boot is `headstart mount` and User-mode Linux on the disk.
The server, not its supervisor, is killed once at a moment between the start of the command and the usual time until ready.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

from harness import arguments, figure, finish, headstart_json, headstart_path, progress, scratch
from inputs import COMMAND, boot_image, boot_profile, demo, optimized, raw

BLOCK = 4096
# Blocks compared after each kill; the whole disk is after the last.
SAMPLE = 100
STARTS_TO_BOOTS = 4
PATIENCE_S = 120
# As `headstart boot` looks for it.
READY = re.compile(rb"Reached target .*(multi-user|Multi-User|Graphical|Login Prompts)|Startup finished in ")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


@contextlib.contextmanager
def mounted(image, medium, *, fs):
    """The image's disk, and its file system if wanted; gives their folders and the supervisor."""
    place = scratch() / f"killed-{time.monotonic_ns()}"
    disk, tree = place / "disk", place / "tree"
    disk.mkdir(parents=True)
    tree.mkdir()
    flags = ["--fs", tree] if fs else []
    command = [headstart_path(), "-q", "mount", "--foreground", "--medium", medium, image, disk, *flags]
    supervisor = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    try:
        yield disk, tree, supervisor
    except BaseException as error:
        # How the supervisor ends then may hide it.
        progress(f"failed: {error!r}")
        raise
    finally:
        supervisor.send_signal(signal.SIGTERM)
        errors = supervisor.communicate(timeout=60)[1]
        unexpected = [line for line in errors.splitlines() if "signal 9" not in line and "was killed" not in line]
        if supervisor.returncode != 0 or unexpected:
            raise SystemExit(f"the supervisor ended with {supervisor.returncode}: {errors}")
        shutil.rmtree(place)


def server_of(supervisor):
    """The supervisor's newest child."""
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    return int(children[-1]) if children else None


def killer(supervisor, at):
    """Kills the server at a moment; gives what it killed."""
    time.sleep(max(0, at - time.monotonic()))
    while (server := server_of(supervisor)) is None:
        time.sleep(0.001)
    os.kill(server, signal.SIGKILL)
    return server


def wait_for_mount(target, supervisor):
    """Until something is mounted there, by whichever server."""
    until = time.monotonic() + PATIENCE_S
    while not any(f" {target} " in line for line in Path("/proc/self/mountinfo").read_text().splitlines()):
        if supervisor.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"nothing is mounted at {target}")
        time.sleep(0.005)


def compare(disk, plain, blocks):
    """Blocks of the served disk with those of the raw one; the kernel's copies of them are dropped first."""
    Path("/proc/sys/vm/drop_caches").write_text("1")
    with open(disk / "disk.img", "rb") as ours, open(plain, "rb") as theirs:
        for block in blocks:
            ours.seek(block * BLOCK)
            theirs.seek(block * BLOCK)
            if ours.read(BLOCK) != theirs.read(BLOCK):
                raise SystemExit(f"block {block} differs")


def one(case, delay_s, chance):
    """One start or boot with its server killed after `delay_s`, or not at all; how long it took."""
    began = time.monotonic()
    with mounted(case["image"], case["medium"], fs=case["fs"]) as (disk, tree, supervisor):
        pid = os.fork() if delay_s is not None else None
        if pid == 0:
            killer(supervisor, began + delay_s)
            os._exit(0)
        wait_for_mount(tree if case["fs"] else disk, supervisor)
        case["run"](disk, tree)
        took = time.monotonic() - began
        if pid:
            os.waitpid(pid, 0)
        # The next server answers for the mount as soon as it is there.
        status = headstart_json("status", "--json", disk)["mounts"] if delay_s is None else await_status(disk)
        if delay_s is not None and status[0]["restarts"] != 1:
            raise SystemExit(f"killed once, but: {status}")
        blocks = case["plain"].stat().st_size // BLOCK
        compare(disk, case["plain"], (chance.randrange(blocks) for _ in range(SAMPLE)))
        if case.pop("whole", False):
            compare(disk, case["plain"], range(blocks))
    return took


def await_status(disk):
    """What the server says that was started after the kill."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        asked = subprocess.run([headstart_path(), "-q", "status", "--json", disk], capture_output=True, text=True)
        if asked.returncode == 0:
            mounts = json.loads(asked.stdout)["mounts"]
            if mounts and mounts[0]["restarts"] == 1:
                return mounts
        time.sleep(0.05)
    raise SystemExit("no server after the kill")


def start(disk, tree):
    """The demo's program in the mounted root."""
    done = subprocess.run(["chroot", tree, *COMMAND], capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0 or "ready" not in done.stdout:
        raise SystemExit(f"the program failed: {done.stdout}{done.stderr}")


def guest(disk, tree):
    """User-mode Linux on the disk until its console offers a login."""
    cow = disk.parent / "cow"
    command = ["linux.uml", "mem=512M", f"ubd0={cow},{disk}/disk.img", f"uml_dir={disk.parent}/", "umid=guest",
               *"root=/dev/ubda rw con0=null,fd:1 con=null ssl=null console=tty0 systemd.show_status=1".split()]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    until = time.monotonic() + PATIENCE_S
    said = b""
    try:
        while not READY.search(COLOUR.sub(b"", said[-4096:])):
            line = process.stdout.readline()
            said += line
            if not line or time.monotonic() > until:
                raise SystemExit(f"the guest was not ready: {said[-2000:].decode(errors='replace')}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        cow.unlink(missing_ok=True)


def main():
    parser = arguments(__doc__, repeats=100)
    parser.add_argument("--seed", type=int, default=20261122, help="decides the moments, and the blocks that are compared")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    files = demo()
    image = boot_image()
    fast = optimized(image, "boot-one", boot_profile(image, "boot"))
    cases = {
        "start": {"image": files["optimized"], "plain": files["raw"], "medium": "flat-10ms-25mbs", "fs": True, "run": start},
        "boot": {"image": fast, "plain": raw(image, "boot"), "medium": "cd-24x-cav", "fs": False, "run": guest},
    }
    usual = {name: one(case, None, chance) for name, case in cases.items()}
    kills, detail = 0, {"usual_s": usual, "took_s": {}, "whole_disks_compared": 0}
    boots = max(args.repeats // (STARTS_TO_BOOTS + 1), 1)
    for name, case, count in (("start", cases["start"], args.repeats - boots), ("boot", cases["boot"], boots)):
        took = []
        for number in range(count):
            case["whole"] = number == count - 1
            took.append(one(case, chance.uniform(0, usual[name]), chance))
            kills += 1
            progress(f"{name} {number + 1}/{count}: {took[-1]:.2f} s")
        detail["took_s"][name] = {"median": statistics.median(took), "min": min(took), "max": max(took), "runs": count}
        detail["whole_disks_compared"] += 1
    figures = [figure("starts and boots that completed, of those whose server was killed", kills / args.repeats, at_least=1, detail=detail)]
    finish("killed", figures, args.repeats)


if __name__ == "__main__":
    main()
