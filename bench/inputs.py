"""What is measured: roots, images, profiles and squashfs files, made once and kept.

The demo's files are taken from its cache; everything else lies in `bench/` beside them. A file is made again when it
is older than what it is made from, and than the program that makes it.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from harness import boot, headstart, headstart_json, headstart_path, progress, repeated, run

LEVEL = 15
READY = "^ready"
# The demo's program, as in crates/hs-demo/src/root.rs.
COMMAND = ["python3", "-c", 'import pandas, sympy; print("ready", flush=True)']
# Another program, whose blocks are other ones: checks packages that the start does not touch.
OTHER_COMMAND = ["dpkg", "--verify", "libperl5.36", "perl-modules-5.36", "coreutils", "bash", "dpkg", "apt", "passwd"]
# A Debian with systemd that boots with a kernel of its own.
GUEST_PACKAGES = "systemd,systemd-sysv,udev,dbus,linux-image-cloud-amd64,initramfs-tools"
NO_DOCUMENTS = ["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]

def cache():
    """The demo's cache folder, where the root is kept."""
    return Path(os.environ.get("HEADSTART_CACHE") or "/var/cache/headstart")

def folder():
    """Where the inputs of the benchmarks are kept."""
    path = cache() / "bench"
    path.mkdir(parents=True, exist_ok=True)
    return path

def known_inputs():
    """What is known of the inputs that were made, by name."""
    made = folder() / "inputs.json"
    return json.loads(made.read_text()) if made.exists() else {}

def kept(name, sources, make):
    """`folder()/name`, made by `make(draft)` when it is not there, older than one of `sources`, or made of others."""
    path = folder() / name
    newest = max((source.stat().st_mtime for source in sources), default=0)
    names = [source.name for source in sources]
    if path.exists() and path.stat().st_mtime >= newest and known_inputs().get(name, {}).get("sources") == names:
        return path
    progress(f"making {name}")
    draft = folder() / f"unfinished-{name}"
    remove(draft)
    remove(path)
    began = time.monotonic()
    make(draft)
    seconds = round(time.monotonic() - began, 3)
    draft.rename(path)
    os.utime(path)
    known = {**known_inputs(), name: {"seconds": seconds, "sources": names}}
    (folder() / "inputs.json").write_text(json.dumps(known, indent=2) + "\n")
    return path

def remove(path):
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

def debian(name, packages, *flags, prepare=lambda root: None):
    """A minimal Debian root with these packages."""

    def make(draft):
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", *flags,
            *([f"--include={packages}"] if packages else []), "--dpkgopt=force-unsafe-io", "bookworm", draft,
            patience_s=1800)
        prepare(draft)

    return kept(name, [], make)

def minbase_root():
    """A minimal Debian root."""
    return debian("minbase", None)

def stamp(root):
    """A file as old as a root; a folder's own time changes with what is put into it."""
    return root / "var/lib/dpkg/status"

def program():
    """The headstart that makes images and profiles."""
    return Path(headstart_path())

def built(root, name, *flags, level=LEVEL):
    """The unoptimized image of a root."""
    words = ["--codec", f"zstd:{level}", *flags]
    return kept(f"{name}.hsi", [stamp(root), program()],
                lambda draft: headstart("build", root, "-o", draft, *words, patience_s=1800))

def image(root, name, window="128K"):
    """The same in windows of this size."""
    return built(root, f"{name}-{window}", "--window", window)

def squashfs(root, name):
    """The same root as squashfs: zstd, 128 KiB blocks, the same level."""
    # A link would become a squashfs of a link.
    return kept(f"{name}.sqfs", [stamp(root)], lambda draft: run(
        "mksquashfs", root.resolve(), draft, "-comp", "zstd", "-Xcompression-level", LEVEL, "-b", "128K",
        "-noappend", "-no-progress", "-quiet", patience_s=1800))

def boot_root():
    """The Debian with systemd that boots as a guest, from the demo's cache."""
    return Path(headstart("demo", "--boot-root", "--cache", cache(), patience_s=900).strip())

def boot_image():
    """Its unoptimized image, with room for what a guest writes."""
    return built(boot_root(), "boot", "--free", "64M")

def boot_profile(image_path, name, *flags, read_ahead="kernel"):
    """A recorded boot."""
    return kept(f"{name}.hsp", [image_path, program()], lambda draft: boot(
        image_path, read_ahead=read_ahead, flags=["--record", draft, "--grace", 4, *flags]))

def fast_boot_image():
    """The booting Debian, optimized for its boot."""
    plain = boot_image()
    return optimized(plain, "boot-optimized", boot_profile(plain, "boot-profile"))

def exported(image_path, name, *flags):
    """The disk of an image as a file of another format, raw without flags."""
    return kept(name, [image_path],
                lambda draft: headstart("export", image_path, *(flags or ["--format", "raw"]), "-o", draft))

def profile(image_path, name, command, *flags, ready=None):
    """A recorded start."""
    wanted = ["--ready", ready] if ready else []
    return kept(f"{name}.hsp", [image_path, program()],
                lambda draft: headstart("profile", image_path, "-o", draft, *wanted, *flags, "--", *command))

def optimized(image_path, name, *profiles, flags=()):
    """An image with the hot region of these profiles."""
    return kept(f"{name}.hsi", [image_path, *profiles, program()], lambda draft: headstart(
        "optimize", image_path, *repeated("--profile", profiles), *flags, "-o", draft))

def wrong_image():
    """The demo's root, optimized for another program."""
    plain = demo()["image"]
    return optimized(plain, "other-optimized", profile(plain, "other", OTHER_COMMAND))

def inspect(path):
    """What headstart says of a file."""
    return headstart_json("inspect", path)

def packed_bytes(*paths):
    """Bytes of the hot regions of images, as they are stored."""
    return sum(part["hot_compressed_bytes"] for path in paths for part in inspect(path)["hot_segments"])

def named(url, path):
    """The address of an image with its name."""
    return f"{url}#{inspect(path)['image_digest']}"

def demo():
    """What the demo made of its root, by name. Run `bench/start.py` or `headstart demo` first."""
    names = {"root": "root", "image": "root.hsi", "raw": "root.raw", "squashfs": "root.sqfs", "profile": "start.hsp",
             "optimized": "fast.hsi"}
    files = {key: cache() / name for key, name in names.items()}
    for path in files.values():
        if not path.exists():
            sys.exit(f"{path} is not there: run bench/start.py first, whose demo makes it")
    return files
