#!/usr/bin/env python3
"""Containers of containerd whose image is mounted lazily from a registry, beside the same image pulled to overlayfs.

Debian's containerd pulls through its CRI, as Kubernetes does, and `ctr run` starts. Debian's docker-registry has a
Debian with pandas, and its conversions with the recorded start and without one; between both is a link of each kind.
Cold is the first start of an image that this machine has never had, right after its pull; containerd and runc have
started others before. A warm one follows it. Of a local image cold means empty page caches. `read` is what the
recorded start needs, as the image stores it. AT_ONCE=3 starts fewer containers at once than 100, which take 10 GB of
memory. Where their programs are on PATH, the same image is started by others too: by SOCI (scripts/soci.sh) with an index of
spans and by its parallel pull, by stargz (its repository's `make`) with the files of the same start in front.
"""

import json
import os
import re
import shutil
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
[proxy_plugins.{snapshotter}]
  type = "snapshot"
  address = "{folder}/s.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""
# What each series is told besides, by the version of its configuration (docs/CONTAINERD.md).
OWN = {2: """[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "{snapshotter}"
  disable_snapshot_annotations = false
""", 3: """[proxy_plugins.{snapshotter}.exports]
  enable_remote_snapshot_annotations = "true"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "{snapshotter}"
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "overlayfs"
"""}

# How SOCI pulls: as its documentation recommends for a parallel pull, and by the index that `soci convert` adds. Ports
# are those of the registry and the links.
SOCI = """[content_store]
  type = "{store}"
  containerd_address = "{folder}/c.sock"
[pull_modes.soci_v2]
  enable = {lazily}
[pull_modes.parallel_pull_unpack]
  enable = {parallel}
  max_concurrent_downloads_per_image = 10
  concurrent_download_chunk_size = "8mb"
  max_concurrent_unpacks_per_image = 10
  discard_unpacked_layers = true
"""

def configuration(folder, snapshotter):
    """That of the containerd on PATH: the second series has another one than Debian 12's."""
    version = 2 if re.search(r" v?1\.", run("containerd", "--version")) else 3
    return (CONFIG + OWN[version]).format(version=version, folder=folder, snapshotter=snapshotter)

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
    """A containerd with a snapshotter, and overlayfs."""

    def __init__(self, folder, snapshotter="headstart"):
        self.folder, self.count, self.cache, self.snapshotter = folder, 0, folder / "cache", snapshotter
        folder.mkdir(exist_ok=True)

    def server(self):
        """The words of the snapshotter's program."""
        folder = self.folder
        return [headstart_path(), "snapshotter", "--root", folder / "root", "serve", "--socket", folder / "s.sock",
                "--containerd", folder / "c.sock", "--", "--disk-cache", self.cache]

    @contextmanager
    def running(self):
        folder = self.folder
        (folder / "containerd.toml").write_text(configuration(folder, self.snapshotter))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": (folder / "log").open("a")}
        with program(*self.server(), ready=(folder / "s.sock").exists, **quiet), \
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
        if snapshotter == self.snapshotter:
            self.cri("PullImage", image)
        else:
            run(*self.words("image", "pull", "--plain-http", "--snapshotter", snapshotter, image))
        return time.monotonic() - began

    def remove(self, image):
        """Nothing of it stays, also not in the cache on disk."""
        self.cri("RemoveImage", image)
        run(*self.words("content", "prune", "references"))
        wait_until(lambda: f"{self.folder}/root/images" not in Path("/proc/self/mounts").read_text(), patience_s=60)
        shutil.rmtree(self.cache, ignore_errors=True)

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

    def run(self, image, snapshotter, command=COMMAND):
        process, seconds = self.start(image, snapshotter, command, ["--rm"])
        process.stdout.read()
        process.wait()
        return seconds

class StargzMachine(Machine):
    """A containerd with stargz's snapshotter, which reads layers lazily that have its table of files."""

    def __init__(self, folder, ports):
        super().__init__(folder, "stargz")
        hosts = (f'[[resolver.host."127.0.0.1:{port}".mirrors]]\n  host = "127.0.0.1:{port}"\n  insecure = true\n' for port in ports)
        (folder / "stargz.toml").write_text("".join(hosts))

    def server(self):
        return ["containerd-stargz-grpc", "--config", self.folder / "stargz.toml", "--root", self.folder / "root", "--address",
                self.folder / "s.sock", "--log-level", "error"]

    def convert(self, image, to, command):
        """Records what the command opens, and sends the image with that in front of each layer."""
        run(*self.words("image", "pull", "--plain-http", "--snapshotter", "overlayfs", image))
        run("ctr-remote", *self.words("image", "optimize", "--oci", "--wait-on-line", "ready", "--entrypoint",
                                      json.dumps(command), "--args", "[]", image, to)[1:], patience_s=900)
        run(*self.words("image", "push", "--plain-http", to))
        run(*self.words("image", "rm", "--sync", image, to))

