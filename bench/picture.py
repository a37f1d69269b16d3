#!/usr/bin/env python3
"""Draws README's picture from results/parts/start.json: how long a cold start takes, by what serves it.

    bench/picture.py [--check]

Writes docs/pictures/start.svg; with --check only says whether it is up to date (exit status 1 when not).
"""

import json
import sys

from harness import RESULTS, ROOT

PICTURE = ROOT / "docs/pictures/start.svg"
# The table's name, and each row's name there and in the picture.
TABLE = "flat-10ms-25mbs"
CONTENDERS = [
    ("raw ext4", "raw ext4"),
    ("squashfs", "squashfs"),
    ("squashfs, sorted", "squashfs, sorted by first access"),
    ("headstart", "headstart, without a profile"),
    ("headstart, optimized", "headstart, with a profile"),
    ("warm native", "everything in memory"),
]
WIDTH, LABEL, BAR, ROW, TOP = 720, 250, 400, 30, 56
OURS = {"headstart", "headstart, optimized"}
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 }
.small { font-size: 12px; fill: #59636e }
.other { fill: #8c959f } .ours { fill: #0969da }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .other { fill: #656c76 } .ours { fill: #4493f8 }
}
"""

def seconds_of(table):
    """Seconds until ready by row: the first word that is a number."""
    rows = [line.strip("│ ").split("  ") for line in table if line.startswith("│")]
    return {row[0]: next(word.strip() for word in row[1:] if word.strip()) for row in rows}

def draw(part):
    """The picture as text."""
    ready = seconds_of(part["tables"][TABLE])
    longest = max(float(ready[name]) for name, _ in CONTENDERS)
    height = TOP + ROW * len(CONTENDERS) + 28
    rows = []
    for number, (name, label) in enumerate(CONTENDERS):
        seconds = ready[name]
        y = TOP + ROW * number
        length = max(2, round(BAR * float(seconds) / longest))
        kind = "ours" if name in OURS else "other"
        rows += [
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{label}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{length}" height="20" rx="2"/>',
            f'<text x="{LABEL + length + 8}" y="{y + 15}">{seconds} s</text>',
        ]
    machine = part["machine"]
    made = f"{machine['cores']} cores, Linux {machine['kernel']}, {machine['date']}, commit {part['commit']}"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Time until a program is ready, by what serves its root</title>",
        f"<style>{STYLE}</style>",
        '<text x="8" y="20">Cold start of python3 -c \'import pandas, sympy\'</text>',
        '<text class="small" x="8" y="40">from a medium with 10 ms a request and 25 MB/s; medians, shorter is better</text>',
        *rows,
        f'<text class="small" x="8" y="{height - 8}">{made}; bench/start.py, bench/picture.py</text>',
        "</svg>",
        "",
    ])

def main():
    part = json.loads((RESULTS / "parts/start.json").read_text())
    picture = draw(part)
    if "--check" in sys.argv[1:]:
        if PICTURE.read_text() != picture:
            sys.exit(f"{PICTURE.relative_to(ROOT)} is out of date: run bench/picture.py")
        return
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture)

if __name__ == "__main__":
    main()
