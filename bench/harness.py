"""Runs headstart, takes medians, and keeps one result file for each benchmark.

A benchmark is a function with the decorator `benchmark`, in a script of its name. It gets a `Bench`, runs its cases
in turns, so that a slow minute of the machine hits all of them, and adds figures: what each is called, its value,
its target and whether it was met, and the runs behind it. The command line, the machine and the commit, waiting
for a quiet machine and the result file are here.
"""

import argparse
import atexit
import functools
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamp import MIB, ROOT, stamp

HERE = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("BENCH_RESULTS", HERE / "results"))
FLAT = ["flat-10ms-25mbs", "flat-10ms-25mbs-serial"]
MEDIA = [*FLAT, "none"]
# Media that a whole system boots from.
DRIVES = ["cd-24x-cav", "hdd-7200"]

# --- programs -------------------------------------------------------------------------------------

def headstart_path():
    """The release build, wherever cargo was told to put it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return os.environ.get("HEADSTART", str(target / "release" / "headstart"))

class Hung(SystemExit):
    """A command that did not come to its end."""

def run(*command, patience_s=300):
    """Runs a command and returns its standard output. A failure shows everything and ends the benchmark, as does a
    command that takes longer than `patience_s`."""
    command = [*map(str, command)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shown = " ".join(word if len(word) < 200 else f"'{word[:40]}…'" for word in command)
    try:
        output, errors = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        abort_fuse(process.pid)
        process.kill()
        output, errors = process.communicate()
        raise Hung(f"hung for {patience_s} s, and was ended: {shown}\n{output}{errors}") from None
    if process.returncode != 0:
        sys.exit(f"failed with {process.returncode}: {shown}\n{output}{errors}")
    return output

def abort_fuse(pid):
    """Ends the FUSE connections that only this process or only this benchmark has mounted: a thread that waits for
    one of their pages is beyond any signal."""
    mounts_of = lambda who: [line.split() for line in Path(f"/proc/{who}/mountinfo").read_text().splitlines()]
    control = scratch() / "fusectl"
    control.mkdir()
    subprocess.run(["mount", "-t", "fusectl", "fusectl", control], check=True)
    of_others = {fields[4] for fields in mounts_of("self") if not fields[4].startswith(str(scratch()))}
    for fields in mounts_of(pid):
        abort = control / fields[2].partition(":")[2] / "abort"
        if "fuse.headstart" in fields and fields[4] not in of_others and abort.exists():
            abort.write_text("1")
    subprocess.run(["umount", control], check=True)
    control.rmdir()

def headstart(*arguments, patience_s=600):
    """Runs headstart and returns its standard output."""
    return run(headstart_path(), "-q", *arguments, patience_s=patience_s)

def headstart_json(*arguments, patience_s=600):
    """Runs a headstart command that prints one JSON object."""
    return json.loads(headstart(*arguments, "--json", patience_s=patience_s))

def example(crate, name, *words):
    """Runs an example of a crate, which is built first."""
    cargo = os.environ.get("CARGO", ROOT / "scripts/cargo")
    return run(cargo, "run", "-q", "--release", "--manifest-path", ROOT / "Cargo.toml", "-p", crate, "--example", name,
               "--", *words, patience_s=1800)

def start(image, command, *, medium="none", ready=None, flags=(), foreign=False, within=(), patience_s=120):
    """One cold start by `headstart run`; returns its run summary, with `output` added. `within` are the words before
    it, of a network namespace or a group."""
    summary = scratch() / "summary.json"
    words = ["--emulate", medium, *(["--raw"] if foreign else []), *(["--ready", ready] if ready else []), *flags]
    output = run(*within, headstart_path(), "-q", "run", image, f"--json={summary}", *words, "--", *command,
                 patience_s=patience_s)
    return {**json.loads(summary.read_text()), "output": output}

def boot(disk, *, medium="none", read_ahead="kernel", flags=(), patience_s=400):
    """One boot under User-mode Linux; returns its run summary. The guest reads ahead as its kernel chooses, so that
    it is the same guest for all contenders: less would help the one that knows its reads."""
    on = [] if medium == "none" else ["--emulate", medium]
    return headstart_json("boot", disk, *on, "--guest-read-ahead", read_ahead, *flags, patience_s=patience_s)

@functools.cache
def scratch():
    """A folder that goes when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="headstart-bench-")
    atexit.register(folder.cleanup)
    return Path(folder.name)

