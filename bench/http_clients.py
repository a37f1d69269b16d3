#!/usr/bin/env python3
"""Many starts at once from one `headstart serve --http`: every client has a namespace, a cache and a link of its own,
and the server's link is shared.

A client is `headstart mount`, which pushes the hot region into the page cache of its disk, and `headstart lab replay`,
which reads that disk as a guest does until the program was ready: each read comes its recorded think time after what the
program waited for, as the program would make it. No client cleans up before all are ready. In some cases a few clients
are real guests: a Debian that boots under User-mode Linux.

Each machine would have a disk of its own: the clients' caches lie in memory. What the links need is one limit. Clients
and server share this machine's cores, and the processor time that all of them took, shared by the cores, is another:
machines of their own would not have it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness import benchmark, headstart_path, machine_cpu_s, run
from inputs import boot_image, boot_profile, demo, named, optimized, packed_bytes
from mounts import cpu_s, memory_bytes
from network import inside, many_links, serving, shape

@dataclass(frozen=True)
class Case:
    """Replayed starts and guests; the rate of each one's own link and that of the server's, in Mbit/s; what the server
    is told of it."""

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
# What has a goal of its own: the last of them against what their shared link needs.
FIFTY = Case(50, 0, 1000, 1000)
CASES = [ALONE, GUEST_ALONE, *(Case(clients, 0, own, 1000) for own in (1000, 100, 10) for clients in (10, 50)),
         Case(20, 0, 1000, 100), Case(20, 0, 1000, 100, "11M"), *(Case(7, 3, own, 1000) for own in (1000, 100, 10)),
         Case(47, 3, 1000, 1000), Case(0, 10, 100, 1000)]
MOST_OF_LIMIT = 1.25
LEAST_JAIN = 0.98
SAY = ("worst {worst_s:.2f} s, median {median_s:.2f} s; {cpu_s:.1f} s of processor time, of which the server's "
       "{server_cpu_s:.1f}; the machine was busy for {machine_busy:.0%}, others {others_cpu_s:.1f} s")
# What a client does, with the program, the address, its folder and the profile: it says when it is prepared, and when it
# is ready. A replay mounts and reads; a guest boots.
SCRIPT = """
set -e
trap 'umount "$3/disk" 2> /dev/null || true' EXIT
mkdir -p "$3/disk"
echo prepared
read -r begin
{begin}
echo ready
read -r end
"""
REPLAY = SCRIPT.format(begin="""
"$1" -q mount "$2" "$3/disk" --disk-cache "$3/cache"
"$1" -q lab replay "$4" --on "$3/disk/disk.img" --cached --until-ready --think-times --json""")
GUEST = SCRIPT.format(begin='"$1" -q boot "$2" --disk-cache "$3/cache" --json')

class Client:
    """A process in a namespace of its own, which begins when it is told."""

    def __init__(self, namespace, script, *words):
        command = [*inside(namespace), "sh", "-c", script, "client", headstart_path(), *map(str, words)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def begin(self):
        self.process.stdin.write("begin\n")
        self.process.stdin.flush()
        self.began = time.monotonic()

    def ready_s(self):
        """Waits until it is ready; when it was."""
        for line in self.process.stdout:
            if line == "ready\n":
                return time.monotonic() - self.began
        sys.exit(f"a client ended with {self.process.wait()}")

    def end(self):
        """Has it clean up, which a machine that is ready does not do."""
        self.process.communicate("end\n")
        if self.process.returncode != 0:
            sys.exit(f"a client ended with {self.process.returncode}")

def starts(case, start, boot):
    """All start at the same moment; what each took, and what that cost the server."""
    with accounted() as used_s, many_links(case.replays + case.guests, case.own_mbit) as (server, names), \
            tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/dev/shm") as folder:
        shape(server, case.shared_mbit)
        told = ["--http-rate", case.told] if case.told else []
        with serving(server, f"start={start}", f"boot={boot}", flags=told) as (url, process):
            base, before = url.rpartition("/")[0], cpu_s(process.pid)
            replay, guest = named(f"{base}/start.hsi", start), named(f"{base}/boot.hsi", boot)
            clients = [Client(name, REPLAY, replay, f"{folder}/{number}", demo()["profile"]) if number < case.replays
                       else Client(name, GUEST, guest, f"{folder}/{number}") for number, name in enumerate(names)]
            ours, busy, began = used_s(), machine_cpu_s()[1], time.monotonic()
            for client in clients:
                client.begin()
            # Each is read by a thread: none is seen late because another one is waited for.
            with ThreadPoolExecutor(len(clients)) as pool:
                took = list(pool.map(Client.ready_s, clients))
            ours, busy, wall = used_s() - ours, machine_cpu_s()[1] - busy, time.monotonic() - began
            queue = json.loads(run("tc", "-n", server, "-s", "-j", "qdisc", "show", "dev", "server0"))[0]
            server_cpu_s = cpu_s(process.pid) - before
            with ThreadPoolExecutor(len(clients)) as pool:
                list(pool.map(Client.end, clients))
            rates = [1 / each for each in took[:case.replays]]
            return {"worst_s": max(took), "median_s": sorted(took)[len(took) // 2], "cpu_s": ours,
                    "jain": sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates)) if rates else 1,
                    "others_cpu_s": busy - ours, "machine_busy": busy / wall / os.cpu_count(),
                    "server_cpu_s": server_cpu_s, "server_bytes": int(queue["bytes"]),
                    "server_rss_bytes": memory_bytes(process.pid, "VmHWM")}

@contextmanager
def accounted():
    """Accounts for the processor time of all that this process starts: gives a function that says how many seconds it
    was so far. Other programs of this machine do not count."""
    groups = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    top = next((folder for folder in groups if (folder / "cgroup.procs").exists()), None)
    if top is None:
        sys.exit("this machine has no control groups of version 2")
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    home = top / next(line for line in lines if line.startswith("0::"))[3:].lstrip("/")
    group = top / f"headstart-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text("0")
        yield lambda: int((group / "cpu.stat").read_text().split()[1]) / 1e6
    finally:
        (home / "cgroup.procs").write_text("0")
        # What is left, such as a server that has unmounted and is about to end, goes with us.
        for pid in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (home / "cgroup.procs").write_text(pid)
        group.rmdir()

def limits(case, start, boot):
    """The least that the last of a run can take by the links."""
    hot = [(packed_bytes(image), count) for image, count in ((start, case.replays), (boot, case.guests)) if count]
    own_s = max(size for size, _ in hot) * 8 / (case.own_mbit * 1e6)
    shared_s = sum(size * count for size, count in hot) * 8 / (case.shared_mbit * 1e6)
    return max(own_s, shared_s)

@benchmark(repeats=1)
def measure(bench):
    start, plain = demo()["optimized"], boot_image()
    boot = optimized(plain, "boot-one", boot_profile(plain, "boot"))
    alone = {}
    for case in bench.chosen({case: None for case in CASES}):
        runs = bench.turns({case: lambda: starts(case, start, boot)}, say=SAY)
        worst = runs.median(case, "worst_s")
        alone[case] = max(runs.values(case, "worst_s"))
        limit = {"links_s": limits(case, start, boot), "cores_s": runs.median(case, "cpu_s") / os.cpu_count(),
                 "alone_s": alone.get(ALONE, 0) if case.guests == 0 else alone.get(GUEST_ALONE, 0)}
        bench.figure(f"worst start ÷ the limit of links and cores, {case}", worst / max(limit.values()),
                     at_most=MOST_OF_LIMIT, detail={**runs.detail(), **limit})
        if case == FIFTY:
            bench.figure(f"worst start ÷ the link's limit, {case}", worst / limit["links_s"], at_most=MOST_OF_LIMIT,
                         noise=[end / limit["links_s"] for end in worst.noise])
        if case.replays > 1:
            bench.figure(f"Jain's index of the replays' rates, {case}", min(runs.values(case, "jain")),
                         at_least=LEAST_JAIN)
