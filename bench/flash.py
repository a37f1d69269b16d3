#!/usr/bin/env python3
"""Headstart's elevator for real, over an emulated eMMC, beside the kernel's `none`, `mq-deadline`, `kyber` and `bfq`
on the same loop device."""

from harness import Runs, benchmark, headstart_json

@benchmark(repeats=5)
def measure(bench):
    seeds = iter(range(1, bench.repeats + 1))

    def real():
        said = headstart_json("lab", "run", "flash-elevators", "--real", "--seed", next(seeds))["real"]
        return {each["name"]: each["value"] for each in said}

    found = bench.turns({"real": real})["real"]
    # By elevator, which have taken turns.
    elevators = [key.split(", ")[1] for key in found[0] if key.startswith("reads/s, ")]
    runs = Runs({name: [{key.split(", ")[0]: value for key, value in run.items() if key.endswith(f", {name}")}
                        for run in found] for name in elevators})
    quickest = max((name for name in elevators if name != "headstart"), key=lambda name: runs.median(name, "reads/s"))
    bench.figure(f"reads/s ÷ {quickest}'s, emulated eMMC", runs.ratio("headstart", quickest, "reads/s"), at_least=0.98)
    bench.figure("Jain's index of 384 readers", runs.median("headstart", "Jain's index"), at_least=0.99)
    bench.figure(f"p99 ÷ {quickest}'s", runs.ratio("headstart", quickest, "p99 (ms)"), at_most=1.1)
