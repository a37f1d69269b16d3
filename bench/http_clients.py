#!/usr/bin/env python3
"""Many starts at once from one `headstart serve --http`: every client has a namespace, a cache and a link of its own, and the
server's link is shared.

A client is `headstart mount`, which pushes the hot region into the page cache of its disk, and `headstart lab replay`, which reads
that disk as a guest does until the program was ready: each read comes its recorded think time after what the program waited for, as
the program would make it. Nobody cleans up before all are ready. In some cases a few clients are real guests: a Debian that boots
under User-mode Linux.

Each machine would have a disk of its own: the clients' caches lie in memory. What the links need is one limit. Clients and server share this machine's cores, and the processor time that all of them took,
shared by the cores, is another: machines of their own would not have it.
"""

import json
import os
import re
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness import arguments, figure, finish, headstart_json, headstart_path, progress, run, spread
from inputs import boot_image, boot_profile, demo, optimized
from network import many_links, serving, shape


@dataclass(frozen=True)
class Case:
    """Replayed starts and guests; the rate of each one's own link and that of the server's, in Mbit/s; what the server is told of it."""

    replays: int
    guests: int
    own_mbit: int
    shared_mbit: int
    told: str | None = None

    def __str__(self):
        who = [f"{self.replays} replays"] * (self.replays > 0) + [f"{self.guests} guests"] * (self.guests > 0)
        told = f", told {self.told}" if self.told else ""
        return f"{' and '.join(who)} of {self.own_mbit} Mbit/s behind {self.shared_mbit} Mbit/s{told}"


# What one client takes.
ALONE, GUEST_ALONE = Case(1, 0, 1000, 1000), Case(0, 1, 1000, 1000)
CASES = [*(Case(clients, 0, own, 1000) for own in (1000, 100, 10) for clients in (10, 50)),
         Case(20, 0, 1000, 100), Case(20, 0, 1000, 100, "11M"), *(Case(7, 3, own, 1000) for own in (1000, 100, 10)), Case(47, 3, 1000, 1000),
         Case(0, 10, 100, 1000)]
MOST_OF_LIMIT = 1.25
LEAST_JAIN = 0.98


def cpu_s(pid):
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


# Mounts, replays, and says how long that took from the word on standard input on.
REPLAY = """
set -e
trap 'umount "$3/disk" 2> /dev/null || true' EXIT
mkdir -p "$3/disk"
echo prepared
read -r begin
"$1" -q mount "$2" "$3/disk" --disk-cache "$3/cache"
"$1" -q lab replay "$4" --on "$3/disk/disk.img" --cached --until-ready --think-times --json
echo ready
read -r end
"""
# Boots until the guest is ready.
GUEST = """
set -e
mkdir -p "$3"
echo prepared
read -r begin
"$1" -q boot "$2" --disk-cache "$3/cache" --json
echo ready
read -r end
"""


