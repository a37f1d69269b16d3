#!/usr/bin/env python3
"""A saved Debian goes on under QEMU: from memory, from an image as it is, and from one laid out by a recorded resume.

The guest is saved at its login prompt, when it has nothing left to do. *Ready* is the right answer to a command that is typed after logging in. The lower limit of
a resume is the same one from the page cache (`--warm`); on a medium, the packed bytes that it touches have to come besides, after
one access.
"""

import statistics
from dataclasses import dataclass, field

from harness import alternate, arguments, figure, finish, headstart, headstart_json, run, spread, spread_of
from inputs import LEVEL, folder, kept, program, stamp

# Seconds of an access, and bytes a second where an image lies in front (`headstart lab media`).
MEDIA = {"none": (0.0, None), "flat-10ms-25mbs": (0.010, 25e6), "cd-24x-cav": (0.0919, 1.76e6), "lan-10m": (0.001, 1.18e6)}
# Where a snapshot with a base is compared with a whole one: each page that is fetched alone takes an access.
MISSES = "flat-10ms-25mbs"
RECORDINGS = 5
# A start from local disk and one from the page cache differ by less than the translator's own times do: they are compared in
# so many pairs for each repeat.
PAIRS = 4
PACKAGES = "systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools"
# At the prompt systemd still has work to do; a guest that is saved then does it in every resume.
SETTLE_S = 15
BOOT = ["--vmm", "qemu", "--memory", "512M", "--ready", "login: $", "--ready-timeout", "280", "--run-after-ready", SETTLE_S]
ASK = ["--type", "root", "--type", "echo answer $((6*7))", "--ready", "^answer 42", "--ready-timeout", "280"]
COUNTS = ("store_requests", "store_bytes", "demand_requests", "demand_wait_s", "prefetch_bytes")


@dataclass
class Guest:
    """A Debian with systemd and a kernel of its own, where root logs in without a password, and what it is asked."""

    name: str
    packages: str
    ask: list
    # Further flags of the boot that is saved.
    save: list = field(default_factory=list)

    def root(self):

        def make(draft):
            run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={self.packages}",
                "--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
                "--customize-hook=chroot \"$1\" passwd -d root", "bookworm", draft, patience_s=900)

        return kept(f"{self.name}-root", [], make)

    def disk(self):
        """Its image, with room for what the guest writes."""

        def make(draft):
            headstart("build", self.root(), "-o", draft, "--free", "64M", "--codec", f"zstd:{LEVEL}", "--scratch", folder())

        return kept(f"{self.name}-disk.hsi", [stamp(self.root()), program()], make)

    def snapshot(self):
        """The guest at its login prompt; its disk is the snapshot's base."""
        return kept(f"{self.name}.hsi", [self.disk()],
                    lambda draft: headstart("boot", self.disk(), *BOOT, *self.save, "--snapshot-out", draft))

    def whole(self, image):
        """The same snapshot without a base."""

        def make(draft):
            raw = folder() / f"{self.name}.raw"
            headstart("export", image, "-o", raw, "--format", "raw", *self.base())
            headstart("build", "--force", raw, "-o", draft, "--window", "16K")
            raw.unlink()

        return kept(f"{image.stem}-whole.hsi", [image], make)

    def base(self):
        """What commands that read the snapshot need."""
        return "--base", self.disk()

    def recordings(self):
        """What some resumes touch of the snapshot, and of its disk."""
        of_snapshot, of_disk = ([folder() / f"{self.name}-{of}-{number}.hsp" for number in range(RECORDINGS)]
                                for of in ("memory", "disk"))
        for one, other in zip(of_snapshot, of_disk):
            kept(one.name, [self.snapshot()],
                 lambda draft: self.resume(self.snapshot(), self.disk(), "--record", draft, "--record-disk", other))
        return of_snapshot, of_disk

    def laid_out(self):
        """Snapshot and disk, each with a hot region."""
        of_snapshot, of_disk = self.recordings()
        return (self.optimized(f"{self.name}-fast.hsi", self.snapshot(), of_snapshot),
                self.optimized(f"{self.name}-disk-fast.hsi", self.disk(), of_disk))

    def optimized(self, name, plain, profiles):
        """An image with a hot region."""
        flags = [f"-p{profile}" for profile in profiles]
        return kept(name, [plain, *profiles],
                    lambda draft: headstart("optimize", plain, *flags, "-o", draft, *self.base()))

    def resume(self, image, of_disk, *flags):
        """One resume; its run summary."""
        return headstart_json("resume", image, "--disk", of_disk, *self.ask, "--json", *flags)


