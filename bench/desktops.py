#!/usr/bin/env python3
"""Desktops start from a modelled CD drive to a drawn screen: twm, fluxbox, icewm, Window Maker, Xfce and KDE, as the slides on
UML-KNOPPIX compare them (docs/PAPERS.md), each from a squashfs, an image without a profile, and an optimised one.

A start is `headstart run` of an X server without hardware (Xvfb), the desktop and a terminal. It is drawn when every tile of the
screen is as two undisturbed starts left it; where these two differ (a clock, say) does not count. The screens are kept beside the
result, and were looked at.
"""

import ctypes
import os
import struct
import sys
import threading
import time
import zlib
from collections import deque
from pathlib import Path

from harness import RESULTS, alternate, arguments, figure, finish, headstart_json, repeated, run, spread, start
from inputs import image, kept, optimized, profile, squashfs

CD = "cd-24x-cav"
# Of Linux: a new network namespace.
CLONE_NEWNET = 0x40000000
BASE = "xvfb,xterm,xfonts-base,fonts-dejavu-core,x11-xserver-utils"
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
# Without -noreset the server begins anew, with a blank screen, whenever its last program leaves: whether it has drawn a
# background would depend on which of two programs comes first.
SCRIPT = """
export HOME=/root DISPLAY=:1 LANG=C.UTF-8 XDG_RUNTIME_DIR=/tmp/run TZ=$2
mkdir -p -m 0700 /tmp/run
Xvfb :1 -screen 0 1024x768x24 -fbdir /tmp -nolisten tcp -noreset >/dev/null 2>&1 &
until [ -S /tmp/.X11-unix/X1 ]; do sleep 0.02; done
(%s) >/dev/null 2>&1 &
(sleep $1; exec xterm -geometry 80x24+200+200) >/dev/null 2>&1 &
until [ -e /tmp/drawn ]; do sleep 0.05; done
echo ready
"""
# A screen is compared in squares of so many pixels.
TILE = 32
# How long an undisturbed start has (KDE shows a splash screen for up to half a minute), and how late a terminal comes whose
# window manager is there already.
UNDISTURBED_S, UNDISTURBED_KDE_S, LATE_S = 30, 70, 10
OTHER_ZONE = "Asia/Kathmandu"
# A desktop that is not drawn by then is not going to be: KDE as built takes four minutes from the CD.
LIMIT_S = 400


def root(name):
    """A Debian with this desktop."""
    packages, _ = DESKTOPS[name]

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={BASE},{packages}",
            "--dpkgopt=force-unsafe-io", "bookworm", draft, patience_s=1800)

    return kept(f"desktop-{name}", [], make)


def command(name, terminal_after_s=0, zone="UTC"):
    """What starts a desktop, whose clock shows the time of this zone."""
    return ["/bin/sh", "-c", SCRIPT % DESKTOPS[name][1], "desktop", str(terminal_after_s), zone]


class Screen:
    """Looks at the screen of the X server that a child of this process has started, and ends the start when it is drawn: when it
    `is_drawn(pixels, seconds)`. After `LIMIT_S` it ends the benchmark, and the screen is kept as a picture."""

    STEP_S = 0.05

    def __init__(self, name, is_drawn):
        self.name, self.is_drawn, self.last = name, is_drawn, None

    def __enter__(self):
        self.ended, self.late = threading.Event(), False
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join()
        if self.late and kind is None:
            picture(f"{self.name}-not-drawn", self.last)
            sys.exit(f"{self.name} was not drawn after {LIMIT_S} s: {self.name}-not-drawn.png shows what was")

    def look(self):
        server, began = None, 0.0
        while not self.ended.wait(self.STEP_S):
            if not server:
                server, began = x_server(), time.monotonic()
                continue
            try:
                self.last = Picture((server / "Xvfb_screen0").read_bytes())
                after_s = time.monotonic() - began
                self.late = after_s > LIMIT_S
                if self.late or self.is_drawn(self.last, after_s):
                    (server / "drawn").touch()
                    return
            except (FileNotFoundError, ProcessLookupError, struct.error):
                # It has not made its screen yet, or has ended.
                continue


