#!/usr/bin/env python3
"""README's tour on a root, with the program as it is built: what each line takes and says.

    bench/tour.py ROOT

It writes results/parts/tour.json; `xtask tidy` compares README's figures with that file.
"""

import subprocess
import sys
import time

from harness import RESULTS, headstart_path, keep, scratch, seen_load
from stamp import stamp

def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    root, folder = sys.argv[1], scratch()
    image, profile, fast = folder / "root.hsi", folder / "start.hsp", folder / "fast.hsi"
    medium, start = ["--emulate", "flat-10ms-25mbs"], ["--", "python3", "-c", "import numpy"]
    said = []
    for line in (["build", root, "-o", image], ["profile", image, "-o", profile, *start],
                 ["optimize", image, "--profile", profile, "-o", fast], ["run", image, *medium, *start],
                 ["run", fast, *medium, *start]):
        began = time.monotonic()
        ran = subprocess.run([headstart_path(), *line], capture_output=True, text=True, check=True)
        said.append(f"{line[0]}: {time.monotonic() - began:.1f} s")
        said += [text for text in ran.stderr.splitlines() if " read in " in text]
    keep(RESULTS / "parts/tour.json", {"script": "tour", "command": "bench/tour.py ROOT", **stamp(), "figures": [],
                                       "tables": {"": said}, "load": seen_load})
    print("\n".join(said))

if __name__ == "__main__":
    main()
