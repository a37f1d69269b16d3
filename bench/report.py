#!/usr/bin/env python3
"""How long `headstart report` takes for a profile of a million requests, and how large its page's data is."""

import os
import time

from harness import ROOT, alternate, arguments, figure, finish, headstart, run, scratch, spread

REQUESTS = 1_000_000
LIMIT_S = 5
FORMATS = {"html": "report.html", "perfetto": "report.pftrace", "csv": "report.csv", "parquet": "report.parquet", "iolog": "report.iolog"}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    profile = scratch() / "large.hsp"
    cargo = os.environ.get("CARGO", str(ROOT / "scripts" / "cargo"))
    run(cargo, "run", "-q", "--release", "--manifest-path", ROOT / "Cargo.toml", "-p", "hs-report", "--example", "large_profile",
        "--", REQUESTS, profile, patience_s=1800)

    def report(name):
        output = scratch() / name
        began = time.monotonic()
        headstart("report", profile, "-o", output)
        return {"seconds": time.monotonic() - began, "bytes": output.stat().st_size}

    cases = {form: (lambda name=name: report(name)) for form, name in FORMATS.items()}
    results = alternate(cases, args.repeats)
    detail = {
        form: {"seconds": spread(run["seconds"] for run in runs), "bytes": runs[0]["bytes"]} for form, runs in results.items()
    }
    detail["profile_bytes"] = profile.stat().st_size
    seconds = detail["html"]["seconds"]["median"]
    finish("report", [figure("seconds to write the page of a million requests", seconds, at_most=LIMIT_S, detail=detail)], args.repeats)


if __name__ == "__main__":
    main()
