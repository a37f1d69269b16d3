"""A client of an HTTP server.

    fetch.py fetch HOST PORT PATH CONNECTIONS SECONDS SIZE LENGTH    fetches ranges; prints how many bytes came
    fetch.py hold HOST PORT PATH CONNECTIONS                         asks once on each, says "held", and waits
"""

import socket
import sys
import threading
import time

def fetch(where, path, number, end, size, length, total):
    """Fetches ranges on a connection of its own until the end."""
    stream, buffer, at = socket.create_connection(where), bytearray(1 << 20), number * size
    while time.monotonic() < end:
        at %= length - size
        ask = f"GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={at}-{at + size - 1}\r\n\r\n"
        stream.sendall(ask.encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += stream.recv(4096)
        head, _, rest = head.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206"), head
        left = size - len(rest)
        while left and time.monotonic() < end:
            got = stream.recv_into(buffer, min(left, 1 << 20))
            left -= got
            total[number] += got
        at += size

def main():
    mode, host, port, path, connections = *sys.argv[1:3], int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    if mode == "hold":
        streams = [socket.create_connection((host, port)) for _ in range(connections)]
        for stream in streams:
            stream.sendall(f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        for stream in streams:
            assert stream.recv(4096).startswith(b"HTTP/1.1 200")
        print("held", flush=True)
        return sys.stdin.read()
    seconds, size, length = map(int, sys.argv[6:9])
    total, end = [0] * connections, time.monotonic() + seconds
    threads = [threading.Thread(target=fetch, args=((host, port), path, number, end, size, length, total))
               for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(total))

main()
