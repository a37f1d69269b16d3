#!/usr/bin/env python3
"""Writes over NBD to an image with an overlay (`serve --keep`), against qemu-nbd over a qcow2 file whose backing file
is the same disk, and against a plain file: synced ones of 4 KiB at random by one writer and eight, and all of the disk
in order. Also what fio's verify says, at once and of a server that was started again, reads of what was never
written, with and without an overlay, and of a whole disk that was written at random and compacted, against qemu-nbd
over a plain file.

Each writer has one request in flight (fio's nbd engine). Both servers write back (`--cache=writeback`), both files lie
in one folder, each run has fresh ones. A plain file with fdatasync is what the medium gives.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from functools import partial

from harness import benchmark, headstart, headstart_path, run, scratch
from inputs import cache, kept
from mounts import program

DISK_BYTES = 256 << 20
VERIFIED_BYTES = 64 << 20
SECONDS = 5
WHOLE = ["--bs=1M", f"--size={DISK_BYTES}"]
TIMED = ["--bs=4k", f"--size={DISK_BYTES}", "--time_based", f"--runtime={SECONDS}", "--norandommap"]
VERIFIED = ["--rw=randwrite", "--bs=4k", f"--size={VERIFIED_BYTES}", "--fsync=8", "--verify=crc32c", "--verify_fatal=1",
            "--verify_state_save=0"]

def disk():
    """A raw disk of which half of each block is noise, and its image."""
    def write(draft):
        noise = random.Random(64)
        with draft.open("wb") as file:
            for _ in range(DISK_BYTES >> 12):
                file.write(noise.randbytes(2048) + bytes(2048))
    raw = kept("keep.raw", [], write)
    return raw, kept("keep.hsi", [raw], lambda draft: headstart("build", "--raw", raw, "-o", draft, "--codec", "zstd:1"))

def fio(*words):
    """What fio says of a job. It ends with an error where a block is not what was written."""
    said = run("fio", "--name=job", *words, "--iodepth=1", "--group_reporting", "--randseed=64", "--output-format=json")
    return json.loads(said[said.index("{"):])["jobs"][0]

def synced(writers, *target):
    """Synced writes a second of all writers, and how long a sync took."""
    job = fio(*TIMED, f"--numjobs={writers}", *target)
    syncs = job["sync"]["lat_ns"]
    return {"writes_per_s": job["write"]["iops"], "sync_us": syncs["mean"] / 1e3,
            "sync_p99_us": syncs.get("percentile", {}).get("99.000000", 0) / 1e3}

def in_order(*target):
    """MB/s of writing the whole disk in order, with the sync at the end."""
    began = time.monotonic()
    fio(*target, *WHOLE, "--rw=write", "--end_fsync=1")
    return {"mb_per_s": DISK_BYTES / 1e6 / (time.monotonic() - began)}

def fresh(name):
    """A path in the folder of inputs, which is on a medium, where nothing is."""
    path = cache() / "bench" / name
    path.unlink(missing_ok=True)
    return path

@contextmanager
def served(export, *words):
    """A server that `words` and its socket start: fio's words for it."""
    socket = scratch() / "socket"
    socket.unlink(missing_ok=True)
    words = [str(word).format(socket=socket) for word in words]
    with program(*words, ready=socket.exists, end=signal.SIGINT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        time.sleep(0.2)
        yield "--ioengine=nbd", f"--uri=nbd+unix:///{export}?socket={socket}"

def serve(image, *flags):
    return served("disk", headstart_path(), "-q", "serve", f"disk={image}", "--nbd", "unix:{socket}", "--unsupervised",
                  "--no-prefetch", *flags)

def ours(image, case):
    overlay = fresh("keep.hsk")
    with serve(image, "--keep", overlay) as target:
        result = case(*target)
    overlay.unlink()
    return result

def qcow2(raw, case):
    overlay = fresh("keep.qcow2")
    run("qemu-img", "create", "-q", "-f", "qcow2", "-b", raw, "-F", "raw", overlay)
    with served("", "qemu-nbd", "--format=qcow2", "--cache=writeback", "--persistent", "--shared=16",
                "--socket={socket}", overlay) as target:
        result = case(*target)
    overlay.unlink()
    return result

def plain(writers, *words):
    """Synced writes to a file that is not there before, so that those in order extend it."""
    file = fresh("keep.plain")
    result = synced(writers, *words, "--ioengine=psync", f"--filename={file}", "--fdatasync=1", "--fallocate=none")
    file.unlink()
    return result

def verified(image):
    """Blocks that fio wrote and found again, at once and once another server had the overlay."""
    overlay = fresh("keep.hsk")
    found = 0
    for when in ("--do_verify=1", "--verify_only=1"):
        with serve(image, "--keep", overlay) as target:
            found += fio(*target, *VERIFIED, when)["read"]["total_ios"]
    overlay.unlink()
    return {"blocks": found}

def reads(image, *flags):
    """The whole disk in order, and then blocks of it at random."""
    with serve(image, *flags) as target:
        whole, some = (fio(*target, *words)["read"] for words in ((*WHOLE, "--rw=read"), (*TIMED, "--rw=randread")))
    return {"mb_per_s": whole["bw_bytes"] / 1e6, "reads_per_s": some["iops"]}

def kept_reads(image):
    overlay = fresh("keep.hsk")
    result = reads(image, "--keep", overlay)
    overlay.unlink()
    return result

def cold(path):
    """Has the kernel forget a file's pages."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

def whole(*target):
    return {"mb_per_s": fio(*target, *WHOLE, "--rw=read")["read"]["bw_bytes"] / 1e6}

def compacted(image):
    """The whole disk in order, from a medium, of which each block was written once, at random."""
    overlay = fresh("keep.hsk")
    with serve(image, "--keep", overlay) as target:
        fio(*target, "--rw=randwrite", "--bs=4k", f"--size={DISK_BYTES}", "--end_fsync=1")
    headstart("overlay", "compact", overlay)
    cold(overlay)
    with serve(image, "--keep", overlay) as target:
        result = whole(*target)
    overlay.unlink()
    return result

def plain_over_nbd(raw):
    """The same of a plain file."""
    file = fresh("keep.plain")
    shutil.copy(raw, file)
    cold(file)
    with served("", "qemu-nbd", "--format=raw", "--persistent", "--socket={socket}", file) as target:
        result = whole(*target)
    file.unlink()
    return result

def cases(raw, image):
    found = {"appends to a plain file": partial(plain, 1, "--rw=write", f"--size={DISK_BYTES << 4}")}
    for writers in (1, 8):
        case = partial(synced, writers, "--rw=randwrite", "--fsync=1")
        found |= {f"serve --keep, {writers}": partial(ours, image, case),
                  f"qemu-nbd, qcow2, {writers}": partial(qcow2, raw, case),
                  f"a plain file, {writers}": partial(plain, writers, "--rw=randwrite", "--overwrite=1")}
    return found | {"serve --keep, in order": partial(ours, image, in_order),
                    "qemu-nbd, qcow2, in order": partial(qcow2, raw, in_order),
                    "serve, reads": partial(reads, image),
                    "serve --keep, reads": partial(kept_reads, image),
                    "serve --keep, verify": partial(verified, image),
                    "serve --keep, compacted": partial(compacted, image),
                    "qemu-nbd, a plain file, compacted": partial(plain_over_nbd, raw)}

@benchmark(repeats=3)
def measure(bench):
    runs = bench.turns(bench.chosen(cases(*disk())), say=lambda **found: ", ".join(
        f"{key} {value:.0f}" for key, value in found.items()))
    for writers, least in ((1, 1.8), (8, 5)):
        keep = f"serve --keep, {writers}"
        bench.figure(f"synced writes of 4 KiB, {writers} writers, ÷ qemu-nbd over qcow2",
                     runs.ratio(keep, f"qemu-nbd, qcow2, {writers}", "writes_per_s"), at_least=least)
        bench.figure(f"synced writes of 4 KiB, {writers} writers", runs.median(keep, "writes_per_s"), unit="1/s")
        bench.figure(f"synced writes of 4 KiB, {writers} writers, ÷ a plain file",
                     runs.ratio(keep, f"a plain file, {writers}", "writes_per_s"))
    bench.figure("a sync over NBD ÷ fdatasync of an append of 4 KiB to a plain file",
                 runs.ratio("serve --keep, 1", "appends to a plain file", "sync_us"), at_most=1.3)
    bench.figure("the whole disk written in order ÷ qemu-nbd over qcow2",
                 runs.ratio("serve --keep, in order", "qemu-nbd, qcow2, in order", "mb_per_s"), at_least=1)
    for what, key in (("the whole disk read in order", "mb_per_s"), ("reads of 4 KiB at random", "reads_per_s")):
        bench.figure(f"{what} where nothing was written, time ÷ without --keep",
                     runs.ratio("serve, reads", "serve --keep, reads", key), at_most=1.03)
    bench.figure("blocks that fio's verify finds as they were written, and again after a restart",
                 runs.median("serve --keep, verify", "blocks"), at_least=2 * (VERIFIED_BYTES >> 12))
    bench.figure("the whole disk read in order after `overlay compact`, ÷ a plain file over qemu-nbd",
                 runs.ratio("serve --keep, compacted", "qemu-nbd, a plain file, compacted", "mb_per_s"), at_least=0.9)
