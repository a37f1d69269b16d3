#!/usr/bin/env python3
"""Boots of an installed Debian from its disk, with its own kernel, in QEMU: from an ext4 as it is today; read ahead by
`headstart accelerate` (step 1); also laid anew (steps 1 and 2); with lists that do not fit, cut in half and of another
machine; and installed by `headstart install`, with a start that was recorded.

The same root in all. QEMU loads kernel and initramfs itself and reads the disk over NBD from an emulated drive, which
does not see what is written. The storage wait is the guest kernel's own count until systemd has started everything, as
in `live.py`: the time in which nothing ran and something waited for I/O. So what the translated processor takes is not
in it, nor what firmware and boot loader read.
"""

import json
import os
import random
import re
import shutil
import stat
from functools import partial

from accelerate import is_flash, shown
from harness import ROOT, benchmark, headstart, headstart_path, run, scratch
from inputs import GUEST_PACKAGES, debian, kept, optimized, program, stamp
from live import READY, UNIT
from mounts import mounted, program as running, wait_until

MEDIA = ["hdd-2010", "emmc-2010", "flat-1ms-20mbs-serial"]
WORDS = "psi=1 no_timer_check console=ttyS0 quiet"
# Its lists lie beside the switch.
SWITCH = "var/lib/headstart/accelerate"
# The first list is kept at the first idle moment.
RECORD_UNIT = f"""[Unit]
ConditionKernelCommandLine=bench.record
[Service]
ExecStart=/bin/sh -c 'until ls /{SWITCH}/*.pages; do sleep 1; done; systemctl poweroff'
[Install]
WantedBy=multi-user.target
"""
IN_SYSTEM = 'for folder in dev proc sys; do mount --rbind /$folder $0/$folder; done; exec chroot $0 sh -ec "$1"'
# The kernel and its initramfs; as `headstart install` has them; and where its boot partition begins.
BOOT = ["vmlinuz", "initrd.img"]
BOOT_PARTITION = "?offset=67108864"

def root():
    """A Debian with `headstart accelerate`, whose initramfs asks for the list, and units that say when it is ready."""

    def prepare(made):
        run("make", "-C", ROOT, "install", "PREFIX=/usr", f"DESTDIR={made}", f"PROGRAM={headstart_path()}")
        # The initramfs of an image's root is made by `headstart install`.
        (made / "usr/lib/headstart/headstart-live").unlink()
        (made / "usr/share/initramfs-tools/hooks/headstart").unlink()
        for name, unit in (("ready", UNIT), ("record", RECORD_UNIT)):
            (made / f"etc/systemd/system/bench-{name}.service").write_text(unit)
            run("chroot", made, "systemctl", "enable", "-q", f"bench-{name}")
        run("chroot", made, "systemctl", "enable", "-q", "headstart-accelerate")
        run("chroot", made, "passwd", "-q", "-d", "root")
        run("unshare", "--mount", "sh", "-ec", IN_SYSTEM, made, "update-initramfs -u")

    return debian("installed-root", f"{GUEST_PACKAGES},zstd", prepare=prepare)

def installed_plainly(draft, seed=None, like=None):
    """The root on an ext4, where `headstart accelerate` is on. With a seed its files are those of another machine: they
    were copied in another order. `like` another disk, it has the same UUID."""
    with draft.open("wb") as file:
        file.truncate(2 << 30)
    run("mkfs.ext4", "-q", *(["-U", uuid(like)] if like else []), draft)
    with mounted(draft, "loop") as target:
        if seed is not None:
            shutil.copytree(root(), target, symlinks=True, dirs_exist_ok=True, copy_function=lambda _, to: None)
            names = [os.path.join(folder, name) for folder, _, names in os.walk(root()) for name in names]
            names = [name for name in names if stat.S_ISREG(os.lstat(name).st_mode)]
            random.Random(seed).shuffle(names)
            for name in names:
                shutil.copy2(name, f"{target}/{os.path.relpath(name, root())}")
        run("cp", "-a", f"{root()}/.", target)
        (target / "etc/fstab").write_text("/dev/vda / ext4 errors=remount-ro 0 1\n")
        (target / SWITCH).mkdir(parents=True, mode=0o700)
        (target / SWITCH).parent.chmod(0o700)
        (target / SWITCH / "on").touch()

def uuid(disk):
    return run("blkid", "-p", "-o", "value", "-s", "UUID", disk).strip()

def changed(disk, change, draft):
    """The same disk, to which something was done while it was mounted."""
    run("cp", "--sparse=always", disk, draft)
    with mounted(draft, "loop") as target:
        change(target)

def lists(target):
    return [*(target / SWITCH).glob("*.pages")]

def switch_off(target):
    (target / SWITCH / "on").unlink()

def lay_anew(target):
    headstart("accelerate", "now", "--root", target, "--list", *lists(target), "--force")

