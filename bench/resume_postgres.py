#!/usr/bin/env python3
"""A server program in a guest: PostgreSQL answers its first query after the guest was resumed.

The guest is saved when PostgreSQL runs and no query was made yet. A resume is ready with the right answer to a query that
is typed at the console after logging in. It is compared with the boot to the login prompt, which ends before PostgreSQL
answers.
"""

from functools import partial

from harness import benchmark, headstart_json
from inputs import GUEST_PACKAGES, packed_bytes
from resume import BOOT, MEDIA, SAY, Guest, limit_s

QUERY = "su postgres -c \"psql -Atc 'select 6*7'\""
ASK = ["--type", "root", "--type", QUERY, "--ready", "^42$", "--ready-timeout", "280"]
# PostgreSQL starts beside the login prompt.
POSTGRES = Guest("resume-postgres", f"{GUEST_PACKAGES},postgresql", ASK, save=["--run-after-ready", "20"])

@benchmark(repeats=3)
def measure(bench):
    fast, of_fast = POSTGRES.laid_out()
    packed = packed_bytes(fast, of_fast)
    cases = {"boot": partial(headstart_json, "boot", POSTGRES.disk(), *BOOT, "--emulate", "none"),
             "warm": partial(POSTGRES.resume, fast, of_fast, "--warm")}
    cases |= {medium: partial(POSTGRES.resume, fast, of_fast, "--emulate", medium) for medium in MEDIA}
    runs = bench.turns(cases, say=SAY)
    bench.figure("first answer, resumed, from the page cache", runs.median("warm"), unit="s",
                 detail={"packed_bytes": packed})
    bench.figure("login prompt, booted, from the page cache", runs.median("boot"), unit="s")
    for medium in MEDIA:
        limit = limit_s(runs.median("warm"), packed, medium)
        bench.figure(f"first answer, resumed, ÷ limit, {medium}", runs.median(medium) / limit, at_most=1.15,
                     detail={"limit_s": round(limit, 3)})
        bench.figure(f"first answer, resumed, ÷ boot to the login prompt, {medium}", runs.ratio(medium, "boot"))
