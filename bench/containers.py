#!/usr/bin/env python3
"""Containers of containerd whose image is mounted lazily from a registry, beside the same image pulled to overlayfs.

Debian's containerd pulls through its CRI, as Kubernetes does, and `ctr run` starts. Debian's docker-registry has a
Debian with pandas, and its conversion with the recorded start; between both is a link of each kind. A cold start
begins with empty page caches, after the pull; a warm one follows it. `read` is what the recorded start needs, as
the image stores it. AT_ONCE=3 starts fewer containers at once than 100, which take 10 GB of memory.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from convert import layout
from harness import benchmark, headstart, headstart_json, headstart_path, run
from inputs import debian
from mounts import drop_caches, program, wait_until

COMMAND = ["python3", "-c", 'import pandas; print("ready", flush=True)']
STAYS = ["python3", "-c", 'import pandas, time; print("ready", flush=True); time.sleep(3600)']
# Seconds that each request takes longer, and bytes a second.
LINKS = {"0 ms": (0, None), "20 ms": (0.020, None), "5 ms, 200 Mbit/s": (0.005, 200e6 / 8)}
NAMESPACE = "k8s.io"
MANY = 20
AT_ONCE = int(os.environ.get("AT_ONCE", 100))
# Starts one after the other, of which one is the mean.
ONE_BY_ONE = 5
CONFIG = """version = {version}
root = "{folder}/data"
state = "{folder}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
    "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "{folder}/c.sock"
[proxy_plugins.headstart]
  type = "snapshot"
  address = "{folder}/s.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""
# What each series is told besides, by the version of its configuration (docs/CONTAINERD.md).
OWN = {2: """[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "headstart"
  disable_snapshot_annotations = false
""", 3: """[proxy_plugins.headstart.exports]
  enable_remote_snapshot_annotations = "true"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "headstart"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "headstart"
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "overlayfs"
"""}

def configuration(folder):
    """That of the containerd on PATH: the second series has another one than Debian 12's."""
    version = 2 if re.search(r" v?1\.", run("containerd", "--version")) else 3
    return CONFIG.format(version=version, folder=folder) + OWN[version]

class Link:
    """A relay to the registry that makes requests late, sends so many bytes a second, and counts both."""

    def __init__(self, to, delay_s, bytes_per_s):
        self.to, self.delay_s, self.bytes_per_s = to, delay_s, bytes_per_s
        self.requests = self.bytes = 0
        self.free_at, self.lock = 0.0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for pair, work in (((near, far), self.ask), ((far, near), self.answer)):
                pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=work, args=pair, daemon=True).start()

    def ask(self, source, target):
        """Each request is late, and the first of a connection as much again, as connecting would be."""
        time.sleep(self.delay_s)
        for piece in pieces(source):
            if re.match(rb"(GET|HEAD|PUT|POST|PATCH) ", piece):
                with self.lock:
                    self.requests += 1
                time.sleep(self.delay_s)
            send(target, piece)
        send(target, b"")

    def answer(self, source, target):
        for piece in pieces(source):
            with self.lock:
                self.bytes += len(piece)
                now = time.monotonic()
                begin = max(now, self.free_at)
                self.free_at = begin + len(piece) / self.bytes_per_s if self.bytes_per_s else begin
            time.sleep(max(self.free_at - now, 0) if self.bytes_per_s else 0)
            send(target, piece)
        send(target, b"")

def pieces(source):
    while True:
        try:
            piece = source.recv(64 << 10)
        except OSError:
            return
        if not piece:
            return
        yield piece

def send(target, piece):
    try:
        target.sendall(piece) if piece else target.shutdown(socket.SHUT_WR)
    except OSError:
        pass

def field(number, content):
    """A field of bytes of a message of gRPC; short ones only."""
    length, size = b"", len(content)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content

