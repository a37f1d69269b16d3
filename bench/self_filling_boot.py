#!/usr/bin/env python3
"""A Debian boots under User-mode Linux from a self-filling file and from disk.img in FUSE, to its login prompt.

The clock starts before `headstart mount` or `headstart attach`, and the file is empty then. The guest, its command
line and its copy-on-write file are the same. While it boots, hydration goes on as it does by default. Boots are
compared at one pace (`Runs.at_pace`).
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import benchmark, headstart, run, scratch
from inputs import fast_boot_image
from mounts import mounted

READY = re.compile(r"Reached target .*([Mm]ulti-[Uu]ser|[Gg]raphical|Login Prompts)|Startup finished in |login: ?$")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = ["mem=512M", "umid=guest", "root=/dev/ubda", "rw", "con0=null,fd:1", "con=null", "ssl=null", "console=tty0",
         "systemd.show_status=1"]
PATIENCE_S = 200

def session_cpu_s(leader):
    """Processor time of all processes of a session, and of their children that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")

def boot(disk, began):
    """Boots until it is ready, and ends the guest."""
    folder = scratch() / "guest"
    folder.mkdir()
    run("mount", "-t", "tmpfs", "headstart-bench", folder)
    command = ["linux.uml", f"ubd0={folder}/written,{disk}", f"uml_dir={folder}/", *WORDS]
    environment = {"TMPDIR": str(folder), "HOME": str(folder), "PATH": os.environ["PATH"]}
    guest = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    tail = []
    try:
        end = time.monotonic() + PATIENCE_S
        for line in guest.stdout:
            text = COLOURS.sub("", line.decode(errors="replace")).rstrip()
            tail = [*tail[-9:], text]
            if READY.search(text):
                return {"ready_s": time.monotonic() - began, "guest_cpu_s": session_cpu_s(guest.pid)}
            if time.monotonic() > end:
                break
        sys.exit("the guest did not get ready:\n" + "\n".join(tail))
    finally:
        os.killpg(guest.pid, signal.SIGKILL)
        guest.wait()
        guest.stdout.close()
        run("umount", "-l", folder)
        folder.rmdir()

def through_fuse(image, medium):
    began = time.monotonic()
    with mounted(image, "--medium", medium) as folder:
        return boot(folder / "disk.img", began)

def through_file(image, medium):
    file = scratch() / "disk.raw"
    began = time.monotonic()
    headstart("attach", image, file, "--medium", medium)
    try:
        return boot(file, began)
    finally:
        headstart("detach", "--incomplete", file)
        for path in (file, file.with_name("disk.raw.headstart")):
            path.unlink(missing_ok=True)

@benchmark(repeats=3, media=["flat-10ms-25mbs-serial", "hdd-7200"])
def measure(bench):
    image = fast_boot_image()
    for medium in bench.media:
        runs = bench.turns({"file": lambda: through_file(image, medium), "fuse": lambda: through_fuse(image, medium)},
                           say=f"{medium}, {{ready_s:.2f}} s, of {{guest_cpu_s:.2f}} s").at_pace()
        bench.figure(f"boot from a self-filling file, of the time through FUSE: {medium}", runs.ratio("file", "fuse"),
                     at_most=1.05)
