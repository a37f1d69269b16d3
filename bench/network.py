#!/usr/bin/env python3
"""Networks of namespaces on this machine: a server, its clients, links that `tc` shapes, and a relay that delays.

Links have no latency of their own: netem is not in every kernel. A benchmark that is told to end takes them down.
"""

import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, nullcontext

from harness import headstart_path, run
from mounts import program

SERVER = "10.77.0.1"
PORT = 8080
RELAY_PORT = 8081
ENDINGS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]

def end(number, _frame):
    """Ends this process as an error would, so that everything is taken down; once, or that would be broken off."""
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)

for ending in ENDINGS:
    signal.signal(ending, end)

def inside(namespace):
    """The words before a command that runs in a namespace."""
    return ["ip", "netns", "exec", namespace]

@contextmanager
def namespace(name):
    try:
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        # It may not have been made yet when this process was told to end.
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

def names_of(stack, *kinds):
    """Namespaces that nothing else uses."""
    suffix = time.monotonic_ns() % 100000
    return [stack.enter_context(namespace(f"hs-{kind}-{suffix}")) for kind in kinds]

def address(name, device, number):
    run("ip", "-n", name, "address", "add", f"10.77.0.{number}/24", "dev", device)
    run("ip", "-n", name, "link", "set", device, "up")

def rate_limit(name, device, mbit):
    """Lets a device send so much a second. The burst is 2 ms of it, and never less than two full packets."""
    run("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{mbit}mbit", "burst",
        f"{max(int(mbit * 250), 128 << 10)}b", "latency", "100ms")

@contextmanager
def link():
    """Two namespaces and a link between them."""
    with ExitStack() as stack:
        server, client = names_of(stack, "server", "client")
        run("ip", "link", "add", "server0", "netns", server, "type", "veth", "peer", "client0", "netns", client)
        address(server, "server0", 1)
        address(client, "client0", 2)
        yield server, client

def shape(server, mbit):
    """Lets the server send so much a second."""
    rate_limit(server, "server0", mbit)
    # What TCP has learnt of the link was learnt at another rate.
    run("ip", "-n", server, "tcp_metrics", "flush")

@contextmanager
def serving(server, *images, flags=()):
    """Images over HTTP; gives the address of the last, and the server's process."""
    words = ["serve", *images, "--http", f"{SERVER}:{PORT}", "--unsupervised", *flags]
    with program(*inside(server), headstart_path(), *words, stderr=subprocess.PIPE, text=True) as process:
        # `ip netns exec` becomes the command.
        yield process.stderr.readline().split()[-1], process

@contextmanager
def many_links(clients, mbit):
    """A server, a switch, and so many clients behind it, each with a link of its own of `mbit`; gives the server's
    namespace and the clients'."""
    with ExitStack() as stack:
        server, switch = names_of(stack, "server", "switch")
        names = names_of(stack, *(f"client-{number + 1}" for number in range(clients)))
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, name in enumerate([server, *names]):
            device, port = "client0" if number else "server0", f"port{number}"
            run("ip", "link", "add", device, "netns", name, "type", "veth", "peer", port, "netns", switch)
            run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            address(name, device, number + 1)
            if number:
                rate_limit(switch, port, mbit)
        yield server, names

@contextmanager
def empty_cache(*where):
    """The words of a command whose cache on disk is empty."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-", dir=where[0] if where else None) as cache:
        yield ["--disk-cache", cache]

def relay(server, delay_s):
    """A relay beside the server through which each request takes twice `delay_s` longer, and the first of a
    connection as much again, as connecting would; gives its port. Without a delay it is the server's own."""
    if not delay_s:
        return nullcontext(PORT)
    return relayed(server, delay_s)

@contextmanager
def relayed(server, delay_s):
    words = [*inside(server), sys.executable, __file__, delay_s]
    with program(*words, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield RELAY_PORT

def relay_for_ever(delay_s):
    """`network.py DELAY_S`: relays to the server, each direction late by so much."""
    with socket.create_server((SERVER, RELAY_PORT)) as listener:
        print("ready", flush=True)
        while True:
            near, _ = listener.accept()
            far = socket.create_connection((SERVER, PORT))
            # The kernel has accepted already, before anything was heard from afar. So what the client sends first,
            # which on a real link would wait for that, is late by a round trip more.
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # So much may be under way: a second of 100 Mbit/s.
                late = queue.Queue(maxsize=200)
                handshake = 2 * delay_s if one is near else 0
                threading.Thread(target=take, args=(one, late, delay_s, handshake), daemon=True).start()
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

if __name__ == "__main__":
    relay_for_ever(float(sys.argv[1]))
