#!/usr/bin/env python3
"""Keeps a demo's figures in results/parts/demo.json, and README's picture.

    make demo && bench/keep_demo.py [DEMO_OUT]

`xtask tidy` compares the figures of README.md and docs/RESULTS.md with all of these files. The picture is the
chart of the report page: it needs the packages of report-ui (`make ui`).
"""

import json
import subprocess
import sys

from harness import RESULTS, ROOT, headstart, keep, scratch, seen_load
from stamp import stamp


def draw(demo):
    """The chart of the demo's first story, by the report page's own code."""
    report = scratch() / "demo-report.json"
    headstart("report", demo, "-o", report)
    words = ["npx", "--no-install", "vite-node", "picture.ts", "--", report, ROOT / "docs/pictures/start.svg"]
    subprocess.run(words, cwd=ROOT / "report-ui", check=True)


def main():
    out = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "demo-out")
    text = (out / "table.txt").read_text()
    keep(RESULTS / "parts/demo.json", {
        "script": "demo", "command": "make demo", **stamp(), "load": seen_load, "figures": [],
        "tables": {"": text.splitlines()}, "demo": json.loads((out / "demo.json").read_text())})
    draw(out / "demo.json")


if __name__ == "__main__":
    main()
