#!/usr/bin/env python3
"""A saved Debian goes on under QEMU: from memory, from an image as it is, and from one laid out by a recorded resume.

The guest is saved at its login prompt. *Ready* is the right answer to a command that is typed after logging in. The lower limit of
a resume is the same one from the page cache (`--warm`); on a medium, the packed bytes that it touches have to come besides, after
one access.
"""

from dataclasses import dataclass, field

from harness import alternate, arguments, figure, finish, headstart, headstart_json, run, spread_of
from inputs import LEVEL, folder, kept, program, stamp

# Seconds of an access, and bytes a second where an image lies in front (`headstart lab media`).
MEDIA = {"none": (0.0, None), "flat-10ms-25mbs": (0.010, 25e6), "cd-24x-cav": (0.0919, 1.76e6), "lan-10m": (0.001, 1.18e6)}
RECORDINGS = 5
PACKAGES = "systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools"
BOOT = ["--vmm", "qemu", "--memory", "512M", "--ready", "login: $", "--ready-timeout", "280"]
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
        """The guest at its login prompt."""
        return kept(f"{self.name}.hsi", [self.disk()], lambda draft: headstart("boot", self.disk(), *BOOT, *self.save, "--snapshot-out", draft))

    def recordings(self):
        """What some resumes touch of the snapshot, and of its disk."""
        of_snapshot, of_disk = ([folder() / f"{self.name}-{of}-{number}.hsp" for number in range(RECORDINGS)] for of in ("memory", "disk"))
        for one, other in zip(of_snapshot, of_disk):
            kept(one.name, [self.snapshot()],
                 lambda draft: self.resume(self.snapshot(), self.disk(), "--record", draft, "--record-disk", other))
        return of_snapshot, of_disk

    def laid_out(self):
        """Snapshot and disk, each with a hot region."""
        optimized = lambda plain, profiles: lambda draft: headstart("optimize", plain, *(f"-p{profile}" for profile in profiles), "-o", draft)
        of_snapshot, of_disk = self.recordings()
        return (kept(f"{self.name}-fast.hsi", [self.snapshot(), *of_snapshot], optimized(self.snapshot(), of_snapshot)),
                kept(f"{self.name}-disk-fast.hsi", [self.disk(), *of_disk], optimized(self.disk(), of_disk)))

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
    cases = {"warm": lambda: resume(fast, of_fast, "--warm")}
    for medium in MEDIA:
        cases[f"plain {medium}"] = lambda medium=medium: resume(plain, of_plain, "--emulate", medium)
        cases[f"fast {medium}"] = lambda medium=medium: resume(fast, of_fast, "--emulate", medium)
    results = alternate(cases, args.repeats, say=lambda result: f"ready after {result['ready_s']:.2f} s, {result['store_bytes']:,} bytes")
    ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
    counts = {name: {key: spread_of(runs, key) for key in COUNTS} for name, runs in results.items()}
    warm, packed = ready["warm"]["median"], packed_bytes(fast) + packed_bytes(of_fast)
    figures = [figure("ready, from the page cache", warm, unit="s", detail=ready)]
    for medium, (access, rate) in MEDIA.items():
        of = ready[f"fast {medium}"]["median"]
        if rate is None:
            figures.append(figure("ready, from local disk − from the page cache", of - warm, at_most=0.15, unit="s"))
        else:
            limit = warm + packed / rate + access
            figures.append(figure(f"ready ÷ limit, {medium}", of / limit, at_most=1.15, detail={"limit_s": round(limit, 3), "ready_s": of}))
        figures.append(figure(f"bytes moved to ready ÷ packed touched pages, {medium}",
                              counts[f"fast {medium}"]["store_bytes"]["median"] / packed, at_most=1.15, detail=counts[f"fast {medium}"]))
        figures.append(figure(f"ready, laid out ÷ as it is, {medium}", of / ready[f"plain {medium}"]["median"]))
    finish("resume", figures, args.repeats)


if __name__ == "__main__":
    main()
