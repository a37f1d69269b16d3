#!/usr/bin/env python3
"""How an answer over FUSE is best handed to the kernel: copied (as headstart does), spliced, or by passthrough.

A file system of one file, whose bytes lie in memory, is served by a process of its own that does nothing else:

- written: one `writev` of header and bytes, from one buffer that stays;
- spliced: the bytes are copied into fresh anonymous pages, as a decompressor would write them, given to a pipe (`vmsplice` with
  SPLICE_F_GIFT) and moved on (`splice` with SPLICE_F_MOVE);
- spliced, same pages: the same (without SPLICE_F_GIFT) without the fresh pages, from the buffer that stays;
- passthrough: the kernel reads a file of the same bytes by itself. That is what a plain file would give, and no way for bytes that are compressed.

Each round mounts anew, reads all of the file once in sequence, and unmounts: megabytes a second of reading, with nothing in the cache before. Root.
"""

import ctypes
import fcntl
import mmap
import os
import signal
import struct
import time
from functools import partial

from harness import benchmark, scratch

BYTES = 512 << 20
# A pipe, which must hold an answer and its header, may have 1 MiB.
REQUEST = 512 << 10
LOOKUP, GETATTR, OPEN, READ, RELEASE, INIT, FLUSH = 1, 3, 14, 15, 18, 26, 25
FORGET, BATCH_FORGET, INTERRUPT, DESTROY = 2, 42, 36, 38
# Flags of INIT (include/uapi/linux/fuse.h); those of the second word are shifted by 32 bits.
ASYNC_READ, MAX_PAGES, INIT_EXT, PASSTHROUGH = 1 << 0, 1 << 22, 1 << 30, 1 << (37 - 32)
FOPEN_KEEP_CACHE, FOPEN_PASSTHROUGH = 1 << 1, 1 << 7
BACKING_OPEN = 0x4010E501
SPLICE_MOVE, SPLICE_MORE, SPLICE_GIFT = 1, 4, 8
PIPE_SIZE = 1031
libc = ctypes.CDLL(None, use_errno=True)

class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]

def attributes(node):
    kind, size = (0o040755, 0) if node == 1 else (0o100444, BYTES)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)

class Server:
    def __init__(self, device, way, backing):
        self.device, self.way, self.backing = device, way, backing
        self.data = mmap.mmap(-1, REQUEST)
        self.data.write(os.urandom(REQUEST))
        self.pipe = os.pipe()
        fcntl.fcntl(self.pipe[1], PIPE_SIZE, 2 * REQUEST)

    def reply(self, unique, *parts, error=0):
        length = 16 + sum(map(len, parts))
        os.writev(self.device, [struct.pack("<IiQ", length, -error, unique), *parts])

    def spliced(self, unique, size):
        pages = self.data
        if self.way == "spliced":
            # What is given away is the kernel's: each answer has pages of its own.
            pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
            pages[:] = self.data[:size]
        os.write(self.pipe[1], struct.pack("<IiQ", 16 + size, 0, unique))
        place = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        vector = IoVec(place, size)
        given = libc.vmsplice(self.pipe[1], ctypes.byref(vector), ctypes.c_ulong(1), SPLICE_GIFT if self.way == "spliced" else 0)
        assert given == size, (given, os.strerror(ctypes.get_errno()))
        moved = libc.splice(self.pipe[0], None, self.device, None, ctypes.c_size_t(16 + size), SPLICE_MOVE)
        assert moved == 16 + size, (moved, os.strerror(ctypes.get_errno()))

    def open(self, unique, node):
        flags, backing_id = FOPEN_KEEP_CACHE, 0
        if self.way == "passthrough" and node == 2:
            flags = FOPEN_PASSTHROUGH
            backing_id = fcntl.ioctl(self.device, BACKING_OPEN, bytearray(struct.pack("<iIQ", self.backing, 0, 0)))  # The kernel's number.
        self.reply(unique, struct.pack("<QIi", 1, flags, backing_id))

    def serve(self):
        buffer = bytearray(REQUEST + 4096)
        while True:
            try:
                got = os.readv(self.device, [buffer])
            except OSError:
                return  # Unmounted.
            _, opcode, unique, node = struct.unpack_from("<IIQQ", buffer)
            body = memoryview(buffer)[40:got]
            if opcode == READ:
                size = min(struct.unpack_from("<QQI", body)[2], BYTES - struct.unpack_from("<QQI", body)[1])
                if self.way == "written":
                    self.reply(unique, memoryview(self.data)[:size])
                else:
                    self.spliced(unique, size)
            elif opcode == INIT:
                flags = ASYNC_READ | MAX_PAGES | (INIT_EXT if self.way == "passthrough" else 0)
                flags2 = PASSTHROUGH if self.way == "passthrough" else 0
                out = struct.pack("<IIIIHHIIHHIII", 7, 40, REQUEST, flags, 32, 24, REQUEST, 1, REQUEST // 4096, 0, flags2, 1, 0)
                self.reply(unique, out.ljust(64, b"\0"))
            elif opcode == LOOKUP:
                self.reply(unique, struct.pack("<QQQQII", 2, 1, 3600, 3600, 0, 0) + attributes(2))
            elif opcode == GETATTR:
                self.reply(unique, struct.pack("<QII", 3600, 0, 0) + attributes(node))
            elif opcode == OPEN:
                self.open(unique, node)
            elif opcode in (RELEASE, FLUSH):
                self.reply(unique)
            elif opcode not in (FORGET, BATCH_FORGET, INTERRUPT):
                self.reply(unique, error=38)

def rate(way, plain):
    """MB/s of reading the file once."""
    place = scratch() / "fuse-copy"
    place.mkdir(exist_ok=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={REQUEST}"
    if libc.mount(b"fuse-copy", bytes(place), b"fuse", 1, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    server = os.fork()
    if server == 0:
        try:
            Server(device, way, plain).serve()
        finally:
            os._exit(0)
    os.close(device)
    try:
        path = place / "file"
        path.stat()
        number = os.stat(place).st_dev
        ahead = f"/sys/class/bdi/{os.major(number)}:{os.minor(number)}/read_ahead_kb"
        with open(ahead, "w") as file:
            file.write(str(REQUEST >> 10))
        file = os.open(path, os.O_RDONLY)
        target = bytearray(REQUEST)
        began, read = time.monotonic(), 0
        while (got := os.preadv(file, [target], read)) > 0:
            read += got
        seconds = time.monotonic() - began
        os.close(file)
        assert read == BYTES, read
        return read / seconds / 1e6
    finally:
        libc.umount2(bytes(place), 2)
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        place.rmdir()

@benchmark(repeats=5)
def measure(bench):
    path = scratch() / "fuse-copy.raw"
    with open(path, "wb") as file:
        for _ in range(BYTES // REQUEST):
            file.write(os.urandom(REQUEST))
    with open(path, "rb") as plain:
        ways = ["written", "spliced", "spliced, same pages", "passthrough"]
        runs = bench.turns({way: partial(rate, way, plain.fileno()) for way in ways}, say="{value:.0f}")
    for way in ways:
        bench.figure(f"{way}, of the rate of answers that are written", runs.ratio(way, "written", "value"))
