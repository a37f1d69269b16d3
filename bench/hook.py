#!/usr/bin/env python3
"""What the hook adds to an initramfs: its bytes, and the time from its first call to the mounted root, less the mount of the same
system from a disk.

The bytes are those of mkinitramfs in a Debian, without and with the hook. The time is that of the two calls that the hook's
scripts make, on this machine, in name spaces of their own: what they see of the command line and of block devices is made for
them. The medium is a file in the page cache.
"""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from harness import MIB, ROOT, alternate, arguments, figure, finish, headstart, headstart_path, run, scratch, spread
from inputs import boot_image, boot_profile, optimized
from live import boot_file, root

LIMIT_S = 0.3
LIMIT_MIB = 6
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
{live} asked
{live} root {folder}/new
mark mounted
[ -d {folder}/new/usr/bin ]
"""


def live():
    """The program in the initramfs."""
    return Path(headstart_path()).with_name("headstart-live")


@contextmanager
def medium(file):
    """A device with this file, by a name of its own."""
    loop = Path(run("losetup", "--find", "--show", "--read-only", file).strip())
    try:
        os.mknod(DEVICE, 0o600 | 0o060000, loop.stat().st_rdev)
        yield
    finally:
        DEVICE.unlink(missing_ok=True)
        run("losetup", "--detach", loop)


def mounts(folder):
    """How long the two mounts took, once."""
    ended = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
                            START.format(folder=folder, live=folder / "headstart-live")],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    at = {mark: float(seconds) for mark, seconds in MARK.findall(ended.stdout)}
    if ended.returncode != 0:
        raise SystemExit(f"no root was mounted:\n{ended.stdout}")
    return {"disk_s": at["hook"] - at["disk"], "hook_s": at["mounted"] - at["hook"]}


def grown_bytes():
    """Bytes that the hook adds to the initramfs of a Debian."""
    upper, work, merged = (scratch() / name for name in ("upper", "work", "merged"))
    for folder in (upper, work, merged):
        folder.mkdir()
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={root()},upperdir={upper},workdir={work}", merged)
    try:
        version = boot_file("vmlinuz").name.removeprefix("vmlinuz-")

        def made():
            run("chroot", merged, "mkinitramfs", "-o", "/made.img", version)
            return (merged / "made.img").stat().st_size

        without = made()
        shutil.copytree(HOOK, merged / "usr/share/initramfs-tools", dirs_exist_ok=True)
        (merged / "usr/lib/headstart").mkdir()
        run("strip", live(), "-o", merged / "usr/lib/headstart/headstart-live")
        return made() - without
    finally:
        run("umount", merged)


def main():
    args = arguments(__doc__, repeats=9).parse_args()
    plain = boot_image()
    fast = optimized(plain, "hook-fast", boot_profile(plain, "hook"))
    folder = scratch()
    for name in ("block/" + DEVICE.name, "disk", "new"):
        (folder / name).mkdir(parents=True)
    stick = folder / "stick.raw"
    (folder / "files/headstart").mkdir(parents=True)
    shutil.copy(fast, folder / "files/headstart/root.hsi")
    run("mkfs.ext4", "-q", "-L", "HEADSTART", "-d", folder / "files", stick, f"{fast.stat().st_size // MIB * 2 + 32}M")
    headstart("export", fast, "-o", folder / "disk.raw", "--format", "raw")
    name = re.search(r"hs1-[0-9a-f]+", headstart("verify", fast))[0]
    (folder / "cmdline").write_text(f"root=headstart:LABEL=HEADSTART#{name}\n")
    run("strip", live(), "-o", folder / "headstart-live")
    with medium(stick):
        results = alternate({"hook": lambda: mounts(folder)}, args.repeats, say=lambda result: f"{result['hook_s']:.3f} s")["hook"]
    added = spread(result["hook_s"] - result["disk_s"] for result in results)
    detail = {key: spread(result[key] for result in results) for key in results[0]}
    finish("hook", [
        figure("the hook adds", added["median"], unit="s", at_most=LIMIT_S, noise=[added["min"], added["max"]], detail=detail),
        figure("the hook adds to an initramfs", grown_bytes() / MIB, unit="MiB", at_most=LIMIT_MIB),
    ], args.repeats)


if __name__ == "__main__":
    main()
