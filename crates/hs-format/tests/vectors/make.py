#!/usr/bin/env python3
"""Made the golden files of format version 1. They are kept as they are: this says where they come from.

    make.py HEADSTART FOLDER

It needs root, a C compiler, qemu-io and zstd. A file that FOLDER has already is never written again: a later
version puts its files into a folder of its own.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The program that the image starts: it reads the files that it is given, without a C library.
READER = r"""
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
void begin(long *stack) {
    char **names = (char **)(stack + 2);
    static char page[4096];
    for (long i = 0; i < stack[0] - 1; i++) {
        long file = call(2, (long)names[i], 0, 0);
        while (call(0, file, (long)page, sizeof page) > 0) {}
    }
    call(60, 0, 0, 0);
}
__attribute__((naked)) void _start(void) { __asm__("mov %rsp, %rdi; call begin"); }
"""
STATIC = ["-O1", "-static", "-nostdlib", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-s",
          "-Wl,--build-id=none", "-Wl,-z,noseparate-code"]
COMMAND = ["/bin/reader", "/etc/words", "/etc/noise"]
BLOCK = 4096
# 2026-11-28: when the sampled pack's disk was written.
WRITTEN = 1795824000


def run(*words):
    subprocess.run([str(word) for word in words], check=True)


def tree(work):
    """A root of a program of 0.8 KiB and three files."""
    root = work / "root"
    for name in ["bin", "etc", "proc", "dev"]:
        (root / name).mkdir(parents=True)
    (work / "reader.c").write_text(READER)
    run("cc", *STATIC, work / "reader.c", "-o", root / "bin/reader")
    source = random.Random(42)
    (root / "etc/noise").write_bytes(source.randbytes(2 * BLOCK - 7))
    (root / "etc/motd").write_text("hello from format version 1\n" * 250)
    words = ["alpha ", "beta ", "gamma "]
    (root / "etc/words").write_text("".join(source.choice(words) for _ in range(1300)))
    return root


def write(headstart, work, overlay, image, *commands, is_killed=False):
    """Serves a disk with changes, and has qemu-io write to it. A server that ends stores the map."""
    socket = work / "socket"
    server = subprocess.Popen([headstart, "-q", "serve", "--unsupervised", "--nbd", f"unix:{socket}",
                               "--keep", overlay, image])
    while not socket.exists():
        assert server.poll() is None, "the server ended"
        time.sleep(0.05)
    words = [word for command in [*commands, "flush"] for word in ["-c", command]]
    run("qemu-io", "-f", "raw", f"nbd+unix:///{image.stem}?socket={socket}", *words)
    if is_killed:
        server.kill()
        server.wait()
    else:
        server.terminate()
        assert server.wait() == 0
    socket.unlink(missing_ok=True)


def images(headstart, work):
    """Each codec; with and without a hot region and hints; a disk that does not end with a block."""
    root = tree(work)
    source = random.Random(43)
    (work / "odd.raw").write_bytes(source.randbytes(BLOCK) + bytes(6 * BLOCK) + b"the end " * 700)
    run(headstart, "-q", "build", "--raw", work / "odd.raw", "-o", work / "store.hsi", "--codec", "store",
        "--window", "8K")
    for codec, window in [("zstd:9", "16K"), ("lz4:9", "4K"), ("zlib:6", "8K")]:
        name = codec.split(":")[0]
        run(headstart, "-q", "build", root, "-o", work / f"{name}.hsi", "--codec", codec, "--window", window)
    run(headstart, "-q", "profile", work / "zstd.hsi", "-o", work / "start.hsp", "--", *COMMAND)
    run(headstart, "-q", "optimize", work / "zstd.hsi", "-p", work / "start.hsp", "-o", work / "hot.hsi",
        "--first-chunk", "8K", "--max-chunk", "8K")


def changes(headstart, work):
    """An overlay with a snapshot, records behind its map, zeros and discards; and a delta of it."""
    overlay, hot = work / "changes.hsk", work / "hot.hsi"
    write(headstart, work, overlay, hot, "write -P 17 100k 20k", "write -z 120k 8k")
    run(headstart, "-q", "overlay", "snapshot", overlay, "early")
    write(headstart, work, overlay, hot, "write -P 34 104k 4k", "discard 112k 8k")
    write(headstart, work, overlay, hot, "write -P 51 200k 5k", "write -z 120k 4k", is_killed=True)
    run(headstart, "-q", "commit", hot, overlay, "--delta", "-o", work / "delta.hsi")


def packs(headstart, work):
    """Both kinds of trust. Their disk is that of `hot.hsi`."""
    disk = work / "disk.raw"
    run(headstart, "-q", "export", work / "hot.hsi", "-o", disk, "--format", "raw")
    os.utime(disk, (WRITTEN, WRITTEN))
    for name, flags in [("whole.hspk", []), ("sampled.hspk", ["--sampled"])]:
        run(headstart, "-q", "pack", disk, "-p", work / "start.hsp", "-o", work / name, *flags)


def pointer(headstart, work):
    """A channel. The secret key is not kept."""
    run(headstart, "-q", "keygen", work / "publisher")
    run(headstart, "-q", "sign", work / "hot.hsi", "--key", work / "publisher.key", "--channel", "stable",
        "--date", "2026-11-28", "--expires", "never")


def delta(headstart, work, folder, name, *commands):
    """A delta of the `hot.hsi` that is kept."""
    overlay, image = work / f"{name}.hsk", folder / "hot.hsi"
    write(headstart, work, overlay, image, *commands)
    run(headstart, "-q", "commit", image, overlay, "--delta", "-o", work / name)


def borrowed(headstart, work, folder):
    """It borrows six of the seven hot chunks. It came a little later than the others: `delta.hsi` is of a
    program that stored hot chunks in any case, and this one of a program that borrowed no chunk with a stale
    block."""
    delta(headstart, work, folder, "borrowed.hsi", "write -P 68 148k 4k")


def stale(headstart, work, folder):
    """It borrows all seven hot chunks, of which one has a stale block, and stores the block that is new."""
    delta(headstart, work, folder, "stale.hsi", "write -P 85 148k 4k")


def like(headstart, work, _):
    """An image that is laid out like one before it, and stores its hot chunk, of which a block is stale."""
    root, before, profile = tree(work), work / "before.hsi", work / "before.hsp"
    run(headstart, "-q", "build", root, "-o", work / "cold.hsi", "--codec", "zstd:9", "--window", "16K")
    run(headstart, "-q", "profile", work / "cold.hsi", "-o", profile, "--", *COMMAND)
    run(headstart, "-q", "optimize", work / "cold.hsi", "-p", profile, "-o", before)
    words = (root / "etc/words").read_text()
    (root / "etc/words").write_text("omega" + words[5:])
    run(headstart, "-q", "build", root, "-o", work / "like.hsi", "--like", before, "--codec", "zstd:9")


# What came later, one by one.
LATER = {"borrowed.hsi": borrowed, "stale.hsi": stale, "like.hsi": like}


def first_ones(headstart, work):
    """All others."""
    for step in [images, changes, packs, pointer]:
        step(headstart, work)
    # Of two segments of 1 MiB little is used.
    run("zstd", "-q", "-19", work / "changes.hsk", "-o", work / "changes.hsk.zst")
    return [*work.glob("*.hsi"), *work.glob("*.hspk"), work / "start.hsp", work / "changes.hsk.zst",
            work / "stable.minisig", work / "publisher.pub"]


def main():
    headstart, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if (folder / "hot.hsi").exists():
            made = [work / name for name in LATER if not (folder / name).exists()]
            for path in made:
                LATER[path.name](headstart, work, folder)
        else:
            made = first_ones(headstart, work)
        for path in sorted(made):
            target = folder / path.name
            assert not target.exists(), f"{target} is kept as it is"
            assert path.stat().st_size <= 64 << 10, f"{path}: {path.stat().st_size} bytes"
            shutil.copyfile(path, target)


main()