class SociMachine(Machine):
    """A containerd with SOCI's snapshotter, which reads layers lazily where an image has an index."""

    def __init__(self, folder, lazily, ports):
        super().__init__(folder, "soci")
        words = {False: "false", True: "true"}
        config = SOCI.format(folder=folder, store="soci" if lazily else "containerd", lazily=words[lazily],
                             parallel=words[not lazily])
        for port in ports:
            host = f"127.0.0.1:{port}"
            config += f'[[resolver.host."{host}".mirrors]]\n  host = "http://{host}"\n  insecure = true\n'
        (folder / "soci.toml").write_text(config)

    def server(self):
        return ["soci-snapshotter-grpc", "--config", self.folder / "soci.toml", "--root", self.folder / "root", "--address",
                self.folder / "s.sock"]

def wait_until_ready(process):
    if not process.stdout.readline().startswith("ready"):
        sys.exit(f"the container did not start: {process.args}")

def pulled(machine, image, link, snapshotter, command=COMMAND):
    """A pull and two starts; what had come over the link at the first output."""
    before = link.requests, link.bytes
    pull_s = machine.pull(image, snapshotter)
    process, cold_s = machine.start(image, snapshotter, command, ["--rm"])
    found = {"pull_s": pull_s, "cold_s": cold_s, "first_s": pull_s + cold_s, "requests": link.requests - before[0],
             "bytes": link.bytes - before[1]}
    process.communicate()
    found["warm_s"] = machine.run(image, snapshotter, command)
    machine.remove(image)
    return found

def filled(machine, image, link):
    """Of the link's rate, what the rest of an image comes with behind its start."""
    machine.pull(image, "headstart")
    machine.run(image, "headstart")
    before = link.bytes
    # It waits until the start is over.
    wait_until(lambda: link.bytes != before, patience_s=60)
    seen, at = link.bytes, time.monotonic()
    before, began = seen, at
    # A pause of a second, of which nothing counts, is the end.
    while time.monotonic() - at < 1:
        time.sleep(0.02)
        if link.bytes != seen:
            seen, at = link.bytes, time.monotonic()
    machine.remove(image)
    return {"share": (seen - before) / (at - began) / link.bytes_per_s, "rest_bytes": seen - before}

def mounted(folder, image):
    """Seconds of a mount of the conversion alone."""
    disk, tree = folder / "disk", folder / "tree"
    disk.mkdir(exist_ok=True)
    tree.mkdir(exist_ok=True)
    began = time.monotonic()
    headstart("mount", "--insecure", "--disk-cache", "none", "--fs", tree, f"oci+http://{image}", disk)
    took = time.monotonic() - began
    run("umount", tree)
    # The server unmounts the disk.
    wait_until(lambda: f" {disk} " not in Path("/proc/self/mounts").read_text(), patience_s=60)
    return {"mount_s": took}

def from_disk(machine, image, snapshotter):
    """Two starts of an image that is on this machine's disk, the first as after a restart: with empty page caches, and
    nothing mounted."""
    machine.pull(image, snapshotter)
    images = f"{machine.folder}/root/images/"
    for tree in re.findall(rf"{images}\w+/tree", Path("/proc/self/mounts").read_text()):
        run("umount", tree)
    # Their servers unmount the disks.
    wait_until(lambda: images not in Path("/proc/self/mounts").read_text(), patience_s=60)
    drop_caches()
    found = {"cold_s": machine.run(image, snapshotter), "warm_s": machine.run(image, snapshotter)}
    machine.remove(image)
    return found

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
    """The image by two names, of which one is converted with the recorded start, and a local file of that; what that
    start reads."""
    layout(debian("pandas", "python3-pandas"), folder / "layout")
    for name in ("demo", "bare"):
        run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1", f"docker://127.0.0.1:{port}/{name}:1")
        headstart("convert", f"oci+http://127.0.0.1:{port}/{name}:1")
    recorded(folder, f"oci+http://127.0.0.1:{port}/demo:1", COMMAND)
    if has_soci():
        run("soci", "convert", "--standalone", "--format", "oci-dir", folder / "layout", folder / "layout-soci")
        run("skopeo", "copy", "--all", "--dest-tls-verify=false", f"oci:{folder}/layout-soci", f"docker://127.0.0.1:{port}/soci:1")
    hot = headstart_json("inspect", folder / "local.hsi")["hot_segments"]
    return sum(part["hot_compressed_bytes"] for part in hot)

def recorded(folder, image, command):
    """Records a start of a converted image, and converts it with that."""
    headstart("profile", image, "-o", folder / "start.hsp", "--insecure", "--disk-cache", "none", "--", *command)
    headstart("push", folder / "start.hsp", image)
    headstart("convert", image, "--replace", "-o", folder / "local.hsi")

def has_soci():
    return all(map(shutil.which, ("soci", "soci-snapshotter-grpc")))

def has_stargz():
    return all(map(shutil.which, ("ctr-remote", "containerd-stargz-grpc")))

def in_words(**found):
    return ", ".join(f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items())

