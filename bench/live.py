#!/usr/bin/env python3
"""A Debian starts from a disc or stick, with its own kernel, by firmware and boot loader: from a headstart ISO without
and with a profile, and from a squashfs ISO of live-boot. The same root, kernel and boot loader in all of them; QEMU reads
the medium from an emulated drive.

The profile is merged from two: the machine records its own start from a disc, page by page; and of another machine, a
guest with a virtio disk and without a screen, the requests are recorded. On the CD either machine also starts by its own
profile alone.

The storage wait is the guest kernel's own count, the same for all: the time in which nothing ran and something waited for
I/O (the line `full` of /proc/pressure/io). It is printed when systemd has started everything, with the time since the
kernel's first instruction. What firmware and boot loader took is reported apart: it is the same for all.
"""

import os
import re
import shutil
import subprocess
from functools import partial

from harness import benchmark, headstart, headstart_json, repeated, run, scratch
from inputs import LEVEL, built, debian, kept, optimized, packed_bytes, program
from mounts import program as running, wait_until

PACKAGES = ("systemd-sysv,udev,dbus,linux-image-amd64,initramfs-tools,zstd,busybox,live-boot,live-boot-initramfs-tools,"
            "iproute2")
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
# Services that nothing orders before the unit above start a little before it or after it, by chance.
RUN_AFTER_READY_S = 15
READY = re.compile(r"bench-ready ([0-9.]+) full .*total=([0-9]+)")
MENU = """set timeout=0
menuentry 'live' {{
  linux /boot/vmlinuz boot=live console=ttyS0,115200 {words}
  initrd /boot/initrd.img
}}
"""

def root():
    """A Debian with a kernel, live-boot, and a unit that says when it is ready."""

    def prepare(made):
        (made / "etc/systemd/system/bench-ready.service").write_text(UNIT)
        run("chroot", made, "systemctl", "enable", "-q", "bench-ready")
        run("chroot", made, "passwd", "-q", "-d", "root")

    return debian("live-root", PACKAGES, prepare=prepare)

def image():
    return built(root(), "live", "--free", "64M")

def boot_file(name):
    """The kernel, or its initial RAM disk, in the root."""
    return sorted((root() / "boot").glob(f"{name}-*"))[-1]

def extract(medium, path, to, *more):
    """Takes a file or a folder from a medium."""
    run("xorriso", "-osirrox", "on", "-indev", medium, "-extract", path, to, *more)

def other_machine(medium):
    """A machine with other hardware, and the initramfs of this medium: drivers that are not in there are read from the
    root. Kernel and initramfs are not read from the image."""
    initrd = kept(f"{medium.stem}-initrd.img", [medium], lambda draft: extract(medium, "/boot/initrd.img", draft))
    return [*GUEST, "--kernel", boot_file("vmlinuz"), "--initrd", initrd, *repeated("--append", WORDS[:2])]

def of_another_machine(plain, medium):
    """The requests of a start of that machine."""
    flags = [*other_machine(medium), "--run-after-ready", RUN_AFTER_READY_S]
    return kept("live-other.hsp", [plain, medium, program()],
                lambda draft: headstart("boot", plain, *flags, "--record", draft))

def recording(plain):
    """The start of a machine like those that are measured, recorded by itself on a second disk."""
    medium = iso("live-record", plain, "headstart.record=LABEL=KEEP", f"headstart.record-for={RECORDED_S}")

    def make(draft):
        keep, copy = scratch() / "keep", scratch() / "keep.copy"
        keep.touch()
        os.truncate(keep, 64 << 20)
        run("mkfs.ext4", "-q", "-L", "KEEP", keep)

        def has_recorded():
            # As it would be after a power cut: its journal is replayed.
            shutil.copyfile(keep, copy)
            for words in (["e2fsck", "-fy", copy], ["debugfs", "-R", f"dump headstart-boot.hsp {draft}", copy]):
                subprocess.run(words, capture_output=True, check=False)
            return draft.exists() and draft.stat().st_size

        with running("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-vga", "std", "-cpu",
                     "max", "-accel", "tcg", "-m", "1024M", "-drive",
                     f"if=none,id=disk,format=raw,media=cdrom,readonly=on,file={medium}", "-device",
                     "ide-cd,drive=disk,bootindex=1", "-drive", f"if=virtio,format=raw,file={keep}") as guest:
            wait_until(has_recorded, guest, step_s=5)

    return kept("live.hsp", [medium, program()], make)

