"""An installed Debian with Xfce on an ext4 that its own package manager has aged, and the start of its desktop.

Packages are installed, all others unpacked again in random order, and packages removed, in seasons, on a small file
system: dpkg writes each file anew, wherever there is room. Packages that were fetched are kept for the next disk. The
desktop is drawn, on an X server without hardware, when the windows of its background and its panel are mapped.
"""

import json
import random
import re
import shutil
from functools import partial

from harness import HERE, headstart, run, scratch
from inputs import NO_DOCUMENTS, debian, folder, kept
from mounts import mounted, new_folder

PACKAGES = ("systemd,systemd-sysv,udev,dbus,dbus-x11,linux-image-cloud-amd64,initramfs-tools,zstd,busybox,xfce4,xvfb,"
            "x11-utils,xfonts-base,librsvg2-common")
# What the user of each season tries out, and removes at the end of the next one.
SEASONS = ["git vim python3-numpy python3-pil python3-lxml ruby gnuplot-nox imagemagick",
           "gimp mpv evince file-roller mousepad ristretto xfce4-terminal xfce4-taskmanager galculator",
           "gdb cmake nodejs php-cli sqlite3 graphviz emacs-nox rsync tmux"]
BATCH = 120
DISK_BYTES = 2304 << 20
APT = "DEBIAN_FRONTEND=noninteractive apt-get -qy -o Dpkg::Options::=--force-unsafe-io"
# A session on this machine's kernel. $0 is the root, which stays as it is, $1 an empty folder.
SESSION = """mount -t tmpfs none $1; cd $1; mkdir up work root
mount -t overlay -o lowerdir=$0,upperdir=up,workdir=work none root; cd root
for folder in dev proc sys; do mount --rbind /$folder $folder; done
mount -t tmpfs none run
exec chroot . /usr/local/sbin/desktop
"""
DESKTOP = """#!/bin/sh
Xvfb :0 -noreset -screen 0 1024x768x24 &
export DISPLAY=:0 HOME=/home/user XFCE_PANEL_MIGRATE_DEFAULT=1
until xwininfo -root >/dev/null 2>&1; do sleep 0.1; done
runuser -u user -- dbus-run-session xfce4-session &
for name in Desktop xfce4-panel; do
    until xwininfo -name $name 2>&1 | grep -q IsViewable; do sleep 0.1; done
done
"""
ALONE = ["unshare", "--mount", "--net", "--ipc", "--pid", "--fork", "--kill-child"]

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
    (folder() / "desktop-aged.json").write_text(json.dumps(told))

def make_disk(aged, draft):
    """The aged system with a user, the desktop's start, and the baseline's program."""
    run("cp", "--sparse=always", aged, draft)
    with mounted(draft, "loop") as root:
        (root / "usr/local/sbin/desktop").write_text(DESKTOP)
        (root / "usr/local/sbin/desktop").chmod(0o755)
        chroot(root, "useradd -m user")

def disk():
    aged = kept("desktop-aged.ext4", [], partial(make_aged, 15))
    return kept("desktop.ext4", [aged], partial(make_disk, aged))

def session(root):
    """The words that start a desktop; they end when it is drawn, and it with them."""
    return [*ALONE, "sh", "-ec", SESSION, root, new_folder("session")]

def make_laid(disk, pages, draft):
    run("cp", "--sparse=always", disk, draft)
    with mounted(draft, "loop") as root:
        said = headstart("accelerate", "now", "--root", root, "--list", pages, "--force", "--json")
    run("e2fsck", "-fn", draft)
    (folder() / "desktop-laid.json").write_text(said)

def told():
    """How the disk lies, and what was laid anew."""
    return {name: json.loads((folder() / f"desktop-{name}.json").read_text()) for name in ("aged", "laid")}

def read_volume(disk):
    """Reads all of it in 32 parts at once, as volumes are read before they are used."""
    count = (disk.stat().st_size // 32 >> 19) + 1
    return lambda _, device: ["sh", "-c", f"seq 0 {count} {31 * count} | xargs -P 32 -I@ dd if={device} of=/dev/null "
                              f"bs=512k iflag=direct count={count} skip=@"]

def read_files(pages):
    """Reads files ahead, as ureadahead and libprefetch do."""
    program, wanted = scratch() / "read-files", scratch() / "files"
    run("cc", "-O2", "-o", program, HERE / "inside/read-files.c")
    wanted.write_text(by_file(pages.read_bytes()))
    return lambda root, _: [program, root, wanted]

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
    return "".join(f"{first << 12} {count << 12} {path.lstrip('/')}\n"
                   for path, parts in wanted.items() for first, count in joined(sorted(parts)))

def joined(parts):
    """Runs of pages that touch, as one."""
    found = []
    for first, count in parts:
        if found and sum(found[-1]) == first:
            first, count = found[-1][0], found.pop()[1] + count
        found.append((first, count))
    return found
