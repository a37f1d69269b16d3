"""Mounts that last as long as a `with` block: headstart's, and those of the systems it is compared with."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from harness import headstart_path, run, scratch


def new_folder(name):
    """An empty folder that nothing else uses."""
    folder = scratch() / f"{name}-{os.urandom(4).hex()}"
    folder.mkdir()
    return folder


@contextmanager
def server(arguments, appears):
    """A headstart that serves while the block runs; it is ready when `appears()` is true. The last of
    the arguments is the folder that it mounts."""
    command = [headstart_path(), "-q", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while not appears():
            if process.poll() is not None:
                sys.exit(f"failed with {process.returncode}: {' '.join(command)}")
            time.sleep(0.01)
        yield process
    finally:
        process.terminate()
        process.wait()
        # A connection that had to be aborted leaves its mount behind.
        folder = str(arguments[-1])
        if folder in Path("/proc/self/mounts").read_text():
            subprocess.run(["umount", "--lazy", folder], check=False)


@contextmanager
def image(path, medium="none", *flags):
    """The disk in an image as (server, DIR/disk.img)."""
    folder = new_folder("disk")
    disk = folder / "disk.img"
    with server(["mount", "--foreground", "--unsupervised", "--medium", medium, *flags, path, folder], disk.exists) as process:
        yield process, disk


@contextmanager
def image_fs(path, medium="none", *flags):
    """The file system in an image as (server, DIR/disk.img, its mount point)."""
    target = new_folder("fs")
    with image(path, medium, "--fs", target, *flags) as (process, disk):
        while not os.path.ismount(target):
            if process.poll() is not None:
                sys.exit(f"the file system of {path} was not mounted")
            time.sleep(0.01)
        yield process, disk, target


@contextmanager
def plain_fs(path, medium, *, direct_io=False, read_ahead_kib=None):
    """A raw ext4 or squashfs file on an emulated medium, on a loop device: its mount point. Without
    direct I/O and with the kernel's read-ahead this is what `mount -o loop` makes."""
    folder, target = new_folder("disk"), new_folder("fs")
    file = folder / Path(path).name
    with server(["lab", "disk", "--medium", medium, path, folder], file.exists):
        direct = "on" if direct_io else "off"
        device = run("losetup", "--read-only", "--find", "--show", f"--direct-io={direct}", "--sector-size", 4096, file).strip()
        try:
            if read_ahead_kib is not None:
                run("blockdev", "--setra", 2 * read_ahead_kib, device)
            options = "ro,noload" if run("blkid", "-p", "-o", "value", "-s", "TYPE", device).strip() == "ext4" else "ro"
            run("mount", "-o", options, device, target)
            try:
                yield target
            finally:
                run("umount", target)
        finally:
            run("losetup", "--detach", device)


def loop_of(target):
    """The block device that is mounted at `target`."""
    return run("findmnt", "-n", "-o", "SOURCE", "--target", target).strip()
