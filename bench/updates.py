#!/usr/bin/env python3
"""What a machine with one image moves to have the next: a Debian as its point release has it, and the same packages
with all updates since. Ours by the cache on disk and by a delta, against casync, desync, block hashes as RAUC has
them, and `zstd --patch-from`. Bytes, so one run is enough. Also what the first start of the next one asks its medium
for, against a start of the image before."""

import hashlib
import shutil
import socket
import subprocess
import threading
import time
from functools import partial

from harness import FLAT, benchmark, headstart, headstart_json, headstart_path, progress, run, scratch, start
from inputs import COMMAND, READY, kept, program
from stamp import MIB

BLOCK = 4096
PACKAGES = """systemd systemd-sysv udev dbus openssh-server curl wget git vim python3 python3-requests python3-pandas
python3-sympy perl openssl ca-certificates gnupg sudo rsync tmux less man-db nginx-light sqlite3 postgresql-client
libxml2-utils xsltproc imagemagick ghostscript bind9-dnsutils iproute2 iputils-ping nftables tcpdump strace
gdb-minimal jq zstd xz-utils bzip2 unzip zip file bash-completion locales tzdata cron logrotate rsyslog chrony
dnsmasq-base htop lsof ncdu screen socat netcat-openbsd patch make gcc libc6-dev cpio parted e2fsprogs dosfstools lvm2
cryptsetup""".split()
MIRROR, SECURITY = "http://deb.debian.org/debian", "http://deb.debian.org/debian-security"
SUITES = {"v1": [f"deb {MIRROR} bookworm main"]}
SUITES["v2"] = [*SUITES["v1"], f"deb {MIRROR} bookworm-updates main", f"deb {SECURITY} bookworm-security main"]

def archive(version):
    """A root as a tar archive. The time that files get is the same for both, as in a reproducible build."""
    return kept(f"updates-{version}.tar", [], lambda draft: run(
        "env", "SOURCE_DATE_EPOCH=1764000000", "mmdebstrap", "--mode=root", "--format=tar", "--variant=minbase", "--quiet",
        "--aptopt=Apt::Install-Recommends false", "--dpkgopt=force-unsafe-io", f"--include={','.join(PACKAGES)}",
        "bookworm", draft, *SUITES[version], patience_s=3600))

class Relay:
    """Passes connections on to a port, and counts what comes back."""

    def __init__(self, port):
        self.bytes, self.to = 0, port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, sink, counts):
        try:
            while piece := source.recv(1 << 16):
                self.bytes += len(piece) if counts else 0
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

