#!/usr/bin/env python3
"""A boot that is not quite the recorded one: how much of the gain it loses.

Two kinds of variation: another run of the same boot (what differs by chance), and a boot that starts services which
the recorded one did not (masked while recording). The gain is what a profile with everything in it saves against the
unoptimized image.
"""

from harness import DRIVES, benchmark, boot, headstart_json, repeated, scratch
from inputs import boot_image, boot_profile, optimized

# Services that the other boot has and this profile has not.
MASKED = ["dbus.service", "dbus.socket", "systemd-logind.service", "systemd-timesyncd.service", "e2scrub_reap.service"]

def lost(bench, medium, runs, detail):
    """The share of the gain that is lost, in time until ready and in the waits that the server saw. The first is
    judged only where the gain is more than the boots' own spread."""
    spread = max(runs.median(name).noise[1] - runs.median(name).noise[0] for name in runs)
    for name in ("one other run", "fewer services"):
        for what, key, least in (("", "ready_s", spread), (", waits seen by the server", "demand_wait_s", 0)):
            everything = runs.median("everything", key)
            gain = runs.median("unoptimized", key) - everything
            loss = (runs.median(name, key) - everything) / gain if gain else 0.0
            bench.figure(f"gain lost, profile of {name}, {medium}{what}", loss, detail={**runs.detail(), **detail},
                         at_most=0.10 if gain > least else None)

@benchmark(repeats=3, media=DRIVES)
def measure(bench):
    image = boot_image()
    profiles = [boot_profile(image, name) for name in ("boot", "boot-2", "boot-3")]
    less = boot_profile(image, "boot-less", *[f"--append=systemd.mask={unit}" for unit in MASKED])
    contenders = {"unoptimized": image, "everything": optimized(image, "boot-all", *profiles),
                  "one other run": optimized(image, "boot-one", profiles[0]),
                  "fewer services": optimized(image, "boot-less", less)}
    # What `optimize` says that several profiles share.
    some = repeated("--profile", [profiles[1], profiles[0], less])
    shared = headstart_json("optimize", image, *some, "-o", scratch() / "coverage.hsi")["profiles"]
    for medium in bench.media:
        runs = bench.turns({name: lambda path=path: boot(path, medium=medium) for name, path in contenders.items()},
                           say=f"{medium} {{ready_s:.2f}} s, {{store_requests}} requests, {{seeks}} seeks").at_pace()
        lost(bench, medium, runs, {"shared": shared})
        shared = None
