"""Networks of namespaces on this machine: a server, its clients, links that `tc` shapes, and a relay that delays.

Links have no latency of their own: netem is not in every kernel. A benchmark that is told to end takes them down first.
"""

import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

from harness import headstart_path, run

SERVER = "10.77.0.1"
PORT = 8080
RELAY_PORT = 8081


ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def end(number, _frame):
    """Ends this process as an error would, so that everything is taken down; once, or taking down would be broken off."""
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


for ending in ENDINGS:
    signal.signal(ending, end)


@contextmanager
def namespace(name):
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        # It may not have been made yet when this process was told to end.
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


@contextmanager
def link():
    """Two namespaces and a link between them."""
    with ExitStack() as stack:
        suffix = f"{time.monotonic_ns() % 100000}"
        server = stack.enter_context(namespace(f"hs-server-{suffix}"))
        client = stack.enter_context(namespace(f"hs-client-{suffix}"))
        run("ip", "link", "add", "server0", "netns", server, "type", "veth", "peer", "client0", "netns", client)
        for name, device, address in [(server, "server0", SERVER), (client, "client0", "10.77.0.2")]:
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        yield server, client


def shape(server, mbit):
    """Lets the server send so much a second. The burst is 2 ms of it, and never less than two full packets of the card."""
    burst = max(int(mbit * 1e6 / 8 * 0.002), 128 << 10)
    run("tc", "-n", server, "qdisc", "replace", "dev", "server0", "root", "tbf",
        "rate", f"{mbit}mbit", "burst", f"{burst}b", "latency", "100ms")
    # What TCP has learnt of the link was learnt at another rate.
    run("ip", "-n", server, "tcp_metrics", "flush")


@contextmanager
def serving(server, image, *flags, about=None):
    """The image over HTTP. `about`, a dictionary, learns the server's process."""
    process = subprocess.Popen(
        ["ip", "netns", "exec", server, headstart_path(), "serve", image, "--http", f"{SERVER}:{PORT}", "--unsupervised",
         *map(str, flags)], stderr=subprocess.PIPE, text=True)
    if about is not None:
        # `ip netns exec` becomes the command.
        about["pid"] = process.pid
    try:
        line = process.stderr.readline()
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def many_links(clients, mbit):
    """A server, a switch, and so many clients behind it, each with a link of its own of `mbit`; gives the server's namespace and
    the clients'."""
    with ExitStack() as stack:
        suffix = f"{time.monotonic_ns() % 100000}"
        server = stack.enter_context(namespace(f"hs-server-{suffix}"))
        switch = stack.enter_context(namespace(f"hs-switch-{suffix}"))
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        names = []
        for number in range(clients + 1):
            name = server if number == 0 else stack.enter_context(namespace(f"hs-client-{number}-{suffix}"))
            device = "server0" if number == 0 else "client0"
            run("ip", "link", "add", device, "netns", name, "type", "veth", "peer", f"port{number}", "netns", switch)
            run("ip", "-n", switch, "link", "set", f"port{number}", "master", "bridge", "up")
            run("ip", "-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
            if number > 0:
                run("tc", "-n", switch, "qdisc", "add", "dev", f"port{number}", "root", "tbf", "rate", f"{mbit}mbit",
                    "burst", f"{max(int(mbit * 250), 128 << 10)}b", "latency", "100ms")
                names.append(name)
        yield server, names


def main():
    """`network.py DELAY_S`: relays to the server, each direction late by so much."""
    delay = float(sys.argv[1])
    with socket.create_server((SERVER, RELAY_PORT)) as listener:
        print("ready", flush=True)
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((SERVER, PORT))
            # The kernel has said yes already, before anything was heard from afar; so what the client sends first, which on a real
            # link would wait for that, is late by a round trip more.
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # So much may be under way: a second of 100 Mbit/s.
                late = queue.Queue(maxsize=200)
                handshake = 2 * delay if one is near else 0
                threading.Thread(target=take, args=(one, late, delay, handshake), daemon=True).start()
                threading.Thread(target=give, args=(other, late), daemon=True).start()


def take(source, late, delay, handshake):
    """What comes is due after the delay, and nothing before the handshake would have been over."""
    begins = time.monotonic() + handshake
    piece = b"-"
    while piece:
        try:
            piece = source.recv(64 << 10)
        except OSError:
            piece = b""
        late.put((max(time.monotonic(), begins) + delay, piece))


def give(target, late):
    while True:
        then, piece = late.get()
        time.sleep(max(then - time.monotonic(), 0))
        try:
            if not piece:
                return target.shutdown(socket.SHUT_WR)
            target.sendall(piece)
        except OSError:
            return target.close()


@contextmanager
def relay(server, delay_s):
    """A relay beside the server through which each request takes twice `delay_s` longer, and the first of a connection as much again, as
    connecting would; gives its port."""
    process = subprocess.Popen(["ip", "netns", "exec", server, sys.executable, __file__, str(delay_s)],
                               stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield RELAY_PORT
    finally:
        process.terminate()
        process.wait(timeout=20)


if __name__ == "__main__":
    main()
