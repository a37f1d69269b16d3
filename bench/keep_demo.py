#!/usr/bin/env python3
"""Keeps a demo's figures in results/parts/demo.json.

    make demo && bench/keep_demo.py [DEMO_OUT]

`xtask tidy` compares the figures of README.md and docs/RESULTS.md with all of these files.
"""

import json
import sys

from harness import RESULTS, ROOT, keep, seen_load
from stamp import stamp


def main():
    out = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "demo-out")
    text = (out / "table.txt").read_text()
    keep(RESULTS / "parts/demo.json", {
        "script": "demo", "command": "make demo", **stamp(), "load": seen_load, "figures": [],
        "tables": {"": text.splitlines()}, "demo": json.loads((out / "demo.json").read_text())})

if __name__ == "__main__":
    main()
