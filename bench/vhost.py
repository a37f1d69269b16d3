#!/usr/bin/env python3
"""Reads of a guest of QEMU from one server by vhost-user-blk and by NBD.

The guest has one program, which reads the disk past its page cache. All blocks are in the server's cache by then, so
what differs is the way to them. QEMU translates its guest here (TCG): the guest's own share of each request is large.
Processor time is that of QEMU and the server together, and of the server alone. The guest has two processors: before
8.1 QEMU leaves memory barriers out for one (its commit c914d46d0a), and after some 100,000 requests its own virtio-blk
misses a kick, and the guest waits without end.
"""

import os
import re
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness import HERE, benchmark, headstart, headstart_path, run, scratch
from inputs import kept
from mounts import program

DISK_BYTES = 64 << 20
SECONDS = 5
# Block size, how many at once, and whether at random.
WAYS = {"random 4 KiB, one at a time": ("one", 4096, 1, 1), "random 4 KiB, 16 at a time": ("many", 4096, 16, 1),
        "sequential 1 MiB": ("sequential", 1 << 20, 1, 0)}
MODULES = ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_blk"]
# As the guests of the tests have it.
LINUX = """
    name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p' | head -n 1)
    apt-get download -qq -o APT::Sandbox::User=root "$name"
    dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards './boot/vmlinuz-*' '*/drivers/virtio/*' '*/virtio_blk.ko'
    mv boot/vmlinuz-* vmlinuz
    find lib usr -name '*.ko' -exec mv {} . ';' 2>/dev/null || true
    rm -r -- *.deb boot lib usr 2>/dev/null || true
"""

def linux():
    """A folder with Debian's kernel and its modules."""
    def make(draft):
        draft.mkdir()
        run("sh", "-ec", f"cd {draft}; {LINUX}")
    return kept("guest-linux", [], make)

def initrd(folder):
    """An initial RAM disk with the modules and the guest's program."""
    program = scratch() / "init"
    run("cc", "-O2", "-static", "-pthread", "-o", program, HERE / "inside/reads.c")
    entries = [("init", 0o100755, program.read_bytes()), ("dev", 0o040755, b"")]
    entries += [(f"{name}.ko", 0o100644, (folder / f"{name}.ko").read_bytes()) for name in MODULES]
    made = scratch() / "initrd"
    made.write_bytes(b"".join(cpio(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")])))
    return made

def cpio(number, name, mode, content):
    """An entry of an archive as the kernel unpacks it: cpio(5), the new ASCII format."""
    padded = lambda text: text + bytes(-len(text) % 4)
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    return padded(b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0") + padded(content)

def image():
    """A disk of which half of each block is noise."""
    raw = kept("vhost.raw", [], lambda draft: draft.write_bytes(
        b"".join(os.urandom(2048) + bytes(2048) for _ in range(DISK_BYTES >> 12))))
    return kept("vhost.hsi", [raw], lambda draft: headstart("build", "--raw", raw, "-o", draft, "--codec", "zstd:1"))

@contextmanager
def serving(disk):
    """One server with both sockets: (its process, the socket of each)."""
    sockets = {kind: scratch() / kind for kind in ("vhost", "nbd")}
    with program(headstart_path(), "-q", "serve", f"disk={disk}", "--vhost-user-blk", sockets["vhost"], "--nbd",
                 f"unix:{sockets['nbd']}", "--unsupervised", "--no-prefetch", "--cache", "256M",
                 ready=lambda: all(socket.exists() for socket in sockets.values()),
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process, sockets

def devices(kind, socket):
    if kind == "vhost":
        return ["-chardev", f"socket,id=c,path={socket}", "-device", "vhost-user-blk-pci,chardev=c"]
    return ["-object", "iothread,id=t", "-blockdev", f"driver=nbd,node-name=d,server.type=unix,server.path={socket},"
            "export=disk,read-only=on,cache.direct=on", "-device", "virtio-blk-pci,drive=d,iothread=t"]

def processor_s(pid):
    """proc_pid_stat(5)."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

def reads(server, socket, kind, folder, ramdisk):
    """What one guest reads in each way: reads a second, and processor time a read."""
    ways = ",".join(f"{name}:{size}:{threads}:{is_random}" for name, size, threads, is_random in WAYS.values())
    words = f"console=ttyS0 quiet panic=-1 no_timer_check reads={ways} seconds={SECONDS} modules=" + ",".join(
        f"/{name}.ko" for name in MODULES)
    found, began = {}, None
    with subprocess.Popen(
            ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio", "-accel", "tcg",
             "-smp", "2", "-m", "256M", "-machine", "pc,memory-backend=m",
             "-object", "memory-backend-memfd,id=m,size=256M,share=on",
             "-kernel", folder / "vmlinuz", "-initrd", ramdisk, "-append", words, *devices(kind, socket)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as qemu:
        for line in qemu.stdout:
            now = processor_s(qemu.pid), processor_s(server.pid)
            if line.startswith("begin "):
                began = now
            elif match := re.match(r"end (\w+) (\d+) ([\d.]+)", line):
                name, count, seconds = match[1], int(match[2]), float(match[3])
                ours = now[1] - began[1]
                found |= {f"{name}_per_s": count / seconds, f"{name}_server_us": ours / count * 1e6,
                          f"{name}_all_us": (now[0] - began[0] + ours) / count * 1e6}
        if len(found) != 3 * len(WAYS):
            raise SystemExit(f"the guest did not read in each way: {found} {qemu.wait()} {line}")
    return found

@benchmark(repeats=5)
def measure(bench):
    folder, disk = linux(), image()
    ramdisk = initrd(folder)
    with serving(disk) as (server, sockets):
        cases = {kind: partial(reads, server, sockets[kind], kind, folder, ramdisk) for kind in ("vhost", "nbd")}
        runs = bench.turns(bench.chosen(cases), say="random {one_per_s:.0f}/s and {many_per_s:.0f}/s, "
                           "sequential {sequential_per_s:.0f} MiB/s; the server {many_server_us:.1f} µs a read")
        for what, (name, *_) in WAYS.items():
            bench.figure(f"vhost-user-blk ÷ NBD, a guest's reads, {what}", runs.ratio("vhost", "nbd", f"{name}_per_s"),
                         at_least=1.3)
            bench.figure(f"vhost-user-blk ÷ NBD, processor time a read of QEMU and server, {what}",
                         runs.ratio("vhost", "nbd", f"{name}_all_us"), at_most=1.0)
            bench.figure(f"vhost-user-blk ÷ NBD, processor time a read of the server, {what}",
                         runs.ratio("vhost", "nbd", f"{name}_server_us"), at_most=1.0)