DEBIAN = Guest("resume", PACKAGES, ASK)
root, disk, snapshot, laid_out, resume = DEBIAN.root, DEBIAN.disk, DEBIAN.snapshot, DEBIAN.laid_out, DEBIAN.resume


def packed_bytes(image):
    """The bytes of an image's hot region in the file."""
    return sum(part["hot_compressed_bytes"] for part in headstart_json("inspect", image, "--json")["hot_segments"])


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    plain, of_plain = snapshot(), disk()
    fast, of_fast = laid_out()
    whole = DEBIAN.whole(plain)
    sizes = [image.stat().st_size for image in (plain, whole)]
    fast_whole = DEBIAN.optimized("resume-fast-whole.hsi", whole, DEBIAN.recordings()[0])
    cases = {"warm": lambda: resume(fast, of_fast, "--warm"),
             f"plain whole {MISSES}": lambda: resume(whole, of_plain, "--emulate", MISSES),
             f"fast whole {MISSES}": lambda: resume(fast_whole, of_fast, "--emulate", MISSES)}
    for medium in MEDIA:
        cases[f"plain {medium}"] = lambda medium=medium: resume(plain, of_plain, "--emulate", medium)
        cases[f"fast {medium}"] = lambda medium=medium: resume(fast, of_fast, "--emulate", medium)
    say = "ready after {ready_s:.2f} s, {store_bytes:,} bytes"
    results = alternate(cases, args.repeats, say=lambda result: say.format(**result))
    ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
    pairs = alternate({name: cases[name] for name in ("warm", "fast none")}, PAIRS * args.repeats, say=lambda run: say.format(**run))
    local = [one["ready_s"] - other["ready_s"] for one, other in zip(pairs["fast none"], pairs["warm"])]
    counts = {name: {key: spread_of(runs, key) for key in COUNTS} for name, runs in results.items()}
    warm, packed = ready["warm"]["median"], packed_bytes(fast) + packed_bytes(of_fast)
    figures = [figure("ready, from the page cache", warm, unit="s", detail=ready),
               figure("bytes of a snapshot with its disk as base ÷ whole", sizes[0] / sizes[1],
                      detail=dict(zip(("with_base", "whole"), sizes)))]
    for kind in ("plain", "fast"):
        ones, others = f"{kind} {MISSES}", f"{kind} whole {MISSES}"
        moved = [counts[of]["store_bytes"]["median"] for of in (ones, others)]
        figures.append(figure(f"ready with a base ÷ whole, {ones}", ready[ones]["median"] / ready[others]["median"]))
        figures.append(figure(f"bytes moved to ready with a base ÷ whole, {ones}", moved[0] / moved[1],
                              detail=counts[others]))
    for medium, (access, rate) in MEDIA.items():
        of = ready[f"fast {medium}"]["median"]
        if rate is None:
            detail = {name: spread_of(runs, "ready_s") for name, runs in pairs.items()}
            figures.append(figure("ready, from local disk − from the page cache, median of pairs", statistics.median(local),
                                  at_most=0.15, unit="s", detail={"pairs": spread(local), **detail}))
        else:
            limit = warm + packed / rate + access
            detail = {"limit_s": round(limit, 3), "ready_s": of}
            figures.append(figure(f"ready ÷ limit, {medium}", of / limit, at_most=1.15, detail=detail))
        figures.append(figure(f"bytes moved to ready ÷ packed touched pages, {medium}",
                              counts[f"fast {medium}"]["store_bytes"]["median"] / packed, at_most=1.15, detail=counts[f"fast {medium}"]))
        figures.append(figure(f"ready, laid out ÷ as it is, {medium}", of / ready[f"plain {medium}"]["median"]))
    finish("resume", figures, args.repeats)


if __name__ == "__main__":
    main()
