#!/usr/bin/env python3
"""A first start over HTTP: from an image without a profile, and with the profile of another program, against copying the whole
squashfs first and starting from the copy.

Server and client live in network namespaces of their own. A relay beside the server makes each request slower, and `tc tbf`
shapes what the server sends where a rate is given. nginx serves both files. Each start has an empty cache on disk. "Off" is the
same start with `--background off`: only what is read is transferred. With its profile, a start is compared with the same start from
memory and one round trip.
"""

import json
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from harness import alternate, arguments, figure, finish, headstart_json, headstart_path, run, scratch, spread_of
from inputs import COMMAND, OTHER_COMMAND, READY, demo, optimized, profile
from network import PORT, SERVER, link, relay, shape

# Seconds that a request takes longer, and megabits a second; none is no limit.
NETWORKS = {"20 ms, no limit": (0.020, None), "5 ms, 200 Mbit/s": (0.005, 200)}
LIMIT = 1.0
# With its profile, of the start from memory and one round trip.
PROFILED_LIMIT = 1.10


@contextmanager
def nginx(server, folder):
    """Serves a folder from the server's namespace."""
    home = Path(tempfile.mkdtemp(prefix="headstart-bench-"))
    home.chmod(0o755)
    temporary = " ".join(f"{name}_temp_path {home};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (home / "conf").write_text(
        f"user root; daemon off; pid {home}/pid; worker_processes 1; events {{}} http {{ access_log off; sendfile on; keepalive_requests 100000;"
        f" {temporary} server {{ listen {SERVER}:{PORT}; root {folder}; }} }}\n")
    process = subprocess.Popen(["ip", "netns", "exec", server, "nginx", "-c", home / "conf", "-e", home / "errors"])
    try:
        while not (home / "pid").exists() or not (home / "pid").read_text():
            if process.poll() is not None:
                raise SystemExit(f"nginx ended: {(home / 'errors').read_text()}")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)
        shutil.rmtree(home)


def start(client, *flags):
    summary = scratch() / "summary.json"
    run("ip", "netns", "exec", client, headstart_path(), "-q", "run", *flags, "--json", summary, "--ready", READY, "--", *COMMAND,
        patience_s=200)
    return json.loads(summary.read_text())


def cold_caches():
    run("sync")
    Path("/proc/sys/vm/drop_caches").write_text("3")


def lazily(client, address, *flags):
    """A start with an empty cache, which lies where copies do."""
    cold_caches()
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/dev/shm") as cache:
        return start(client, address, "--disk-cache", cache, *flags)


def copied(client, port, name):
    """The squashfs is copied into memory, and the program starts from there."""
    cold_caches()
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/dev/shm") as folder:
        began = time.monotonic()
        run("ip", "netns", "exec", client, "curl", "--fail", "--silent", "--output", f"{folder}/copy", f"http://{SERVER}:{port}/{name}")
        took = time.monotonic() - began
        summary = start(client, f"{folder}/copy", "--foreign")
        return {**summary, "ready_s": took + summary["ready_s"], "copied_s": took}


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    files = demo()
    wrong = optimized(files["image"], "other-optimized", profile(files["image"], "other", OTHER_COMMAND))
    served = Path(tempfile.mkdtemp(prefix="headstart-bench-", dir=files["image"].parent))
    served.chmod(0o755)
    try:
        images = {}
        for name, path in {"plain": files["image"], "wrong": wrong, "fast": files["optimized"], "sqfs": files["squashfs"]}.items():
            (served / name).hardlink_to(path)
            images[name] = None if name == "sqfs" else headstart_json("inspect", path, "--json")["image_digest"]
        figures = []
        with link() as (server, client), nginx(server, served):
            for network, (delay_s, mbit) in NETWORKS.items():
                if mbit:
                    shape(server, mbit)
                with relay(server, delay_s / 2) if delay_s else nullcontext(PORT) as port:
                    address = lambda name: f"http://{SERVER}:{port}/{name}#{images[name]}"
                    cases = {
                        "squashfs, copied first": lambda: copied(client, port, "sqfs"),
                        "no profile": lambda: lazily(client, address("plain")),
                        "no profile, off": lambda: lazily(client, address("plain"), "--background", "off"),
                        "wrong profile": lambda: lazily(client, address("wrong")),
                        "its profile": lambda: lazily(client, address("fast")),
                        "its profile, memory": lambda: start(client, files["optimized"]),
                    }
                    results = alternate(cases, args.repeats, lambda summary: f"{network}: {summary['ready_s']:.2f} s")
                ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
                detail = {name: {key: spread_of(runs, key) for key in ["ready_s", "store_requests", "store_bytes", "demand_wait_s",
                                 "background_bytes", "background_used_bytes"] if runs[0].get(key) is not None}
                          for name, runs in results.items()}
                copy = ready["squashfs, copied first"]["median"]
                for name in ["no profile", "wrong profile", "its profile"]:
                    figures.append(figure(f"{name} ÷ copying the squashfs first, {network}", ready[name]["median"] / copy,
                                          at_most=LIMIT, detail=detail))
                figures.append(figure(f"no profile ÷ the same with --background off, {network}",
                                      ready["no profile"]["median"] / ready["no profile, off"]["median"], detail=detail))
                if not mbit:
                    least = ready["its profile, memory"]["median"] + delay_s
                    figures.append(figure(f"its profile ÷ from memory and one round trip, {network}", ready["its profile"]["median"] / least,
                                          at_most=PROFILED_LIMIT, detail=detail))
        finish("first_contact", figures, args.repeats)
    finally:
        shutil.rmtree(served)


if __name__ == "__main__":
    main()
