"""Runs headstart, takes medians, and writes one result file for each figure.

A *figure* is one dictionary: what it is called, the value, its target, whether it was met, the
command that reproduces it, and the details behind it. Ratios come from runs that alternate, so that
a slow minute of the machine hits both sides.
"""

import argparse
import atexit
import contextlib
import functools
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from stamp import stamp

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = Path(os.environ.get("BENCH_RESULTS", HERE / "results"))
FLAT = ["flat-10ms-25mbs", "flat-10ms-25mbs-serial"]
MEDIA = [*FLAT, "none"]
# Media that a whole system boots from.
DRIVES = ["cd-24x-cav", "hdd-7200"]
# The two flat media deliver so many bytes a second.
FLAT_BYTES_PER_S = 25e6
MIB = 1 << 20


def headstart_path():
    """The release build, wherever cargo was told to put it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return os.environ.get("HEADSTART", str(target / "release" / "headstart"))


class Hung(SystemExit):
    """A command that did not come to its end."""


def run(*command, patience_s=300):
    """Runs a command and returns its standard output; a failure shows everything and ends the run, as
    does one that takes longer than `patience_s`."""
    command = [*map(str, command)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        abort_fuse(process.pid)
        process.kill()
        output, errors = process.communicate()
        raise Hung(f"hung for {patience_s} s, and was ended: {shown(command)}\n{output}{errors}") from None
    if process.returncode != 0:
        sys.exit(f"failed with {process.returncode}: {shown(command)}\n{output}{errors}")
    return output


def shown(command):
    """A command for an error message, without the scripts that it carries."""
    return " ".join(word if len(word) < 200 else f"'{word[:40]}…'" for word in command)


def abort_fuse(pid):
    """Ends the FUSE connections that only this process or only this benchmark has mounted: a thread
    that waits for one of their pages is beyond any signal."""
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


def mounts_of(pid):
    """The fields of each line of a process's mountinfo."""
    return [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]


def headstart(*arguments, patience_s=600):
    """Runs headstart and returns its standard output."""
    return run(headstart_path(), "-q", *arguments, patience_s=patience_s)


def headstart_json(*arguments):
    """Runs a headstart command that prints one JSON object."""
    return json.loads(headstart(*arguments))


def start(image, command, *, medium, ready=None, flags=(), foreign=False, patience_s=120):
    """One cold start by `headstart run`; returns its run summary, with `output` added."""
    summary = scratch() / "summary.json"
    arguments = ["run", image, "--medium", medium, "--json", summary, *flags]
    if foreign:
        arguments.append("--foreign")
    if ready:
        arguments += ["--ready", ready]
    output = headstart(*arguments, "--", *command, patience_s=patience_s)
    return {**json.loads(summary.read_text()), "output": output}


def boot(disk, *, medium="none", read_ahead="kernel", flags=(), patience_s=400):
    """One boot under User-mode Linux; returns its run summary. The guest reads ahead as its kernel chooses, so that it is the same
    guest for all contenders: less would serve who knows its reads, and harm who does not."""
    on = [] if medium == "none" else ["--medium", medium]
    return json.loads(headstart("boot", disk, *on, "--guest-read-ahead", read_ahead, "--json", *flags, patience_s=patience_s))


@functools.cache
def scratch():
    """A folder that goes when this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="headstart-bench-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def alternate(cases, repeats, say=None):
    """Runs every case once a round; returns {name: [result, …]}. `cases` is {name: function}."""
    results = {name: [] for name in cases}
    for number in range(repeats):
        wait_until_quiet()
        for name, run in cases.items():
            result = run()
            results[name].append(result)
            if say:
                progress(f"{number + 1}/{repeats} {name}: {say(result)}")
    return results


def spread(values, digits=3):
    """Median, smallest and largest of some runs."""
    values = list(values)
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "runs": len(values),
    }


def spread_of(results, key, digits=3):
    """The spread of one key of run summaries."""
    return spread([result[key] for result in results], digits)


def at_pace(results):
    """Boots at one pace: each `ready_s` becomes what it would have been, had the guest been charged for as much processor time
    as the median one from memory (the case "warm"; of all, where there is none). docs/DEMO.md says why. What was measured stays as
    `measured_s`."""
    of = results.get("warm") or [run for runs in results.values() for run in runs]
    pace = statistics.median(run["guest_cpu_s"] for run in of)
    return {name: [{**run, "measured_s": run["ready_s"], "ready_s": run["ready_s"] * pace / run["guest_cpu_s"]} for run in runs]
            for name, runs in results.items()}


def ratio_range(ours, theirs):
    """Smallest and largest ratio of the runs of one round: the noise of a ratio."""
    ratios = [one / other for one, other in zip(ours, theirs)]
    return [round(min(ratios), 3), round(max(ratios), 3)]


def progress(text):
    """Progress goes to standard error."""
    print(f"  {text}", file=sys.stderr, flush=True)


# --- the machine ----------------------------------------------------------------------------------


def cpu_times():
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def busy_share(seconds=0.5):
    """The share of all cores' time that is used now, by anybody."""
    total, idle = cpu_times()
    time.sleep(seconds)
    total_after, idle_after = cpu_times()
    return 1 - (idle_after - idle) / max(total_after - total, 1)


