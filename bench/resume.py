#!/usr/bin/env python3
"""A saved Debian goes on under QEMU: from memory, from an image as it is, and from one laid out by a recorded resume.

The guest is saved at its login prompt, when it has nothing left to do. *Ready* is the right answer to a command that is
typed after logging in. The lower limit of a resume is the same one from the page cache (`--warm`); on a medium, the packed
bytes that it touches have to come besides, after one access.

A second guest has PostgreSQL, and is saved when that runs and no query was made yet. *Ready* is the answer to a query that
is typed at the console; it is compared with the boot to the login prompt, which ends before PostgreSQL answers.
"""

from dataclasses import dataclass, field
from functools import partial

from harness import benchmark, headstart, headstart_json, measured
from inputs import GUEST_PACKAGES, NO_DOCUMENTS, built, debian, folder, kept, optimized, packed_bytes

# Seconds of an access, and bytes a second where an image lies in front (`headstart lab media`).
MEDIA = {"none": (0.0, None), "flat-10ms-25mbs": (0.010, 25e6), "cd-24x-cav": (0.0919, 1.76e6), "lan-10m": (0.001, 1.18e6)}
# Where a snapshot with a base is compared with a whole one: each page that is fetched alone takes an access.
MISSES = "flat-10ms-25mbs"
RECORDINGS = 5
# A start from local disk and one from the page cache differ by less than the translator's own times do: they are compared
# in so many pairs for each repeat.
PAIRS = 4
# At the prompt systemd still has work to do; a guest that is saved then does it in every resume.
SETTLE_S = 15
BOOT = ["--vmm", "qemu", "--memory", "512M", "--ready", "login: $", "--ready-timeout", "280", "--run-after-ready", SETTLE_S]
ASK = ["--type", "root", "--type", "echo answer $((6*7))", "--ready", "^answer 42", "--ready-timeout", "280"]
SAY = "ready after {ready_s:.2f} s, {store_bytes:,} bytes"

@dataclass
class Guest:
    """A Debian with systemd and a kernel of its own, where root logs in without a password, and what it is asked."""

    name: str
    packages: str
    ask: list
    # Further flags of the boot that is saved.
    save: list = field(default_factory=list)

    def root(self):
        return debian(f"{self.name}-root", self.packages, *NO_DOCUMENTS, "--customize-hook=chroot \"$1\" passwd -d root")

    def disk(self):
        """Its image, with room for what the guest writes."""
        return built(self.root(), f"{self.name}-disk", "--free", "64M")

    def snapshot(self):
        """The guest at its login prompt; its disk is the snapshot's base."""
        return kept(f"{self.name}.hsi", [self.disk()],
                    lambda draft: headstart("boot", self.disk(), *BOOT, *self.save, "--snapshot-out", draft))

    def whole(self, image):
        """The same snapshot without a base."""

        def make(draft):
            raw = folder() / f"{self.name}.raw"
            headstart("export", image, "-o", raw, "--format", "raw", *self.base())
            headstart("build", "--raw", raw, "-o", draft, "--window", "16K")
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
        return (self.optimized(f"{self.name}-fast", self.snapshot(), of_snapshot),
                self.optimized(f"{self.name}-disk-fast", self.disk(), of_disk))

    def optimized(self, name, plain, profiles):
        return optimized(plain, name, *profiles, flags=self.base())

    def resume(self, image, of_disk, *flags):
        """One resume; its run summary."""
        return headstart_json("resume", image, "--disk", of_disk, *self.ask, *flags)

DEBIAN = Guest("resume", GUEST_PACKAGES, ASK)
QUERY = "su postgres -c \"psql -Atc 'select 6*7'\""
ASK_POSTGRES = ["--type", "root", "--type", QUERY, "--ready", "^42$", "--ready-timeout", "280"]
# PostgreSQL starts beside the login prompt.
POSTGRES = Guest("resume-postgres", f"{GUEST_PACKAGES},postgresql", ASK_POSTGRES, save=["--run-after-ready", "20"])

