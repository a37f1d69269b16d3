"""An installed Debian with Xfce on an ext4 that its own package manager has aged, and its starts in a machine of QEMU.

Packages are installed, installed again in random order and removed, in seasons, on a small file system: dpkg writes each
file anew, wherever there is room. Packages that were fetched are kept for the next disk. The desktop is drawn on an X
server without hardware when its background and its panel are mapped.
"""

import json
import random
import re
import shutil
from functools import partial
from pathlib import Path

from harness import HERE, headstart, headstart_json, headstart_path, repeated, run
from inputs import NO_DOCUMENTS, debian, folder, kept
from live import GUEST, WORDS, boot
from mounts import mounted

PACKAGES = ("systemd,systemd-sysv,udev,dbus,dbus-x11,linux-image-cloud-amd64,initramfs-tools,zstd,busybox,xfce4,xvfb,"
            "x11-utils,xfonts-base,librsvg2-common")
# What the user of each season tries out, and removes at the end of the next one.
SEASONS = ["git vim python3-numpy python3-pil python3-lxml ruby gnuplot-nox imagemagick",
           "gimp mpv evince file-roller mousepad ristretto xfce4-terminal xfce4-taskmanager galculator",
           "gdb cmake nodejs php-cli sqlite3 graphviz emacs-nox rsync tmux"]
BATCH = 120
DISK_BYTES = 2304 << 20
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qy -o Dpkg::Options::=--force-unsafe-io"
LISTS = "var/lib/headstart/accelerate"
UNIT = "[Service]\nExecStart=/usr/local/sbin/desktop\n[Install]\nWantedBy=multi-user.target\n"
DESKTOP = f"""#!/bin/sh
touch /run/began
Xvfb :0 -screen 0 1024x768x24 &
export DISPLAY=:0 HOME=/home/user XFCE_PANEL_MIGRATE_DEFAULT=1
runuser -u user -- dbus-launch --exit-with-session xfce4-session &
for name in Desktop xfce4-panel; do
    until xwininfo -name $name 2>&1 | grep -q IsViewable; do sleep 0.5; done
done
echo "bench-ready $(cut -d" " -f1 /proc/uptime) $(grep full /proc/pressure/io)" >/dev/ttyS0
grep -q bench.record /proc/cmdline || exec sleep 1000
until find /{LISTS} -name '*.pages' -newer /run/began | grep -q .; do sleep 1; done
systemctl poweroff
"""
# All of the disk in 32 parts at once, beside the boot, as volumes are read before they are used.
VOLUME = """#!/bin/sh
size=$(($(cat /sys/block/vda/size) / 1024 / 32 + 1))
for part in $(seq 0 31); do
    dd if=/dev/vda of=/dev/null bs=512k iflag=direct skip=$((part * size)) count=$size 2>/dev/null &
done
exec /sbin/init
"""

def chroot(root, command):
    """Runs lines of shell in a root, with devices, the network's names and the packages that were fetched."""
    packages = folder() / "packages"
    packages.mkdir(exist_ok=True)
    binds = {"/dev": "dev", "/proc": "proc", "/etc/resolv.conf": "etc/resolv.conf", packages: "var/cache/apt/archives"}
    mounts = [f"mount --bind {of} {root}/{to}" for of, to in binds.items()]
    return run("unshare", "--mount", "sh", "-ec", "\n".join([*mounts, f'exec chroot {root} sh -ec "$0"']), command,
               patience_s=7200)

def lies(root):
    """How the files of a mounted file system lie."""
    found = run("sh", "-c", 'find "$0" -xdev -type f -size +0 -exec filefrag {} +', root, patience_s=1200)
    pieces = [int(count) for count in re.findall(r": (\d+) extents? found$", found, re.MULTILINE)]
    used = shutil.disk_usage(root)
    return {"files": len(pieces), "files_in_pieces": sum(count > 1 for count in pieces), "pieces": sum(pieces),
            "used": round(used.used / used.total, 3)}

def age(root, seed):
    """Seasons of a system: new packages, all others written anew batch by batch, and old ones removed."""
    dice = random.Random(seed)
    (root / "etc/resolv.conf").touch()
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/initramfs-tools/update-initramfs.conf").write_text("update_initramfs=no\n")
    chroot(root, "apt-get -q update")
    there = chroot(root, "dpkg-query -f '${Package}\n' -W").split()
    for number, season in enumerate(SEASONS):
        chroot(root, f"{APT} --no-install-recommends install {season}")
        dice.shuffle(there)
        for first in range(0, len(there), BATCH):
            chroot(root, f"{APT} --reinstall install {' '.join(there[first:first + BATCH])}")
        if number:
            chroot(root, f"{APT} --purge autoremove {SEASONS[number - 1]}")

def make_aged(seed, draft):
    tree = debian("desktop-root", PACKAGES, *NO_DOCUMENTS)
    with draft.open("wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-m", 1, draft)
    with mounted(draft, "loop,barrier=0") as root:
        run("cp", "-a", f"{tree}/.", root)
        new = lies(root)
        age(root, seed)
        told = {"new": new, "aged": lies(root)}
    free = run("e2freefrag", draft)
    told["free_pieces"] = int(re.search(r"Num\. free extent: (\d+)", free)[1])
    boot_file("aged.json").write_text(json.dumps(told))