def moved(old, new):
    """Bytes that came over the network to fill a cache with an image, once with the old one in it: all, hot chunks too."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([headstart_path(), "-q", "serve", old, new, "--http", f"127.0.0.1:{port}"])
    relay = Relay(port)
    cache = scratch() / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    fill = lambda image: headstart_json("cache", "fill", f"http://127.0.0.1:{relay.port}/{image.name}", "--now",
                                        "--disk-cache", cache)
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert server.poll() is None, "the server has ended"
            time.sleep(0.05)
        fill(old)
        before = relay.bytes
        fill(new)
        return relay.bytes - before
    finally:
        server.terminate()
        server.wait()

def blocks(path):
    """The blocks of a disk."""
    with open(path, "rb") as disk:
        while block := disk.read(BLOCK):
            yield block

def new_blocks(old, new):
    """The blocks that only the new disk has, in one file."""
    known = {hashlib.blake2b(block, digest_size=16).digest() for block in blocks(old)}
    path = scratch() / "new-blocks"
    with open(path, "wb") as file:
        for block in blocks(new):
            digest = hashlib.blake2b(block, digest_size=16).digest()
            if digest not in known:
                known.add(digest)
                file.write(block)
    return path

def chunked(*tool):
    """A function that gives the bytes of chunks, and of the index, that an old store lacks."""

    def measure(old, new):
        store = scratch() / f"{tool[0]}.castr"
        store.mkdir()
        size = lambda: sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
        for path in (old, new):
            before = size()
            index = scratch() / f"{path.name}.caibx"
            run(tool[0], *tool[1:], f"{index}", path, *(["--store", store] if tool[0] == "casync" else ["-s", store]),
                patience_s=3600)
        return size() - before + index.stat().st_size

    return measure

def patch(old, new):
    """What `zstd --patch-from` makes of two files."""
    path = scratch() / "patch"
    run("zstd", "-q", "-f", "-9", "--long=30", f"--patch-from={old}", new, "-o", path, patience_s=3600)
    return path.stat().st_size

def first_start(image):
    """What a start asks a medium for, how long that was busy, and when the command was ready."""
    found = start(image, COMMAND, medium=FLAT[0], ready=READY)
    return {key: found[key] for key in ("medium_busy_s", "store_requests", "store_bytes", "ready_s")}

def starts(bench, images):
    """The first start after the update, with the hot region of the image before it; also once it was recorded again."""
    runs = bench.turns({name: partial(first_start, image) for name, image in images.items()}, repeats=5,
                       say="busy {medium_busy_s:.3f} s, {store_requests} requests, ready after {ready_s:.2f} s")
    for key, what in (("medium_busy_s", "time of the medium"), ("store_requests", "requests"), ("store_bytes", "bytes")):
        bench.figure(f"first start after the update ÷ a start before it, {what}", runs.ratio("v2", "v1", key),
                     at_most=1.1 if key == "medium_busy_s" else None)
    bench.figure("first start after the update ÷ one that was recorded again, time of the medium",
                 runs.ratio("v2", "v2 recorded", "medium_busy_s"))

@benchmark(repeats=1)
def measure(bench):
    tars = {version: archive(version) for version in SUITES}
    image = lambda name, version, *flags: kept(f"updates-{name}.hsi", [tars[version], program()], lambda draft: headstart(
        "build", tars[version], "-o", draft, *flags, patience_s=3600))
    cold = image("v1-cold", "v1")
    recorded = lambda name, image: kept(name, [image], lambda draft: headstart(
        "profile", image, "-o", draft, "--", *COMMAND))
    profile = recorded("updates.hsp", cold)
    v1 = image("v1", "v1", "--profile", profile)
    v2, fresh = image("v2", "v2", "--like", v1), image("v2-fresh", "v2", "--profile", profile)
    delta, fresh_delta = image("delta", "v2", "--base", v1), image("v2-cold", "v2")
    raws = {}
    for name, path in (("v1", v1), ("v2", v2), ("fresh", fresh_delta)):
        raws[name] = scratch() / f"{name}.raw"
        headstart("export", path, "--format", "raw", "-o", raws[name], patience_s=1800)
    only_new = scratch() / "only-new.hsi"
    headstart("build", "--raw", new_blocks(raws["v1"], raws["v2"]), "-o", only_new, patience_s=1800)
    changed, least = only_new.stat().st_size, patch(tars["v1"], tars["v2"])
    ours = moved(v1, v2)
    sizes = {
        "the new image, whole": v2.stat().st_size,
        "ours: cache with v1": ours,
        "the same, built without --like": moved(v1, fresh),
        "ours: a delta, built with --base": delta.stat().st_size,
        "casync, raw disk": chunked("casync", "make")(raws["v1"], raws["v2"]),
        "zstd --patch-from, raw disk": patch(raws["v1"], raws["v2"]),
        "zstd --patch-from, tar": least,
    }
    if shutil.which("desync"):
        sizes["desync, raw disk"] = chunked("desync", "make")(raws["v1"], raws["v2"])
    # RAUC's index has a SHA-256 for each block of 4 KiB; blocks that it lacks come as they are.
    sizes["RAUC's block hashes, raw disk"] = new_blocks(raws["v1"], raws["v2"]).stat().st_size + 32 * (
        raws["v2"].stat().st_size // BLOCK)
    for name, size in sizes.items():
        progress(f"{name}: {size / MIB:.2f} MiB")
        bench.figure(name, size / MIB, unit="MiB")
    bench.figure("ours ÷ compressed blocks that changed", ours / changed, at_most=1.15)
    bench.figure("ours ÷ zstd --patch-from of the archive", ours / least, at_most=1.3)
    again = image("v2-again", "v2", "--profile", recorded("updates-v2.hsp", fresh_delta))
    starts(bench, {"v1": v1, "v2": v2, "v2 recorded": again})
