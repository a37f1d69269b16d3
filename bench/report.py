#!/usr/bin/env python3
"""What `headstart report` takes for a profile of a million requests: to write each format, and to show the page in
Chromium."""

import json
import subprocess
import time

from harness import ROOT, benchmark, example, headstart, progress, scratch

FORMATS = ["html", "pftrace", "csv", "parquet", "iolog"]
UI = ROOT / "report-ui"

def show(page):
    """One look at the page in headless Chromium, by the page's own benchmark."""
    words = ["npx", "--no-install", "vite-node", "test/bench.ts", "--", str(page)]
    said = subprocess.run(words, cwd=UI, capture_output=True, text=True, timeout=300, check=True).stdout
    return json.loads(said.strip().splitlines()[-1])

@benchmark(repeats=3)
def measure(bench):
    profile = scratch() / "large.hsp"
    example("hs-report", "large_profile", 1_000_000, profile)

    def report(output):
        output.unlink(missing_ok=True)
        began = time.monotonic()
        headstart("report", profile, "-o", output)
        return {"seconds": time.monotonic() - began, "bytes": output.stat().st_size}

    runs = bench.turns({end: lambda end=end: report(scratch() / f"report.{end}") for end in FORMATS})
    bench.figure("seconds to write the page of a million requests", runs.median("html", "seconds"), at_most=5,
                 detail={"profile_bytes": profile.stat().st_size})
    if not (UI / "node_modules").is_dir():
        return progress("the page is not shown: `make ui` brings what its benchmark needs")
    page = bench.turns({"page": lambda: show(scratch() / "report.html")})
    bench.figure("seconds until the page is interactive", page.median("page", "interactive_s"), at_most=3)
    bench.figure("frames a second in playback", page.median("page", "frames_per_s"), at_least=30)
    pss = [page.median("page", key) for key in ("playback_pss_mib", "all_views_pss_mib")]
    bench.figure("MiB of the renderer (PSS)", max(pss), at_most=600)
