#!/usr/bin/env python3
"""A first start over HTTP: from an image without a profile, and with the profile of another program, against copying
the whole squashfs first and starting from the copy.

A relay beside the server makes each request slower, and `tc tbf` shapes what the server sends where a rate is given.
nginx serves both files. Each start has an empty cache on disk. "Off" is the same start with `--background off`: only
what is read is transferred. With its profile, a start is compared with the same start from memory and one round trip.
"""

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from harness import benchmark, run, start
from inputs import COMMAND, READY, demo, named, wrong_image
from mounts import drop_caches, program
from network import PORT, SERVER, empty_cache, inside, link, relay, shape

# Seconds that a request takes longer, and megabits a second; none is no limit.
NETWORKS = {"20 ms, no limit": (0.020, None), "5 ms, 200 Mbit/s": (0.005, 200)}

@contextmanager
def folder_with(files, beside):
    """A folder with these files, {name: path}, that every user may read."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir=beside) as folder:
        folder = Path(folder)
        folder.chmod(0o755)
        for name, path in files.items():
            (folder / name).hardlink_to(path)
        yield folder

@contextmanager
def nginx(server, folder):
    """Serves a folder from the server's namespace."""
    with folder_with({}, None) as home:
        temporary = " ".join(f"{name}_temp_path {home};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        (home / "conf").write_text(
            f"user root; daemon off; pid {home}/pid; worker_processes 1; events {{}} http {{ access_log off; sendfile on;"
            f" keepalive_requests 100000; {temporary} server {{ listen {SERVER}:{PORT}; root {folder}; }} }}\n")
        listens = lambda: (home / "pid").exists() and (home / "pid").read_text()
        with program(*inside(server), "nginx", "-c", home / "conf", "-e", home / "errors", ready=listens):
            yield

def begin(client, image, *flags, **more):
    return start(image, COMMAND, ready=READY, flags=flags, within=inside(client), patience_s=200, **more)

def lazily(client, address, *flags):
    """A start with an empty cache, which lies where copies do."""
    drop_caches()
    with empty_cache("/dev/shm") as cache:
        return begin(client, address, *cache, *flags)

def copied(client, address):
    """The squashfs is copied into memory, and the program starts from there."""
    drop_caches()
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/dev/shm") as folder:
        began = time.monotonic()
        run(*inside(client), "curl", "--fail", "--silent", "--output", f"{folder}/copy", address)
        took = time.monotonic() - began
        summary = begin(client, f"{folder}/copy", foreign=True)
        return {**summary, "ready_s": took + summary["ready_s"], "copied_s": took}

@benchmark(repeats=5)
def measure(bench):
    files = demo()
    images = {"plain": files["image"], "wrong": wrong_image(), "fast": files["optimized"], "sqfs": files["squashfs"]}
    with folder_with(images, files["image"].parent) as served, link() as (server, client), nginx(server, served):
        for network, (delay_s, mbit) in NETWORKS.items():
            if mbit:
                shape(server, mbit)
            with relay(server, delay_s / 2) as port:
                url = lambda name: f"http://{SERVER}:{port}/{name}"
                lazy = lambda name, *flags: lambda: lazily(client, named(url(name), images[name]), *flags)
                runs = bench.turns({
                    "squashfs, copied first": lambda: copied(client, url("sqfs")),
                    "no profile": lazy("plain"), "no profile, off": lazy("plain", "--background", "off"),
                    "wrong profile": lazy("wrong"), "its profile": lazy("fast"),
                    "its profile, memory": lambda: begin(client, files["optimized"]),
                }, say=f"{network}: {{ready_s:.2f}} s")
            for name in ["no profile", "wrong profile", "its profile"]:
                bench.figure(f"{name} ÷ copying the squashfs first, {network}",
                             runs.ratio(name, "squashfs, copied first"), at_most=1.0)
            bench.figure(f"no profile ÷ the same with --background off, {network}",
                         runs.ratio("no profile", "no profile, off"))
            if not mbit:
                bench.figure(f"its profile ÷ from memory and one round trip, {network}", at_most=1.10,
                             value=runs.median("its profile") / (runs.median("its profile, memory") + delay_s))
