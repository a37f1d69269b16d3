#!/usr/bin/env python3
"""What a decision of the I/O scheduler costs with 10,000 requests waiting, for every elevator; and recording an event.

Runs the example `decision` of hs-queue. It needs nothing but a compiler.
"""

import json

from harness import benchmark, example

RECORDING = "recording an event"

@benchmark(repeats=5)
def measure(bench):
    example("hs-queue", "decision", 100, 2_000)  # Compiles it.
    runs = bench.turns({"decision": lambda: json.loads(example("hs-queue", "decision", 10_000))})
    keys = [*runs["decision"][0]]
    for elevator in dict.fromkeys(key.split()[0] for key in keys if key != RECORDING):
        medians = [runs.median("decision", key) for key in keys if key.startswith(f"{elevator} ")]
        bench.figure(f"a decision by {elevator}, the dearest of {len(medians)} workloads", max(medians),
                     at_most=200, unit="ns")
    bench.figure(RECORDING, runs.median("decision", RECORDING), at_most=100, unit="ns")