KINDS = {"lazy": "pulled lazily", "bare": "pulled lazily, no recorded start", "full": "pulled whole",
         "soci": "SOCI, lazily", "parallel": "SOCI, parallel pull", "stargz": "stargz, lazily"}
OURS = ("lazy", "bare", "full")

def figures(bench, runs, name, read_bytes):
    say = partial(bench.figure, unit="s")
    say(f"containers, {name}: mount of the image alone", runs.median(f"{name}, mount", "mount_s"), at_most=0.1)
    kinds = [kind for kind in KINDS if kind in OURS or f"{name}, {kind}" in runs]
    for kind in kinds:
        for key, what in (("pull_s", "pull"), ("cold_s", "first output, cold"), ("warm_s", "first output, warm")):
            say(f"containers, {name}, {KINDS[kind]}: {what}", runs.median(f"{name}, {kind}", key))
    ratios = sorted(one["cold_s"] / one["warm_s"] for one in runs.get(f"{name}, lazy", []))
    if ratios:
        bench.figure(f"containers, {name}: cold ÷ warm", ratios[len(ratios) // 2], at_most=1.15,
                     noise=[round(ratios[0], 3), round(ratios[-1], 3)])
    bench.figure(f"containers, {name}: pull and first output, lazily ÷ pulled whole",
                 runs.ratio(f"{name}, lazy", f"{name}, full", "first_s"), at_most=0.55)
    for kind in kinds[len(OURS):]:
        bench.figure(f"containers, {name}: the same ÷ {KINDS[kind]}",
                     runs.ratio(f"{name}, lazy", f"{name}, {kind}", "first_s"), at_most=0.55)
    bench.figure(f"containers, {name}: the same without a recorded start",
                 runs.ratio(f"{name}, bare", f"{name}, full", "first_s"), at_most=1.0)
    bench.figure(f"containers, {name}: requests until the first output", runs.median(f"{name}, lazy", "requests"), at_most=25)
    bench.figure(f"containers, {name}: bytes until the first output ÷ what the start reads",
                 runs.median(f"{name}, lazy", "bytes") / read_bytes, at_most=1.15,
                 detail={"read_bytes": read_bytes})
    if f"{name}, fill" in runs:
        bench.figure(f"containers, {name}: rate of the rest behind the start ÷ the link's",
                     runs.median(f"{name}, fill", "share"), at_least=0.9)

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

@benchmark(repeats=5)
def measure(bench):
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp")))
        port = stack.enter_context(registry(folder))
        read_bytes = published(folder, port)
        machine = Machine(folder / "headstart")
        links = {name: Link(port, *link) for name, link in LINKS.items()}
        ports = [port, *(link.port for link in links.values())]
        others = {kind: SociMachine(folder / kind, kind == "soci", ports) for kind in ("soci", "parallel") if has_soci()}
        if has_stargz():
            others["stargz"] = StargzMachine(folder / "stargz", ports)
        for each in (machine, *others.values()):
            stack.enter_context(each.running())
        if has_stargz():
            others["stargz"].convert(*(f"127.0.0.1:{port}/{name}:1" for name in ("bare", "stargz")), COMMAND)
        cases = {}
        for name, link in links.items():
            image, bare = (f"127.0.0.1:{link.port}/{which}:1" for which in ("demo", "bare"))
            cases |= {f"{name}, lazy": partial(pulled, machine, image, link, "headstart"),
                      f"{name}, bare": partial(pulled, machine, bare, link, "headstart"),
                      f"{name}, full": partial(pulled, machine, image, link, "overlayfs"),
                      f"{name}, mount": partial(mounted, folder, image)}
            cases |= {f"{name}, {kind}": partial(pulled, each, image if kind == "parallel" else
                                                 f"127.0.0.1:{link.port}/{kind}:1", link, each.snapshotter)
                      for kind, each in others.items()}
            if link.bytes_per_s:
                cases[f"{name}, fill"] = partial(filled, machine, image, link)
        local = f"127.0.0.1:{port}/local:1"
        here = {"local, lazy": partial(from_disk, machine, local, "headstart"),
                "local, full": partial(from_disk, machine, local, "overlayfs"),
                "many": partial(many, machine, local), "at once": partial(at_once, machine, local)}
        chosen = bench.chosen(cases | here)
        # Programs of containerd and runc come into memory.
        pulled(machine, f"127.0.0.1:{port}/bare:1", Link(port, 0, None), "overlayfs")
        runs = bench.turns({name: case for name, case in chosen.items() if name in cases}, say=in_words)
        for name in LINKS:
            if any(case.startswith(f"{name}, ") for case in chosen):
                figures(bench, runs, name, read_bytes)
        # All of it on this machine: a file in the table of the snapshotter, another name of the same image.
        run("skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1", f"docker://{local}")
        headstart("snapshotter", "--root", machine.folder / "root", "add", f"oci+http://{local}", folder / "local.hsi")
        here = {name: case for name, case in chosen.items() if name in here}
        figures_here(bench, bench.turns(here, say=in_words))
