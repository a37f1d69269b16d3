#!/usr/bin/env python3
"""A Debian starts from a disc or stick, with its own kernel, by firmware and boot loader: from a headstart ISO without and with
a profile, and from a squashfs ISO of live-boot. The same root, kernel and boot loader in all of them; QEMU reads the medium from
an emulated drive.

The profile is merged from two: the machine records its own start from a disc, page by page; and of another machine, a guest
with a virtio disk and without a screen, the requests are recorded. On the CD either machine also starts by its own profile alone.

The storage wait is the guest kernel's own count, the same for all: the time in which nothing ran and something waited for I/O
(the line `full` of /proc/pressure/io). It is printed when systemd has started everything, with the time since the kernel's
first instruction. What firmware and boot loader took is reported apart: it is the same for all.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import (Figures, alternate, arguments, case_argument, chosen, finish, headstart, headstart_json, repeated, run, scratch)
from inputs import LEVEL, folder, kept, optimized, program, stamp

PACKAGES = "systemd-sysv,udev,dbus,linux-image-amd64,initramfs-tools,zstd,busybox,live-boot,live-boot-initramfs-tools,iproute2"
CD = "cd-24x-cav"
OTHERS = ["usb2-stick", "sd-uhs1", "flat-10ms-25mbs"]
GUEST = ["--vmm", "qemu", "--accel", "tcg", "--memory", "1G", "--ready", "bench-ready [0-9]", "--ready-timeout", "500"]
WORDS = ["psi=1", "no_timer_check", "console=ttyS0"]
UNIT = """[Unit]
Description=Says that everything has started
[Service]
Type=idle
ExecStart=/bin/sh -c 'echo "bench-ready $(cut -d" " -f1 /proc/uptime) $(grep full /proc/pressure/io)" >/dev/ttyS0'
[Install]
WantedBy=multi-user.target
"""
# From the time of the server's start: more than a start takes in the translator.
RECORDED_S = 75
# Services that nothing orders before the unit above start a little before it or after it, by chance: e2scrub, and bash with it.
RUN_AFTER_READY_S = 15
READY = re.compile(r"bench-ready ([0-9.]+) full .*total=([0-9]+)")
MENU = """set timeout=0
menuentry 'live' {{
  linux /boot/vmlinuz boot=live {words}
  initrd /boot/initrd.img
}}
"""


def root():
    """A Debian with a kernel, live-boot, and a unit that says when it is ready."""

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", f"--include={PACKAGES}",
            "--dpkgopt=force-unsafe-io", "bookworm", draft, patience_s=900)
        (draft / "etc/systemd/system/bench-ready.service").write_text(UNIT)
        run("chroot", draft, "systemctl", "enable", "-q", "bench-ready")
        run("chroot", draft, "passwd", "-q", "-d", "root")

    return kept("live-root", [], make)


def image():
    """Its image."""
    return kept("live.hsi", [stamp(root()), program()],
                lambda draft: headstart("build", root(), "-o", draft, "--free", "64M", "--codec", f"zstd:{LEVEL}"))


def boot_file(name):
    """The kernel, or its initial RAM disk, in the root."""
    return sorted((root() / "boot").glob(f"{name}-*"))[-1]


def initrd_of(medium):
    """The initramfs on a medium."""

    def make(draft):
        run("xorriso", "-osirrox", "on", "-indev", medium, "-extract", "/boot/initrd.img", draft)

    return kept(f"{medium.stem}-initrd.img", [medium], make)


def other_machine(medium):
    """A machine with other hardware, and the initramfs of this medium: drivers that are not in there are read from the root.
    Kernel and initramfs are not read from the image."""
    flags = ["--kernel", boot_file("vmlinuz"), "--initrd", initrd_of(medium)]
    return [*GUEST, *flags, "--append", "psi=1", "--append", "no_timer_check"]


def of_another_machine(plain, medium):
    """The requests of a start of that machine."""
    flags = [*other_machine(medium), "--run-after-ready", RUN_AFTER_READY_S]
    return kept("live-other.hsp", [plain, medium, program()], lambda draft: headstart("boot", plain, *flags, "--record", draft))


def recording(plain):
    """The start of a machine like those that are measured, recorded by itself on a second disk."""
    medium = iso("live-record", plain, "headstart.record=LABEL=KEEP", f"headstart.record-for={RECORDED_S}")

    def make(draft):
        keep, copy = scratch() / "keep", scratch() / "keep.copy"
        keep.touch()
        os.truncate(keep, 64 << 20)
        run("mkfs.ext4", "-q", "-L", "KEEP", keep)
        drives = ["-drive", f"if=none,id=disk,format=raw,media=cdrom,readonly=on,file={medium}", "-device",
                  "ide-cd,drive=disk,bootindex=1", "-drive", f"if=virtio,format=raw,file={keep}"]
        machine = ["-nodefaults", "-no-user-config", "-display", "none", "-vga", "std", "-cpu", "max", "-accel", "tcg"]
        guest = subprocess.Popen(["qemu-system-x86_64", *machine, "-m", "1024M", *drives])
        try:
            deadline = time.monotonic() + 600
            while not draft.exists() or draft.stat().st_size == 0:
                if guest.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the machine has not recorded its start")
                time.sleep(5)
                # As it would be after a power cut: its journal is replayed.
                shutil.copyfile(keep, copy)
                subprocess.run(["e2fsck", "-fy", copy], capture_output=True, check=False)
                subprocess.run(["debugfs", "-R", f"dump headstart-boot.hsp {draft}", copy], capture_output=True, check=False)
        finally:
            guest.kill()
            guest.wait()

    return kept("live.hsp", [medium, program()], make)


def iso(name, disk, *more):
    """A medium with this image."""
    words = [word for each in [*WORDS, *more] for word in ("--append", each)]
    return kept(f"{name}.iso", [disk, program()], lambda draft: headstart("iso", disk, "-o", draft, "--timeout", 0, *words))


def squashfs_iso(ours):
    """The same root as a squashfs, started by live-boot: its menu and the squashfs differ, all else is the same."""

    def make(draft):
        tree = scratch() / "tree"
        # All of ours but the image: what else is on it depends on the boot loaders that this machine has.
        loaders = scratch() / "loaders"
        run("xorriso", "-osirrox", "on", "-indev", ours, "-extract", "/", tree, "-extract_boot_images", loaders)
        run("chmod", "-R", "u+w", tree)
        shutil.rmtree(tree / "headstart")
        (tree / "boot/boot.cat").unlink()
        shutil.copy(next(loaders.glob("*uefi*")), tree / "boot/grub/efi.img")
        (tree / "live").mkdir()
        run("mksquashfs", root(), tree / "live/filesystem.squashfs", "-comp", "zstd", "-Xcompression-level", LEVEL, "-b", "128K",
            "-quiet", "-no-progress", patience_s=900)
        (tree / "boot/grub/grub.cfg").write_text(MENU.format(words=" ".join(["console=ttyS0,115200", *WORDS])))
        order = ["bios.img", "efi.img", "grub.cfg"]
        weights = [("--sort-weight", 9 - at, f"/boot/grub/{name}") for at, name in enumerate(order)]
        weights += [("--sort-weight", 2, "/boot/vmlinuz"), ("--sort-weight", 1, "/boot/initrd.img")]
        run("xorriso", "-as", "mkisofs", "-quiet", "-r", "-iso-level", 3, "-V", "SQUASHFS",
            *[word for each in weights for word in each], "-b", "boot/grub/bios.img", "-c", "boot/boot.cat",
            "-no-emul-boot", "-boot-load-size", 4, "-boot-info-table",
            "--grub2-boot-info", "-eltorito-alt-boot", "-e", "boot/grub/efi.img", "-no-emul-boot", "-o", draft, tree)

    return kept("squashfs.iso", [ours], make)


def boot(disk, *flags):
    """A start, with the guest's own figures."""
    console = scratch() / "console"
    summary = json.loads(headstart("boot", disk, *flags, "--console", console, "--json", patience_s=700))
    found = READY.search(console.read_text(errors="replace"))
    return {**summary, "up_s": float(found[1]), "wait_s": int(found[2]) / 1e6}


