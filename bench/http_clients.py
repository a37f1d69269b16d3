#!/usr/bin/env python3
"""Many starts at once from one `headstart serve --http`: every client has a namespace, a cache and a link of its own, and the
server's link is shared.

A client is `headstart mount` with the prefetch of a start, and `headstart lab replay` that reads its disk when the recorded
start did: an answer that comes late does not put off what is asked for next, which is harder on the server than a program.
"""

import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from harness import arguments, figure, finish, headstart_json, headstart_path, progress, run, scratch, spread
from inputs import demo
from network import many_links, serving, shape

# Clients, the rate of each one's own link, and that of the server, in Mbit/s; and what the server is told of it. On a machine of few cores what limits fifty clients of a
# gigabit is their own decompression, so the last case has a link that is slower than that.
CASES = [(1, 1000, 1000, None), (10, 1000, 1000, None), (50, 1000, 1000, None), (10, 100, 1000, None), (10, 10, 1000, None),
         (20, 1000, 100, None), (20, 1000, 100, "11M")]
MOST_OF_LIMIT = 1.25
LEAST_JAIN = 0.98


def cpu_s(pid):
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_rss_bytes(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


# Mounts, replays, and says how long that took from the word on standard input on.
CLIENT = """
set -e
trap 'umount "$3/disk" 2> /dev/null || true' EXIT
mkdir -p "$3/disk"
echo prepared
read -r begin
"$1" -q mount "$2" "$3/disk" --prefetch hold --disk-cache "$3/cache"
"$1" -q lab replay "$4" --on "$3/disk/disk.img" --json
"""


def starts(clients, own_mbit, shared_mbit, told, profile, image, name):
    """All start at the same moment; what each took, and what that cost the server."""
    about = {}
    with many_links(clients, own_mbit) as (server, names), tempfile.TemporaryDirectory(prefix="headstart-bench-") as folder:
        shape(server, shared_mbit)
        with serving(server, image, *(["--http-rate", told] if told else []), about=about) as url:
            before = cpu_s(about["pid"])
            processes = []
            for number, namespace in enumerate(names):
                words = [headstart_path(), f"{url}#{name}", f"{folder}/{number}", profile]
                processes.append(subprocess.Popen(
                    ["ip", "netns", "exec", namespace, "sh", "-c", CLIENT, "client", *map(str, words)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for process in processes:
                process.stdout.readline()
            all_cpu = cpu_of_machine()
            began = time.monotonic()
            for process in processes:
                process.stdin.write("begin\n")
                process.stdin.flush()
            took = [waited(process, began) for process in in_order_of_end(processes)]
            wall = max(took)
            sent = int(json.loads(run("tc", "-n", server, "-s", "-j", "qdisc", "show", "dev", "server0"))[0]["bytes"])
            return {"ready_s": took, "server_cpu_s": cpu_s(about["pid"]) - before, "server_bytes": sent,
                    "server_rss_bytes": peak_rss_bytes(about["pid"]), "machine_busy": (cpu_of_machine() - all_cpu) / wall / os.cpu_count()}


def cpu_of_machine():
    """Seconds that all cores together were busy so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def in_order_of_end(processes):
    left = list(processes)
    while left:
        for process in [each for each in left if each.poll() is not None]:
            left.remove(process)
            yield process
        time.sleep(0.005)


def waited(process, began):
    took = time.monotonic() - began
    if process.returncode != 0:
        raise SystemExit(f"a client ended with {process.returncode}")
    return took


def jain(values):
    values = list(values)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def main():
    args = arguments(__doc__, repeats=1).parse_args()
    files = demo()
    image, profile = files["optimized"], files["profile"]
    described = headstart_json("inspect", image, "--json")
    name, hot = described["image_digest"], described["hot_segments"][0]["hot_compressed_bytes"]
    figures, alone = [], None
    for clients, own, shared, told in CASES:
        case = f"{clients} clients of {own} Mbit/s behind {shared} Mbit/s" + (f", told {told}" if told else "")
        runs = [starts(clients, own, shared, told, profile, image, name) for _ in range(args.repeats)]
        worst = spread(max(run["ready_s"]) for run in runs)
        alone = alone or worst["median"]
        limit = max(alone, clients * hot * 8 / (shared * 1e6), hot * 8 / (own * 1e6))
        detail = {"worst_s": worst, "median_s": spread(sorted(run["ready_s"])[clients // 2] for run in runs), "limit_s": round(limit, 3),
                  **{key: spread(run[key] for run in runs) for key in
                     ("server_cpu_s", "server_bytes", "server_rss_bytes", "machine_busy")}}
        progress(f"{case}: {detail['median_s']['median']} s, worst {worst['median']} s of {limit:.2f} s, the machine was busy "
                 f"for {detail['machine_busy']['median']:.0%}")
        figures.append(figure(f"worst start ÷ the link's limit, {case}", worst["median"] / limit, at_most=MOST_OF_LIMIT, detail=detail))
        if clients > 1:
            rates = min(jain(1 / took for took in run["ready_s"]) for run in runs)
            figures.append(figure(f"Jain's index of rates, {case}", rates, at_least=LEAST_JAIN))
    finish("http_clients", figures, args.repeats)


if __name__ == "__main__":
    main()
