#!/usr/bin/env python3
"""Read-ahead while recording and while starting, and where prefetched blocks go: the start, and what
sequential reads are like afterwards. Writes results/readahead.md.
"""

from harness import FLAT, RESULTS, Hung, alternate, arguments, finish, progress, spread, spread_of
from inputs import optimized, profile
from inputs import READY
from sequential import command, from_image, inputs

# Recorded with: flags of `headstart profile`. "exact" switches read-ahead off while recording.
RECORDED = {
    "exact": [],
    "128": ["--keep-read-ahead"],
    "32": ["--read-ahead", 32],
    "16": ["--read-ahead", 16],
    "2560": ["--read-ahead", 2560],
}
# What is compared: recorded, read-ahead of the start in KiB, where prefetched blocks go.
VARIANTS = [
    ("exact", 128, "warm"),
    ("exact", 128, "hold"),
    ("exact", 128, "push"),
    ("exact", 0, "hold"),
    ("exact", 0, "push"),
    ("exact", 2560, "warm"),
    ("128", 128, "warm"),
    ("128", 128, "hold"),
    ("128", 128, "push"),
    ("32", 32, "hold"),
    ("32", 32, "push"),
    ("16", 16, "hold"),
    ("2560", 2560, "hold"),
]
COLUMNS = {
    "ready s": lambda row: f"{row['ready_s']['median']:.2f} ({row['ready_s']['min']:.2f}–{row['ready_s']['max']:.2f})",
    "hot MB": lambda row: f"{row['hot_bytes'] / 1e6:.1f}",
    "hot region MB": lambda row: f"{row['hot_compressed_bytes'] / 1e6:.1f}",
    "requests": lambda row: f"{row['store_requests']['median']:.0f}",
    "MB asked": lambda row: f"{row['store_bytes']['median'] / 1e6:.1f}",
    "kept fd MB/s": lambda row: f"{row['rates']['kept']:.1f}",
    "new fd MB/s": lambda row: f"{row['rates']['new']:.1f}",
    "mapped MB/s": lambda row: f"{row['rates']['mapped']:.1f}",
    "rest of libraries MB/s": lambda row: f"{row['rates']['libraries, bytes not in memory']:.1f}",
}


def images(files, paths, exact):
    """The image for each way of recording."""
    found = {"exact": exact}
    for name, flags in RECORDED.items():
        if name != "exact":
            recorded = profile(files["image"], f"read-ahead-{name}", command("record", paths), *flags, ready=READY)
            found[name] = optimized(files["image"], f"read-ahead-{name}-optimized", recorded)
    return found


def summarize(variant, results):
    recorded, kib, mode = variant
    if None in results:
        return {"recorded": recorded, "read_ahead_kib": kib, "prefetch": mode, "hung": results.count(None)}
    summaries = [result["summary"] for result in results]
    return {
        "recorded": recorded,
        "read_ahead_kib": kib,
        "prefetch": mode,
        "ready_s": spread_of(summaries, "ready_s"),
        "hot_bytes": summaries[0]["hot_bytes"],
        "hot_compressed_bytes": summaries[0]["hot_compressed_bytes"],
        "store_requests": spread_of(summaries, "store_requests", 0),
        "store_bytes": spread_of(summaries, "store_bytes", 0),
        "rates": {way: spread((result["rates"][way] for result in results), 1)["median"] for way in results[0]["rates"]},
    }


def show(result):
    return f"{result['summary']['ready_s']:.2f} s" if result else "hung"


def table(medium, rows):
    lines = [
        f"## {medium}",
        "",
        "| recorded with | start with | prefetch | " + " | ".join(COLUMNS) + " |",
        "| --- | --- | --- |" + " ---: |" * len(COLUMNS),
    ]
    for row in rows:
        cells = [row["recorded"], f"{row['read_ahead_kib']} KiB", row["prefetch"]]
        figures = ["hung"] + [""] * (len(COLUMNS) - 1) if "hung" in row else [of(row) for of in COLUMNS.values()]
        lines.append("| " + " | ".join([*cells, *figures]) + " |")
    return "\n".join([*lines, ""])


HEAD = """# Read-ahead (DESIGN decision 13)

Written by `bench/read_ahead.py`. The start opens 15 libraries and reads their first pages, then makes
the demo's imports. *Recorded with*: kernel read-ahead while recording, in KiB; *exact* is off.
*hot region*: compressed. *requests* and *MB asked* are the medium's, until ready. Rates are of
sequential reads after ready: by a descriptor opened before ready, by a new one, by a mapping; and of
what the start had not read of the libraries that it mapped.
"""


def main():
    parser = arguments(__doc__, repeats=2)
    parser.add_argument("--media", nargs="*", default=FLAT[:1])
    args = parser.parse_args()
    files, paths, exact = inputs()
    found = images(files, paths, exact)
    tables, rows = [HEAD], {}
    for medium in args.media:
        def case(variant, medium=medium):
            recorded, kib, mode = variant
            flags = ["--read-ahead", kib, "--prefetch", mode]

            def run():
                try:
                    return from_image(found[recorded], paths, medium, flags)
                except Hung as hung:
                    progress(str(hung).splitlines()[0])
                    return None

            return run

        cases = {variant: case(variant) for variant in VARIANTS}
        results = alternate(cases, args.repeats, show)
        rows[medium] = [summarize(variant, runs) for variant, runs in results.items()]
        tables.append(table(medium, rows[medium]))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "readahead.md").write_text("\n".join(tables))
    print("\n".join(tables))
    finish("read_ahead", [], args.repeats, rows=rows)


if __name__ == "__main__":
    main()
