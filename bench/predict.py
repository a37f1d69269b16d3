#!/usr/bin/env python3
"""What `headstart lab predict` says against starts in real time: the demo's boot and its program, from a CD drive and a hard disk,
raw, unoptimised and optimised.

What the program takes with everything in memory is measured between the others and given to the prediction: for a program from each
layout, since what the kernel and the reader do for it is part of that and no medium's. This machine is
slower at one time than at another, which no model of a medium can know, so what a guest took from memory is scaled by how
long it had a processor in the boots that are predicted (`guest_cpu_s`); of that, storage is no part.
"""

import statistics

from harness import DRIVES, alternate, arguments, boot, figure, finish, headstart_json, spread_of, start
from inputs import COMMAND, READY, cache

LAYOUTS = ["raw", "unoptimised", "optimised"]
# How far a prediction may be off.
GOAL = 0.10


class Story:
    """A start: its files in the demo's cache, how it is made, and from memory: of each layout, or of one for all."""

    def __init__(self, name, files, profile, run, warm, flags=()):
        self.name, self.profile, self.run, self.flags = name, cache() / profile, run, flags
        self.warm = {f"warm {layout}": start for layout, start in warm.items()}
        self.files = {layout: cache() / file for layout, file in zip(LAYOUTS, files)}

    def cases(self, media):
        """What is run in turns."""
        yield from self.warm.items()
        for medium in media:
            for layout in LAYOUTS:
                yield f"{medium} {layout}", lambda medium=medium, layout=layout: self.run(self.files[layout], layout, medium)

    def predicted(self, own_time, medium, layout):
        """What `lab predict` says of one medium and layout."""
        image = self.files["optimised" if layout == "raw" else layout]
        return headstart_json("lab", "predict", image, "--profile", self.profile, "--own-time", own_time, *self.flags,
                              "--compare", f"{medium},{layout}", "--json")["rows"][0]


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def own_time(warm, real):
    """What the program itself would have taken while these were run, from the starts from memory between them."""
    paces = 1
    if real[0].get("guest_cpu_s"):
        paces = median(real, "guest_cpu_s") / median(warm, "guest_cpu_s")
    return round(median(warm, "ready_s") * paces, 3)


def boot_story():
    return Story("boot", ["boot.raw", "boot.hsi", "boot-fast.hsi"], "boot.hsp",
                 lambda path, layout, medium: boot(path, medium=medium),
                 {"raw": lambda: boot(cache() / "boot.raw", flags=["--warm"])})


def start_story():
    files = ["root.raw", "root.hsi", "fast.hsi"]
    run = lambda path, layout, medium: start(path, COMMAND, medium=medium, ready=READY, foreign=layout == "raw")
    warm = {layout: lambda layout=layout, file=file: run(cache() / file, layout, "none") for layout, file in zip(LAYOUTS, files)}
    return Story("start", files, "start.hsp", run, warm)


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--story", choices=["boot", "start", "both"], default="both")
    parser.add_argument("--medium", action="append", choices=DRIVES)
    args = parser.parse_args()
    media = args.medium or DRIVES
    figures = []
    for story in (story() for story in (boot_story, start_story)):
        if args.story not in (story.name, "both"):
            continue
        runs = alternate(dict(story.cases(media)), args.repeats, say=lambda run: f"{run['ready_s']:.2f} s")
        warms = {name: runs.pop(name) for name in story.warm}
        for name, real in runs.items():
            warm = warms.get(f"warm {name.split()[1]}", warms["warm raw"])
            measured, own = median(real, "ready_s"), own_time(warm, real)
            predicted = story.predicted(own, *name.split())
            off = predicted["ready_s"] / measured
            detail = {"predicted": predicted, "own_time_s": own, "warm_s": spread_of(warm, "ready_s")}
            detail |= {key: spread_of(real, key) for key in ("ready_s", "store_requests", "store_bytes", "seeks", "medium_busy_s")}
            noise = [predicted["ready_s"] / run["ready_s"] for run in real]
            detail["predicted_to_measured"] = off
            figures.append(figure(f"{story.name}, {name}: predicted is off by", abs(off - 1), at_most=GOAL,
                                  noise=[abs(off - 1) for off in (min(noise), max(noise))], detail=detail))
    finish("predict_start" if args.story == "start" else "predict", figures, args.repeats)


if __name__ == "__main__":
    main()