def progress(text):
    """Progress goes to standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)

def repeated(flag, values):
    """The words of a command line that give this flag each of these values."""
    return [str(word) for each in values for word in (flag, each)]

# --- the machine ----------------------------------------------------------------------------------

def machine_cpu_s():
    """Seconds that all cores together had so far, and of these the busy ones."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    all_s, idle_s = (ticks / os.sysconf("SC_CLK_TCK") for ticks in (sum(fields), fields[3] + fields[4]))
    return all_s, all_s - idle_s

def busy_share(seconds):
    """The share of all cores' time that is used now."""
    (before_s, busy_before_s), _, (after_s, busy_s) = machine_cpu_s(), time.sleep(seconds), machine_cpu_s()
    return (busy_s - busy_before_s) / max(after_s - before_s, 0.01)

# How busy the machine was when timing began, and whether waiting for it to be quiet was given up.
seen_load = {"busiest_before_a_round": 0.0, "gave_up_waiting": 0}

def wait_until_quiet():
    """Waits until others use less than a tenth of the machine. The load average cannot tell: it counts our own last
    minute. Gives up after BENCH_WAIT_S (300) seconds, and the results say so."""
    until = time.monotonic() + float(os.environ.get("BENCH_WAIT_S", "300"))
    busy = busy_share(0.5)
    while busy > 0.1 and time.monotonic() < until:
        busy = busy_share(2.0)
    seen_load["gave_up_waiting"] += busy > 0.1
    seen_load["busiest_before_a_round"] = round(max(seen_load["busiest_before_a_round"], busy), 3)

# --- runs -----------------------------------------------------------------------------------------

class Measured(float):
    """A value of some runs: the smallest and the largest of single ones, and the runs."""

    def __new__(cls, value, noise, runs):
        made = super().__new__(cls, value)
        made.noise, made.runs = noise, runs
        return made

def spread(values, digits=3):
    """Median, smallest and largest of some runs."""
    values = list(values)
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**{key: round(value, digits) for key, value in found.items()}, "runs": len(values)}

def measured(values, detail):
    """The median of some values."""
    values = list(values)
    return Measured(statistics.median(values), [round(min(values), 3), round(max(values), 3)], detail)

class Runs(dict):
    """The results of cases that took turns: {case: [{key: number}, …]}. A case that was not chosen has the median
    NaN, and so has every figure of it, which is left out then."""

    told = False

    def values(self, case, key="ready_s"):
        """What each run of a case has under a key."""
        return [run[key] for run in self.get(case, [])]

    def median(self, case, key="ready_s"):
        values = self.values(case, key)
        return measured(values, self) if values else math.nan

    def ratio(self, ours, theirs, key="ready_s"):
        """The ratio of two medians; its range is that of the ratios of single rounds."""
        pairs = [*zip(self.values(ours, key), self.values(theirs, key))]
        if not pairs:
            return math.nan
        ratios = [round(one / other, 3) if other else None for one, other in pairs]
        noise = None if None in ratios else [min(ratios), max(ratios)]
        theirs = self.median(theirs, key)
        return Measured(self.median(ours, key) / theirs if theirs else math.inf, noise, self)

    def at_pace(self):
        """Boots at one pace: each `ready_s` becomes what it would have been, had the guest been charged for as much
        processor time as the median one from memory (the case "warm"; of all, where there is none). docs/DEMO.md says
        why. What was measured stays as `measured_s`."""
        of = self.get("warm") or [run for runs in super().values() for run in runs]
        pace = statistics.median(run["guest_cpu_s"] for run in of)
        return Runs({name: [{**run, "measured_s": run["ready_s"],
                             "ready_s": run["ready_s"] * pace / run["guest_cpu_s"]} for run in runs]
                     for name, runs in self.items()})

    def detail(self):
        """The spread of every number of every case; once, since a file needs it once."""
        if self.told:
            return {}
        self.told = True
        is_number = lambda run, key: isinstance(run.get(key), (int, float))
        return {str(case): {key: spread(run[key] for run in runs) for key in runs[0]
                            if all(is_number(run, key) for run in runs)} for case, runs in self.items()}

