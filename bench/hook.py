#!/usr/bin/env python3
"""What the hook adds to an initramfs: its bytes, and the time from its first call to the mounted root, less the mount of
the same system from a disk.

The bytes are those of mkinitramfs in a Debian, without and with the hook. The time is that of the two calls that the
hook's scripts make, on this machine, in name spaces of their own: what they see of the command line and of block devices
is made for them. The medium is a file in the page cache.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from harness import MIB, ROOT, benchmark, headstart, headstart_path, run, scratch
from inputs import boot_image, boot_profile, named, optimized
from live import boot_file, root
from mounts import loop_device

HOOK = ROOT / "dist/initramfs-tools"
# No name of a loop device, which the hook leaves alone.
DEVICE = Path("/dev/hsbench")
MARK = re.compile(r"^mark (\w+) ([0-9.]+)", re.MULTILINE)
START = """set -e
mount --make-rprivate /
mount -t tmpfs run /run
mount --bind {folder}/cmdline /proc/cmdline
mount --bind {folder}/block /sys/class/block
mark() {{ echo "mark $1 $EPOCHREALTIME"; }}
mark disk
mount -t ext4 -o ro,loop {folder}/disk.raw {folder}/disk
mark hook
{folder}/headstart-live asked
{folder}/headstart-live root {folder}/new
mark mounted
[ -d {folder}/new/usr/bin ]
"""

def stripped_program(to):
    """The program in the initramfs."""
    run("strip", Path(headstart_path()).with_name("headstart-live"), "-o", to / "headstart-live")

@contextmanager
def medium(file):
    """A device with this file, by a name of its own."""
    with loop_device(file) as loop:
        os.mknod(DEVICE, 0o600 | 0o060000, os.stat(loop).st_rdev)
        try:
            yield
        finally:
            DEVICE.unlink(missing_ok=True)

def mounts(folder):
    """How long the two mounts took, once."""
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
             START.format(folder=folder)]
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=120)
    if ended.returncode != 0:
        sys.exit(f"no root was mounted:\n{ended.stdout}")
    at = {mark: float(seconds) for mark, seconds in MARK.findall(ended.stdout)}
    disk_s, hook_s = at["hook"] - at["disk"], at["mounted"] - at["hook"]
    return {"disk_s": disk_s, "hook_s": hook_s, "added_s": hook_s - disk_s}

def grown_bytes():
    """Bytes that the hook adds to the initramfs of a Debian."""
    upper, work, merged = (scratch() / name for name in ("upper", "work", "merged"))
    for folder in (upper, work, merged):
        folder.mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={root()},upperdir={upper},workdir={work}", merged)
    try:
        def made_bytes():
            version = boot_file("vmlinuz").name.removeprefix("vmlinuz-")
            run("chroot", merged, "mkinitramfs", "-o", "/made.img", version)
            return (merged / "made.img").stat().st_size

        without = made_bytes()
        shutil.copytree(HOOK, merged / "usr/share/initramfs-tools", dirs_exist_ok=True)
        (merged / "usr/lib/headstart").mkdir()
        stripped_program(merged / "usr/lib/headstart")
        return made_bytes() - without
    finally:
        run("umount", merged)

@benchmark(repeats=9)
def measure(bench):
    plain, folder = boot_image(), scratch()
    fast = optimized(plain, "hook-fast", boot_profile(plain, "hook"))
    for name in ("block/" + DEVICE.name, "disk", "new", "files/headstart"):
        (folder / name).mkdir(parents=True)
    shutil.copy(fast, folder / "files/headstart/root.hsi")
    stick = folder / "stick.raw"
    run("mkfs.ext4", "-q", "-L", "HEADSTART", "-d", folder / "files", stick, f"{fast.stat().st_size // MIB * 2 + 32}M")
    headstart("export", fast, "-o", folder / "disk.raw", "--format", "raw")
    (folder / "cmdline").write_text(f"root={named('headstart:LABEL=HEADSTART', fast)}\n")
    stripped_program(folder)
    with medium(stick):
        runs = bench.turns({"hook": lambda: mounts(folder)}, say="{hook_s:.3f} s")
    bench.figure("the hook adds", runs.median("hook", "added_s"), unit="s", at_most=0.3)
    bench.figure("the hook adds to an initramfs", grown_bytes() / MIB, unit="MiB", at_most=6)
