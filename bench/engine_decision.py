#!/usr/bin/env python3
"""What a decision of the I/O scheduler costs with 10,000 requests waiting, for every elevator; and recording an event.

Runs the example `decision` of hs-queue. It needs nothing but a compiler.
"""

import json
import statistics

from harness import ROOT, alternate, arguments, figure, finish, run, spread_of

DECISION_LIMIT_NS = 200
RECORDING_LIMIT_NS = 100
RECORDING = "recording an event"
QUEUED = 10_000
EXAMPLE = [ROOT / "scripts/cargo", "run", "--manifest-path", ROOT / "Cargo.toml", "-q", "--release", "-p", "hs-queue", "--example", "decision", "--"]


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    run(*EXAMPLE, 100, 2_000, patience_s=1800)  # Compiles it.
    results = alternate({"decision": lambda: json.loads(run(*EXAMPLE, QUEUED))}, args.repeats)["decision"]
    figures = []
    for elevator in dict.fromkeys(key.split()[0] for key in results[0] if key != RECORDING):
        cases = [key for key in results[0] if key.startswith(f"{elevator} ")]
        detail = {key: spread_of(results, key) for key in cases}
        # The dearest workload, by its median over the runs.
        dearest = max(cases, key=lambda key: detail[key]["median"])
        noise = [detail[dearest]["min"], detail[dearest]["max"]]
        name = f"a decision by {elevator}, the dearest of {len(cases)} workloads"
        value = detail[dearest]["median"]
        figures.append(figure(name, value, at_most=DECISION_LIMIT_NS, unit="ns", noise=noise, detail=detail))
    recording = [result[RECORDING] for result in results]
    value, noise = statistics.median(recording), [min(recording), max(recording)]
    figures.append(figure(RECORDING, value, at_most=RECORDING_LIMIT_NS, unit="ns", noise=noise))
    finish("engine_decision", figures, args.repeats)


if __name__ == "__main__":
    main()
