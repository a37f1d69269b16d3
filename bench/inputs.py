"""What is measured: roots, images, profiles and squashfs files, made once and kept.

The demo's files are taken from its cache; everything else lies in `bench/` beside them. A file is
made again when it is older than what it is made from, and than the program that makes it.
"""

import json
import os
import shutil
import sys
import time
from pathlib import Path

from harness import boot, headstart, headstart_path, progress, run

LEVEL = 15
READY = "^ready"
# The demo's program, as in crates/hs-demo/src/root.rs.
COMMAND = ["python3", "-c", 'import pandas, sympy; print("ready", flush=True)']
# Another program, whose blocks are other ones: checks packages that the start does not touch.
OTHER_COMMAND = ["dpkg", "--verify", "libperl5.36", "perl-modules-5.36", "coreutils", "bash", "dpkg", "apt", "passwd"]
# Another program that shares the interpreter and little else.
NEAR_COMMAND = ["python3", "-c", "import numpy.testing, unittest, asyncio, xml.dom.minidom, sqlite3, email.mime.multipart"]


def cache():
    """The demo's cache folder, where the root is kept."""
    folder = os.environ.get("HEADSTART_CACHE")
    return Path(folder) if folder else Path("/var/cache/headstart")


def folder():
    """Where the inputs of the benchmarks are kept."""
    path = cache() / "bench"
    path.mkdir(parents=True, exist_ok=True)
    return path


def kept(name, sources, make):
    """`folder()/name`, made by `make(draft)` when it is not there, older than one of `sources`, or made of others."""
    path, made = folder() / name, folder() / "inputs.json"
    known = json.loads(made.read_text()) if made.exists() else {}
    newest = max((source.stat().st_mtime for source in sources), default=0)
    names = [source.name for source in sources]
    if path.exists() and path.stat().st_mtime >= newest and known.get(name, {}).get("sources") == names:
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
    known = json.loads(made.read_text()) if made.exists() else {}
    made.write_text(json.dumps({**known, name: {"seconds": seconds, "sources": names}}, indent=2) + "\n")
    return path


def remove(path):
    """Removes a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def made_in_s(name):
    """How long an input took to make, when that is known."""
    made = folder() / "inputs.json"
    return json.loads(made.read_text()).get(name, {}).get("seconds") if made.exists() else None


def minbase_root():
    """A minimal Debian root, as mmdebstrap makes it."""

    def make(draft):
        suite = "bookworm"
        for line in Path("/etc/os-release").read_text().splitlines():
            if line.startswith("VERSION_CODENAME=") and "ID=debian" in Path("/etc/os-release").read_text():
                suite = line.partition("=")[2].strip('"')
        run("mmdebstrap", "--mode=root", "--format=directory", "--variant=minbase", "--quiet", suite, draft)

    return kept("minbase", [], make)


def stamp(root):
    """A file as old as a root; a folder's own time changes with what is put into it."""
    return root / "var/lib/dpkg/status"


def program():
    """The headstart that makes images and profiles."""
    return Path(headstart_path())


def image(root, name, window="128K", level=LEVEL):
    """The unoptimised image of a root."""

    def make(draft):
        headstart("build", root, "-o", draft, "--codec", f"zstd:{level}", "--window", window, "--scratch", folder(),
                  patience_s=1800)

    return kept(f"{name}-{window}.hsi", [stamp(root), program()], make)


def squashfs(root, name):
    """The same root as squashfs: zstd, 128 KiB blocks, the same level."""

    def make(draft):
        # A link would become a squashfs of a link.
        run("mksquashfs", root.resolve(), draft, "-comp", "zstd", "-Xcompression-level", LEVEL, "-b", "128K",
            "-noappend", "-no-progress", "-quiet", patience_s=1800)

    return kept(f"{name}.sqfs", [stamp(root)], make)


def boot_root():
    """The Debian with systemd that boots as a guest, from the demo's cache."""
    return Path(headstart("demo", "--boot-root", "--cache", cache(), patience_s=900).strip())


def boot_image():
    """Its unoptimised image, with room for what a guest writes."""
    root = boot_root()

    def make(draft):
        headstart("build", root, "-o", draft, "--free", "64M", "--codec", f"zstd:{LEVEL}", "--scratch", folder())

    return kept("boot.hsi", [stamp(root), program()], make)


def boot_profile(image_path, name, *flags, read_ahead="kernel"):
    """A recorded boot."""

    def make(draft):
        boot(image_path, read_ahead=read_ahead, flags=["--record", draft, "--grace", 4, *flags])

    return kept(f"{name}.hsp", [image_path, program()], make)


def raw(image_path, name):
    """The plain disk of an image."""
    return kept(f"{name}.raw", [image_path], lambda draft: headstart("export", image_path, "--format", "raw", "-o", draft))


def profile(image_path, name, command, *flags, ready=None):
    """A recorded start."""

    def make(draft):
        wanted = ["--ready", ready] if ready else []
        headstart("profile", image_path, "-o", draft, *wanted, *flags, "--", *command)

    return kept(f"{name}.hsp", [image_path, program()], make)


def optimized(image_path, name, *profile_paths, flags=()):
    """An image with the hot region of these profiles."""

    def make(draft):
        profiles = [word for path in profile_paths for word in ("--profile", path)]
        headstart("optimize", image_path, *profiles, *flags, "-o", draft)

    return kept(f"{name}.hsi", [image_path, *profile_paths, program()], make)


def demo():
    """What the demo made of its root, by name. Run `bench/start.py` or `headstart demo` first."""
    names = {
        "root": "root",
        "image": "root.hsi",
        "raw": "root.raw",
        "squashfs": "root.sqfs",
        "profile": "start.hsp",
        "optimized": "fast.hsi",
    }
    files = {key: cache() / name for key, name in names.items()}
    for path in files.values():
        if not path.exists():
            sys.exit(f"{path} is not there: run bench/start.py first, whose demo makes it")
    return files
