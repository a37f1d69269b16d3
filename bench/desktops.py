#!/usr/bin/env python3
"""Desktops start from a modelled CD drive to a drawn screen: twm, fluxbox, icewm, Window Maker, Xfce and KDE, as the slides on
UML-KNOPPIX compare them (docs/PAPERS.md), each from a squashfs, an image without a profile, and an optimised one.

A start is `headstart run` of an X server without hardware (Xvfb), the desktop and a terminal. It is drawn when the screen,
compressed, has 98% of the bytes that half a minute of an undisturbed start add to the blank one. The screens are kept beside
the result, and were looked at.
"""

import base64
import struct
import threading
import time
import zlib
from collections import deque
from pathlib import Path

from harness import RESULTS, alternate, arguments, figure, finish, headstart_json, run, spread, start
from inputs import image, kept, optimized, profile, squashfs

CD = "cd-24x-cav"
BASE = "xvfb,xterm,xfonts-base,fonts-dejavu-core,x11-xserver-utils,gzip"
# The packages of each, and what starts it.
DESKTOPS = {
    "twm": ("twm", "xsetroot -solid steelblue; LANG=C twm"),
    "fluxbox": ("fluxbox", "startfluxbox"),
    "icewm": ("icewm", "icewm-session"),
    "wmaker": ("wmaker", "wmaker"),
    "xfce": ("xfce4,dbus,dbus-x11,adwaita-icon-theme", "dbus-run-session xfce4-session"),
    "kde": ("plasma-desktop,plasma-workspace,kwin-x11,dbus,dbus-x11", "dbus-run-session startplasma-x11"),
}
# Programs of a desktop are many and start one another; their complaints of missing services are not ours to print.
SCRIPT = """#!/bin/sh
# The bytes of a drawn screen; without them, the screen after half a minute is printed.
drawn=$1
export HOME=/root DISPLAY=:1 LANG=C.UTF-8 XDG_RUNTIME_DIR=/tmp/run
mkdir -p -m 0700 /tmp/run
Xvfb :1 -screen 0 1024x768x24 -fbdir /tmp -nolisten tcp >/dev/null 2>&1 &
until [ -S /tmp/.X11-unix/X1 ]; do sleep 0.02; done
size() { gzip -1 </tmp/Xvfb_screen0 | wc -c; }
[ -n "$drawn" ] || echo "blank $(size)"
(%s) >/dev/null 2>&1 &
xterm -geometry 80x24+200+200 >/dev/null 2>&1 &
if [ -z "$drawn" ]; then
  sleep 30
  echo "screen $(gzip -1 </tmp/Xvfb_screen0 | base64 -w 0)"
  exit
fi
until [ "$(size)" -ge "$drawn" ]; do sleep 0.1; done
echo ready
"""


def root(name):
    """A Debian with this desktop."""
    packages, command = DESKTOPS[name]

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={BASE},{packages}",
            "--dpkgopt=force-unsafe-io", "bookworm", draft, patience_s=1800)
        (draft / "opt/desktop").write_text(SCRIPT % command)

    return kept(f"desktop-{name}", [], make)


def screen_of(name, disk):
    """Bytes of a screen that counts as drawn; the whole one is kept as a picture."""
    output = start(disk, ["/bin/sh", "/opt/desktop"], medium="none", patience_s=120)["output"]
    said = dict(line.split() for line in output.splitlines() if line.startswith(("blank ", "screen ")))
    packed, blank = base64.b64decode(said["screen"]), int(said["blank"])
    picture = RESULTS / "desktops" / f"{name}.png"
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(png(zlib.decompress(packed, 31)))
    return blank + (len(packed) - blank) * 98 // 100


def png(dump):
    """A picture from a dump of an X server's screen (XWD, version 7; 32 bits a pixel, blue first)."""
    header_bytes, = struct.unpack_from(">I", dump)
    width, height = struct.unpack_from(">II", dump, 16)
    line_bytes, = struct.unpack_from(">I", dump, 48)
    colors, = struct.unpack_from(">I", dump, 76)
    at = header_bytes + colors * 12
    lines = bytearray()
    for y in range(height):
        line = dump[at + y * line_bytes:][:width * 4]
        rgb = bytearray(width * 3)
        rgb[0::3], rgb[1::3], rgb[2::3] = line[2::4], line[1::4], line[0::4]
        lines += b"\0" + rgb

    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    about = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", about) + part(b"IDAT", zlib.compress(bytes(lines), 9)) + part(b"IEND", b"")


