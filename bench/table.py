#!/usr/bin/env python3
"""Puts the figures of all scripts into one short table for each group of them; details stay in results/parts/."""

import json

from harness import RESULTS

GROUPS = {
    "issue-1-first-image": [
        "start", "wrong_profile", "size", "build_speed", "random_reads", "sequential", "pipeline", "memory", "scale", "read_ahead"],
    "issue-2-real-system": ["boot", "boot_rim", "boot_variation", "join", "boot_cloop", "memory_limit"],
    "issue-3-engine": ["engine_decision", "cache_policies", "nbdkit", "boot_nbd", "boot_qemu", "self_filling", "self_filling_boot"],
    "issue-4-laboratory": ["predict", "predict_start", "calibrate"],
    "issue-5-network": ["http", "http_boot", "fifty_clients", "http_clients", "http_server", "attacks"],
}
VERDICT = {True: "met", False: "**missed**", None: ""}


def range_of(each):
    """The noise behind a figure; an end of it may be anything."""
    if each.get("range") and None in each["range"]:
        return "any"
    return f"{each['range'][0]:.3g}–{each['range'][1]:.3g}" if each.get("range") else ""


def stamp_of(part):
    """When a part was run, of which build and on what."""
    on = part["machine"]
    return (f"Commit {part['commit']}; {on['cpu']}, {on['cores']} cores, {on['memory_gib']} GiB; Linux {on['kernel']}; "
            f"{on['system']}; {on['date']}.")


def write(name, scripts):
    """The table of some scripts."""
    parts = [RESULTS / "parts" / f"{script}.json" for script in scripts]
    parts = [json.loads(path.read_text()) for path in parts if path.exists()]
    if not parts:
        return
    lines = [
        f"# {name}",
        "",
        "Written by bench/table.py from `parts/`, where the details are, with smallest and largest values. Each part names the",
        "commit, the machine and the date of its own run.",
    ]
    for part in parts:
        if not part["figures"]:
            continue
        load = part["load"]
        lines += ["", f"## `{part['command']}`", "", stamp_of(part), ""]
        if load["gave_up_waiting"]:
            lines += [f"Others used up to {load['busiest_before_a_round']:.0%} of the machine meanwhile: not to be relied on.", ""]
        lines += ["| figure | value | runs' range | target | |", "| --- | ---: | ---: | ---: | --- |"]
        for each in part["figures"]:
            value = f"{each['value']:.3g} {each['unit']}".strip()
            lines.append(f"| {each['name']} | {value} | {range_of(each)} | {each['target']} | {VERDICT[each['met']]} |")
        for medium, table in part.get("tables", {}).items():
            flags = f"--story boot --boot-medium {medium}" if part["script"] == "boot" else f"--medium {medium}"
            lines += ["", f"`headstart demo {flags}`:", "", "```text", *table, "```"]
    (RESULTS / f"{name}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main():
    for name, scripts in GROUPS.items():
        write(name, scripts)


if __name__ == "__main__":
    main()