def start(medium_iso, medium, *flags):
    """One start from a medium, by firmware and boot loader."""
    on = [] if medium == "none" else ["--emulate", medium]
    summary = boot(medium_iso, *GUEST, *on, *flags)
    kernel = next(stage for stage in summary["stages"] if stage["name"] == "kernel")
    loader = {"kernel_s": kernel["at_s"], "boot_loader_busy_s": kernel["medium_busy_s"],
              "boot_loader_bytes": kernel["store_bytes"]}
    return {**summary, **loader}


def hot_bytes(path):
    """Packed bytes of an image's hot region."""
    return sum(segment["hot_compressed_bytes"] for segment in headstart_json("inspect", path, "--json")["hot_segments"])


def cd_rate(iso_path, boot_bytes):
    """Bytes a second of the modelled drive where the boot files of a medium lie: at its beginning, and its end is the disc's outer
    edge. docs/MEDIA.md has the formula: radii from 25 to 58 mm, 700 MB, 24 times 150 KiB/s at the outer edge."""
    inner, outer, capacity, fastest = 25, 58, 80 * 60 * 75 * 2048, 24 * 75 * 2048
    at = capacity - iso_path.stat().st_size + boot_bytes / 2
    return fastest * ((inner**2 + (outer**2 - inner**2) * at / capacity) ** 0.5) / outer


