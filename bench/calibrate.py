#!/usr/bin/env python3
"""`headstart lab calibrate` against the real thing: this machine's disk, and a loop device on it that a control group
holds back.

Each is calibrated by the probes; then two other workloads are replayed for real and on the model that was found.
"""

import os
import random
from contextlib import contextmanager
from pathlib import Path

from harness import MIB, benchmark, headstart_json, progress, scratch
from mounts import loop_device

FILE_BYTES = 512 * MIB
# What the group lets through.
THROTTLE = {"read_bps_device": 20_000_000, "read_iops_device": 400}
BLKIO = Path("/sys/fs/cgroup/blkio")

def workloads(count):
    """Two that no probe is, as iologs without times, so that reads are made one after another, or so many at once: a
    mixture of sizes at random, and runs of 16 pages at random places."""
    random.seed(5)
    mixed = [(random.randrange(FILE_BYTES // MIB) * MIB, random.choice([8, 16, 32, 128]) * 1024) for _ in range(count)]
    runs = [(place + page * 4096, 4096) for place in random.sample(range(0, FILE_BYTES - MIB, MIB), min(count // 16, 500))
            for page in range(16)]
    for name, reads, depth in (("mixed", mixed, 2), ("runs", runs, 8)):
        path = scratch() / f"{name}.log"
        path.write_text("fio version 2 iolog\n" + "".join(f"f read {offset} {length}\n" for offset, length in reads))
        yield name, path, depth

@contextmanager
def throttled(device):
    """This process reads the device no faster than a control group says."""
    folder, number = BLKIO / f"headstart-{os.getpid()}", os.stat(device).st_rdev
    folder.mkdir()
    try:
        for file, limit in THROTTLE.items():
            (folder / f"blkio.throttle.{file}").write_text(f"{os.major(number)}:{os.minor(number)} {limit}")
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (BLKIO / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()

def judge(bench, name, path, count):
    """The figures of one device."""
    model = scratch() / f"{name}.toml"
    said = headstart_json("lab", "calibrate", path, "-o", model, "--name", "found", "--time", "1")
    del said["path"]
    progress(f"{name}: the model is off by {said['error']:.2f} on other probes")
    for load, log, depth in workloads(count):
        replay = lambda *where: headstart_json("lab", "replay", log, "--depth", depth, *where)["seconds"]
        real = bench.turns({"real": lambda: replay("--on", path)}).median("real", "value")
        predicted = replay("--medium", model)
        bench.figure(f"{name}, {load}: predicted is off by", abs(predicted / real - 1), at_most=0.20,
                     detail={"measured_s": real.runs.values("real", "value"), "predicted_s": predicted,
                             "calibration": said})

@benchmark(repeats=3)
def measure(bench):
    file = scratch() / "disk"
    progress("writing half a GiB")
    with file.open("wb") as out:
        for _ in range(FILE_BYTES // MIB):
            out.write(os.urandom(MIB))
        os.fsync(out.fileno())
    judge(bench, "this disk", file, 4_000)
    with loop_device(file, "--direct-io=on") as loop, throttled(loop):
        judge(bench, "throttled loop", loop, 400)
    bench.more["throttle"] = THROTTLE