def boot_file(name):
    return folder() / f"desktop-{name}"

def install(root):
    """The desktop's start, what the cases begin with, the recorder, and an initramfs without and with it."""
    for name, text in (("desktop", DESKTOP), ("read-volume", VOLUME)):
        (root / "usr/local/sbin" / name).write_text(text)
        (root / "usr/local/sbin" / name).chmod(0o755)
    run("cc", "-O2", "-static", "-o", root / "usr/local/sbin/read-files", HERE / "inside/read-files.c")
    (root / "etc/systemd/system/desktop.service").write_text(UNIT)
    (root / "usr/lib/headstart").mkdir()
    run("strip", "-o", root / "usr/lib/headstart/headstart-accelerate",
        Path(headstart_path()).with_name("headstart-accelerate"))
    (root / LISTS).mkdir(parents=True)
    (root / LISTS / "on").touch()
    chroot(root, "useradd -m user; systemctl enable -q desktop; mkinitramfs -o /boot/plain.img $(ls /lib/modules)")
    script = "scripts/init-bottom/headstart-accelerate"
    shutil.copy2(HERE.parent / "dist/initramfs-tools" / script, root / "usr/share/initramfs-tools" / script)
    chroot(root, "mkinitramfs -o /boot/early.img $(ls /lib/modules)")
    for name, path in (("vmlinuz", next((root / "boot").glob("vmlinuz-*"))), ("plain", root / "boot/plain.img"),
                       ("early", root / "boot/early.img")):
        shutil.copyfile(path, boot_file(name))

def make_installed(aged, draft):
    """The aged system, of which two starts were recorded."""
    run("cp", "--sparse=always", aged, draft)
    with mounted(draft, "loop") as root:
        install(root)
    for _ in range(2):
        run("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-accel", "tcg", "-cpu", "Nehalem",
            "-m", "1024M", "-kernel", boot_file("vmlinuz"), "-initrd", boot_file("early"), "-append",
            " ".join(["root=/dev/vda rw bench.record", *WORDS]), "-drive",
            f"if=virtio,format=raw,cache=unsafe,file={draft}", "-serial", f"file:{boot_file('console')}", patience_s=1800)
    with mounted(draft, "loop") as root:
        status = headstart_json("accelerate", "status", "--root", root)
        boot_file("list.json").write_text(json.dumps(status))
        (root / "var/lib/bench-files").write_text(by_file(Path(status["list"]).read_bytes()))

def by_file(pages):
    """The runs of a list as lines of a baseline: each file once, in the order of its first use, its runs in its own.
    crates/hs-accelerate/src/bytes.rs has the bytes."""
    rest = iter(pages[56:])

    def number():
        value, shift = 0, 0
        while (byte := next(rest)) & 0x80:
            value, shift = value | (byte & 0x7f) << shift, shift + 7
        return value | byte << shift

    text = lambda: bytes(next(rest) for _ in range(number()))
    _, _, files, runs = (number() for _ in range(4))
    paths, page, wanted = [], 0, {}
    for _ in range(files):
        number(), text(), number()
        paths.append(text().decode())
    for _ in range(runs):
        file, step, count, *_ = (number() for _ in range(6))
        page += (step >> 1) ^ -(step & 1)
        if file and paths[file - 1]:
            wanted.setdefault(paths[file - 1], []).append((page, count))
    return "".join(f"{first << 12} {count << 12} /{path.lstrip('/')}\n"
                   for path, parts in wanted.items() for first, count in joined(sorted(parts)))

def joined(parts):
    """Runs of pages that touch, as one."""
    found = []
    for first, count in parts:
        if found and sum(found[-1]) == first:
            first, count = found[-1][0], found.pop()[1] + count
        found.append((first, count))
    return found

def start(medium, disk, initrd, *words):
    """One start to the drawn desktop; what it writes is discarded."""
    on = [] if medium == "none" else ["--emulate", medium]
    return boot(disk, *GUEST, *on, "--kernel", boot_file("vmlinuz"), "--initrd", boot_file(initrd),
                *repeated("--append", [*WORDS, *words]))

# The disk, the initramfs, and further words of each case.
CASES = {"today": ("installed", "plain"), "step 1": ("installed", "early"), "steps 1 and 2": ("laid", "early"),
         "by file": ("installed", "plain", "init=/usr/local/sbin/read-files"),
         "volume": ("installed", "plain", "init=/usr/local/sbin/read-volume")}

def make_laid(disk, draft):
    run("cp", "--sparse=always", disk, draft)
    with mounted(draft, "loop") as root:
        boot_file("laid.json").write_text(headstart("accelerate", "now", "--root", root, "--force", "--json"))
    run("e2fsck", "-fn", draft)

def disks():
    """The disks of the cases, made when they are not there."""
    aged = kept("desktop-aged.ext4", [], partial(make_aged, 15))
    installed = kept("desktop.ext4", [aged], partial(make_installed, aged))
    return {"installed": installed, "laid": kept("desktop-laid.ext4", [installed], partial(make_laid, installed))}

def told():
    """What is known of the disks: how they lie, what was recorded, and what was laid anew."""
    return {name: json.loads(boot_file(f"{name}.json").read_text()) for name in ("aged", "list", "laid")}
