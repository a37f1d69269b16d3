#!/usr/bin/env python3
"""What the experiments of `headstart lab` show: what five documents published, fairness, demand during prefetch,
elevators, ageing.

They run in virtual time, so their figures do not depend on the machine, and one run of each is enough. How long all
of them take does: it is judged as well. With --real, what the kernel can run for real is added (as root).
"""

import time

from harness import arguments, figure, finish, headstart_json

# The experiments draw their random numbers from it.
SEED = 1
# Of these the kernel can show something.
REAL = ["flash-2012", "flash-elevators-2012", "memory-2005"]


def limits(target):
    """The limit of a target such as '≤ 1.5', as arguments of `figure`."""
    if not target:
        return {}
    sign, limit = target.split()
    return {"at_most" if sign == "≤" else "at_least": float(limit)}


def main():
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--real", action="store_true", help="run on this machine's kernel, too")
    args = parser.parse_args()
    figures = []
    began = time.monotonic()
    reports = headstart_json("lab", "run", "all", "--seed", SEED, "--json")["experiments"]
    took = time.monotonic() - began
    for report in reports:
        name = report["experiment"]
        for index, each in enumerate(report["figures"]):
            detail = {key: each[key] for key in ("source", "published", "ratio", "verdict", "reason")}
            detail["switched_off"] = each["off"]
            if index == 0:
                detail["rows"] = report["rows"]
            figures.append(figure(f"{name}: {each['name']}", each["value"], **limits(each["target"]), detail=detail))
    figures.append(figure("all experiments (s)", took, at_most=300))
    for name in REAL if args.real else []:
        for each in headstart_json("lab", "run", name, "--seed", SEED, "--real", "--json")["real"]:
            figures.append(figure(f"{name}, for real: {each['name']}", each["value"], detail={"how": each["how"]}))
    finish("lab", figures, args.repeats, command="bench/lab.py", seed=SEED)


if __name__ == "__main__":
    main()
