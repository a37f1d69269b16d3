#!/usr/bin/env python3
"""Cold random 4 KiB reads over NBD, 16 in flight, from a local disk: an unoptimised image against nbdkit with its cache and
readahead filters, over the nearest that it reads to our zstd chunks.

nbdkit has no filter for zstd. It reads an xz file of blocks as large as our windows by its xz filter, and through its nbd
plugin what `qemu-nbd` reads: a qcow2 file with clusters by zstd. Each server is fresh, and the page cache is emptied before it starts.
"""

import contextlib
import json
import signal
import subprocess
import time
from pathlib import Path

from harness import alternate, arguments, figure, finish, headstart, headstart_path, progress, run, scratch, spread_of
from inputs import demo, image, kept

WINDOW = 128 << 10
READS = 20_000
IN_FLIGHT = 16
GOAL = 1.5


def xz(raw):
    """The disk in blocks of our window's size, each of which xz decompresses alone."""
    return kept("root.raw.xz", [raw], lambda draft: draft.write_bytes(
        subprocess.run(["xz", "-c", "-6", "-T2", f"--block-size={WINDOW}", raw], check=True, stdout=subprocess.PIPE).stdout))


def qcow2(image_path):
    """The disk in clusters by zstd, as headstart exports it."""
    return kept("root.qcow2", [image_path],
                lambda draft: headstart("export", image_path, "--format", "qcow2", "--compress", "-o", draft))


@contextlib.contextmanager
def served(socket, *commands):
    """Servers, of which the last listens on `socket`."""
    processes = []
    try:
        for words, listens in commands:
            processes.append(subprocess.Popen([*map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            while not listens.exists():
                if processes[-1].poll() is not None:
                    raise SystemExit(f"{words[0]} ended before it listened")
                time.sleep(0.01)
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGINT)
            process.wait(timeout=30)
        for _, listens in commands:
            listens.unlink(missing_ok=True)


def reads(uri):
    """What fio says of its reads: how many a second, and how long they took."""
    said = run(
        "fio", "--name=random", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k", f"--iodepth={IN_FLIGHT}",
        f"--number_ios={READS}", "--randseed=20", "--norandommap", "--output-format=json")
    read = json.loads(said[said.index("{"):])["jobs"][0]["read"]
    return {"reads_per_s": read["iops"], "p50_us": read["clat_ns"]["percentile"]["50.000000"] / 1e3,
            "p99_us": read["clat_ns"]["percentile"]["99.000000"] / 1e3}


def cold(*commands, export=""):
    """One run with nothing of any file in memory."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")
    socket = commands[-1][1]
    with served(socket, *commands):
        return reads(f"nbd+unix:///{export}?socket={socket}")


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    files = demo()
    plain = image(files["root"], "demo", window="128K")
    packed, clusters = xz(files["raw"]), qcow2(plain)
    ours, theirs, below = (scratch() / name for name in ("ours", "theirs", "below"))
    filters = ["--filter=cache", "--filter=readahead"]
    nbdkit = ["nbdkit", "--foreground", "--unix", theirs, "--readonly", "--threads=16"]
    cases = {
        "headstart": lambda: cold(
            ([headstart_path(), "-q", "serve", f"disk={plain}", "--nbd", f"unix:{ours}", "--unsupervised"], ours), export="disk"),
        "nbdkit, xz": lambda: cold(([*nbdkit, *filters, "--filter=xz", "file", packed, "xz-max-depth=64"], theirs)),
        "nbdkit, qemu-nbd, qcow2 by zstd": lambda: cold(
            (["qemu-nbd", "--read-only", "--format=qcow2", "--persistent", "--shared=16", f"--socket={below}", clusters], below),
            ([*nbdkit, *filters, "nbd", f"socket={below}"], theirs)),
    }
    results = alternate(cases, args.repeats, lambda r: f"{r['reads_per_s']:.0f} reads/s, p99 {r['p99_us'] / 1e3:.1f} ms")
    detail = {name: {key: spread_of(of, key) for key in of[0]} for name, of in results.items()}
    detail["bytes"] = {"headstart": plain.stat().st_size, "xz": packed.stat().st_size, "qcow2": clusters.stat().st_size}
    median = {name: detail[name]["reads_per_s"]["median"] for name in cases}
    figures = []
    for name in list(cases)[1:]:
        ratio = median["headstart"] / median[name]
        figures.append(figure(f"cold random reads of 4 KiB, 16 in flight, ÷ {name}", ratio, at_least=GOAL, detail=detail))
        detail = {}
    progress(f"medians: {median}")
    finish("nbdkit", figures, args.repeats)


if __name__ == "__main__":
    main()
