#!/usr/bin/env python3
"""A Debian with its own kernel boots under QEMU over NBD: from a plain image, and from one optimized by its recorded
boot.

`headstart boot --vmm qemu` takes kernel and initial RAM disk from the disk's /boot, as a boot loader would; systemd
comes up to the login. The guest runs under QEMU's translator where KVM does not work, so most of the time is the
guest's own: what is judged is what the medium had to do.
"""

from harness import benchmark, boot
from inputs import GUEST_PACKAGES, NO_DOCUMENTS, built, debian, kept, optimized, program

MEDIUM = "hdd-7200"
GUEST = ["--vmm", "qemu", "--memory", "512M", "--ready", "login: ", "--ready-timeout", "280"]

@benchmark(repeats=1)
def measure(bench):
    plain = built(debian("qemu-root", GUEST_PACKAGES, *NO_DOCUMENTS), "qemu", "--free", "64M")
    recorded = kept("qemu.hsp", [plain, program()],
                    lambda draft: boot(plain, flags=[*GUEST, "--record", draft, "--grace", 4]))
    images = {"plain": plain, "fast": optimized(plain, "qemu-fast", recorded)}
    runs = bench.turns({name: lambda disk=disk: boot(disk, medium=MEDIUM, flags=GUEST) for name, disk in images.items()},
                       say="ready after {ready_s:.1f} s, {seeks} seeks")
    for what, key in (("seeks", "seeks"), ("time that readers waited", "demand_wait_s"), ("ready", "ready_s")):
        bench.figure(f"{what}, prefetched ÷ plain, {MEDIUM}", runs.ratio("fast", "plain", key))