# How busy the machine was when timing began, and whether waiting for it to be quiet was given up.
seen_load = {"busiest_before_a_round": 0.0, "gave_up_waiting": 0}


def wait_until_quiet():
    """Waits until others use less than a tenth of the machine. The load average cannot tell: it
    counts our own last minute. Gives up after BENCH_WAIT_S (300) seconds, and the results say so."""
    patience = float(os.environ.get("BENCH_WAIT_S", "300"))
    until = time.monotonic() + patience
    busy = busy_share()
    while busy > 0.1 and time.monotonic() < until:
        busy = busy_share(2.0)
    if busy > 0.1:
        seen_load["gave_up_waiting"] += 1
    seen_load["busiest_before_a_round"] = round(max(seen_load["busiest_before_a_round"], busy), 3)


# --- figures --------------------------------------------------------------------------------------


def figure(name, value, *, at_most=None, at_least=None, unit="", noise=None, detail=None):
    """One figure of the table; without a target it is stated, not judged. `noise` is the smallest and
    the largest that a single run gave."""
    met = None
    target = ""
    if at_most is not None:
        met, target = value <= at_most, f"≤ {at_most:g}"
    if at_least is not None:
        met, target = value >= at_least, f"≥ {at_least:g}"
    return {
        "name": name,
        "value": round(value, 4),
        "range": noise,
        "unit": unit,
        "target": target,
        "met": met,
        "detail": detail or {},
    }


def arguments(description, repeats):
    """The arguments that every script of this folder has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats, help=f"runs of each kind (default {repeats})")
    return parser


def case_argument(parser):
    """The argument of scripts that can run some of their cases."""
    parser.add_argument("--case", action="append", default=[], metavar="WORDS",
                        help="only cases with these words in their names; other figures stay as they are")


def repeated(flag, values):
    """The words of a command line that give this flag each of these values."""
    return [word for each in values for word in (flag, each)]


def chosen(cases, words):
    """Of {name: function} the cases that have one of `words` in their names; all without words."""
    some = {name: case for name, case in cases.items() if not words or any(each in name for each in words)}
    if not some:
        sys.exit(f"no case has {' or '.join(words)} in its name; there are: {'; '.join(cases)}")
    return some


class Unmeasured(Exception):
    """A figure of a case that was not chosen."""


class Figures(list):
    """The figures of runs, `results` of `alternate`, of these cases. Each has the spread of `keys` in the cases that it is of."""

    def __init__(self, results, cases, keys):
        self.results, self.unmeasured, self.used = results, set(cases) - set(results), set()
        self.spreads = {case: {key: spread([run[key] for run in runs]) for key in keys if key in runs[0]}
                        for case, runs in results.items()}

    def median(self, case, key):
        if case in self.unmeasured:
            raise Unmeasured(case)
        self.used.add(case)
        return statistics.median(run[key] for run in self.results[case])

    def add(self, name, value, **more):
        """A figure whose value is a function of no arguments. It is left out when one of its cases was not chosen."""
        self.used.clear()
        with contextlib.suppress(Unmeasured):
            value = value()
            self.append(figure(name, value, detail={case: self.spreads[case] for case in sorted(self.used)}, **more))


def finish(script, figures, repeats, only=(), **more):
    """Writes the figures of `script` to results/parts/ and prints them. With `only`, the words that chose some of them, these
    take their places among those that are kept, and each says which run it is of."""
    run_of = {
        "command": shlex.join([f"bench/{script}.py", "--repeats", str(repeats), *only]),
        **stamp(),
        "load": {**seen_load, "load_average": os.getloadavg()[0]},
    }
    folder = RESULTS / "parts"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{script}.json"
    if only and path.exists():
        part = json.loads(path.read_text())
        new = {each["name"]: {**each, "run": run_of} for each in figures}
        kept = [new.pop(each["name"], each) for each in part["figures"]]
        part["figures"] = [*kept, *new.values()]
    else:
        part = {"script": script, **run_of, "figures": figures, **more}
    path.write_text(json.dumps(part, indent=2, ensure_ascii=False) + "\n")
    for each in figures:
        verdict = {True: "met", False: "MISSED", None: "stated"}[each["met"]]
        print(f"{each['name']}: {each['value']:g} {each['unit']} {each['target']} {verdict}", flush=True)
