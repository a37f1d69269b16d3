#!/usr/bin/env python3
"""Whether a late reader should join the stream or seek: starts from drives whose recorded order is wrong.

The reads of the demo's recorded start are shuffled, each by up to so many places, before the image is optimized. Then
the program waits for the stream, fetches out of turn, or does what costs less. (A boot under User-mode Linux cannot
show it: the stream is through before the guest needs most of it.)
"""

from harness import DRIVES, benchmark, example, start
from inputs import COMMAND, READY, demo, kept, optimized

RULES = ["by-cost", "join", "fetch"]
SAY = "{ready_s:.2f} s, {store_requests} requests, {seeks} seeks"

@benchmark(repeats=3, media=DRIVES)
def measure(bench):
    files = demo()
    for reach in (300, 3000):
        shuffled = kept(f"shuffled-{reach}.hsp", [files["profile"]],
                        lambda draft: example("hs-build", "shuffle", files["profile"], draft, reach, 1))
        wrong = optimized(files["image"], f"shuffled-{reach}", shuffled)
        for medium in bench.media:
            runs = bench.turns({rule: lambda rule=rule: start(wrong, COMMAND, medium=medium, ready=READY,
                                                              flags=["--late", rule])
                                for rule in RULES}, say=f"{medium} {reach} {SAY}")
            best = min(("join", "fetch"), key=runs.median)
            bench.figure(f"by cost ÷ the better of join and fetch, {medium}, order off by {reach} reads",
                         runs.ratio("by-cost", best), at_most=1.05)
