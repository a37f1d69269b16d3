#!/usr/bin/env python3
"""A Debian boots under User-mode Linux from a self-filling file and from disk.img in FUSE, to its login prompt.

The clock starts before `headstart mount` or `headstart attach`, and the file is empty then. The guest, its command line
and its copy-on-write file are the same. While it boots, hydration goes on as it does by default. Boots are compared at one pace
(`harness.at_pace`).
"""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

from harness import alternate, arguments, at_pace, figure, finish, headstart, ratio_range, run, scratch, spread_of
from inputs import boot_image, boot_profile, optimized

AT_MOST = 1.05
MEDIA = ["flat-10ms-25mbs-serial", "hdd-7200"]
READY = re.compile(r"Reached target .*([Mm]ulti-[Uu]ser|[Gg]raphical|Login Prompts)|Startup finished in |login: ?$")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = "mem=512M umid=guest root=/dev/ubda rw con0=null,fd:1 con=null ssl=null console=tty0 systemd.show_status=1"
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


def boot(disk, folder):
    """Boots until it is ready, and ends the guest. Returns when it was, and the guest's processor time until then."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "headstart-bench", folder)
    command = ["linux.uml", f"ubd0={folder}/written,{disk}", f"uml_dir={folder}/", *WORDS.split()]
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
                return time.monotonic(), session_cpu_s(guest.pid)
            if time.monotonic() > end:
                break
        raise SystemExit("the guest did not get ready:\n" + "\n".join(tail))
    finally:
        os.killpg(guest.pid, signal.SIGKILL)
        guest.wait()
        guest.stdout.close()
        run("umount", "-l", folder)
        folder.rmdir()


def through_fuse(image, medium):
    folder = scratch() / "disk"
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    headstart("mount", image, folder, "--medium", medium)
    try:
        ready, cpu_s = boot(folder / "disk.img", scratch() / "guest")
        return {"ready_s": ready - began, "guest_cpu_s": cpu_s}
    finally:
        # The guest's processes end one after the other.
        end = time.monotonic() + 20
        while subprocess.run(["umount", folder], stderr=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > end:
                raise SystemExit(f"{folder} stays busy")
            time.sleep(0.05)


def through_file(image, medium):
    file = scratch() / "disk.raw"
    began = time.monotonic()
    headstart("attach", image, file, "--medium", medium)
    try:
        ready, cpu_s = boot(file, scratch() / "guest")
        return {"ready_s": ready - began, "guest_cpu_s": cpu_s}
    finally:
        headstart("detach", "--incomplete", file)
        for path in (file, file.with_name("disk.raw.headstart")):
            path.unlink(missing_ok=True)


def fast_image():
    """The booting Debian, optimised for its boot."""
    image = boot_image()
    return optimized(image, "boot-optimized", boot_profile(image, "boot-profile"))


def main():
    repeats = arguments(__doc__, repeats=3).parse_args().repeats
    image = fast_image()
    figures = []
    for medium in MEDIA:
        cases = {"file": lambda: through_file(image, medium), "fuse": lambda: through_fuse(image, medium)}
        say = lambda result: f"{medium}, {result['ready_s']:.2f} s, of {result['guest_cpu_s']:.2f} s"
        results = at_pace(alternate(cases, repeats, say=say))
        ready = {case: [run["ready_s"] for run in runs] for case, runs in results.items()}
        spreads = {key: {case: spread_of(runs, key) for case, runs in results.items()} for key in ("ready_s", "measured_s", "guest_cpu_s")}
        value = spreads["ready_s"]["file"]["median"] / spreads["ready_s"]["fuse"]["median"]
        figures.append(figure(
            f"boot from a self-filling file, of the time through FUSE: {medium}",
            round(value, 3), at_most=AT_MOST, noise=ratio_range(ready["file"], ready["fuse"]), detail=spreads,
        ))
    finish("self_filling_boot", figures, repeats)


if __name__ == "__main__":
    main()