def figures_of(found, fast, alone, boot_iso):
    """All figures of the starts `found`: of the image `fast`, whose profile is merged, and of those by one profile alone."""

    def ratio(key, case, other):
        return lambda: found.median(case, key) / found.median(other, key)

    for other in ("plain", "squashfs"):
        found.add(f"storage wait, optimised ÷ {other}, {CD}", ratio("wait_s", f"fast {CD}", f"{other} {CD}"), at_most=0.05)
    for medium in (CD, *OTHERS):
        goal = {"at_most": 1.03} if medium != CD else {}
        for name, what in (("fast", "optimised"), ("plain", "unoptimised")):
            found.add(f"ready, {what} ÷ squashfs, {medium}", ratio("up_s", f"{name} {medium}", f"squashfs {medium}"), **goal)
        goal = {"at_most": 1.10} if medium == CD else {}
        found.add(f"ready, optimised ÷ the same from memory, {medium}", ratio("up_s", f"fast {medium}", "fast none"), **goal)
    for name in ("plain", "fast", "squashfs"):
        found.add(f"ready from memory, {name}", lambda: found.median(f"{name} none", "up_s"), unit="s")
    found.add("ready by UEFI, from memory, optimised", lambda: found.median("fast none, uefi", "up_s"), unit="s")
    found.add("hot region", lambda: hot_bytes(fast) / 1e6, unit="MB")
    for name, path in alone.items():
        found.add(f"hot region, profile merged ÷ {name} alone", lambda: hot_bytes(fast) / hot_bytes(path))
    found.add("hot region, pages ÷ requests", lambda: hot_bytes(alone["own"]) / hot_bytes(alone["other"]), at_most=0.85)
    for name, where in (("own", ""), ("other", ", the other machine")):
        for key, what, goal in (("wait_s", "storage wait", {}), ("up_s", "ready", {"at_most": 1.05})):
            value = ratio(key, f"fast {CD}{where}", f"{name} {CD}{where}")
            found.add(f"{what}, profile merged ÷ {name} alone, {CD}{where}", value, **goal)
    found.add(f"what firmware and boot loader took, {CD}", lambda: found.median(f"fast {CD}", "kernel_s"), unit="s")

    def boot_files():
        took_s, taken = (found.median(f"fast {CD}", key) for key in ("boot_loader_busy_s", "boot_loader_bytes"))
        return took_s / (taken / cd_rate(boot_iso, taken))

    found.add(f"boot files: time of the drive ÷ their bytes at its rate, {CD}", boot_files, at_most=1.1)
    for name, what in (("fast", "optimised"), ("plain", "unoptimised")):
        value = ratio("up_s", f"{name} {OTHERS[0]}, uefi", f"squashfs {OTHERS[0]}, uefi")
        found.add(f"ready by UEFI, {what} ÷ squashfs, {OTHERS[0]}", value, at_most=1.03)


def main():
    parser = arguments(__doc__, repeats=1)
    case_argument(parser)
    args = parser.parse_args()
    plain = image()
    media = {"plain": iso("live-plain", plain)}
    exact, other = recording(plain), of_another_machine(plain, media["plain"])
    fast = optimized(plain, "live-fast", exact, other)
    media["fast"] = iso("live-fast", fast)
    alone = {"own": optimized(plain, "live-own", exact), "other": optimized(plain, "live-other", other)}
    media["squashfs"] = squashfs_iso(media["plain"])
    cases = {f"{name} {medium}": lambda path=path, medium=medium: start(path, medium)
             for medium in ("none", CD, *OTHERS) for name, path in media.items()}
    cases[f"own {CD}"] = lambda path=iso("live-own", alone["own"]): start(path, CD)
    there = [*other_machine(media["plain"]), "--emulate", CD]
    for name, path in (("fast", fast), ("other", alone["other"])):
        cases[f"{name} {CD}, the other machine"] = lambda path=path: boot(path, *there)
    for name, medium in (("fast", "none"), *((name, OTHERS[0]) for name in media)):
        cases[f"{name} {medium}, uefi"] = lambda name=name, medium=medium: start(media[name], medium, "--firmware", "uefi")
    say = "ready {up_s:.1f} s after the kernel began, storage wait {wait_s:.2f} s"
    results = alternate(chosen(cases, args.case), args.repeats, say=lambda result: say.format(**result))
    keys = ("up_s", "wait_s", "kernel_s", "boot_loader_busy_s", "boot_loader_bytes", "store_bytes", "store_requests", "seeks")
    found = Figures(results, cases, keys)
    figures_of(found, fast, alone, media["fast"])
    finish("live", found, args.repeats, repeated("--case", args.case))


if __name__ == "__main__":
    main()