class Machine:
    """A containerd with a snapshotter of headstart's, and overlayfs."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0

    @contextmanager
    def running(self):
        folder = self.folder
        (folder / "containerd.toml").write_text(configuration(folder))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": (folder / "log").open("a")}
        words = [headstart_path(), "snapshotter", "--root", folder / "root", "serve", "--socket", folder / "s.sock",
                 "--containerd", folder / "c.sock", "--", "--disk-cache", "none"]
        with program(*words, ready=(folder / "s.sock").exists, **quiet), \
             program("containerd", "-c", folder / "containerd.toml", ready=lambda: self.tries("version"), **quiet):
            yield

    def words(self, *words):
        return ["ctr", "-a", f"{self.folder}/c.sock", "-n", NAMESPACE, *map(str, words)]

    def tries(self, *words):
        return subprocess.run(self.words(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def cri(self, method, reference):
        """A call of CRI's service of images, by curl: gRPC is a POST over HTTP/2."""
        message = field(1, field(1, reference.encode()))
        (self.folder / "message").write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        said = run("curl", "-s", "-D", "-", "-o", f"{self.folder}/answer", "--http2-prior-knowledge", "--unix-socket",
                   f"{self.folder}/c.sock", "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary",
                   f"@{self.folder}/message", f"http://localhost/runtime.v1.ImageService/{method}")
        if "grpc-status: 0" not in said:
            sys.exit(f"{method} {reference}: {said}{(self.folder / 'log').read_text()[-2000:]}")

    def pull(self, image, snapshotter):
        began = time.monotonic()
        if snapshotter == "headstart":
            self.cri("PullImage", image)
        else:
            run(*self.words("image", "pull", "--plain-http", "--snapshotter", snapshotter, image))
        return time.monotonic() - began

    def remove(self, image):
        self.cri("RemoveImage", image)
        run(*self.words("content", "prune", "references"))
        wait_until(lambda: f"{self.folder}/root/images" not in Path("/proc/self/mounts").read_text(), patience_s=60)

    def begin(self, image, snapshotter, command=COMMAND, flags=()):
        """The process of a container that begins."""
        self.count += 1
        words = self.words("run", *flags, "--snapshotter", snapshotter, image, f"bench-{os.getpid()}-{self.count}", *command)
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def start(self, image, snapshotter, command=COMMAND, flags=()):
        """Begins a container; its process, and the seconds until its line."""
        began = time.monotonic()
        process = self.begin(image, snapshotter, command, flags)
        wait_until_ready(process)
        return process, time.monotonic() - began

    def run(self, image, snapshotter):
        process, seconds = self.start(image, snapshotter, flags=["--rm"])
        process.stdout.read()
        process.wait()
        return seconds

    def cold_and_warm(self, image, snapshotter):
        drop_caches()
        return {"cold_s": self.run(image, snapshotter), "warm_s": self.run(image, snapshotter)}

def wait_until_ready(process):
    if not process.stdout.readline().startswith("ready"):
        sys.exit(f"the container did not start: {process.args}")

def lazily(machine, image, link):
    """A pull by the snapshotter, and two starts."""
    before = link.requests, link.bytes
    pull_s = machine.pull(image, "headstart")
    found = machine.cold_and_warm(image, "headstart")
    # What is still on its way is for this start too.
    time.sleep(0.5)
    found |= {"pull_s": pull_s, "requests": link.requests - before[0], "bytes": link.bytes - before[1]}
    machine.remove(image)
    return found

def fully(machine, image, link):
    """The same with everything pulled to overlayfs first."""
    before = link.requests, link.bytes
    pull_s = machine.pull(image, "overlayfs")
    found = machine.cold_and_warm(image, "overlayfs")
    machine.remove(image)
    return {**found, "pull_s": pull_s, "requests": link.requests - before[0], "bytes": link.bytes - before[1]}

def memory_bytes(folder):
    """Of the page cache, as /proc/meminfo has it, and of the image's server alone, as its smaps have it."""
    run("sync")
    cached = int(re.search(r"^Cached: +(\d+) kB", Path("/proc/meminfo").read_text(), re.M)[1]) << 10
    own = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_text()
            if f"{folder}/root/images" in words and "--foreground" in words:
                own += int(re.search(r"^Anonymous: +(\d+) kB", (process / "smaps_rollup").read_text(), re.M)[1]) << 10
        except OSError:
            # It has ended.
            pass
    return cached + own

def many(machine, image):
    """How much the page cache and the server grow by one container, and by many of the same image."""
    machine.pull(image, "headstart")
    drop_caches()
    grown, processes, before = [], [], memory_bytes(machine.folder)
    for number in range(MANY):
        processes.append(machine.start(image, "headstart", STAYS)[0])
        if number in (0, MANY - 1):
            grown.append(memory_bytes(machine.folder) - before)
    for number, process in enumerate(processes):
        name = f"bench-{os.getpid()}-{machine.count - MANY + 1 + number}"
        run(*machine.words("task", "kill", "-s", "SIGKILL", name))
        process.wait()
        wait_until(lambda name=name: machine.tries("container", "rm", name), patience_s=60)
    machine.remove(image)
    return {"one_bytes": grown[0], "all_bytes": grown[1]}

def processor_s():
    """Processor time that this machine has spent, by all of its programs and its kernel: proc_stat(5)."""
    user, nice, system, _, _, interrupts, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")

def at_once(machine, image):
    """Seconds until the last of many warm starts that begin at once has printed its line, and the processor time of
    one start among others that come one by one."""
    machine.pull(image, "headstart")
    machine.run(image, "headstart")
    before = processor_s()
    for _ in range(ONE_BY_ONE):
        machine.run(image, "headstart")
    one_s = (processor_s() - before) / ONE_BY_ONE
    began = time.monotonic()
    processes = [machine.begin(image, "headstart", COMMAND, ["--rm"]) for _ in range(AT_ONCE)]
    for process in processes:
        wait_until_ready(process)
    all_s = time.monotonic() - began
    for process in processes:
        process.communicate()
    machine.remove(image)
    return {"one_processor_s": one_s, "all_s": all_s, "ratio": all_s / (one_s * AT_ONCE / os.cpu_count())}

