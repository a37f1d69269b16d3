"""Programs, devices and mounts that last as long as a `with` block: headstart's, and those of the systems it is
compared with."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from harness import headstart_path, run, scratch

def wait_until(is_true, process=None, patience_s=600, step_s=0.01):
    """Waits until something is so; the benchmark ends when the process does, or when it takes too long."""
    end = time.monotonic() + patience_s
    while not is_true():
        if process and process.poll() is not None:
            sys.exit(f"ended with {process.returncode}: {process.args}")
        if time.monotonic() > end:
            sys.exit(f"waited {patience_s} s in vain for {process.args if process else is_true}")
        time.sleep(step_s)

@contextmanager
def program(*command, ready=lambda: True, end=signal.SIGTERM, **pipes):
    """A program that runs while the block does, which begins when it is `ready()`."""
    process = subprocess.Popen([*map(str, command)], **pipes)
    try:
        wait_until(ready, process)
        yield process
    finally:
        process.send_signal(end)
        process.wait(timeout=60)

def new_folder(name):
    """An empty folder that nothing else uses."""
    folder = scratch() / f"{name}-{os.urandom(4).hex()}"
    folder.mkdir()
    return folder

@contextmanager
def mounted(device, options):
    """A file system that is mounted with these options: its mount point."""
    target = new_folder("mounted")
    run("mount", "-o", options, device, target)
    try:
        yield target
    finally:
        # Another program of the machine may look at it for a moment.
        wait_until(lambda: subprocess.run(["umount", target], check=False).returncode == 0, patience_s=30, step_s=0.5)

@contextmanager
def server(*words, folder, ready):
    """A headstart that serves a folder, which are its last words."""
    try:
        with program(headstart_path(), "-q", *words, folder, ready=ready, stdout=subprocess.DEVNULL) as process:
            yield process
    finally:
        # A connection that had to be aborted leaves its mount behind.
        if str(folder) in Path("/proc/self/mounts").read_text():
            subprocess.run(["umount", "--lazy", folder], check=False)

@contextmanager
def image(path, medium="none", *flags):
    """The disk in an image as (server, DIR/disk.img)."""
    folder = new_folder("disk")
    disk = folder / "disk.img"
    words = ["mount", "--foreground", "--unsupervised", "--medium", medium, *flags, path]
    with server(*words, folder=folder, ready=disk.exists) as process:
        yield process, disk

@contextmanager
def image_fs(path, medium="none", *flags):
    """The file system in an image as (server, DIR/disk.img, its mount point)."""
    target = new_folder("fs")
    with image(path, medium, "--fs", target, *flags) as (process, disk):
        wait_until(lambda: os.path.ismount(target), process)
        yield process, disk, target

@contextmanager
def loop_device(file, *flags):
    """A loop device that reads a file."""
    device = run("losetup", "--read-only", "--find", "--show", *flags, file).strip()
    try:
        yield device
    finally:
        run("losetup", "--detach", device)

@contextmanager
def plain_fs(path, medium, *, direct_io=False, read_ahead_kib=None):
    """A raw ext4 or squashfs file on an emulated medium, on a loop device: its mount point. Without direct I/O and
    with the kernel's read-ahead this is what `mount -o loop` makes."""
    folder, target = new_folder("disk"), new_folder("fs")
    file = folder / Path(path).name
    flags = [f"--direct-io={'on' if direct_io else 'off'}", "--sector-size", 4096]
    with server("lab", "disk", "--medium", medium, path, folder=folder, ready=file.exists), \
            loop_device(file, *flags) as device:
        if read_ahead_kib is not None:
            run("blockdev", "--setra", 2 * read_ahead_kib, device)
        is_ext4 = run("blkid", "-p", "-o", "value", "-s", "TYPE", device).strip() == "ext4"
        run("mount", "-o", "ro,noload" if is_ext4 else "ro", device, target)
        try:
            yield target
        finally:
            run("umount", target)

# --- processes ------------------------------------------------------------------------------------

def memory_bytes(pid, key):
    """A size that the kernel tells of a process, such as VmHWM."""
    return int(re.search(rf"^{key}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[1]) << 10

def cpu_s(pid):
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def drop_caches():
    """Empties the page cache."""
    run("sync")
    Path("/proc/sys/vm/drop_caches").write_text("3")