def cut_in_half(target):
    for path in lists(target):
        os.truncate(path, path.stat().st_size // 2)

def take_list_of(disk, target):
    with mounted(disk, "loop,ro") as other:
        for path in lists(other):
            shutil.copy2(path, target / SWITCH)

def boot(drive, boot_files, words, is_over):
    """Boots a machine until `is_over(machine, console)`: what its console said."""
    console = scratch() / "console"
    console.write_text("")
    kernel, initrd = boot_files
    with running("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-accel", "tcg",
                 # A place for a second processor: QEMU before 8.1 may lose requests without one.
                 "-cpu", "qemu64,+rdrand", "-smp", "1,maxcpus=2", "-m", "512M", "-serial", f"file:{console}",
                 "-kernel", kernel, "-initrd", initrd, "-append", f"{WORDS} {words}",
                 "-drive", f"if=none,id=d,format=raw,{drive}", "-device", "virtio-blk-pci,drive=d") as machine:
        wait_until(lambda: is_over(machine, console), machine, step_s=0.5)
    return console.read_text(errors="replace")

def record(disk, draft):
    """The disk after a boot that recorded itself."""
    run("cp", "--sparse=always", disk, draft)
    boot(f"file={draft}", plain_boot_files(), "root=/dev/vda rw bench.record", lambda machine, _: machine.poll() == 0)
    run("e2fsck", "-fn", draft)
    with mounted(draft, "loop,ro") as target:
        assert lists(target)

def plain_boot_files():
    return [root() / name for name in BOOT]

def installed():
    """A disk of `headstart install`, with a start that was recorded; what starts it, and its words."""
    size = ["--size", "4G"]
    plain = kept("installed-plain.hsi", [stamp(root()), program()],
                 lambda draft: headstart("build", root(), "-o", draft, "--free", "512M", patience_s=1800))

    def make_initrd(draft):
        disk = scratch() / "unrecorded.raw"
        headstart("install", disk, *size, "--root", root(), patience_s=1800)
        run("debugfs", "-R", f"dump slots/a/initrd.img {draft}", f"{disk}{BOOT_PARTITION}")
        disk.unlink()

    kernel, initrd = root() / "vmlinuz", kept("installed-initrd.img", [stamp(root()), program()], make_initrd)
    boots = ["--vmm", "qemu", "--accel", "tcg", "--kernel", kernel, "--initrd", initrd]
    ready = ["--ready", "bench-ready [0-9]", "--ready-timeout", "500", "--run-after-ready", "15"]
    words = [word for each in WORDS.split() for word in ("--append", each)]
    recorded = kept("installed.hsp", [plain, initrd, program()], lambda draft: headstart(
        "boot", plain, *boots, *ready, *words, "--record", draft))
    fast = optimized(plain, "installed-fast", recorded)
    disk = kept("installed.raw", [fast, initrd, program()], lambda draft: headstart(
        "install", draft, *size, "--root", fast, "--kernel", kernel, "--initrd", initrd, patience_s=1800))
    script = run("debugfs", "-R", "cat slots/a/boot.cfg", f"{disk}{BOOT_PARTITION}")
    return disk, (kernel, initrd), re.search("words='(.*)'", script)[1]

def start(medium, disk, boot_files, words):
    """One boot from a medium."""
    socket = scratch() / f"nbd-{os.urandom(4).hex()}"
    with shown(medium, disk, "--nbd", f"unix:{socket}", ready=socket.exists):
        said = boot(f"snapshot=on,file=nbd+unix:///?socket={socket}", boot_files, words,
                    lambda _, console: READY.search(console.read_text(errors="replace")))
    found = READY.search(said)
    told = json.loads((scratch() / "medium.json").read_text())
    return {**told, "up_s": float(found[1]), "wait_s": int(found[2]) / 1e6}

@benchmark(repeats=1, media=MEDIA)
def measure(bench):
    plain = kept("installed-plain.ext4", [stamp(root())], installed_plainly)
    ways = {"step 1": kept("installed-recorded.ext4", [plain], partial(record, plain))}
    other = kept("installed-other.ext4", [plain], partial(installed_plainly, seed=18, like=plain))
    for name, disk, change in (("today", ways["step 1"], switch_off), ("steps 1 and 2", ways["step 1"], lay_anew),
                               ("list cut in half", ways["step 1"], cut_in_half),
                               ("list of another machine", other, partial(take_list_of, ways["step 1"])),
                               ("other, today", other, switch_off)):
        file = f"installed-{re.sub('[ ,]+', '-', name)}.ext4"
        ways[name] = kept(file, [disk], partial(changed, disk, change))
    starts = {name: (disk, plain_boot_files(), "root=/dev/vda rw") for name, disk in ways.items()}
    starts["headstart install"] = installed()
    cases = {f"{medium}, {name}": partial(start, medium, *of) for medium in bench.media for name, of in starts.items()}
    runs = bench.turns(bench.chosen(cases), say="storage wait {wait_s:.2f} s, ready {up_s:.1f} s after the kernel began; "
                       "medium busy {medium_busy_s:.2f} s, {seeks} seeks, {store_requests} requests, {store_bytes:,} bytes")
    for medium in bench.media:
        for name in starts:
            base = {"list of another machine": "other, today"}.get(name, "today")
            if "today" not in name:
                never_slower = name.startswith("list") or is_flash(medium) and name.startswith("step")
                bench.figure(f"storage wait of a boot, {name} ÷ {base}, {medium}", at_most=1.02 if never_slower else None,
                             value=runs.ratio(f"{medium}, {name}", f"{medium}, {base}", "wait_s"))
