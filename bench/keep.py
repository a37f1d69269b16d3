#!/usr/bin/env python3
"""Synced writes of 4 KiB at random over NBD, one writer and eight: an image with an overlay (`serve --keep`) against
qemu-nbd over a qcow2 file whose backing file is the same disk.

Each writer flushes after each write and has one request in flight (fio's nbd engine, fsync=1). Both servers write back
(`--cache=writeback`), both files lie in one folder, each run has fresh ones. A plain file with fdatasync is what the
medium gives.
"""

import json
import random
import signal
import subprocess
import time
from functools import partial

from harness import benchmark, headstart, headstart_path, run, scratch
from inputs import cache, kept
from mounts import program

DISK_BYTES = 256 << 20
SECONDS = 5

def disk():
    """A raw disk of which half of each block is noise, and its image."""
    def write(draft):
        noise = random.Random(64)
        with draft.open("wb") as file:
            for _ in range(DISK_BYTES >> 12):
                file.write(noise.randbytes(2048) + bytes(2048))
    raw = kept("keep.raw", [], write)
    return raw, kept("keep.hsi", [raw], lambda draft: headstart("build", "--raw", raw, "-o", draft, "--codec", "zstd:1"))

def writes(writers, *engine):
    """What fio says: synced writes a second of all writers, and how long a sync took."""
    said = run("fio", "--name=writes", *engine, "--rw=randwrite", "--bs=4k", "--iodepth=1", f"--numjobs={writers}",
               "--group_reporting", f"--size={DISK_BYTES}", "--time_based", f"--runtime={SECONDS}", "--norandommap",
               "--randseed=64", "--output-format=json")
    job = json.loads(said[said.index("{"):])["jobs"][0]
    syncs = job["sync"]["lat_ns"]
    return {"writes_per_s": job["write"]["iops"], "sync_us": syncs["mean"] / 1e3,
            "sync_p99_us": syncs.get("percentile", {}).get("99.000000", 0) / 1e3}

def fresh(name):
    """A path in the folder of inputs, which is on a medium, where nothing is."""
    path = cache() / "bench" / name
    path.unlink(missing_ok=True)
    return path

def served(writers, socket, export, words):
    """The writes to a server that `words` start."""
    socket.unlink(missing_ok=True)
    with program(*words, ready=socket.exists, end=signal.SIGINT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        time.sleep(0.2)
        return writes(writers, "--ioengine=nbd", f"--uri=nbd+unix:///{export}?socket={socket}", "--fsync=1")

def ours(image, writers):
    overlay, socket = fresh("keep.hsk"), scratch() / "ours"
    result = served(writers, socket, "disk", [headstart_path(), "-q", "serve", f"disk={image}", "--keep", overlay,
                                              "--nbd", f"unix:{socket}", "--unsupervised", "--no-prefetch"])
    overlay.unlink()
    return result

def qcow2(raw, writers):
    overlay, socket = fresh("keep.qcow2"), scratch() / "theirs"
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", raw, "-F", "raw", overlay)
    result = served(writers, socket, "", ["qemu-nbd", "--format=qcow2", "--cache=writeback", "--persistent",
                                          "--shared=16", f"--socket={socket}", overlay])
    overlay.unlink()
    return result

def plain(writers):
    file = fresh("keep.plain")
    result = writes(writers, "--ioengine=psync", f"--filename={file}", "--fdatasync=1", "--fallocate=none",
                    "--overwrite=1")
    file.unlink()
    return result

@benchmark(repeats=3)
def measure(bench):
    raw, image = disk()
    cases = {}
    for writers in (1, 8):
        cases |= {f"serve --keep, {writers}": partial(ours, image, writers),
                  f"qemu-nbd, qcow2, {writers}": partial(qcow2, raw, writers),
                  f"a plain file, {writers}": partial(plain, writers)}
    runs = bench.turns(bench.chosen(cases), say="{writes_per_s:.0f} synced writes/s, {sync_us:.0f} µs a sync")
    for writers, least in ((1, 1.8), (8, 5)):
        keep = f"serve --keep, {writers}"
        bench.figure(f"synced writes of 4 KiB, {writers} writers, ÷ qemu-nbd over qcow2",
                     runs.ratio(keep, f"qemu-nbd, qcow2, {writers}", "writes_per_s"), at_least=least)
        bench.figure(f"synced writes of 4 KiB, {writers} writers", runs.median(keep, "writes_per_s"), unit="1/s")
        bench.figure(f"synced writes of 4 KiB, {writers} writers, ÷ a plain file",
                     runs.ratio(keep, f"a plain file, {writers}", "writes_per_s"))
