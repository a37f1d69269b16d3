#!/usr/bin/env python3
"""A server program in a guest: PostgreSQL answers its first query after the guest was resumed.

The guest is saved when PostgreSQL runs and no query was made yet. A resume is ready with the right answer to a query that is typed
at the console after logging in. It is compared with the boot to the login prompt, which ends before PostgreSQL answers.
"""

from harness import alternate, arguments, figure, finish, headstart_json, spread_of
from resume import BOOT, MEDIA, PACKAGES, Guest, packed_bytes

QUERY = "su postgres -c \"psql -Atc 'select 6*7'\""
ASK = ["--type", "root", "--type", QUERY, "--ready", "^42$", "--ready-timeout", "280"]
# PostgreSQL starts beside the login prompt.
SAVE = ["--run-after-ready", "20"]
POSTGRES = Guest("resume-postgres", f"{PACKAGES},postgresql", ASK, save=SAVE)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    guest = POSTGRES
    plain, of_plain = guest.snapshot(), guest.disk()
    fast, of_fast = guest.laid_out()
    packed = packed_bytes(fast) + packed_bytes(of_fast)
    cases = {
        "boot": lambda: headstart_json("boot", of_plain, *BOOT, "--json", "--emulate", "none"),
        "warm": lambda: guest.resume(fast, of_fast, "--warm"),
    }
    for medium in MEDIA:
        cases[medium] = lambda medium=medium: guest.resume(fast, of_fast, "--emulate", medium)
    say = "ready after {ready_s:.2f} s, {store_bytes:,} bytes"
    results = alternate(cases, args.repeats, say=lambda result: say.format(**result))
    ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
    warm, booted = ready["warm"]["median"], ready["boot"]["median"]
    figures = [figure("first answer, resumed, from the page cache", warm, unit="s", detail={**ready, "packed_bytes": packed}),
               figure("login prompt, booted, from the page cache", booted, unit="s")]
    for medium, (access, rate) in MEDIA.items():
        of = ready[medium]["median"]
        limit = warm + (packed / rate if rate else 0) + access
        detail = {"ready_s": of, "limit_s": round(limit, 3)}
        figures.append(figure(f"first answer, resumed, ÷ limit, {medium}", of / limit, at_most=1.15, detail=detail))
        figures.append(figure(f"first answer, resumed, ÷ boot to the login prompt, {medium}", of / booted))
    finish("resume_postgres", figures, args.repeats)


if __name__ == "__main__":
    main()
