#!/usr/bin/env python3
"""Read-ahead while recording and while starting, and where prefetched blocks go: the start, and what sequential reads
are like afterwards. Writes results/readahead.md.
"""

from harness import FLAT, RESULTS, Hung, benchmark, progress
from inputs import demo
from opened_files import from_image, recorded, unread_files

# Recorded with: flags of `headstart profile`. "exact" switches read-ahead off while recording.
RECORDED = {"exact": [], "128": ["--keep-read-ahead"], "32": ["--read-ahead", 32], "16": ["--read-ahead", 16],
            "2560": ["--read-ahead", 2560]}
# What is compared: recorded, read-ahead of the start in KiB, where prefetched blocks go.
VARIANTS = [("exact", 128, "warm"), ("exact", 128, "hold"), ("exact", 128, "push"), ("exact", 0, "hold"),
            ("exact", 0, "push"), ("exact", 2560, "warm"), ("128", 128, "warm"), ("128", 128, "hold"),
            ("128", 128, "push"), ("32", 32, "hold"), ("32", 32, "push"), ("16", 16, "hold"), ("2560", 2560, "hold")]
# The table's columns: the key of a run, its unit in the table, and how it is written.
COLUMNS = {"hot MB": ("hot_bytes", 1e6, ".1f"), "hot region MB": ("hot_compressed_bytes", 1e6, ".1f"),
           "requests": ("store_requests", 1, ".0f"), "MB asked": ("store_bytes", 1e6, ".1f"),
           "kept fd MB/s": ("kept", 1, ".1f"), "new fd MB/s": ("new", 1, ".1f"), "mapped MB/s": ("mapped", 1, ".1f"),
           "rest of libraries MB/s": ("libraries", 1, ".1f")}
HEAD = """# Read-ahead (DESIGN decision 13)

Written by `bench/read_ahead.py`. The start opens 15 libraries and reads their first pages, then makes
the demo's imports. *Recorded with*: kernel read-ahead while recording, in KiB; *exact* is off.
*hot region*: compressed. *requests* and *MB asked* are the medium's, until ready. Rates are of
sequential reads after ready: by a descriptor opened before ready, by a new one, by a mapping; and of
what the start had not read of the libraries that it mapped.
"""

def table(medium, runs):
    """The table of a medium, of which a start may have hung."""
    lines = [f"## {medium}", "", "| recorded with | start with | prefetch | ready s | " + " | ".join(COLUMNS) + " |",
             "| --- | --- | --- | ---: |" + " ---: |" * len(COLUMNS)]
    for variant, of in runs.items():
        cells = [variant[0], f"{variant[1]} KiB", variant[2]]
        if any(run["hung"] for run in of):
            cells += ["hung"] + [""] * len(COLUMNS)
        else:
            ready = runs.median(variant)
            cells.append(f"{ready:.2f} ({ready.noise[0]:.2f}–{ready.noise[1]:.2f})")
            cells += [format(runs.median(variant, key) / unit, form) for key, unit, form in COLUMNS.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])

def one(image, paths, medium, kib, mode):
    """One start, which may hang: that is what some of these are about."""
    try:
        return {**from_image(image, paths, medium, ["--read-ahead", kib, "--prefetch", mode]), "hung": 0}
    except Hung as hung:
        progress(str(hung).splitlines()[0])
        return {"hung": 1}

@benchmark(repeats=2, media=FLAT[:1])
def measure(bench):
    paths = unread_files(demo())
    images = {name: recorded(paths, "sequential" if name == "exact" else f"read-ahead-{name}", *flags)
              for name, flags in RECORDED.items()}
    tables, bench.more["rows"] = [HEAD], {}
    for medium in bench.media:
        runs = bench.turns({variant: lambda of=variant: one(images[of[0]], paths, medium, *of[1:])
                            for variant in VARIANTS}, say="hung: {hung}")
        tables.append(table(medium, runs))
        bench.more["rows"][medium] = runs.detail()
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "readahead.md").write_text("\n".join(tables))
    print("\n".join(tables))
