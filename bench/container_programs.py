#!/usr/bin/env python3
"""Containers of other programs than pandas: each image lazily from a registry that is 20 ms away, with its recorded
start, beside the same image pulled whole to overlayfs.

Node, a JVM, and PostgreSQL up to its first query are those of limit.py; torch is Debian's, which needs no graphics
processor. Every image has one layer. The first line of each container must be the right one.
"""

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import containers
import limit
from containers import LINKS, Link, Machine, in_words, pulled, recorded, registry
from convert import layout
from harness import benchmark, headstart, run
from inputs import debian

FAR = "20 ms"
TORCH = ["python3", "-c", 'import torch; print("ready", torch.ones(2, 3).sum().item(), flush=True)']
# Each with its root and its command.
PROGRAMS = {
    "pandas": (lambda: debian("pandas", "python3-pandas"), containers.COMMAND),
    **{name: (lambda name=name: limit.root(name, *filter(None, limit.PROGRAMS[name][:2])), limit.PROGRAMS[name][2])
       for name in ("node", "java", "postgresql")},
    "torch": (lambda: debian("torch", "python3-torch"), TORCH),
}

def published(folder, port, name):
    """The bytes of its layer."""
    make_root, command = PROGRAMS[name]
    layer_bytes = layout(make_root(), folder / "layout")
    address = f"127.0.0.1:{port}/{name}:1"
    run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1", f"docker://{address}")
    shutil.rmtree(folder / "layout")
    headstart("convert", f"oci+http://{address}")
    recorded(folder, f"oci+http://{address}", command)
    return layer_bytes

@benchmark(repeats=3)
def measure(bench):
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp")))
        port = stack.enter_context(registry(folder))
        machine, link = Machine(folder / "headstart"), Link(port, *LINKS[FAR])
        stack.enter_context(machine.running())
        for name in bench.chosen(PROGRAMS):
            layer_bytes = published(folder, port, name)
            start = partial(pulled, machine, f"127.0.0.1:{link.port}/{name}:1", link, command=PROGRAMS[name][1])
            runs = bench.turns({how: partial(start, snapshotter=how) for how in ("headstart", "overlayfs")},
                               say=lambda **found: f"{name}: {in_words(**found)}")
            for key, unit in (("pull_s", "s"), ("cold_s", "s"), ("warm_s", "s"), ("bytes", "bytes"), ("requests", "")):
                bench.figure(f"{name}: {key}", runs.median("headstart", key), unit=unit,
                             detail={"layer_bytes": layer_bytes})
            bench.figure(f"{name}: pull and first output, lazily ÷ pulled whole",
                         runs.ratio("headstart", "overlayfs", "first_s"), at_most=0.55)
