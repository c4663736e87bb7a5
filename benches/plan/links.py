#!/usr/bin/env python3
"""The planner's choices for two MPI ranks that are joined by a slow link, with nothing emulated but the link's rate.

    cargo build --release
    sudo python3 benches/plan/links.py [--build PROGRAM] [--only REGEX] [--seconds LIMIT] [--table]

Each rank lives in a network namespace with a core of its own. A pair of virtual interfaces joins the two, and `tc tbf` holds each end
to the rate, with a bucket of a millisecond: what fits into it is sent at once, and with less the rate was not held.
MPI has no other way than this link (TCP, no shared memory). Before anything else a plain socket measures the link; in every
run the bytes that the interfaces counted are compared with those that the program says it sent. The planner measures the link
for itself, through MPI.

What is run, how it is timed and what is kept is as in real.py. It wants root, Linux, iproute2, util-linux and Open MPI, and a
quiet machine. Namespaces are removed at the end.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import real

RATES = {"1gbit": 1e9, "100mbit": 1e8}
HIDDEN = 32
GRAPHS = ["grid:150:150", "rmat:12:16", "rmat:13:16", "sbm:20000:10:16", "ba:20000:8"]
BUCKET = 1e-3
PORT = 5201
TITLE = "Two MPI ranks joined by a link of 1 Gb/s or 100 Mb/s"

# One side takes bytes and says when they came; the other sends them, after a hundred small ones to and fro.
RECEIVE = """
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    link, _ = server.accept()
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(100):
    link.sendall(link.recv(1))
count, start = len(link.recv(1 << 16)), time.monotonic()
first = count
while got := len(link.recv(1 << 16)):
    count += got
print((count - first) / (time.monotonic() - start))
"""
SEND = """
import socket, sys, time
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
start = time.monotonic()
for _ in range(100):
    link.sendall(b"x"), link.recv(1)
print((time.monotonic() - start) / 100)
link.sendall(bytes(int(sys.argv[3])))
"""


class Link:
    """Two namespaces, which are two hosts to MPI."""

    def __init__(self, rate, folder):
        self.rate, self.hosts = rate, [f"gw{os.getpid()}{end}" for end in "ab"]
        self.cores = (sorted(os.sched_getaffinity(0)) * 2)[:2]
        self.agent = Path(folder) / "agent"

    def __enter__(self):
        burst = int(RATES[self.rate] / 8 * BUCKET)
        try:
            for host in self.hosts:
                ip("netns", "add", host)
                ip("-n", host, "link", "set", "lo", "up")
            ip("link", "add", "gw0", "netns", self.hosts[0], "type", "veth", "peer", "name", "gw0", "netns", self.hosts[1])
            for k, host in enumerate(self.hosts):
                ip("-n", host, "address", "add", f"{self.address(k)}/30", "dev", "gw0")
                ip("-n", host, "link", "set", "gw0", "up")
                tbf = ["rate", self.rate, "burst", str(burst), "limit", str(8 << 20)]
                subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", "gw0", "root", "tbf", *tbf], check=True)
        except BaseException:
            self.__exit__()
            raise
        # Open MPI starts what it has on the other host with this, as it would with ssh.
        cases = "\n".join(f"{host}) exec {shlex.join(self.enter(k, ['sh', '-c']))} \"$*\" ;;" for k, host in enumerate(self.hosts))
        self.agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}\nesac\n")
        self.agent.chmod(0o755)
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            subprocess.run(["ip", "netns", "delete", host], stderr=subprocess.DEVNULL)

    def address(self, k):
        return f"10.77.0.{k + 1}"

    def enter(self, k, command):
        """A command on host k, which has a name and a core."""
        host = self.hosts[k]
        return ["nsenter", f"--net=/run/netns/{host}", "taskset", "-c", str(self.cores[k]), "unshare", "--uts", "sh", "-c",
                'hostname "$0" && exec "$@"', host, *command]

    def sent(self):
        """Bytes that each end has sent so far."""
        found = [json.loads(ip("-n", host, "-s", "-j", "link", "show", "gw0")) for host in self.hosts]
        return [link[0]["stats64"]["tx"]["bytes"] for link in found]

    def measure(self):
        """Bytes per second of a plain socket in either direction, and seconds there and back."""
        size, found = int(RATES[self.rate] / 8), {"bytes_per_second": [], "there_and_back": []}
        for to in (1, 0):
            receive = subprocess.Popen(self.enter(to, [sys.executable, "-c", RECEIVE, str(PORT)]), stdout=subprocess.PIPE, text=True)
            receive.stdout.readline()
            send = [sys.executable, "-c", SEND, self.address(to), str(PORT), str(size)]
            done = subprocess.run(self.enter(1 - to, send), stdout=subprocess.PIPE, text=True, check=True)
            found["bytes_per_second"].append(float(receive.communicate()[0]))
            found["there_and_back"].append(float(done.stdout))
        return found

    def mpirun(self, command, env):
        hosts = ",".join(f"{host}:1" for host in self.hosts)
        settings = {"plm_rsh_agent": self.agent, "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "gw0", "oob_tcp_if_include": "gw0"}
        flags = ["-n", "2", "-H", hosts, "--bind-to", "none", *(x for key, value in settings.items() for x in ("--mca", key, str(value)))]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        before = self.sent()
        found = real.call(self.enter(0, ["mpirun", *flags, *command]), {**os.environ, **root, **env})
        return {**found, "carried": [after - b for after, b in zip(self.sent(), before)]}


def ip(*words):
    return subprocess.run(["ip", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def case(args, rate, graph, hidden):
    build = str(Path(args.build).resolve())
    with tempfile.TemporaryDirectory() as folder, Link(rate, folder) as link:
        def run(flags, cache):
            return link.mpirun([build, *flags, "--comm", "mpi", "--threads", "1", "--json"], {"GRAPHWEFT_CACHE": cache})

        study = real.Study(args, rate, run)
        study.once(link.measure, "socket", graph)
        study.case(graph, hidden)


def checks(kept):
    """What the links are, by three measurements: the least and the most of all cases."""
    columns = ["link", "socket, MB/s", "there and back, µs", "calibration through MPI, MB/s", "latency, µs", "bytes counted / said to be sent"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for rate in RATES:
        of = lambda what: [value for key, value in kept.lines.items() if key[:2] == (rate, what)]
        sockets, networks, runs = of("socket"), [plan["network"] for plan in of("plan")], of("run")
        if not runs:
            continue
        found = [[x / 1e6 for s in sockets for x in s["bytes_per_second"]], [x * 1e6 for s in sockets for x in s["there_and_back"]],
                 [n["bandwidth"] / 1e6 for n in networks], [n["latency"] * 1e6 for n in networks],
                 # The first epoch is not timed, but sends.
                 [sum(r["carried"]) / (sum(r["bytes_sent_by_rank"]) * (r["epochs"] + 1)) for r in runs]]
        lines.append(f"| {rate} | {' | '.join(f'{min(x):.3g} to {max(x):.3g}' for x in found)} |")
    return lines


def main():
    args, cases = real.arguments(__doc__, "plan-links.jsonl"), [(rate, graph, HIDDEN) for graph in GRAPHS for rate in RATES]
    if not args.table:
        for one in real.wanted(args, cases):
            case(args, *one)
    kept = real.Kept(Path(args.kept))
    most = "Of a packet of 1514 bytes 1448 are contents: 119.6 and 11.96 MB/s are the most that can be."
    lines = [*checks(kept), "", most, "", *real.table(kept, cases)]
    real.write(real.HERE / "REAL.md", TITLE, "links.py", lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