class Client:
    """A process in a namespace of its own, which begins when it is told."""

    def __init__(self, script, namespace, *words):
        self.process = subprocess.Popen(["ip", "netns", "exec", namespace, "sh", "-c", script, "client", headstart_path(), *map(str, words)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.ready_s = None

    def begin(self):
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()
        self.began = time.monotonic()

    def wait_until_ready(self):
        for line in self.process.stdout:
            if line == "ready\n":
                self.ready_s = time.monotonic() - self.began
                return
        raise SystemExit(f"a client ended with {self.process.wait()}")

    def end(self):
        """Has it clean up, which a machine that is ready does not do."""
        self.process.communicate("end\n")
        if self.process.returncode != 0:
            raise SystemExit(f"a client ended with {self.process.returncode}")


@dataclass(frozen=True)
class Image:
    """What a kind of client reads: the image, its name, and how much it is sent."""

    path: Path
    name: str
    hot_bytes: int

    @classmethod
    def of(cls, path):
        described = headstart_json("inspect", path, "--json")
        return cls(path, described["image_digest"], described["hot_segments"][0]["hot_compressed_bytes"])


def starts(case, profile, start, boot):
    """All start at the same moment; what each took, and what that cost the server."""
    about = {}
    with accounted() as used_s, many_links(case.replays + case.guests, case.own_mbit) as (server, names), \
            tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/dev/shm") as folder:
        shape(server, case.shared_mbit)
        with serving(server, f"start={start.path}", f"boot={boot.path}", *(["--http-rate", case.told] if case.told else []), about=about) as url:
            base = url.rpartition("/")[0]
            before = cpu_s(about["pid"])
            clients = [Client(REPLAY, namespace, f"{base}/start.hsi#{start.name}", f"{folder}/{number}", profile) if number < case.replays
                       else Client(GUEST, namespace, f"{base}/boot.hsi#{boot.name}", f"{folder}/{number}")
                       for number, namespace in enumerate(names)]
            ours, all_cpu, began = used_s(), cpu_of_machine(), time.monotonic()
            for client in clients:
                client.begin()
            # Each is read by a thread: none is seen late because another one is waited for.
            with ThreadPoolExecutor(len(clients)) as pool:
                list(pool.map(Client.wait_until_ready, clients))
            used, busy, wall = used_s() - ours, cpu_of_machine() - all_cpu, time.monotonic() - began
            sent = int(json.loads(run("tc", "-n", server, "-s", "-j", "qdisc", "show", "dev", "server0"))[0]["bytes"])
            server_cpu_s = cpu_s(about["pid"]) - before
            with ThreadPoolExecutor(len(clients)) as pool:
                list(pool.map(Client.end, clients))
            took = [client.ready_s for client in clients]
            return {"replay_s": took[:case.replays], "guest_s": took[case.replays:], "cpu_s": used, "others_cpu_s": busy - used, "machine_busy": busy / wall / os.cpu_count(),
                    "server_cpu_s": server_cpu_s, "server_bytes": sent, "server_rss_bytes": peak_rss_bytes(about["pid"])}


GROUPS = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]


@contextmanager
def accounted():
    """Accounts for the processor time of all that this process starts: gives a function that says how many seconds it was so far. Others on this
    machine do not count."""
    top = next((folder for folder in GROUPS if (folder / "cgroup.procs").exists()), None)
    if top is None:
        raise SystemExit("this machine has no control groups of version 2")
    home = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))[3:].lstrip("/")
    group = top / f"headstart-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text("0")
        yield lambda: int((group / "cpu.stat").read_text().split()[1]) / 1e6
    finally:
        (top / home / "cgroup.procs").write_text("0")
        # Whoever is left, such as a server that has unmounted and is about to end, goes with us.
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (top / home / "cgroup.procs").write_text(pid)
        group.rmdir()


def cpu_of_machine():
    """Seconds that all cores together were busy so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def jain(values):
    values = list(values)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def limits(case, run, alone, guest_alone, start, boot):
    """The least that the last of a run can take: by the links, by the cores, and alone."""
    links_s = max(bytes * 8 / (case.own_mbit * 1e6) for bytes in [start.hot_bytes] * (case.replays > 0) + [boot.hot_bytes] * (case.guests > 0))
    shared_s = (case.replays * start.hot_bytes + case.guests * boot.hot_bytes) * 8 / (case.shared_mbit * 1e6)
    return {"links_s": max(links_s, shared_s), "cores_s": run["cpu_s"] / os.cpu_count(), "alone_s": max(alone["replay_s"] if case.guests == 0 else guest_alone["guest_s"])}


def main():
    args = arguments(__doc__, repeats=1).parse_args()
    files = demo()
    image = boot_image()
    boot = Image.of(optimized(image, "boot-one", boot_profile(image, "boot")))
    start = Image.of(files["optimized"])
    measured = lambda case: [starts(case, files["profile"], start, boot) for _ in range(args.repeats)]
    alone, guest_alone = measured(ALONE), measured(GUEST_ALONE)
    figures = []
    for case in [ALONE, GUEST_ALONE, *CASES]:
        runs = {ALONE: alone, GUEST_ALONE: guest_alone}.get(case) or measured(case)
        limit = limits(case, runs[0], alone[0], guest_alone[0], start, boot)
        everybody = [run["replay_s"] + run["guest_s"] for run in runs]
        worst = spread(map(max, everybody))
        detail = {"worst_s": worst, "median_s": spread(sorted(run)[len(run) // 2] for run in everybody),
                  **{key: round(value, 3) for key, value in limit.items()},
                  **{key: spread(run[key] for run in runs) for key in ("cpu_s", "others_cpu_s", "server_cpu_s", "server_bytes", "server_rss_bytes", "machine_busy")}}
        progress(f"{case}: {detail['median_s']['median']} s, worst {worst['median']} s; links {limit['links_s']:.2f} s, cores {limit['cores_s']:.2f} s; "
                 f"{detail['cpu_s']['median']} s of processor time, of which the server's {detail['server_cpu_s']['median']}, "
                 f"the machine was busy for {detail['machine_busy']['median']:.0%}")
        figures.append(figure(f"worst start ÷ the limit of links and cores, {case}", worst["median"] / max(limit.values()), at_most=MOST_OF_LIMIT, detail=detail))
        if case.replays > 1:
            rates = min(jain(1 / took for took in run["replay_s"]) for run in runs)
            figures.append(figure(f"Jain's index of the replays' rates, {case}", rates, at_least=LEAST_JAIN))
    finish("http_clients", figures, args.repeats)


if __name__ == "__main__":
    main()