def iso(name, disk, *more):
    """A medium with this image."""
    words = ["--timeout", 0, *repeated("--append", [*WORDS, *more])]
    return kept(f"{name}.iso", [disk, program()], lambda draft: headstart("iso", disk, "-o", draft, *words))

def squashfs_iso(ours):
    """The same root as a squashfs, started by live-boot: its menu and the squashfs differ, all else is the same."""

    def make(draft):
        tree, loaders = scratch() / "tree", scratch() / "loaders"
        # All of ours but the image: what else is on it depends on the boot loaders that this machine has.
        extract(ours, "/", tree, "-extract_boot_images", loaders)
        run("chmod", "-R", "u+w", tree)
        shutil.rmtree(tree / "headstart")
        (tree / "boot/boot.cat").unlink()
        shutil.copy(next(loaders.glob("*uefi*")), tree / "boot/grub/efi.img")
        (tree / "live").mkdir()
        run("mksquashfs", root(), tree / "live/filesystem.squashfs", "-comp", "zstd", "-Xcompression-level", LEVEL,
            "-b", "128K", "-quiet", "-no-progress", patience_s=900)
        (tree / "boot/grub/grub.cfg").write_text(MENU.format(words=" ".join(WORDS)))
        weights = {"/boot/grub/bios.img": 9, "/boot/grub/efi.img": 8, "/boot/grub/grub.cfg": 7, "/boot/vmlinuz": 2,
                   "/boot/initrd.img": 1}
        run("xorriso", "-as", "mkisofs", "-quiet", "-r", "-iso-level", 3, "-V", "SQUASHFS",
            *[word for path, weight in weights.items() for word in ("--sort-weight", weight, path)],
            "-b", "boot/grub/bios.img", "-c", "boot/boot.cat", "-no-emul-boot", "-boot-load-size", 4, "-boot-info-table",
            "--grub2-boot-info", "-eltorito-alt-boot", "-e", "boot/grub/efi.img", "-no-emul-boot", "-o", draft, tree)

    return kept("squashfs.iso", [ours], make)

def boot(disk, *flags):
    """A start, with the guest's own figures."""
    console = scratch() / "console"
    summary = headstart_json("boot", disk, *flags, "--console", console, patience_s=700)
    found = READY.search(console.read_text(errors="replace"))
    return {**summary, "up_s": float(found[1]), "wait_s": int(found[2]) / 1e6}

def start(medium_iso, medium, *flags):
    """One start from a medium, by firmware and boot loader."""
    on = [] if medium == "none" else ["--emulate", medium]
    summary = boot(medium_iso, *GUEST, *on, *flags)
    kernel = next(stage for stage in summary["stages"] if stage["name"] == "kernel")
    return {**summary, "kernel_s": kernel["at_s"], "boot_loader_busy_s": kernel["medium_busy_s"],
            "boot_loader_bytes": kernel["store_bytes"]}

def cd_rate(iso_path, boot_bytes):
    """Bytes a second of the modelled drive where the boot files of a medium lie: at its beginning, and its end is the
    disc's outer edge. docs/MEDIA.md has the formula: radii from 25 to 58 mm, 700 MB, 24 times 150 KiB/s at the outer
    edge."""
    inner, outer, capacity, fastest = 25, 58, 80 * 60 * 75 * 2048, 24 * 75 * 2048
    at = capacity - iso_path.stat().st_size + boot_bytes / 2
    return fastest * ((inner**2 + (outer**2 - inner**2) * at / capacity) ** 0.5) / outer

