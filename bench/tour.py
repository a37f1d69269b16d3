#!/usr/bin/env python3
"""README's tour on a root, with the program as it is built: what each line takes and says.

    bench/tour.py ROOT

It writes results/parts/tour.json; `xtask tidy` compares README's figures with that file.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from harness import RESULTS, headstart_path, scratch
from stamp import stamp

MEDIUM = ["--emulate", "flat-10ms-25mbs"]
START = ["--", "python3", "-c", "import numpy"]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    root, folder = Path(sys.argv[1]), scratch()
    image, profile, fast = folder / "root.hsi", folder / "start.hsp", folder / "fast.hsi"
    lines = [
        ["build", root, "-o", image],
        ["profile", image, "-o", profile, *START],
        ["optimize", image, "--profile", profile, "-o", fast],
        ["run", image, *MEDIUM, *START],
        ["run", fast, *MEDIUM, *START],
    ]
    said = []
    for line in lines:
        began = time.monotonic()
        ran = subprocess.run([headstart_path(), *line], capture_output=True, text=True, check=True)
        figures = [text for text in ran.stderr.splitlines() if " read in " in text]
        said.append(f"{line[0]}: {time.monotonic() - began:.1f} s")
        said.extend(figures)
    for path in [image, profile, fast]:
        path.unlink()
    part = {"script": "tour", "command": "bench/tour.py ROOT", **stamp(), "figures": [], "tables": {"": said}}
    part["load"] = {"busiest_before_a_round": 0.0, "gave_up_waiting": 0}
    (RESULTS / "parts" / "tour.json").write_text(json.dumps(part, indent=2, ensure_ascii=False) + "\n")
    print("\n".join(said))


if __name__ == "__main__":
    main()
