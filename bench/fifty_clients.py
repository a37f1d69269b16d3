#!/usr/bin/env python3
"""Fifty starts at once from one `headstart serve --http` behind one gigabit: the last of them against the link's limit.

The case of `http_clients.py` that has a goal, alone and more often: every client has a gigabit of its own, a cache and a
namespace. Clients and server share this machine's cores, which real clients would not.
"""

from harness import benchmark
from http_clients import LEAST_JAIN, MOST_OF_LIMIT, SAY, Case, limits, starts
from inputs import demo

FIFTY = Case(50, 0, 1000, 1000)

@benchmark(repeats=5)
def measure(bench):
    image = demo()["optimized"]
    runs = bench.turns({"fifty": lambda: starts(FIFTY, image, image)}, say=SAY)
    links_s = limits(FIFTY, image, image)
    worst = runs.median("fifty", "worst_s")
    bench.figure(f"worst start ÷ the link's limit, {FIFTY}", worst / links_s, at_most=MOST_OF_LIMIT,
                 noise=[end / links_s for end in worst.noise], detail={**runs.detail(), "links_s": round(links_s, 3)})
    bench.figure(f"Jain's index of the rates, the least of the runs, {FIFTY}", min(runs.values("fifty", "jain")),
                 at_least=LEAST_JAIN)
