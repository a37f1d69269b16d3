#!/usr/bin/env python3
"""The demo's program starts over a link of 100 Mbit/s on which each request takes 20 ms longer: from the optimized image,
and from a pack over an unconverted qcow2 file, all on one web server; and from that pack on this machine.

The 20 ms are those of a relay beside the server, as in `http_boot.py`.
"""

import subprocess
from functools import partial

from harness import benchmark, headstart, run, start
from inputs import COMMAND, READY, demo, kept
from mounts import program
from network import PORT, SERVER, empty_cache, inside, link, relay, shape

ROUND_TRIP_S = 0.020
MBIT = 100
NGINX = """daemon off; user root; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000; server {{ listen {server}:{port}; root /; }} }}
"""

@benchmark(repeats=5)
def measure(bench):
    made = demo()
    disk = kept("packs.qcow2", [made["raw"]],
                lambda draft: run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", made["raw"], draft))
    pack = kept("packs.hspk", [disk, made["profile"]],
                lambda draft: headstart("pack", disk, "-p", made["profile"], "-o", draft))
    config = pack.parent / "packs-nginx.conf"
    config.write_text(NGINX.format(folder=pack.parent, server=SERVER, port=PORT))
    with link() as (server, client), \
            program(*inside(server), "/usr/sbin/nginx", "-c", config, stderr=subprocess.DEVNULL):
        shape(server, MBIT)

        def started(image, *more):
            with relay(server, ROUND_TRIP_S / 2) as port, empty_cache() as flags:
                url = lambda word: f"http://{SERVER}:{port}{word}" if isinstance(word, str) else word
                words = [*flags, "--insecure", *map(url, more)]
                if more:
                    words[-len(more):-len(more)] = ["--base"]
                return start(url(image), COMMAND, ready=READY, flags=words, within=inside(client))

        cases = {"image": partial(started, str(made["optimized"])),
                 "pack": partial(started, str(pack), str(disk)),
                 "pack here": partial(started, pack, str(disk))}
        runs = bench.turns(cases, say="{ready_s:.2f} s, {store_requests} requests, {store_bytes:,} bytes")
    bench.figure("start from a pack over a qcow2 file ÷ from the optimized image, 20 ms a request",
                 runs.ratio("pack", "image"), at_most=1.10)
    bench.figure("start from the pack on this machine ÷ from the optimized image on the server",
                 runs.ratio("pack here", "image"), at_most=1.10)
    bench.figure("bytes of the pack ÷ those of the qcow2 file", pack.stat().st_size / disk.stat().st_size)
