#!/usr/bin/env python3
"""What `headstart lab predict` says of programs with which it was not made: starts of git, g++, ruby, node, a JVM and
PostgreSQL up to its first query, each in a Debian root of its own.

Starts from memory are measured in turns with those from media, one for each layout. A prediction gets the median of
its layout as `--own-time`. Of an unoptimized start it is compared with that median and the time for which the measured
starts waited for the medium (`demand_wait_s`). An optimized start waits for pages that the warmer has asked for as
well, and no figure has that time: it is compared with what the measured starts took altogether.
"""

import statistics
from functools import partial

from harness import FLAT, HERE, benchmark, headstart_json, run, start
from inputs import READY, debian, image, inspect, optimized, profile, remove

LAYOUTS = ["unoptimized", "optimized"]
# What programs that read something else each time need: several recordings (docs/START.md).
RECORDINGS = 3
INSIDE = HERE / "inside"
AS_POSTGRES = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]

def add_class(root):
    """The class, as a jar."""
    place = root / "opt/begin"
    place.mkdir(parents=True)
    run("javac", "--release", "17", "-d", place / "classes", INSIDE / "Begin.java")
    run("jar", "--create", "--file", place / "begin.jar", "--main-class", "Begin", "-C", place / "classes", ".")

def add_data(root):
    """A data directory, and the script of the start."""
    run("install", "-m", "755", INSIDE / "first-query.sh", root / "opt/first-query")
    run("chroot", root, "sh", "-ec", "install -d -o postgres -g postgres -m 700 /srv/data; "
        f"{' '.join(AS_POSTGRES)} /usr/lib/postgresql/*/bin/initdb -D /srv/data --locale C.UTF-8")

def add_repository(root):
    run("cp", INSIDE / "make-repository.sh", root / "opt/make-repository")
    run("chroot", root, "sh", "-e", "/opt/make-repository")

def root(name, packages, prepare=lambda root: None):
    """A root of these packages, without what apt keeps."""

    def clean(made):
        remove(made / "var/cache/apt")
        remove(made / "var/lib/apt/lists")
        prepare(made)

    return debian(f"{name}-root", packages, prepare=clean)

# Each with its packages, what else its root has, and its command.
PROGRAMS = {
    "git": ("git", add_repository,
            ["sh", "-ec", "cd /srv/repository; git status --short; git log --stat -20 >/dev/null; git grep -c sub | wc -l; "
             "git blame -s $(git ls-files | tail -1) | tail -1 >/dev/null; echo ready"]),
    "gcc": ("g++", lambda root: run("cp", INSIDE / "hello.cc", root / "opt"),
            ["sh", "-ec", "g++ -std=c++17 -O1 -o /tmp/hello /opt/hello.cc; /tmp/hello"]),
    "ruby": ("ruby", None, ["ruby", "-e", (INSIDE / "service.rb").read_text()]),
    "node": ("nodejs", None, ["node", "-e", (INSIDE / "node.js").read_text()]),
    "java": ("default-jre-headless", add_class, ["java", "-jar", "/opt/begin/begin.jar"]),
    "postgresql": ("postgresql", add_data, [*AS_POSTGRES, "/opt/first-query"]),
}

class Program:
    """A program, its root and images, and its recorded start."""

    def __init__(self, name):
        packages, prepare, self.command = PROGRAMS[name]
        self.name, self.root = name, root(name, packages, *([prepare] if prepare else []))
        plain = image(self.root, name)
        profiles = [profile(plain, f"{name}-{number}", self.command, ready=READY) for number in range(RECORDINGS)]
        # The one that was ready soonest: what else the machine did then is a part of a recording.
        self.profile = min(profiles, key=lambda path: inspect(path)["ready_s"])
        self.images = {"unoptimized": plain, "optimized": optimized(plain, f"{name}-fast", *profiles)}

    def start(self, layout, medium):
        return start(self.images[layout], self.command, medium=medium, ready=READY)

    def predicted(self, layout, *flags):
        """What `lab predict` says."""
        words = ["lab", "predict", self.images[layout], "--profile", self.profile, *flags]
        return headstart_json(*words)["rows"][0]

def compared(bench, program, layout, medium, runs):
    """One figure: a prediction against what was measured."""
    warm, cold = (program.name, layout, "none"), (program.name, layout, medium)
    own = round(runs.median(warm), 4)
    where = ["--compare", f"{medium},{layout}"]
    predicted = program.predicted(layout, "--own-time", own, *where)
    parts = own + runs.median(cold, "demand_wait_s")
    real = [run["ready_s"] if layout == "optimized" else own + run["demand_wait_s"] for run in runs[cold]]
    off = [abs(predicted["ready_s"] / one - 1) for one in real]
    bench.figure(f"{program.name}, {medium} {layout}: predicted is off by",
                 abs(predicted["ready_s"] / statistics.median(real) - 1), at_most=0.05, noise=[min(off), max(off)],
                 detail={"predicted": predicted, "own_time_s": own, "wait_and_warm_s": parts,
                         "predicted_to_wait_and_warm": predicted["ready_s"] / parts,
                         "predicted_to_measured": predicted["ready_s"] / runs.median(cold),
                         "as_recorded_to_wait_and_warm": program.predicted(layout, *where)["ready_s"] / parts})

@benchmark(repeats=3, media=[*FLAT, "cd-24x-cav"])
def measure(bench):
    programs = [Program(name) for name in bench.chosen(PROGRAMS)]
    runs = bench.turns({(program.name, layout, medium): partial(program.start, layout, medium)
                        for program in programs for layout in LAYOUTS for medium in ["none", *bench.media]},
                       say="{ready_s:.2f} s, {store_requests} requests")
    bench.more["runs"] = runs.detail()
    for program in programs:
        for layout in LAYOUTS:
            for medium in bench.media:
                compared(bench, program, layout, medium, runs)