def figures_of(bench, runs, fast, alone, boot_iso):
    """All figures of the starts: of the image `fast`, whose profile is merged, and of those by one profile alone."""
    for other in ("plain", "squashfs"):
        bench.figure(f"storage wait, optimized ÷ {other}, {CD}", runs.ratio(f"fast {CD}", f"{other} {CD}", "wait_s"),
                     at_most=0.05)
    for medium in (CD, *OTHERS):
        for name, what in (("fast", "optimized"), ("plain", "unoptimized")):
            bench.figure(f"ready, {what} ÷ squashfs, {medium}", at_most=1.03 if medium != CD else None,
                         value=runs.ratio(f"{name} {medium}", f"squashfs {medium}", "up_s"))
        bench.figure(f"ready, optimized ÷ the same from memory, {medium}", at_most=1.10 if medium == CD else None,
                     value=runs.ratio(f"fast {medium}", "fast none", "up_s"))
    for name in ("plain", "fast", "squashfs"):
        bench.figure(f"ready from memory, {name}", runs.median(f"{name} none", "up_s"), unit="s")
    bench.figure("ready by UEFI, from memory, optimized", runs.median("fast none, uefi", "up_s"), unit="s")
    bench.figure("hot region", packed_bytes(fast) / 1e6, unit="MB")
    for name, path in alone.items():
        bench.figure(f"hot region, profile merged ÷ {name} alone", packed_bytes(fast) / packed_bytes(path))
    bench.figure("hot region, pages ÷ requests", packed_bytes(alone["own"]) / packed_bytes(alone["other"]), at_most=0.85)
    for name, where in (("own", ""), ("other", ", the other machine")):
        for key, what, goal in (("wait_s", "storage wait", None), ("up_s", "ready", 1.05)):
            bench.figure(f"{what}, profile merged ÷ {name} alone, {CD}{where}", at_most=goal,
                         value=runs.ratio(f"fast {CD}{where}", f"{name} {CD}{where}", key))
    bench.figure(f"what firmware and boot loader took, {CD}", runs.median(f"fast {CD}", "kernel_s"), unit="s")
    took_s, taken = (runs.median(f"fast {CD}", key) for key in ("boot_loader_busy_s", "boot_loader_bytes"))
    bench.figure(f"boot files: time of the drive ÷ their bytes at its rate, {CD}",
                 took_s / (taken / cd_rate(boot_iso, taken)), at_most=1.1)
    for name, what in (("fast", "optimized"), ("plain", "unoptimized")):
        bench.figure(f"ready by UEFI, {what} ÷ squashfs, {OTHERS[0]}", at_most=1.03,
                     value=runs.ratio(f"{name} {OTHERS[0]}, uefi", f"squashfs {OTHERS[0]}, uefi", "up_s"))

@benchmark(repeats=1)
def measure(bench):
    plain = image()
    media = {"plain": iso("live-plain", plain)}
    exact, other = recording(plain), of_another_machine(plain, media["plain"])
    fast = optimized(plain, "live-fast", exact, other)
    alone = {"own": optimized(plain, "live-own", exact), "other": optimized(plain, "live-other", other)}
    media |= {"fast": iso("live-fast", fast), "squashfs": squashfs_iso(media["plain"])}
    cases = {f"{name} {medium}": partial(start, path, medium)
             for medium in ("none", CD, *OTHERS) for name, path in media.items()}
    cases[f"own {CD}"] = partial(start, iso("live-own", alone["own"]), CD)
    there = [*other_machine(media["plain"]), "--emulate", CD]
    for name, path in (("fast", fast), ("other", alone["other"])):
        cases[f"{name} {CD}, the other machine"] = partial(boot, path, *there)
    for name, medium in (("fast", "none"), *((name, OTHERS[0]) for name in media)):
        cases[f"{name} {medium}, uefi"] = partial(start, media[name], medium, "--firmware", "uefi")
    runs = bench.turns(bench.chosen(cases), say="ready {up_s:.1f} s after the kernel began, storage wait {wait_s:.2f} s")
    figures_of(bench, runs, fast, alone, media["fast"])
