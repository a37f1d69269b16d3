#!/usr/bin/env python3
"""Puts the figures of all scripts into one JSON file and one short table for each group of them."""

import json

from harness import RESULTS, machine

GROUPS = {
    "issue-1-first-image": [
        "start", "wrong_profile", "size", "random_reads", "sequential", "pipeline", "memory", "scale", "read_ahead"],
    "issue-2-real-system": ["boot", "boot_rim", "boot_variation", "join", "boot_cloop", "memory_limit"],
    "issue-3-engine": ["engine_decision", "cache_policies", "killed", "nbdkit", "boot_nbd", "boot_qemu", "self_filling", "self_filling_boot"],
    "issue-4-laboratory": ["lab", "predict", "predict_start", "calibrate"],
    "issue-5-network": ["http", "http_boot", "fifty_clients", "http_clients", "http_server"],
}
VERDICT = {True: "met", False: "**missed**", None: ""}


def range_of(each):
    """The noise behind a figure; an end of it may be anything."""
    if each.get("range") and None in each["range"]:
        return "any"
    return f"{each['range'][0]:.3g}–{each['range'][1]:.3g}" if each.get("range") else ""


def write(name, scripts):
    """The JSON file and the table of some scripts."""
    parts = [RESULTS / "parts" / f"{script}.json" for script in scripts]
    parts = [json.loads(path.read_text()) for path in parts if path.exists()]
    if not parts:
        return
    here = machine()
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": here, "parts": parts}, indent=2, ensure_ascii=False) + "\n")
    lines = [
        f"# {name}",
        "",
        f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB; Linux {here['kernel']}; {here['system']}; {here['date']}.",
        "Written by `make bench`. Every figure is a ratio or a size from one run; its details, with smallest and",
        f"largest values, are in {name}.json.",
    ]
    for part in parts:
        if not part["figures"]:
            continue
        load = part["load"]
        lines += ["", f"## `{part['command']}`", ""]
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
