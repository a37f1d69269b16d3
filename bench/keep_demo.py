#!/usr/bin/env python3
"""Keeps a demo's figures in results/parts/demo.json.

    make demo && bench/keep_demo.py [DEMO_OUT]

`xtask tidy` compares the figures of README.md and docs/RESULTS.md with all of these files.
"""

import json
import sys

from harness import RESULTS, ROOT
from stamp import stamp


def main():
    out = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "demo-out")
    text = (out / "table.txt").read_text()
    part = {
        "script": "demo",
        "command": "make demo",
        **stamp(),
        "load": {"busiest_before_a_round": 0.0, "gave_up_waiting": 0},
        "figures": [],
        "tables": {"": text.splitlines()},
        "demo": json.loads((out / "demo.json").read_text()),
    }
    (RESULTS / "parts" / "demo.json").write_text(json.dumps(part, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