def x_server():
    """The folder for temporary files of an X server below this process."""
    for process in descendants(os.getpid()):
        try:
            if Path(f"/proc/{process}/comm").read_text() == "Xvfb\n":
                return Path(f"/proc/{process}/root/tmp")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def descendants(process):
    """The processes below one."""
    for child in children(process):
        yield child
        yield from descendants(child)


def children(process):
    """The processes that the threads of one have started."""
    found = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += (task / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        # A task or a process that has ended.
        pass
    return found


class Picture:
    """A dump of an X server's screen (XWD, version 7; 32 bits a pixel, blue first)."""

    def __init__(self, dump):
        header_bytes, = struct.unpack_from(">I", dump)
        self.width, self.height = struct.unpack_from(">II", dump, 16)
        line_bytes, = struct.unpack_from(">I", dump, 48)
        colors, = struct.unpack_from(">I", dump, 76)
        at = header_bytes + colors * 12
        if line_bytes == 0 or len(dump) < at + self.height * line_bytes:
            raise struct.error("the server is still making its file")
        self.lines = [dump[start:start + self.width * 4] for start in range(at, at + self.height * line_bytes, line_bytes)]

    def tile(self, x, y):
        """The pixels of one square."""
        return [line[x * 4:(x + TILE) * 4] for line in self.lines[y:y + TILE]]

    def tiles(self):
        """The squares, by where they are."""
        return {(x, y): self.tile(x, y) for y in range(0, self.height, TILE) for x in range(0, self.width, TILE)}

    def png(self):
        """It as a file."""
        rows = bytearray()
        for line in self.lines:
            rgb = bytearray(self.width * 3)
            rgb[0::3], rgb[1::3], rgb[2::3] = line[2::4], line[1::4], line[0::4]
            rows += b"\0" + rgb

        def part(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        about = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", about) + part(b"IDAT", zlib.compress(bytes(rows), 9)) + part(b"IEND", b"")


def picture(name, screen):
    """Keeps a screen beside the results."""
    path = RESULTS / "desktops" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(screen.png())


def undisturbed(name, disk, *how):
    """The screen that a start from memory has after a while."""
    patience_s = UNDISTURBED_KDE_S if name == "kde" else UNDISTURBED_S
    with Screen(name, lambda _, after_s: after_s > patience_s) as screen:
        start(disk, command(name, *how), medium="none", ready="^ready", patience_s=LIMIT_S + 60)
    return screen.last


def drawn_screen(name, disk):
    """What tells whether this desktop is drawn, and the share of the screen that it looks at. Of two starts one has its terminal
    after its window manager, and a clock that shows another hour. What differs then does not count, nor what is beside it."""
    one, other = undisturbed(name, disk), undisturbed(name, disk, LATE_S, OTHER_ZONE)
    picture(name, one)
    tiles, others = one.tiles(), other.tiles()
    differ = {at for at in tiles if tiles[at] != others[at]}
    beside = {(x + dx, y + dy) for x, y in differ for dx in (-TILE, 0, TILE) for dy in (-TILE, 0, TILE)}
    wanted = {at: pixels for at, pixels in tiles.items() if at not in beside}
    share = len(wanted) / len(tiles)
    if share < 0.9:
        picture(f"{name}-other", other)
        sys.exit(f"{name}: two screens are the same in {share:.0%} only; {name}.png and {name}-other.png show them")
    return (lambda screen, _: all(screen.tile(*at) == pixels for at, pixels in wanted.items())), share


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
            # On a busy machine looking takes time: the first look of a second counts from its begin, the last to its end.
            began, read, now = time.monotonic(), read_by_children(), time.monotonic()
            if read is None:
                # Nothing has started: the file that the medium is emulated from is read into memory first.
                seen.clear()
                continue
            while seen and (seen[0][0] < now - self.SECONDS or seen[0][1] > read):
                seen.popleft()
            seen.append((began, read))
            self.bytes = max(self.bytes, read - seen[0][1])


def read_by_children():
    """Bytes that the children of this process have read which have started a command; `None` without one."""
    total = None
    for child in children(os.getpid()):
        try:
            if children(child):
                total = (total or 0) + int(Path(f"/proc/{child}/io").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):
            # It has ended.
            continue
    return total


def contenders(name):
    """The starts of one desktop, {contender: function}; its optimised image, and the share of the screen that is looked at."""
    tree = root(name)
    plain = image(tree, f"desktop-{name}")
    is_drawn, share = drawn_screen(name, plain)
    with Screen(name, is_drawn):
        recorded = profile(plain, f"desktop-{name}", command(name), ready="^ready")
    fast = optimized(plain, f"desktop-{name}-fast", recorded)
    packed = squashfs(tree, f"desktop-{name}")

    def one(disk, medium, **more):
        with Peak() as peak, Screen(name, is_drawn):
            result = start(disk, command(name), medium=medium, ready="^ready", patience_s=LIMIT_S + 60, **more)
        return {**result, "peak_mb_per_s": peak.bytes / 1e6 / Peak.SECONDS}

    return fast, share, {
        "memory": lambda: one(fast, "none"),
        "optimised": lambda: one(fast, CD),
        "plain": lambda: one(plain, CD),
        "squashfs": lambda: one(packed, CD, foreign=True),
    }


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--desktop", action="append", choices=DESKTOPS, help="one of them (default: all)")
    args = parser.parse_args()
    # A network of its own: X servers and their programs meet at an address of the network namespace, which `run` shares.
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        sys.exit("no network namespace can be made: run this as root")
    figures = []
    for name in args.desktop or DESKTOPS:
        fast, share, cases = contenders(name)
        say = lambda result: f"ready after {result['ready_s']:.2f} s, {result['store_bytes'] / 1e6:.1f} MB"
        results = alternate({f"{name} {case}": case_run for case, case_run in cases.items()}, args.repeats, say)
        keys = ("ready_s", "store_bytes", "store_requests", "peak_mb_per_s")
        found = {case: {key: spread([run[key] for run in runs]) for key in keys} for case, runs in results.items()}
        ready = {case.split()[1]: found[case]["ready_s"]["median"] for case in found}
        moved = {case.split()[1]: found[case]["store_bytes"]["median"] for case in found}
        hot = sum(segment["hot_compressed_bytes"] for segment in headstart_json("inspect", fast, "--json")["hot_segments"])
        detail = {"starts": found, "hot_compressed_bytes": hot, "screen_share": round(share, 3)}
        figures.append(figure(f"{name}: optimised ÷ squashfs, {CD}", ready["optimised"] / ready["squashfs"], at_most=1.03,
                              detail=detail))
        figures.append(figure(f"{name}: optimised ÷ plain, {CD}", ready["optimised"] / ready["plain"]))
        figures.append(figure(f"{name}: ready from memory", ready["memory"], unit="s"))
        figures.append(figure(f"{name}: ready, {CD}, optimised", ready["optimised"], unit="s"))
        figures.append(figure(f"{name}: bytes from the medium, optimised", moved["optimised"] / 1e6, unit="MB"))
        figures.append(figure(f"{name}: bytes from the medium, squashfs", moved["squashfs"] / 1e6, unit="MB"))
        for case in ("optimised", "squashfs"):
            peak = found[f"{name} {case}"]["peak_mb_per_s"]["median"]
            figures.append(figure(f"{name}: most in a second, {case}", peak, unit="MB"))
    finish("desktops", figures, args.repeats, repeated("--desktop", args.desktop or []))


if __name__ == "__main__":
    main()
