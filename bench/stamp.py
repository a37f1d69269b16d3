#!/usr/bin/env python3
"""What every result says of itself: the machine in words that identify nobody, and the commit of the build."""

import json
import os
import platform
import subprocess
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20

def machine():
    """Processor, memory, kernel and system of this machine, and today."""
    cpu = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        platform.machine(),
    )
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    system = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        system[key] = value.strip('"')
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory.split()[1]) / MIB, 1),
        # Its version alone: what builders add to it names a host.
        "kernel": platform.release().split("-")[0],
        "system": system.get("PRETTY_NAME", "unknown"),
        "date": date.today().isoformat(),
    }

def commit():
    """The commit that is checked out; "+" says that files were changed since."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"], capture_output=True, text=True)
    return described.stdout.strip() or "unknown"

def stamp():
    return {"commit": commit(), "machine": machine()}

if __name__ == "__main__":
    print(json.dumps(stamp()))
