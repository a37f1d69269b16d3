#!/usr/bin/env python3
"""Fifty starts at once from one `headstart serve --http` behind one gigabit: the last of them against the link's limit.

The case of `http_clients.py` that has a goal, alone and more often: every client has a gigabit of its own, a cache and a namespace.
Clients and server share this machine's cores, which real clients would not.
"""

from harness import arguments, figure, finish, progress, spread
from http_clients import LEAST_JAIN, MOST_OF_LIMIT, Case, Image, jain, limits, starts
from inputs import demo

FIFTY = Case(50, 0, 1000, 1000)


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    files = demo()
    start = Image.of(files["optimized"])
    runs = []
    for _ in range(args.repeats):
        run = starts(FIFTY, files["profile"], start, start)
        progress(f"worst {max(run['replay_s']):.2f} s; {run['cpu_s']:.1f} s of processor time, busy for {run['machine_busy']:.0%}, others {run['others_cpu_s']:.1f} s")
        runs.append(run)
    links_s = limits(FIFTY, runs[0], runs[0], runs[0], start, start)["links_s"]
    worst = spread(max(run["replay_s"]) for run in runs)
    detail = {"links_s": round(links_s, 3), "worst_s": worst, "all_worst_s": [round(max(run["replay_s"]), 3) for run in runs],
              "median_s": spread(sorted(run["replay_s"])[FIFTY.replays // 2] for run in runs),
              **{key: spread(run[key] for run in runs) for key in ("cpu_s", "others_cpu_s", "server_cpu_s", "server_rss_bytes", "machine_busy")}}
    noise = [worst["min"] / links_s, worst["max"] / links_s]
    rates = min(jain(1 / took for took in run["replay_s"]) for run in runs)
    finish("fifty_clients", [figure(f"worst start ÷ the link's limit, {FIFTY}", worst["median"] / links_s, at_most=MOST_OF_LIMIT, noise=noise, detail=detail),
                             figure(f"Jain's index of the rates, the least of the runs, {FIFTY}", rates, at_least=LEAST_JAIN)], args.repeats)


if __name__ == "__main__":
    main()
