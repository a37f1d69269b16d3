#!/usr/bin/env python3
"""Prints the figures of all results, or of those of the scripts that are named, as tables; details stay in
results/parts/."""

import json
import sys

from harness import RESULTS

VERDICT = {True: "met", False: "**missed**", None: ""}

def range_of(each):
    """The noise behind a figure; an end of it may be anything."""
    if each.get("range") and None in each["range"]:
        return "any"
    return f"{each['range'][0]:.3g}–{each['range'][1]:.3g}" if each.get("range") else ""

def apart(each):
    """The run that a figure is of, where that is another than the table's."""
    run = each.get("run")
    return f"(`{run['command']}`, commit {run['commit']}, {run['machine']['date']})" if run else ""

def table(part):
    """The table of one script's result."""
    load, on = part["load"], part["machine"]
    lines = [f"## `{part['command']}`", "",
             f"Commit {part['commit']}; {on['cpu']}, {on['cores']} cores, {on['memory_gib']} GiB; "
             f"Linux {on['kernel']}; {on['system']}; {on['date']}.", ""]
    if load["gave_up_waiting"]:
        lines += [f"Others used up to {load['busiest_before_a_round']:.0%} of the machine meanwhile: "
                  "not to be relied on.", ""]
    lines += ["| figure | value | runs' range | target | |", "| --- | ---: | ---: | ---: | --- |"]
    for each in part["figures"]:
        value = f"{each['value']:.3g} {each['unit']}".strip()
        verdict = f"{VERDICT[each['met']]} {apart(each)}".strip()
        lines.append(f"| {each['name']} | {value} | {range_of(each)} | {each['target']} | {verdict} |")
    for medium, text in part.get("tables", {}).items():
        flags = f"--story boot --boot-medium {medium}" if part["script"] == "boot" else f"--medium {medium}"
        lines += ["", f"`headstart demo {flags}`:", "", "```text", *text, "```"]
    return lines

if __name__ == "__main__":
    for path in sorted((RESULTS / "parts").glob("*.json")):
        result = json.loads(path.read_text())
        if result.get("figures") and "load" in result and (path.stem in sys.argv[1:] or not sys.argv[1:]):
            print("\n".join(table(result)), end="\n\n")
