#!/usr/bin/env python3
"""Keeps a demo's figures in results/parts/demo.json and puts its tables into README.md.

    make demo && bench/keep_demo.py [DEMO_OUT]

`xtask tidy` compares README's tables and figures with that file.
"""

import json
import re
import sys

from harness import RESULTS, ROOT
from stamp import stamp

# The first word of a table's head, which is in README as well.
TABLES = ["start from", "boot from"]


def rows_of(text, head):
    """The rows of the table with this head."""
    rows = []
    for line in text.splitlines():
        if rows and line.startswith("└"):
            break
        if line.startswith("│") and (rows or line.startswith(f"│ {head}")):
            rows.append(line)
    return rows


def main():
    out = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "demo-out")
    text = (out / "table.txt").read_text()
    tables = {head: rows for head in TABLES if (rows := rows_of(text, head))}
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
    readme = ROOT / "README.md"
    text = readme.read_text()
    for head, rows in tables.items():
        block = re.compile(rf"^│ {head}.*?(?=^```)", re.MULTILINE | re.DOTALL)
        text = block.sub(lambda _: "\n".join(rows) + "\n", text, count=1)
    readme.write_text(text)
    print("README.md has the tables; bring the figures in its sentences in line: make tidy says which are not in them")


if __name__ == "__main__":
    main()
