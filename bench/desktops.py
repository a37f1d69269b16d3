#!/usr/bin/env python3
"""Desktops start from a modelled CD drive to a drawn screen: twm, fluxbox, icewm, Window Maker, Xfce and KDE, as the
slides on UML-KNOPPIX compare them (docs/PAPERS.md), each from a squashfs, an image without a profile, and an optimized
one.

A start is `headstart run` of an X server without hardware (Xvfb), the desktop and a terminal. It is drawn when every tile
of the screen is as two undisturbed starts left it; where these two differ (a clock, say) does not count. The screens are
kept beside the result, as X window dumps.
"""

import ctypes
import os
import struct
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness import RESULTS, benchmark, start
from inputs import debian, image, optimized, packed_bytes, profile, squashfs
from mounts import children, descendants

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
# How long an undisturbed start has (KDE shows a splash screen for up to half a minute), and how late a terminal comes
# whose window manager is there already.
UNDISTURBED_S, UNDISTURBED_KDE_S, LATE_S = 30, 70, 10
# A desktop that is not drawn by then is not going to be: KDE as built takes four minutes from the CD.
LIMIT_S = 400

def command(name, terminal_after_s=0, zone="UTC"):
    """What starts a desktop, whose clock shows the time of this zone."""
    return ["/bin/sh", "-c", SCRIPT % DESKTOPS[name][1], "desktop", str(terminal_after_s), zone]

@contextmanager
def watched(look, step_s):
    """A thread looks now and then while the block runs, until `look()` is true."""
    ended = threading.Event()

    def go_on():
        while not ended.wait(step_s) and not look():
            pass

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

class Screen:
    """The screen of the X server that a child of this process has started. The start ends when it is drawn: when it
    `is_drawn(pixels, seconds)`. After `LIMIT_S` the benchmark ends, and the screen is kept."""

    def __init__(self, name, is_drawn):
        self.name, self.is_drawn, self.last, self.server, self.late = name, is_drawn, None, None, False

    def look(self):
        if not self.server:
            self.server, self.began = x_server(), time.monotonic()
            return False
        try:
            self.last = Picture((self.server / "Xvfb_screen0").read_bytes())
            after_s = time.monotonic() - self.began
            self.late = after_s > LIMIT_S
            if self.late or self.is_drawn(self.last, after_s):
                (self.server / "drawn").touch()
                return True
        except (FileNotFoundError, ProcessLookupError, struct.error):
            # It has not made its screen yet, or has ended.
            pass
        return False

    @contextmanager
    def watched(self):
        with watched(self.look, 0.05):
            yield self
        if self.late:
            self.last.keep(f"{self.name}-not-drawn")
            sys.exit(f"{self.name} was not drawn after {LIMIT_S} s: {self.name}-not-drawn.xwd shows what was")

def x_server():
    """The folder for temporary files of an X server below this process."""
    for process in descendants(os.getpid()):
        try:
            if Path(f"/proc/{process}/comm").read_text() == "Xvfb\n":
                return Path(f"/proc/{process}/root/tmp")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None

class Picture:
    """A dump of an X server's screen (XWD, version 7; 32 bits a pixel, blue first)."""

    def __init__(self, dump):
        header_bytes, = struct.unpack_from(">I", dump)
        self.dump, (self.width, self.height) = dump, struct.unpack_from(">II", dump, 16)
        line_bytes, = struct.unpack_from(">I", dump, 48)
        colors, = struct.unpack_from(">I", dump, 76)
        at = header_bytes + colors * 12
        if line_bytes == 0 or len(dump) < at + self.height * line_bytes:
            raise struct.error("the server is still making its file")
        self.lines = [dump[begin:begin + self.width * 4] for begin in range(at, at + self.height * line_bytes, line_bytes)]

    def tile(self, x, y):
        """The pixels of one square."""
        return [line[x * 4:(x + TILE) * 4] for line in self.lines[y:y + TILE]]

    def tiles(self):
        """The squares, by where they are."""
        return {(x, y): self.tile(x, y) for y in range(0, self.height, TILE) for x in range(0, self.width, TILE)}

    def keep(self, name):
        path = RESULTS / "desktops" / f"{name}.xwd"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.dump)

