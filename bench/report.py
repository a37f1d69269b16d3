#!/usr/bin/env python3
"""What `headstart report` takes for a profile of a million requests: to write each format, and to show the page in Chromium."""

import json
import os
import subprocess
import time

from harness import ROOT, alternate, arguments, figure, finish, headstart, progress, run, scratch, spread

REQUESTS = 1_000_000
WRITE_LIMIT_S = 5
INTERACTIVE_LIMIT_S = 3
LEAST_FRAMES_PER_S = 30
PSS_LIMIT_MIB = 600
FORMATS = {"html": "report.html", "perfetto": "report.pftrace", "csv": "report.csv", "parquet": "report.parquet",
           "iolog": "report.iolog"}
UI = ROOT / "report-ui"


def show(page):
    """One look at the page in headless Chromium, by the page's own benchmark."""
    words = ["npx", "--no-install", "vite-node", "test/bench.ts", "--", str(page)]
    said = subprocess.run(words, cwd=UI, capture_output=True, text=True, timeout=300, check=True).stdout
    return json.loads(said.strip().splitlines()[-1])


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
    figures = [figure("seconds to write the page of a million requests", seconds, at_most=WRITE_LIMIT_S, detail=detail)]
    if (UI / "node_modules").is_dir():
        looks = alternate({"page": lambda: show(scratch() / "report.html")}, args.repeats)["page"]
        shown = {key: spread(look[key] for look in looks) for key in looks[0]}
        pss = max(shown["playback_pss_mib"]["median"], shown["all_views_pss_mib"]["median"])
        figures += [
            figure("seconds until the page is interactive", shown["interactive_s"]["median"], at_most=INTERACTIVE_LIMIT_S,
                   detail=shown),
            figure("frames a second in playback", shown["frames_per_s"]["median"], at_least=LEAST_FRAMES_PER_S, detail=shown),
            figure("MiB of the renderer (PSS)", pss, at_most=PSS_LIMIT_MIB, detail=shown),
        ]
    else:
        progress("the page is not shown: `make ui` brings what its benchmark needs")
    finish("report", figures, args.repeats)


if __name__ == "__main__":
    main()
