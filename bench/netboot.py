#!/usr/bin/env python3
"""A Debian boots with its own kernel from `headstart serve --http`, over links of 1 Gbit and 10 Mbit a second; and four at
once over one shared link. QEMU is given kernel and initramfs, so the clock runs from the kernel's first instruction; its
own network hands connections on to the namespace in which it runs, and `tc tbf` shapes what the server sends.

Ready is when systemd has started everything. The memory is what the guest's kernel says is not available then, beside
that of the same system from a local disk. Free pages that the kernel keeps in a list of each processor count as
available: it does not say so itself, and they are up to 30 MiB by chance.
"""

import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

from harness import MIB, benchmark, headstart, scratch
from inputs import exported, kept, named, optimized, packed_bytes, program
from live import READY, WORDS, boot_file, extract, image, iso, of_another_machine
from mounts import program as running
from network import inside, link, serving, shape

MEMORY_MIB, BUDGET_MIB = 768, 32
FAST_MBIT, SLOW_MBIT = 1000, 10
CLIENTS = 4
MEMORY = re.compile(r"^(MemTotal|MemAvailable|Cached): +([0-9]+) kB", re.MULTILINE)
# A processor's list of free pages, in /proc/zoneinfo.
LISTED = re.compile(r"^ +cpu: [0-9]+\n +count: +([0-9]+)$", re.MULTILINE)

class Console:
    """The serial port of a guest."""

    def __init__(self, process):
        self.process, self.text, self.has_ended = process, "", False
        self.changed = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while not self.has_ended:
            said = os.read(self.process.stdout.fileno(), 4096)
            with self.changed:
                self.text += said.decode(errors="replace").replace("\r", "")
                self.has_ended = not said
                self.changed.notify_all()

    def plain(self):
        """What was said, without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.text)

    def wait_for(self, pattern):
        """Waits until the guest has said this; gives the match."""
        with self.changed:
            found = lambda: re.search(pattern, self.plain(), re.MULTILINE)
            self.changed.wait_for(lambda: self.has_ended or found(), timeout=400)
            if said := found():
                return said
        sys.exit(f"the guest has not said {pattern}:\n{self.text[-2000:]}")

    def type_line(self, line):
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

@contextmanager
def guest(client, words, *devices):
    """A guest whose QEMU runs in this namespace."""
    with running(*inside(client), "qemu-system-x86_64", "-nodefaults", "-display", "none", "-no-reboot", "-serial",
                 "stdio", "-accel", "tcg", "-cpu", "max", "-m", MEMORY_MIB, "-kernel", boot_file("vmlinuz"), "-append",
                 " ".join([*WORDS, *words]), *devices, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Console(process)

def figures_of(console):
    """When it was ready, and the memory that it takes."""
    ready = console.wait_for(READY.pattern)
    console.wait_for("login: ")
    console.type_line("root")
    console.wait_for("^root@.*# ")
    console.type_line("cat /proc/meminfo /proc/zoneinfo; echo =E''ND")
    console.wait_for("^=END$")
    memory = {name: int(kib) / 1024 for name, kib in MEMORY.findall(console.plain())}
    listed = sum(int(pages) for pages in LISTED.findall(console.plain())) * 4096 / MIB
    used = memory["MemTotal"] - memory["MemAvailable"] - listed
    return {"up_s": float(ready[1]), "wait_s": int(ready[2]) / 1e6, "used_mib": used, "cached_mib": memory["Cached"],
            "listed_mib": listed}

def netboot(client, initrd, address, count):
    """So many guests at once; the slowest one's figures, and its largest memory."""
    words = ["ip=dhcp", f"root=headstart:{address}", f"headstart.budget={BUDGET_MIB}M"]
    devices = ["-initrd", initrd, "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"]
    with ExitStack() as stack:
        consoles = [stack.enter_context(guest(client, words, *devices)) for _ in range(count)]
        results = [figures_of(console) for console in consoles]
    return {key: max(result[key] for result in results) for key in results[0]}

def from_disk(client, raw):
    """The same system from a local disk, with the initramfs that its packages made."""
    drive = f"file={raw},format=raw,if=virtio,snapshot=on"
    with guest(client, ["root=/dev/vda", "rw"], "-initrd", boot_file("initrd.img"), "-drive", drive) as console:
        return figures_of(console)

def initrd_of(disk):
    """The initramfs of `iso --network`."""

    def make(draft):
        medium = scratch() / "network.iso"
        headstart("iso", disk, "-o", medium, "--network")
        extract(medium, "/boot/initrd.img", draft)

    return kept("network-initrd.img", [disk, program()], make)

@benchmark(repeats=3)
def measure(bench):
    plain = image()
    fast = optimized(plain, "live-other", of_another_machine(plain, iso("live-plain", plain)))
    raw, initrd = exported(plain, "live.raw"), initrd_of(plain)
    with link() as (server, client):
        def case(disk, mbit, count=1):
            shape(server, mbit)
            with serving(server, disk) as (url, _):
                return netboot(client, initrd, named(url, disk), count)

        runs = bench.turns(bench.chosen({
            "disk": lambda: from_disk(client, raw),
            "fast": lambda: case(fast, FAST_MBIT), "slow": lambda: case(fast, SLOW_MBIT),
            "slow, no profile": lambda: case(plain, SLOW_MBIT),
            "together, fast": lambda: case(fast, FAST_MBIT, CLIENTS),
            "together, slow": lambda: case(fast, SLOW_MBIT * CLIENTS, CLIENTS),
        }), say="ready after {up_s:.1f} s, waited {wait_s:.2f} s, {used_mib:.0f} MiB used, {cached_mib:.0f} MiB cached, "
                "{listed_mib:.0f} MiB in lists")
    delivery_s = packed_bytes(fast) * 8 / (SLOW_MBIT * 1e6)
    # When it is ready, ÷ the larger of that over a fast link and the hot region's delivery.
    against = lambda slow, fast: runs.median(slow, "up_s") / max(runs.median(fast, "up_s"), delivery_s)
    together = f"{CLIENTS} guests at once, {SLOW_MBIT * CLIENTS} Mbit/s"
    bench.figure(f"ready at {SLOW_MBIT} Mbit/s ÷ the larger of that at 1 Gbit/s and the hot region's delivery",
                 against("slow", "fast"), at_most=1.15, detail=runs.detail())
    bench.figure(f"the same without a profile, {SLOW_MBIT} Mbit/s", against("slow, no profile", "fast"))
    bench.figure(f"the slowest of {together} ÷ the same at 1 Gbit/s", against("together, slow", "together, fast"),
                 at_most=1.15)
    bench.figure("memory in use ÷ (the same system from disk + the budget)", at_most=1,
                 value=runs.median("slow", "used_mib") / (runs.median("disk", "used_mib") + BUDGET_MIB))
    bench.figure("hot region", packed_bytes(fast) / 1e6, unit="MB")
    bench.figure("ready at 1 Gbit/s", runs.median("fast", "up_s"), unit="s")
    bench.figure("ready from disk", runs.median("disk", "up_s"), unit="s")
    bench.figure("initramfs", initrd.stat().st_size / MIB, unit="MiB")