class Peak:
    """The most that the server has read of the image's file within a second: what a medium delivered, or a link would carry."""

    SECONDS = 1.0
    STEP_S = 0.1

    def __enter__(self):
        self.bytes, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def look(self):
        seen = deque()
        while not self.ended.wait(self.STEP_S):
            now, read = time.monotonic(), read_by_children()
            if read is None:
                # Nothing has started: the file that the medium is emulated from is read into memory first.
                seen.clear()
                continue
            while seen and (seen[0][0] < now - self.SECONDS or seen[0][1] > read):
                seen.popleft()
            seen.append((now, read))
            self.bytes = max(self.bytes, read - seen[0][1])


def read_by_children():
    """Bytes that the children of this process have read which have started a command; `None` without one."""
    total = None
    for task in Path("/proc/self/task").iterdir():
        try:
            for child in (task / "children").read_text().split():
                if any((thread / "children").read_text() for thread in Path(f"/proc/{child}/task").iterdir()):
                    total = (total or 0) + int(Path(f"/proc/{child}/io").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            # A task or a child that has ended.
            continue
    return total


def contenders(name):
    """The starts of one desktop: {contender: function}."""
    tree = root(name)
    plain = image(tree, f"desktop-{name}")
    drawn = str(screen_of(name, plain))
    command = ["/bin/sh", "/opt/desktop", drawn]
    fast = optimized(plain, f"desktop-{name}-fast", profile(plain, f"desktop-{name}", command, ready="^ready"))
    packed = squashfs(tree, f"desktop-{name}")

    def one(disk, medium, **more):
        with Peak() as peak:
            result = start(disk, command, medium=medium, ready="^ready", patience_s=300, **more)
        return {**result, "peak_mb_per_s": peak.bytes / 1e6 / Peak.SECONDS}

    return fast, {
        "memory": lambda: one(fast, "none"),
        "optimised": lambda: one(fast, CD),
        "plain": lambda: one(plain, CD),
        "squashfs": lambda: one(packed, CD, foreign=True),
    }


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--desktop", action="append", choices=DESKTOPS, help="one of them (default: all)")
    args = parser.parse_args()
    figures = []
    for name in args.desktop or DESKTOPS:
        fast, cases = contenders(name)
        say = lambda result: f"ready after {result['ready_s']:.2f} s, {result['store_bytes'] / 1e6:.1f} MB"
        results = alternate({f"{name} {case}": case_run for case, case_run in cases.items()}, args.repeats, say)
        keys = ("ready_s", "store_bytes", "store_requests", "peak_mb_per_s")
        found = {case: {key: spread([run[key] for run in runs]) for key in keys} for case, runs in results.items()}
        ready = {case.split()[1]: found[case]["ready_s"]["median"] for case in found}
        moved = {case.split()[1]: found[case]["store_bytes"]["median"] for case in found}
        hot = sum(segment["hot_compressed_bytes"] for segment in headstart_json("inspect", fast, "--json")["hot_segments"])
        detail = {"starts": found, "hot_compressed_bytes": hot}
        figures.append(figure(f"{name}: optimised ÷ squashfs, {CD}", ready["optimised"] / ready["squashfs"], at_most=1.03,
                              detail=detail))
        figures.append(figure(f"{name}: optimised ÷ plain, {CD}", ready["optimised"] / ready["plain"]))
        figures.append(figure(f"{name}: ready from memory", ready["memory"], unit="s"))
        figures.append(figure(f"{name}: ready, {CD}, optimised", ready["optimised"], unit="s"))
        figures.append(figure(f"{name}: bytes from the medium, optimised", moved["optimised"] / 1e6, unit="MB"))
        figures.append(figure(f"{name}: bytes from the medium, squashfs", moved["squashfs"] / 1e6, unit="MB"))
        for case in ("optimised", "squashfs"):
            figures.append(figure(f"{name}: most in a second, {case}", found[f"{name} {case}"]["peak_mb_per_s"]["median"], unit="MB"))
    finish("desktops", figures, args.repeats)


if __name__ == "__main__":
    main()
