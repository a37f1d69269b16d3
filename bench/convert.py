#!/usr/bin/env python3
"""The first start of a container's image on a machine: pulled by podman, and from its conversion, by runc and by run.

Debian's docker-registry serves the image of a Debian with pandas, one layer, behind a relay that makes each request
20 ms slower. Every start begins with nothing: no storage of podman's, no cache on disk. The time is that until the
program has written its line.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from harness import benchmark, headstart_path, run
from inputs import COMMAND, cache
from mounts import drop_caches, program, wait_until
from network import PORT, SERVER, inside, link, relay

DELAY_S = 0.020
PODMAN = ["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--events-backend", "file"]
# Limits that a container cannot have where its engine does not have them.
LIMITS = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]

def layout(root, folder):
    """An image of one layer in a folder."""
    (folder / "blobs/sha256").mkdir(parents=True)

    def put(kind, path):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        path.rename(folder / "blobs/sha256" / digest)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": size}

    def document(kind, content):
        (folder / "document").write_text(json.dumps(content))
        return put(kind, folder / "document")

    layer = folder / "layer.tar"
    run("tar", "-C", root, "--numeric-owner", "--one-file-system", "-cf", layer, ".")
    with layer.open("rb") as file:
        diff_id = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    run("gzip", "-6", layer)
    packed = put("layer.v1.tar+gzip", folder / "layer.tar.gz")
    config = document("config.v1+json", {
        "os": "linux", "architecture": "amd64", "config": {"Cmd": COMMAND, "Env": ["PATH=/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]}})
    manifest = document("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": [packed]})
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "1"}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return packed["size"]

@contextmanager
def registry(server, folder):
    (folder / "registry.yml").write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\n"
        f"http: {{addr: \"{SERVER}:{PORT}\"}}\n")
    with program(*inside(server), "docker-registry", "serve", folder / "registry.yml",
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
        listens = lambda: subprocess.run([*inside(server), "python3", "-c",
                                          f"import socket; socket.create_connection(('{SERVER}', {PORT}))"],
                                         stderr=subprocess.DEVNULL).returncode == 0
        wait_until(listens, it)
        yield

def until_ready(client, script):
    """The seconds until a script in the client's network has written the program's line."""
    drop_caches()
    began = time.monotonic()
    # Only the network is the client's: `ip netns exec` would hide the control groups.
    words = ["nsenter", f"--net=/run/netns/{client}", "sh", "-ec", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        took = next((time.monotonic() - began for line in process.stdout if line.startswith("ready")), None)
        process.stdout.read()
    if process.returncode != 0 or took is None:
        raise SystemExit(f"failed: {script}")
    return {"ready_s": took}

def by_podman(client, port, folder):
    storage = Path(tempfile.mkdtemp(dir=folder))
    (folder / "registries.conf").write_text(f'[[registry]]\nlocation = "{SERVER}:{port}"\ninsecure = true\n')
    words = ["podman", "--root", f"{storage}/root", "--runroot", f"{storage}/run", "--tmpdir", f"{storage}/tmp", *PODMAN]
    script = (f"export CONTAINERS_REGISTRIES_CONF={folder}/registries.conf; "
              f"{' '.join(words)} run --rm -q {' '.join(LIMITS)} {SERVER}:{port}/demo:1")
    try:
        return until_ready(client, script)
    finally:
        # Podman leaves this mount on itself.
        subprocess.run(["umount", f"{storage}/root/overlay"], stderr=subprocess.DEVNULL)
        shutil.rmtree(storage)

def by_runc(client, address, folder):
    bundle = f"{folder}/bundle"
    return until_ready(client, (
        f"{headstart_path()} -q bundle {address} {bundle} --disk-cache none; "
        f"runc --root {folder}/runc run -b {bundle} bench; {headstart_path()} bundle --remove {bundle}"))

def by_run(client, address):
    return until_ready(client, f"{headstart_path()} -q run {address} --disk-cache none")

@benchmark(repeats=5)
def measure(bench):
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir="/var/tmp") as folder, link() as (server, client):
        folder = Path(folder)
        pulled_bytes = layout(cache() / "root", folder / "layout")
        with registry(server, folder), relay(server, DELAY_S / 2) as port:
            here = lambda *words: [*inside(server), headstart_path(), "-q", *words]
            direct = f"oci+http://{SERVER}:{PORT}/demo:1"
            run(*inside(server), "skopeo", "copy", "--dest-tls-verify=false", f"oci:{folder}/layout:1",
                f"docker://{SERVER}:{PORT}/demo:1")
            began = time.monotonic()
            run(*here("convert", direct))
            convert_s = time.monotonic() - began
            run(*here("profile", direct, "-o", folder / "start.hsp", "--insecure", "--disk-cache", "none"))
            run(*here("push", folder / "start.hsp", direct))
            converted = json.loads(run(*here("convert", direct, "--replace", "--json")))
            far = converted["address"].replace(f":{PORT}/", f":{port}/")
            runs = bench.turns({
                "podman, pulled": lambda: by_podman(client, port, folder),
                "runc, bundle": lambda: by_runc(client, far, folder),
                "run": lambda: by_run(client, far),
            }, say="{ready_s:.2f} s")
    for name in ["podman, pulled", "runc, bundle", "run"]:
        bench.figure(f"convert: first start, {name}", runs.median(name), unit="s")
    bench.figure("convert: the first start of a bundle against podman pull", runs.ratio("runc, bundle", "podman, pulled"),
                 at_most=0.5)
    bench.figure("convert: time to convert", convert_s, unit="s", detail={
        "layer_bytes": pulled_bytes, "image_bytes": converted["image_bytes"]})