class Bench:
    """One benchmark at work: its flags in `args`, its figures, and what else its result file has."""

    def __init__(self, name, args):
        self.name, self.args, self.repeats, self.figures, self.more = name, args, args.repeats, [], {}
        self.media = args.medium

    def chosen(self, names):
        """Of cases by name those with the words of `--case`; all without words."""
        words = self.args.case
        some = {name: names[name] for name in names if not words or any(each in str(name) for each in words)}
        if not some:
            sys.exit(f"no case has {' or '.join(words)} in its name; there are: {'; '.join(map(str, names))}")
        return some

    def turns(self, cases, say=None, repeats=None):
        """Runs every case once a round; `cases` is {name: function}. `say` formats a result for the progress: words
        with places for it, or a function."""
        words = say.format if isinstance(say, str) else say
        runs = Runs({name: [] for name in cases})
        for number in range(repeats or self.repeats):
            wait_until_quiet()
            for name, case in cases.items():
                result = case()
                result = result if isinstance(result, dict) else {"value": result}
                runs[name].append(result)
                if say:
                    progress(f"{number + 1}/{repeats or self.repeats} {name}: {words(**result)}")
        return runs

    def figure(self, name, value, *, at_most=None, at_least=None, unit="", noise=None, detail=None):
        """Adds one figure. Without a target it is stated, not judged. `noise` is the smallest and the largest that a
        single run gave."""
        if math.isnan(value) and self.args.case:
            return
        met = None if at_most is None and at_least is None else (
            value <= at_most if at_most is not None else value >= at_least)
        target = f"≤ {at_most:g}" if at_most is not None else f"≥ {at_least:g}" if at_least is not None else ""
        runs = getattr(value, "runs", None)
        behind = runs.detail() if isinstance(runs, Runs) else runs or {}
        self.figures.append({"name": name, "value": round(float(value), 4), "range": noise or getattr(value, "noise", None),
                             "unit": unit, "target": target, "met": met, "detail": {**behind, **(detail or {})}})

    def finish(self):
        """Writes the result file and prints the figures. Where flags chose some cases or media, their figures take
        their places among those that are kept, and each says which run it is of."""
        only = repeated("--case", self.args.case)
        if self.args.medium != self.args.all_media:
            only += repeated("--medium", self.args.medium)
        command = shlex.join([f"bench/{self.name}.py", "--repeats", str(self.repeats), *only])
        run_of = {"command": command, **stamp(), "load": {**seen_load, "load_average": os.getloadavg()[0]}}
        path = RESULTS / "parts" / f"{self.name}.json"
        if only and path.exists():
            part = json.loads(path.read_text())
            new = {each["name"]: {**each, "run": run_of} for each in self.figures}
            part["figures"] = [*(new.pop(each["name"], each) for each in part["figures"]), *new.values()]
        else:
            part = {"script": self.name, **run_of, "figures": self.figures, **self.more}
        keep(path, part)
        for each in self.figures:
            verdict = {True: "met", False: "MISSED", None: "stated"}[each["met"]]
            print(f"{each['name']}: {each['value']:g} {each['unit']} {each['target']} {verdict}", flush=True)

def keep(path, part):
    """Writes a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(part, indent=2, ensure_ascii=False) + "\n")

def benchmark(repeats, media=(), flags=None):
    """Makes a function the benchmark of its script, which runs it when it is the program. `media` are those that it
    measures, `flags` {flag: (default, help)} further numbers that it takes. A script's first words say what it is."""

    def made(measure):
        if measure.__module__ != "__main__":
            return measure
        main = sys.modules["__main__"]
        parser = argparse.ArgumentParser(description=main.__doc__, formatter_class=argparse.RawTextHelpFormatter)
        parser.add_argument("--repeats", type=int, default=repeats, help=f"runs of each kind (default {repeats})")
        parser.add_argument("--case", action="append", default=[], metavar="WORDS",
                            help="only cases with these words in their names; other figures stay as they are")
        if media:
            parser.add_argument("--medium", action="append", choices=media, help="only this medium")
        for flag, (default, text) in (flags or {}).items():
            parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default {default})")
        args = parser.parse_args()
        args.all_media, args.medium = [*media], (media and args.medium) or [*media]
        bench = Bench(Path(main.__file__).stem, args)
        measure(bench)
        bench.finish()
        return measure

    return made
