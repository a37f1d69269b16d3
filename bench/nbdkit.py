#!/usr/bin/env python3
"""Cold random 4 KiB reads over NBD, 16 in flight, from a local disk: an unoptimized image against nbdkit with its cache
and readahead filters, over the nearest that it reads to our zstd chunks.

nbdkit has no filter for zstd. It reads an xz file of blocks as large as our windows by its xz filter, and through its
nbd plugin what `qemu-nbd` reads: a qcow2 file with clusters by zstd. Each server is fresh, and the page cache is
emptied before it starts.
"""

import json
import signal
import subprocess
from contextlib import ExitStack

from harness import benchmark, headstart_path, run, scratch
from inputs import demo, exported, image, kept
from mounts import drop_caches, program

IN_FLIGHT = 16

def reads(uri):
    """What fio says of its reads: how many a second, and how long they took."""
    said = run("fio", "--name=random", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k",
               f"--iodepth={IN_FLIGHT}", "--number_ios=20000", "--randseed=20", "--norandommap", "--output-format=json")
    read = json.loads(said[said.index("{"):])["jobs"][0]["read"]
    times = read["clat_ns"]["percentile"]
    return {"reads_per_s": read["iops"], "p50_us": times["50.000000"] / 1e3, "p99_us": times["99.000000"] / 1e3}

def cold(*servers, export=""):
    """One run with nothing of any file in memory. Servers are (command, socket); the last is read from."""
    drop_caches()
    with ExitStack() as stack:
        for words, socket in servers:
            socket.unlink(missing_ok=True)
            stack.enter_context(program(*words, ready=socket.exists, end=signal.SIGINT, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))
        return reads(f"nbd+unix:///{export}?socket={servers[-1][1]}")

@benchmark(repeats=3)
def measure(bench):
    files = demo()
    plain = image(files["root"], "demo")
    packed = kept("root.raw.xz", [files["raw"]], lambda draft: draft.write_bytes(subprocess.run(
        ["xz", "-c", "-6", "-T2", f"--block-size={128 << 10}", files["raw"]], check=True,
        stdout=subprocess.PIPE).stdout))
    clusters = exported(plain, "root.qcow2", "--format", "qcow2", "--compress")
    ours, theirs, below = (scratch() / name for name in ("ours", "theirs", "below"))
    nbdkit = ["nbdkit", "--foreground", "--unix", theirs, "--readonly", "--threads=16", "--filter=cache",
              "--filter=readahead"]
    serve = [headstart_path(), "-q", "serve", f"disk={plain}", "--nbd", f"unix:{ours}", "--unsupervised"]
    qemu = ["qemu-nbd", "--read-only", "--format=qcow2", "--persistent", "--shared=16", f"--socket={below}", clusters]
    runs = bench.turns({
        "headstart": lambda: cold((serve, ours), export="disk"),
        "nbdkit, xz": lambda: cold(([*nbdkit, "--filter=xz", "file", packed, "xz-max-depth=64"], theirs)),
        "nbdkit, qemu-nbd, qcow2 by zstd": lambda: cold((qemu, below), ([*nbdkit, "nbd", f"socket={below}"], theirs)),
    }, say="{reads_per_s:.0f} reads/s, p99 {p99_us:.0f} µs")
    sizes = {path.name: path.stat().st_size for path in (plain, packed, clusters)}
    for name in [*runs][1:]:
        bench.figure(f"cold random reads of 4 KiB, 16 in flight, ÷ {name}", runs.ratio("headstart", name, "reads_per_s"),
                     at_least=1.5, detail={"bytes": sizes})
