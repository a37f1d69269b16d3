#!/usr/bin/env python3
"""A boot that is not quite the recorded one: how much of the gain it loses.

Two kinds of variation: another run of the same boot (what differs by chance), and a boot that starts services
which the recorded one did not (masked while recording). The gain is what a profile with everything in it saves
against the unoptimised image.
"""

import json

from harness import DRIVES, alternate, arguments, at_pace, boot, figure, finish, headstart, spread_of
from inputs import boot_image, boot_profile, optimized

LIMIT = 0.10
# Services that the other boot has and this profile has not.
MASKED = ["dbus.service", "dbus.socket", "systemd-logind.service", "systemd-timesyncd.service", "e2scrub_reap.service"]


def coverage(image, *profiles):
    """What `optimize` says that several profiles share."""
    words = [word for path in profiles for word in ("--profile", path)]
    return json.loads(headstart("optimize", image, *words, "-o", image.parent / "unfinished-coverage.hsi", "--json"))["profiles"]


def lost(medium, ready, detail):
    """The share of the gain that is lost, in time until ready and in the waits that the server saw. The first is judged
    only where the gain is more than the boots' own spread."""
    waits = detail["demand_wait_s"]
    spread = max(each["max"] - each["min"] for each in ready.values())
    for name in ("one other run", "fewer services"):
        for what, of, least in (("", ready, spread), (", waits seen by the server", waits, 0)):
            gain = of["unoptimised"]["median"] - of["everything"]["median"]
            target = {"at_most": LIMIT} if gain > least else {}
            loss = (of[name]["median"] - of["everything"]["median"]) / gain if gain else 0.0
            yield figure(f"gain lost, profile of {name}, {medium}{what}", loss, detail=detail, **target)
            detail = {}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = boot_image()
    runs = [boot_profile(image, name) for name in ("boot", "boot-2", "boot-3")]
    less = boot_profile(image, "boot-less", *[f"--append=systemd.mask={unit}" for unit in MASKED])
    contenders = {
        "unoptimised": image,
        "everything": optimized(image, "boot-all", *runs),
        "one other run": optimized(image, "boot-one", runs[0]),
        "fewer services": optimized(image, "boot-less", less),
    }
    shared = coverage(image, runs[1], runs[0], less)
    (image.parent / "unfinished-coverage.hsi").unlink(missing_ok=True)
    figures = []
    for medium in DRIVES:
        cases = {name: lambda path=path: boot(path, medium=medium) for name, path in contenders.items()}
        results = at_pace(alternate(
            cases, args.repeats,
            lambda s: f"{medium} {s['ready_s']:.2f} s, {s['store_requests']} requests, {s['seeks']} seeks"))
        ready = {name: spread_of(results[name], "ready_s") for name in contenders}
        gain = ready["unoptimised"]["median"] - ready["everything"]["median"]
        detail = {
            "ready_s": ready,
            "gain_s": round(gain, 3),
            "store_requests": {name: spread_of(results[name], "store_requests", 0) for name in contenders},
            "demand_wait_s": {name: spread_of(results[name], "demand_wait_s") for name in contenders},
            "shared": shared,
        }
        figures += lost(medium, ready, detail)
    finish("boot_variation", figures, args.repeats)


if __name__ == "__main__":
    main()