@contextmanager
def registry(folder):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "registry.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\n"
        f"http: {{addr: \"127.0.0.1:{port}\"}}\n")
    listens = lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0
    with program("docker-registry", "serve", folder / "registry.yml", ready=listens, stdout=subprocess.DEVNULL,
                 stderr=subprocess.DEVNULL):
        yield port

def published(folder, port):
    """The image, its conversion with the recorded start, and a local file of that; what that start reads."""
    layout(debian("pandas", "python3-pandas"), folder / "layout")
    run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1", f"docker://127.0.0.1:{port}/demo:1")
    image = f"oci+http://127.0.0.1:{port}/demo:1"
    headstart("convert", image)
    headstart("profile", image, "-o", folder / "start.hsp", "--insecure", "--disk-cache", "none", "--", *COMMAND)
    headstart("push", folder / "start.hsp", image)
    headstart("convert", image, "--replace", "-o", folder / "local.hsi")
    hot = headstart_json("inspect", folder / "local.hsi")["hot_segments"]
    return sum(part["hot_compressed_bytes"] for part in hot)

def figures(bench, runs, name, read_bytes):
    say = partial(bench.figure, unit="s")
    say(f"containers, {name}: lazy pull", runs.median(f"{name}, lazy", "pull_s"))
    say(f"containers, {name}: full pull, just downloaded and unpacked", runs.median(f"{name}, full", "pull_s"))
    for kind in ("lazy", "full"):
        for state in ("cold_s", "warm_s"):
            say(f"containers, {name}: first output, {kind}, {state[:-2]}", runs.median(f"{name}, {kind}", state))
    lazy = runs[f"{name}, lazy"] if f"{name}, lazy" in runs else []
    ratios = [one["cold_s"] / one["warm_s"] for one in lazy]
    if ratios:
        ratios.sort()
        bench.figure(f"containers, {name}: cold ÷ warm", ratios[len(ratios) // 2], at_most=1.15,
                     noise=[round(ratios[0], 3), round(ratios[-1], 3)])
    bench.figure(f"containers, {name}: cold after a lazy pull ÷ cold after a full pull",
                 runs.ratio(f"{name}, lazy", f"{name}, full", "cold_s"))
    bench.figure(f"containers, {name}: requests of pull and starts", runs.median(f"{name}, lazy", "requests"), at_most=25)
    bench.figure(f"containers, {name}: bytes of pull and starts ÷ what the start reads",
                 runs.median(f"{name}, lazy", "bytes") / read_bytes, at_most=1.15,
                 detail={"read_bytes": read_bytes, "full_bytes": runs.median(f"{name}, full", "bytes")})

@benchmark(repeats=5)
def measure(bench):
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp")))
        port = stack.enter_context(registry(folder))
        read_bytes = published(folder, port)
        machine = Machine(folder)
        stack.enter_context(machine.running())
        cases = {}
        for name, (delay_s, bytes_per_s) in LINKS.items():
            link = Link(port, delay_s, bytes_per_s)
            image = f"127.0.0.1:{link.port}/demo:1"
            cases |= {f"{name}, lazy": partial(lazily, machine, image, link),
                      f"{name}, full": partial(fully, machine, image, link)}
        link, local = Link(port, 0, None), f"127.0.0.1:{port}/local:1"
        here = {"local, lazy": partial(lazily, machine, local, link), "local, full": partial(fully, machine, local, link),
                "many": partial(many, machine, local), "at once": partial(at_once, machine, local)}
        chosen = bench.chosen(cases | here)
        runs = bench.turns({name: case for name, case in chosen.items() if name in cases},
                           say="pull {pull_s:.2f} s, cold {cold_s:.2f} s, warm {warm_s:.2f} s, {requests} requests, "
                               "{bytes} bytes")
        for name in LINKS:
            if any(case.startswith(f"{name}, ") for case in chosen):
                figures(bench, runs, name, read_bytes)
        # All of it on this machine: a file in the table of the snapshotter, another name of the same image.
        run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1", f"docker://{local}")
        headstart("snapshotter", "--root", folder / "root", "add", f"oci+http://{local}", folder / "local.hsi")
        figures_here(bench, bench.turns({name: case for name, case in chosen.items() if name in here}))

def figures_here(bench, runs):
    bench.figure("containers: first output from a local image ÷ overlayfs, cold",
                 runs.ratio("local, lazy", "local, full", "cold_s"), at_most=1.05)
    bench.figure("containers: the same, warm", runs.ratio("local, lazy", "local, full", "warm_s"), at_most=1.05)
    if runs.get("many"):
        ratios = sorted(one["all_bytes"] / one["one_bytes"] for one in runs["many"])
        bench.figure(f"containers: page cache and server's memory of {MANY} containers ÷ those of one",
                     ratios[len(ratios) // 2], at_most=1.15)
    if runs.get("at once"):
        bench.figure(f"containers: {AT_ONCE} starts at once ÷ (processor time of one × {AT_ONCE} ÷ processors)",
                     runs.median("at once", "ratio"), at_most=1.2)
