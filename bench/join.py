#!/usr/bin/env python3
"""Whether a late reader should join the stream or seek: starts from drives whose recorded order is wrong.

The reads of the demo's recorded start are shuffled, each by up to so many places, before the image is optimised. Then the
program waits for the stream, fetches out of turn, or does what costs less. (A boot under User-mode Linux cannot
show it: the stream is through before the guest needs most of it.)
"""

from harness import DRIVES, ROOT, alternate, arguments, figure, finish, run, spread_of, start
from inputs import COMMAND, READY, demo, kept, optimized

RULES = ["by-cost", "join", "fetch"]
REACHES = [300, 3000]


def shuffled(profile, reach):
    """The profile with its reads moved by up to `reach` places."""

    def make(draft):
        run("cargo", "run", "--release", "-q", "--manifest-path", ROOT / "Cargo.toml", "-p", "hs-build", "--example", "shuffle",
            "--", profile, draft, reach, 1, patience_s=900)

    return kept(f"shuffled-{reach}.hsp", [profile], make)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    files = demo()
    figures = []
    for reach in REACHES:
        wrong = optimized(files["image"], f"shuffled-{reach}", shuffled(files["profile"], reach))
        for medium in DRIVES:
            cases = {
                rule: lambda rule=rule: start(wrong, COMMAND, medium=medium, ready=READY, flags=["--late", rule])
                for rule in RULES
            }
            results = alternate(
                cases, args.repeats,
                lambda s: f"{medium} {reach} {s['ready_s']:.2f} s, {s['store_requests']} requests, {s['seeks']} seeks")
            ready = {rule: spread_of(runs, "ready_s") for rule, runs in results.items()}
            detail = {
                "ready_s": ready,
                "seeks": {rule: spread_of(runs, "seeks", 0) for rule, runs in results.items()},
                "demand_wait_s": {rule: spread_of(runs, "demand_wait_s") for rule, runs in results.items()},
                "medium_busy_s": {rule: spread_of(runs, "medium_busy_s") for rule, runs in results.items()},
            }
            best = min(ready[rule]["median"] for rule in ("join", "fetch"))
            figures.append(figure(
                f"by cost ÷ the better of join and fetch, {medium}, order off by {reach} reads",
                ready["by-cost"]["median"] / best, at_most=1.05, detail=detail))
    finish("join", figures, args.repeats)


if __name__ == "__main__":
    main()
