"""A start that opens files and reads them later: the images, and the rates, of `sequential.py` and `read_ahead.py`."""

import csv
import io
import json

from harness import HERE, headstart, start
from inputs import READY, demo, optimized, profile

SCRIPT = (HERE / "inside/sequential.py").read_text()
WAYS = ["kept", "new", "mapped"]
# Few enough files that opening them is a small part of the start; together about 30 MB.
FILES = 15
ELF = b"\x7fELF"

def command(mode, paths):
    return ["python3", "-c", SCRIPT, mode, *map(str, paths)]

def unread_files(files):
    """The largest programs and libraries of the root that the demo's start does not read."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", files["profile"], "--csv")))
    read = {row["file"] for row in rows if row["file"]}
    # One inode may have several names.
    found = {(files["root"] / name.lstrip("/")).stat().st_ino: None for name in read}
    for path in sorted((files["root"] / "usr").rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if status.st_ino not in found and status.st_size >= 1 << 20 and path.read_bytes()[:4] == ELF:
            found[status.st_ino] = (status.st_size, "/" + str(path.relative_to(files["root"])))
    # Of copies, which have the same size, one is enough.
    by_size = dict(filter(None, found.values()))
    return [by_size[size] for size in sorted(by_size, reverse=True)[:FILES]]

def recorded(paths, name, *flags):
    """The image that is optimized for this start, as recorded with these flags."""
    plain = demo()["image"]
    start_of = profile(plain, name, command("record", paths), *flags, ready=READY)
    return optimized(plain, f"{name}-optimized", start_of)

def rates(output):
    """MB/s, for each way, for all of them together, and of the rest of mapped libraries."""
    found = json.loads(output.splitlines()[-1])
    of = lambda ways: sum(found[way]["bytes"] for way in ways) / sum(found[way]["seconds"] for way in ways) / 1e6
    result = {"all": of(WAYS), **{way: of([way]) for way in WAYS}}
    if libraries := found.get("libraries"):
        result["libraries"] = (libraries["bytes"] - libraries["resident_bytes"]) / libraries["seconds"] / 1e6
    return result

def from_image(image, paths, medium, flags=()):
    """One start from an image: its run summary, with the rates at which it then read."""
    summary = start(image, command("start", paths), medium=medium, ready=READY, flags=flags, patience_s=60)
    return {**summary, **rates(summary["output"])}
