#!/usr/bin/env python3
"""Optimized starts of programs that nothing here was tuned for, against their limit, the critical path that `lab predict
--limit` finds; and what `lab predict` says of such a start that was made from memory, against its start from a medium.

The programs are git, g++, ruby, node, a JVM and PostgreSQL up to its first query, each in a Debian root of its own.
"""

import re
import statistics
import subprocess
import sys
import time
from functools import partial

from harness import FLAT, HERE, benchmark, headstart_json, run, start
from inputs import READY, debian, image, inspect, optimized, profile, remove

# The medium that serves one request at a time has a latency for each.
LIMITS = {"flat-10ms-25mbs": 1.15, "flat-10ms-25mbs-serial": 1.20}
# The root as a command finds it in an image, with processes and a folder for temporary files.
NATIVE = 'mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/tmp"; echo begins; exec chroot "$0" "$@"'
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
        self.image = optimized(plain, f"{name}-fast", *profiles)

    def start(self, medium):
        return start(self.image, self.command, medium=medium, ready=READY)

    def predicted(self, *flags):
        """What `lab predict` says."""
        return headstart_json("lab", "predict", self.image, "--profile", self.profile, *flags)["rows"][0]

def native(program):
    """A start in the root itself, everything in memory: from the command until it is ready. `headstart run` shows no
    folder."""
    words = ["unshare", "--mount", "sh", "-ec", NATIVE, program.root, *program.command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line == "begins\n":
            began = time.monotonic()
        elif re.search(READY, line):
            ready_s = time.monotonic() - began
            process.communicate()
            return {"ready_s": ready_s}
    sys.exit(f"the start in {program.root} was never ready")

@benchmark(repeats=5, media=FLAT)
def measure(bench):
    ratios = {medium: [] for medium in bench.media}
    for name in bench.chosen(PROGRAMS):
        program = Program(name)
        native(program)
        runs = bench.turns({"native": partial(native, program), **{
            medium: partial(program.start, medium) for medium in ("none", *bench.media)}},
            say=f"{name}: {{ready_s:.3f}} s")
        for medium in bench.media:
            said = program.predicted("--emulate", medium, "--own-time", runs.median("native"), "--limit")
            ready, limit_s = runs.median(medium), said["limit_s"]
            ratios[medium].append(ready / limit_s)
            bench.figure(f"{name}: optimized start ÷ limit, {medium}", ready / limit_s, at_most=LIMITS[medium],
                         noise=[round(end / limit_s, 3) for end in ready.noise],
                         detail={**runs.detail(), "limit_s": limit_s,
                                 "limit_in_the_summary_s": runs[medium][-1]["limit_s"]})
            own = round(runs.median("none"), 4)
            foretold = program.predicted("--own-time", own, "--compare", f"{medium},optimized")["ready_s"]
            bench.figure(f"{name}, {medium}: predicted is off by", abs(foretold / ready - 1), at_most=0.05,
                         noise=sorted(round(abs(foretold / end - 1), 3) for end in ready.noise),
                         detail={"predicted_s": foretold, "own_time_s": own})
    if not bench.args.case and FLAT[0] in ratios:
        bench.figure(f"median of programs, {FLAT[0]}", statistics.median(ratios[FLAT[0]]), at_most=1.05)
