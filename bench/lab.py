#!/usr/bin/env python3
"""What the experiments of `headstart lab` show: the figures of 1991, fairness, demand during prefetch, elevators, ageing.

They run in virtual time, so their figures do not depend on the machine, and one run of each is enough.
"""

from harness import arguments, figure, finish, headstart_json

# The experiments draw their random numbers from it.
SEED = 1


def limits(target):
    """The limit of a target such as '≤ 1.5', as arguments of `figure`."""
    if not target:
        return {}
    sign, limit = target.split()
    return {"at_most" if sign == "≤" else "at_least": float(limit)}


def main():
    args = arguments(__doc__, repeats=1).parse_args()
    figures = []
    for experiment in headstart_json("lab", "list", "--json")["experiments"]:
        name = experiment["name"]
        report = headstart_json("lab", "run", name, "--seed", SEED, "--json")
        for index, each in enumerate(report["figures"]):
            detail = {"switched_off": each["off"], "paper": each["paper"]}
            if index == 0:
                detail["rows"] = report["rows"]
            figures.append(figure(f"{name}: {each['name']}", each["value"], **limits(each["target"]), detail=detail))
    finish("lab-1991", figures, args.repeats, command="bench/lab.py", seed=SEED)


if __name__ == "__main__":
    main()