def limit_s(warm, packed, medium):
    """The least that a resume from a medium can take."""
    access, rate = MEDIA[medium]
    return warm + (packed / rate if rate else 0) + access

def of_debian(bench):
    plain, of_plain = DEBIAN.snapshot(), DEBIAN.disk()
    fast, of_fast = DEBIAN.laid_out()
    whole = DEBIAN.whole(plain)
    fast_whole = DEBIAN.optimized("resume-fast-whole", whole, DEBIAN.recordings()[0])
    resume = lambda *how: partial(DEBIAN.resume, *how)
    cases = {"warm": resume(fast, of_fast, "--warm"),
             f"plain whole {MISSES}": resume(whole, of_plain, "--emulate", MISSES),
             f"fast whole {MISSES}": resume(fast_whole, of_fast, "--emulate", MISSES)}
    for medium in MEDIA:
        cases[f"plain {medium}"] = resume(plain, of_plain, "--emulate", medium)
        cases[f"fast {medium}"] = resume(fast, of_fast, "--emulate", medium)
    runs = bench.turns(cases, say=SAY)
    pairs = bench.turns({name: cases[name] for name in ("warm", "fast none")}, say=SAY, repeats=PAIRS * bench.repeats)
    warm, packed = runs.median("warm"), packed_bytes(fast, of_fast)
    sizes = [image.stat().st_size for image in (plain, whole)]
    bench.figure("ready, from the page cache", warm, unit="s")
    bench.figure("bytes of a snapshot with its disk as base ÷ whole", sizes[0] / sizes[1],
                 detail=dict(zip(("with_base", "whole"), sizes)))
    for kind in ("plain", "fast"):
        ones, others = f"{kind} {MISSES}", f"{kind} whole {MISSES}"
        bench.figure(f"ready with a base ÷ whole, {ones}", runs.ratio(ones, others))
        bench.figure(f"bytes moved to ready with a base ÷ whole, {ones}", runs.ratio(ones, others, "store_bytes"))
    local = measured([one - other for one, other in zip(pairs.values("fast none"), pairs.values("warm"))], pairs)
    for medium in MEDIA:
        if medium == "none":
            bench.figure("ready, from local disk − from the page cache, median of pairs", local, at_most=0.15, unit="s")
        else:
            limit = limit_s(warm, packed, medium)
            bench.figure(f"ready ÷ limit, {medium}", runs.median(f"fast {medium}") / limit, at_most=1.15,
                         detail={"limit_s": round(limit, 3)})
        bench.figure(f"bytes moved to ready ÷ packed touched pages, {medium}",
                     runs.median(f"fast {medium}", "store_bytes") / packed, at_most=1.15)
        bench.figure(f"ready, laid out ÷ as it is, {medium}", runs.ratio(f"fast {medium}", f"plain {medium}"))

def of_postgres(bench):
    fast, of_fast = POSTGRES.laid_out()
    packed = packed_bytes(fast, of_fast)
    cases = {"boot": partial(headstart_json, "boot", POSTGRES.disk(), *BOOT, "--emulate", "none"),
             "warm": partial(POSTGRES.resume, fast, of_fast, "--warm")}
    cases |= {medium: partial(POSTGRES.resume, fast, of_fast, "--emulate", medium) for medium in MEDIA}
    runs = bench.turns(cases, say=SAY)
    bench.figure("first answer, resumed, from the page cache", runs.median("warm"), unit="s",
                 detail={"packed_bytes": packed})
    bench.figure("login prompt, booted, from the page cache", runs.median("boot"), unit="s")
    for medium in MEDIA:
        limit = limit_s(runs.median("warm"), packed, medium)
        bench.figure(f"first answer, resumed, ÷ limit, {medium}", runs.median(medium) / limit, at_most=1.15,
                     detail={"limit_s": round(limit, 3)})
        bench.figure(f"first answer, resumed, ÷ boot to the login prompt, {medium}", runs.ratio(medium, "boot"))

@benchmark(repeats=5)
def measure(bench):
    for of in bench.chosen({"debian": of_debian, "postgres": of_postgres}).values():
        of(bench)
