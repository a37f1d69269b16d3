"""Runs inside an image: makes a start that opens files, then reads them from beginning to end.

    python3 sequential.py MODE FILE...

MODE `record` ends when the start is ready; `start` goes on; `open` opens the files but leaves out
the demo's imports, which is enough for a plain mount, whose rate does not depend on its start.

The start opens every FILE and reads its first page. After ready they are read in three ways, each
file in one of them: by the descriptor that the start has kept, by a new one, and through a mapping.
A descriptor keeps the read-ahead that its device had when it was opened, so the first way shows what
a start leaves behind. Then the libraries that the start has mapped, and so read in part, are read.
Prints "ready", then one JSON object.
"""

import ctypes
import json
import mmap
import os
import sys
import time

PIECE = 128 << 10
PAGE = 4096

def mapped_libraries():
    """The files that this process has mapped, the largest first, small ones left out."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
    sized = [(os.path.getsize(path), path) for path in paths if os.path.isfile(path)]
    return [path for size, path in sorted(sized, reverse=True) if size >= 4 * PIECE]

def resident_bytes(path):
    """Bytes of a file in the page cache. By a mapping, which overlayfs passes on to the file below;
    cachestat would look at overlayfs's own, empty cache."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    size = os.path.getsize(path)
    descriptor = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_PRIVATE, descriptor, ctypes.c_long(0))
    os.close(descriptor)
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return min(sum(page & 1 for page in pages) * PAGE, size)

def read_descriptor(descriptor):
    at = 0
    while piece := len(os.pread(descriptor, PIECE, at)):
        at += piece

def read_new(path):
    descriptor = os.open(path, os.O_RDONLY)
    read_descriptor(descriptor)
    os.close(descriptor)

def read_mapped(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        for at in range(0, len(mapping), PAGE):
            mapping[at]

def timed(paths, read):
    """What reading these files to their ends took."""
    resident = [resident_bytes(path) for path in paths]
    began = time.monotonic()
    for path in paths:
        read(path)
    return {
        "bytes": sum(map(os.path.getsize, paths)),
        "resident_bytes": sum(resident),
        "seconds": time.monotonic() - began,
    }

def main():
    mode, files = sys.argv[1], sys.argv[2:]
    kept = {}
    for path in files:
        kept[path] = os.open(path, os.O_RDONLY)
        os.pread(kept[path], PAGE, 0)
    if mode != "open":
        import pandas, sympy  # noqa: E401, F401 - the demo's start
    ways = {"kept": files[0::3], "new": files[1::3], "mapped": files[2::3]}
    for path in ways["new"] + ways["mapped"]:
        os.close(kept.pop(path))
    print("ready", flush=True)
    if mode == "record":
        return
    readers = {"kept": lambda path: read_descriptor(kept[path]), "new": read_new, "mapped": read_mapped}
    result = {way: timed(paths, readers[way]) for way, paths in ways.items()}
    if mode == "start":
        result["libraries"] = timed(mapped_libraries(), read_new)
    print(json.dumps(result))

main()
