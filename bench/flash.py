#!/usr/bin/env python3
"""Headstart's elevator for real, over an emulated eMMC, beside the kernel's `none`, `mq-deadline`, `kyber` and `bfq` on
the same loop device."""

from harness import alternate, arguments, figure, finish, headstart_json, ratio_range, spread

ELEVATORS = ["none", "mq-deadline", "kyber", "bfq", "headstart"]


def measure(seed):
    """The figures of every elevator, which take turns."""
    said = headstart_json("lab", "run", "flash-elevators", "--real", "--seed", seed, "--json")
    return {real["name"]: real["value"] for real in said["real"]}


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    seeds = iter(range(1, args.repeats + 1))
    runs = alternate({"real": lambda: measure(next(seeds))}, args.repeats, say=lambda run: run.get("reads/s, headstart"))["real"]
    of = lambda what, elevator: [run[f"{what}, {elevator}"] for run in runs]
    there = [name for name in ELEVATORS if f"reads/s, {name}" in runs[0]]
    detail = {what: {name: spread(of(what, name)) for name in there} for what in ["reads/s", "Jain's index", "p99 (ms)"]}
    median = lambda what, name: detail[what][name]["median"]
    quickest = max((name for name in there if name != "headstart"), key=lambda name: median("reads/s", name))
    ratio = lambda what: median(what, "headstart") / median(what, quickest)
    noise = lambda what: ratio_range(of(what, "headstart"), of(what, quickest))
    finish("flash", [
        figure(f"reads/s ÷ {quickest}'s, emulated eMMC", ratio("reads/s"), at_least=0.98, noise=noise("reads/s"), detail=detail),
        figure("Jain's index of 384 readers", median("Jain's index", "headstart"), at_least=0.99),
        figure(f"p99 ÷ {quickest}'s", ratio("p99 (ms)"), at_most=1.1, noise=noise("p99 (ms)")),
    ], args.repeats)


if __name__ == "__main__":
    main()