def undisturbed(name, disk, *how):
    """The screen that a start from memory has after a while."""
    patience_s = UNDISTURBED_KDE_S if name == "kde" else UNDISTURBED_S
    with Screen(name, lambda _, after_s: after_s > patience_s).watched() as screen:
        start(disk, command(name, *how), ready="^ready", patience_s=LIMIT_S + 60)
    return screen.last

def drawn_screen(name, disk):
    """What tells whether this desktop is drawn, and the share of the screen that it looks at. Of two starts one has its
    terminal after its window manager, and a clock that shows another hour. What differs then does not count, nor what is
    beside it."""
    one, other = undisturbed(name, disk), undisturbed(name, disk, LATE_S, "Asia/Kathmandu")
    one.keep(name)
    tiles, others = one.tiles(), other.tiles()
    differ = {at for at in tiles if tiles[at] != others[at]}
    beside = {(x + dx, y + dy) for x, y in differ for dx in (-TILE, 0, TILE) for dy in (-TILE, 0, TILE)}
    wanted = {at: pixels for at, pixels in tiles.items() if at not in beside}
    share = len(wanted) / len(tiles)
    if share < 0.9:
        other.keep(f"{name}-other")
        sys.exit(f"{name}: two screens are the same in {share:.0%} only; {name}.xwd and {name}-other.xwd show them")
    return (lambda screen, _: all(screen.tile(*at) == pixels for at, pixels in wanted.items())), share

class Peak:
    """The most that the server has read of the image's file within a second: what a medium delivered, or a link would
    carry."""

    def __init__(self):
        self.most, self.seen = 0, deque()

    def look(self):
        # On a busy machine looking takes time: the first look of a second counts from its begin, the last to its end.
        began, read, now = time.monotonic(), read_by_children(), time.monotonic()
        if read is None:
            # Nothing has started: the file that the medium is emulated from is read into memory first.
            return self.seen.clear()
        while self.seen and (self.seen[0][0] < now - 1.0 or self.seen[0][1] > read):
            self.seen.popleft()
        self.seen.append((began, read))
        self.most = max(self.most, read - self.seen[0][1])

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

def one_start(name, is_drawn, disk, medium, foreign=False):
    peak = Peak()
    with watched(peak.look, 0.1), Screen(name, is_drawn).watched():
        result = start(disk, command(name), medium=medium, ready="^ready", foreign=foreign, patience_s=LIMIT_S + 60)
    return {**result, "peak_mb_per_s": peak.most / 1e6, "store_mb": result["store_bytes"] / 1e6}

@benchmark(repeats=3)
def measure(bench):
    # A network of its own: X servers and their programs meet at an address of the network namespace, which `run` shares.
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        sys.exit("no network namespace can be made: run this as root")
    for name, (packages, _) in bench.chosen(DESKTOPS).items():
        tree = debian(f"desktop-{name}", f"{BASE},{packages}")
        plain = image(tree, f"desktop-{name}")
        is_drawn, share = drawn_screen(name, plain)
        with Screen(name, is_drawn).watched():
            recorded = profile(plain, f"desktop-{name}", command(name), ready="^ready")
        fast, one = optimized(plain, f"desktop-{name}-fast", recorded), partial(one_start, name, is_drawn)
        runs = bench.turns({
            "memory": lambda: one(fast, "none"), "optimized": lambda: one(fast, CD), "plain": lambda: one(plain, CD),
            "squashfs": lambda: one(squashfs(tree, f"desktop-{name}"), CD, foreign=True),
        }, say=f"{name}: ready after {{ready_s:.2f}} s, {{store_mb:.1f}} MB")
        detail = {"hot_compressed_bytes": packed_bytes(fast), "screen_share": round(share, 3)}
        bench.figure(f"{name}: optimized ÷ squashfs, {CD}", runs.ratio("optimized", "squashfs"), at_most=1.03,
                     detail=detail)
        bench.figure(f"{name}: optimized ÷ plain, {CD}", runs.ratio("optimized", "plain"))
        bench.figure(f"{name}: ready from memory", runs.median("memory"), unit="s")
        bench.figure(f"{name}: ready, {CD}, optimized", runs.median("optimized"), unit="s")
        for what, key in (("bytes from the medium", "store_mb"), ("most in a second", "peak_mb_per_s")):
            for case in ("optimized", "squashfs"):
                bench.figure(f"{name}: {what}, {case}", runs.median(case, key), unit="MB")
