#!/usr/bin/env python3
"""A Debian boots under User-mode Linux from a self-filling file and from disk.img in FUSE, to its login prompt.

The clock starts before `headstart mount` or `headstart attach`, and the file is empty then. The guest, its command line
and its copy-on-write file are the same. While it boots, hydration goes on as it does by default.
"""

import os
import re
import signal
import subprocess
import time

from harness import alternate, arguments, figure, finish, headstart, ratio_range, run, scratch, spread
from inputs import boot_image, boot_profile, optimized

AT_MOST = 1.05
MEDIA = ["flat-10ms-25mbs-serial", "hdd-7200"]
READY = re.compile(r"Reached target .*([Mm]ulti-[Uu]ser|[Gg]raphical|Login Prompts)|Startup finished in |login: ?$")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
WORDS = "mem=512M umid=guest root=/dev/ubda rw con0=null,fd:1 con=null ssl=null console=tty0 systemd.show_status=1"
PATIENCE_S = 200


def boot(disk, folder):
    """Boots until it is ready, and ends the guest."""
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
                return
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
        boot(folder / "disk.img", scratch() / "guest")
        return time.monotonic() - began
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
        boot(file, scratch() / "guest")
        return time.monotonic() - began
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
        results = alternate(cases, repeats, say=lambda seconds: f"{medium}, {seconds:.2f} s")
        value = spread(results["file"])["median"] / spread(results["fuse"])["median"]
        figures.append(figure(
            f"boot from a self-filling file, of the time through FUSE: {medium}",
            round(value, 3), at_most=AT_MOST, noise=ratio_range(results["file"], results["fuse"]),
            detail={case: spread(values) for case, values in results.items()},
        ))
    finish("self_filling_boot", figures, repeats)


if __name__ == "__main__":
    main()
