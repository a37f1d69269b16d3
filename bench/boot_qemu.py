#!/usr/bin/env python3
"""A Debian with its own kernel boots under QEMU over NBD: from a plain image, and from one optimised by its recorded boot.

`mmdebstrap` makes the root, with `linux-image-cloud-amd64` and its initial RAM disk. `headstart boot --vmm qemu` takes both
from the disk's /boot, as a boot loader would; systemd comes up to the login. The guest runs under QEMU's translator where
KVM does not work, so most of the time is the guest's own: what is judged is what the medium had to do.
"""

from harness import alternate, arguments, boot, figure, finish, headstart, ratio_range, run, spread_of
from inputs import LEVEL, folder, kept, optimized, program, stamp

MEDIUM = "hdd-7200"
PACKAGES = "systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools"
GUEST = ["--vmm", "qemu", "--memory", "512M", "--ready", "login: ", "--ready-timeout", "280"]
COUNTS = ("store_requests", "seeks", "demand_requests", "demand_wait_s", "prefetch_bytes", "demand_bytes")


def root():
    """A Debian with systemd and a kernel of its own."""

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={PACKAGES}",
            "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
            "bookworm", draft, patience_s=900)

    return kept("qemu-root", [], make)


def image():
    """Its image, with room for what the guest writes."""

    def make(draft):
        headstart("build", root(), "-o", draft, "--free", "64M", "--codec", f"zstd:{LEVEL}", "--scratch", folder())

    return kept("qemu.hsi", [stamp(root()), program()], make)


def recording(plain):
    """A recorded boot."""
    return kept("qemu.hsp", [plain, program()], lambda draft: boot(plain, flags=[*GUEST, "--record", draft, "--grace", 4]))


def main():
    args = arguments(__doc__, repeats=1).parse_args()
    plain = image()
    fast = optimized(plain, "qemu-fast", recording(plain))
    cases = {name: lambda disk=disk: boot(disk, medium=MEDIUM, flags=GUEST) for name, disk in [("plain", plain), ("fast", fast)]}
    results = alternate(cases, args.repeats, say=lambda result: f"ready after {result['ready_s']:.1f} s, {result['seeks']} seeks")
    spreads = {key: {name: spread_of(runs, key) for name, runs in results.items()} for key in COUNTS}
    ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
    figures = []
    for what, key in (("seeks", "seeks"), ("time that readers waited", "demand_wait_s")):
        of = {name: [run[key] for run in runs] for name, runs in results.items()}
        value = spreads[key]["fast"]["median"] / spreads[key]["plain"]["median"]
        figures.append(figure(f"{what}, prefetched ÷ plain, {MEDIUM}", value, noise=ratio_range(of["fast"], of["plain"]), detail=spreads))
    figures.append(figure(f"ready, prefetched ÷ plain, {MEDIUM}", ready["fast"]["median"] / ready["plain"]["median"], detail=ready))
    finish("boot_qemu", figures, args.repeats)


if __name__ == "__main__":
    main()
