#!/usr/bin/env python3
"""The boot from a real cloop file by foreign programs, against the optimised image on the same drive.

`create_compressed_fs` (cloop-utils) makes the file, 64 KiB and zlib 9; `headstart lab disk` puts it on the drive, which
counts; QEMU's cloop driver reads it (`qemu-nbd`), and `nbdfuse` makes a disk of that. No code of headstart's
lies between the drive and the guest.
"""

import contextlib
import json
import signal
import subprocess
import time

from harness import DRIVES, alternate, arguments, at_pace, boot, figure, finish, headstart_path, run, scratch, spread_of
from inputs import boot_image, boot_profile, kept, optimized, raw

LIMITS = {"cd-24x-cav": 0.10, "hdd-7200": 0.15}


def cloop(disk):
    """The raw disk as a cloop file."""
    return kept("boot.cloop", [disk], lambda draft: run("create_compressed_fs", "-B", "65536", "-L", "9", disk, draft, patience_s=900))


def wait_for(path, process):
    """Until the file is there."""
    while not path.exists():
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} ended before {path} was there")
        time.sleep(0.02)


@contextlib.contextmanager
def ended(process):
    """Ends a process that was started here, by its id."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


def boot_cloop(file, medium):
    """One cold boot; the run summary with what the drive counted."""
    place = scratch() / f"cloop-{time.monotonic_ns()}"
    drive, disk, socket = place / "drive", place / "disk", place / "socket"
    for folder in (drive, disk):
        folder.mkdir(parents=True)
    lab = subprocess.Popen(
        [headstart_path(), "-q", "lab", "disk", file, drive, "--medium", medium, "--json"], stdout=subprocess.PIPE, text=True)
    with ended(lab):
        wait_for(drive / file.name, lab)
        reader = subprocess.Popen(["qemu-nbd", "--read-only", "--format=cloop", "--persistent", f"--socket={socket}", drive / file.name])
        with ended(reader):
            wait_for(socket, reader)
            fuse = subprocess.Popen(["nbdfuse", "--readonly", disk, f"nbd+unix:///?socket={socket}"])
            with ended(fuse):
                wait_for(disk / "nbd", fuse)
                summary = boot(disk / "nbd")
                subprocess.run(["umount", disk], check=True)
                fuse.wait(timeout=30)
    counted = json.loads(lab.stdout.read())
    return {**summary, **{key: counted[key] for key in ("store_requests", "store_bytes", "seeks", "medium_busy_s")}}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = boot_image()
    fast = optimized(image, "boot-one", boot_profile(image, "boot"))
    disk = raw(image, "boot")
    file = cloop(disk)
    figures = []
    for medium in DRIVES:
        cases = {
            "cloop": lambda: boot_cloop(file, medium),
            "optimised": lambda: boot(fast, medium=medium),
            "warm": lambda: boot(disk, flags=["--warm"]),
        }
        results = at_pace(alternate(
            cases, args.repeats,
            lambda s: f"{medium} {s['ready_s']:.2f} s, {s['store_requests']} requests, {s['seeks']} seeks"))
        ready = {name: spread_of(results[name], "ready_s") for name in cases}
        waits = {name: ready[name]["median"] - ready["warm"]["median"] for name in ("cloop", "optimised")}
        detail = {
            "ready_s": ready,
            "measured_s": {name: spread_of(results[name], "measured_s") for name in cases},
            "storage_wait_s": waits,
            "cloop_bytes": file.stat().st_size,
            **{key: {name: spread_of(results[name], key, 0) for name in ("cloop", "optimised")}
               for key in ("store_requests", "store_bytes", "seeks")},
        }
        ratio = waits["optimised"] / waits["cloop"] if waits["cloop"] > 0 else float("nan")
        figures.append(figure(f"storage wait ÷ a real cloop file's, {medium}", ratio, at_most=LIMITS[medium], detail=detail))
    finish("boot_cloop", figures, args.repeats)


if __name__ == "__main__":
    main()
