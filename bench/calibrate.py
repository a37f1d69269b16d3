#!/usr/bin/env python3
"""`headstart lab calibrate` against the real thing: this machine's disk, and a loop device on it that a control group holds back.

Each is calibrated by the probes; then two other workloads are replayed for real and on the model that was found.
"""

import os
import random
import subprocess
from pathlib import Path

from harness import alternate, arguments, figure, finish, headstart_json, progress, scratch

MIB = 1 << 20
FILE_BYTES = 512 * MIB
# What the group lets through, and how far a prediction may be off.
THROTTLE = {"read_bps_device": 20_000_000, "read_iops_device": 400}
GOAL = 0.20
BLKIO = Path("/sys/fs/cgroup/blkio")


def workload(name, reads):
    """An iolog of these reads; no times, so that they are made one after another, or so many at once."""
    path = scratch() / f"{name}.log"
    path.write_text("fio version 2 iolog\n" + "".join(f"f read {offset} {bytes}\n" for offset, bytes in reads))
    return path


def workloads(count):
    """Two that no probe is: a mixture of sizes at random, and runs of 16 pages at random places."""
    random.seed(5)
    mixed = [(random.randrange(FILE_BYTES // MIB) * MIB, random.choice([8, 16, 32, 128]) * 1024) for _ in range(count)]
    runs = [(place + page * 4096, 4096) for place in random.sample(range(0, FILE_BYTES - MIB, MIB), min(count // 16, 500))
            for page in range(16)]
    return {"mixed": (workload("mixed", mixed), 2), "runs": (workload("runs", runs), 8)}


class Throttled:
    """A control group whose members read a device no faster than it says."""

    def __init__(self, device):
        self.folder = BLKIO / f"headstart-{os.getpid()}"
        self.folder.mkdir()
        number = os.stat(device).st_rdev
        for file, limit in THROTTLE.items():
            (self.folder / f"blkio.throttle.{file}").write_text(f"{os.major(number)}:{os.minor(number)} {limit}")

    def __enter__(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        (BLKIO / "cgroup.procs").write_text(str(os.getpid()))
        self.folder.rmdir()


def judge(name, path, count, repeats):
    """The figures of one device."""
    model = scratch() / f"{name}.toml"
    said = headstart_json("lab", "calibrate", path, "-o", model, "--name", "found", "--time", "1", "--json")
    del said["path"]
    progress(f"{name}: the model is off by {said['error']:.2f} on other probes")
    for load, (log, depth) in workloads(count).items():
        replay = lambda *where: headstart_json("lab", "replay", log, "--depth", depth, *where, "--json")["seconds"]
        real = sorted(run for run in alternate({"real": lambda: replay("--on", path)}, repeats)["real"])
        measured, predicted = real[len(real) // 2], replay("--medium", model)
        detail = {"measured_s": real, "predicted_s": predicted, "calibration": said}
        yield figure(f"{name}, {load}: predicted is off by", abs(predicted / measured - 1), at_most=GOAL, detail=detail)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    file = scratch() / "disk"
    progress("writing half a GiB")
    with file.open("wb") as out:
        for _ in range(FILE_BYTES // MIB):
            out.write(os.urandom(MIB))
        os.fsync(out.fileno())
    figures = list(judge("this disk", file, 4_000, args.repeats))
    loop = subprocess.run(["losetup", "--find", "--show", "--read-only", "--direct-io=on", file], check=True,
                          capture_output=True, text=True).stdout.strip()
    try:
        with Throttled(loop):
            figures += judge("throttled loop", loop, 400, args.repeats)
    finally:
        subprocess.run(["losetup", "--detach", loop], check=True)
    finish("calibrate", figures, args.repeats, throttle=THROTTLE)


if __name__ == "__main__":
    main()
