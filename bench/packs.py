#!/usr/bin/env python3
"""The demo's Debian boots under User-mode Linux over a link on which each request takes 20 ms longer: from an optimized
image, and from a pack over an unconverted qcow2 file, both on the same web server; and from that pack on this machine.
"""

import json
import subprocess
from functools import partial

from harness import benchmark, headstart, headstart_path, run
from inputs import boot_image, boot_profile, exported, kept, optimized
from mounts import program
from network import PORT, SERVER, empty_cache, inside, link, relay, shape

ROUND_TRIP_S = 0.020
MBIT = 100
NGINX = """daemon off; master_process off; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000; server {{ listen {server}:{port}; root {root}; }} }}
"""

def qcow2(image):
    """The disk of an image as a file that nobody converts."""
    raw = exported(image, "packs.raw", "--format", "raw")
    return kept("packs.qcow2", [raw], lambda draft: run("qemu-img", "convert", "-O", "qcow2", raw, draft))

@benchmark(repeats=3)
def measure(bench):
    plain = boot_image()
    profiles = [boot_profile(plain, name, read_ahead="auto") for name in ("boot-http", "boot-http-2", "boot-http-3")]
    image, disk = optimized(plain, "boot-http", *profiles), qcow2(plain)
    with_profiles = [word for profile in profiles for word in ("-p", profile)]
    pack = kept("packs.hspk", [disk, *profiles], lambda draft: headstart("pack", disk, "-o", draft, *with_profiles))
    www = pack.parent
    config = www / "packs-nginx.conf"
    config.write_text(NGINX.format(folder=www, root=www, server=SERVER, port=PORT))
    with link() as (server, client), program(*inside(server), "/usr/sbin/nginx", "-c", config, stderr=subprocess.DEVNULL):
        shape(server, MBIT)

        def boot(where):
            with relay(server, ROUND_TRIP_S / 2) as port, empty_cache() as flags:
                words = where(lambda path: f"http://{SERVER}:{port}/{path.name}")
                words = [headstart_path(), "-q", "boot", *words, *flags, "--insecure", "--json"]
                return json.loads(run(*inside(client), *words, patience_s=300))

        cases = {"image": lambda url: [url(image)],
                 "pack": lambda url: [url(pack), "--base", url(disk)],
                 "pack here": lambda url: [pack, "--base", url(disk)]}
        runs = bench.turns({name: partial(boot, where) for name, where in cases.items()},
                           say="{ready_s:.2f} s, {store_requests} requests, {store_bytes:,} bytes").at_pace()
    bench.figure("boot from a pack over a qcow2 file ÷ from an optimized image, 20 ms a request",
                 runs.ratio("pack", "image"), at_most=1.10)
    bench.figure("boot from a pack on this machine ÷ from an optimized image on the server",
                 runs.ratio("pack here", "image"), at_most=1.10)
    bench.figure("bytes of the pack ÷ the qcow2 file", pack.stat().st_size / disk.stat().st_size)
