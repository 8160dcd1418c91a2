"""Hosts that share no file and no process: each has its own network, mounts, process ids and name (Linux namespaces, as root).

A host sees the machine's programs and this repository read-only, its own `/tmp`, and its own folder at `/mnt/host`. A folder that
a lab shares is at `/mnt/shared` of each host, as by NFS. A bridge connects the hosts. A cut drops packets silently, as a firewall
does: nothing answers "connection refused".
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final, Literal

from tests.support.processes import with_parent

ROOT: Final = Path(__file__).parents[2]
#: Where a host has its own files: its Dagster home, its database, its logs.
HOME: Final = Path("/mnt/host")
#: Where all hosts have the folder that the lab shares, if it shares one.
SHARED: Final = Path("/mnt/shared")
PROGRAMS: Final = ("ip", "nft", "nsenter", "unshare")
#: The bridges of labs that run at the same time each have a network of these.
NETWORKS: Final = tuple(IPv4Network("10.231.0.0/16").subnets(new_prefix=24))
#: A host that is not up by then is booted again, so often: a mount fails now and then beside the mounts of other programs.
START_SECONDS: Final = 60.0
BOOTS: Final = 5

Way = Literal["in", "out", "both"]

#: A host ends with the thread that starts it: this one ends with the process.
_starter = ThreadPoolExecutor(max_workers=1)

#: Runs as the first process of a host. Its mounts end with it.
_FIRST_PROCESS = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/host /mnt/seen
mount --bind {own} /mnt/host
for folder in {shared}; do mkdir /mnt/shared; mount --bind "$folder" /mnt/shared; done
mount --bind /mnt/host/etc-hosts /etc/hosts
n=0
for folder in {seen}; do mkdir /mnt/seen/$n; mount --bind "$folder" /mnt/seen/$n; n=$((n+1)); done
for folder in /tmp /dev/shm /run "$HOME"; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
n=0
for folder in {seen}; do
    mkdir -p "$folder"; mount --bind /mnt/seen/$n "$folder"; mount -o remount,bind,ro "$folder"; n=$((n+1))
done
hostname {name}
touch /mnt/host/is-up
exec sleep infinity
"""


@cache
def why_not() -> str | None:
    """Why hosts cannot be made here, in one sentence; none if they can."""
    if os.geteuid() != 0:
        return "hosts are made of namespaces, which only root makes here"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"hosts need the programs {', '.join(missing)} (Debian: iproute2, nftables, util-linux)"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "nft", "add table inet tried"], capture_output=True
    )
    return f"this kernel makes no hosts: {tried.stderr.decode().strip()}" if tried.returncode else None


class HostDown(Exception):
    """A command was started on a host that was killed."""


@dataclass
class Host:
    """A machine of the lab. `start` may follow `kill`: the files of a host stay."""

    name: str
    address: IPv4Address
    folder: Path
    namespace: str
    known: Mapping[str, IPv4Address]
    shared: Path | None = None
    _first: subprocess.Popen[bytes] | None = None
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def is_up(self) -> bool:
        return self._first is not None

    def start(self) -> None:
        """Boot it: no process runs but the first one. Raises what the last of `BOOTS` boots wrote, if none came up."""
        for _ in range(BOOTS):
            self._first = self._boot()
            if self._comes_up(self._first):
                return
            self.kill()
        raise AssertionError(f"host {self.name} did not come up: {(self.folder / 'first.log').read_text()}")

    def _boot(self) -> subprocess.Popen[bytes]:
        (self.folder / "is-up").unlink(missing_ok=True)
        names = "".join(f"{address} {name}\n" for name, address in self.known.items())
        (self.folder / "etc-hosts").write_text(f"127.0.0.1 localhost\n{names}")
        seen = shlex.join(
            str(folder) for folder in sorted({ROOT, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})
        )
        shared = shlex.quote(str(self.shared)) if self.shared is not None else ""
        script = _FIRST_PROCESS.format(own=shlex.quote(str(self.folder)), shared=shared, seen=seen, name=self.name)
        apart = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
        command = ["ip", "netns", "exec", self.namespace, *apart, "sh", "-c", script]
        with (self.folder / "first.log").open("ab") as log:
            return _starter.submit(
                subprocess.Popen,
                with_parent(command, signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            ).result()

    def _comes_up(self, first: subprocess.Popen[bytes]) -> bool:
        deadline, pause = time.monotonic() + START_SECONDS, threading.Event()
        while time.monotonic() < deadline and first.poll() is None:
            if (self.folder / "is-up").exists():
                return True
            pause.wait(0.02)
        return False

    def spawn(
        self, command: Sequence[str], *, log: str, environment: Mapping[str, str] = {}, cwd: Path = HOME
    ) -> subprocess.Popen[bytes]:
        """Start a command on the host; its output is appended to the file `log` of the host's folder."""
        with (self.folder / log).open("ab") as out:
            process = subprocess.Popen(
                self.entering(command, cwd), env=dict(environment), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        self._processes.append(process)
        return process

    def run(
        self, command: Sequence[str], *, environment: Mapping[str, str] = {}, cwd: Path = HOME, seconds: float = 1200.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host until it ends."""
        return subprocess.run(
            self.entering(command, cwd),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def entering(self, command: Sequence[str], cwd: Path) -> list[str]:
        """The command line that runs `command` in the host's namespaces."""
        return ["nsenter", "--target", str(self._pid()), "--all", f"--wdns={cwd}", "--", *command]

    def kill(self) -> None:
        """Pull the plug: every process of the host ends at once, and its packets in flight are lost."""
        if self._first is None:
            return
        self._first.kill()
        self._first.wait()
        self._first = None
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def _pid(self) -> int:
        """The first process, which `unshare` forked."""
        first = self._first
        children = [] if first is None else Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        if not children:
            raise HostDown(f"host {self.name} is down")
        return int(children[0])


class Lab:
    """Hosts on one bridge. Use it as a context: at its end no process, namespace, or bridge is left."""

    def __init__(self, folder: Path, names: Iterable[str], *, shared: Path | None = None) -> None:
        self._folder = folder
        self._mark = f"db{os.getpid()}"
        taken = subprocess.run(["ip", "-oneline", "address"], capture_output=True, text=True, check=True).stdout
        first = os.getpid() % len(NETWORKS)
        free = (network for network in (*NETWORKS[first:], *NETWORKS[:first]) if f" {network[1]}/" not in taken)
        self._network = next(free)
        addresses = list(self._network.hosts())
        self.gateway = addresses[0]
        known = dict(zip(names, addresses[9:], strict=False))
        self.hosts = {
            name: Host(name, address, folder / name, f"{self._mark}-{name}", known, shared)
            for name, address in known.items()
        }

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Lab:
        _do("ip", "link", "add", self._mark, "type", "bridge")
        _do("ip", "address", "add", f"{self.gateway}/{self._network.prefixlen}", "dev", self._mark)
        _do("ip", "link", "set", self._mark, "up")
        for n, host in enumerate(self.hosts.values()):
            host.folder.mkdir(parents=True)
            inside = ("ip", "-netns", host.namespace)
            _do("ip", "netns", "add", host.namespace)
            _do("ip", "link", "add", f"{self._mark}v{n}", "type", "veth", "peer", "eth0", "netns", host.namespace)
            _do("ip", "link", "set", f"{self._mark}v{n}", "master", self._mark, "up")
            _do(*inside, "address", "add", f"{host.address}/{self._network.prefixlen}", "dev", "eth0")
            _do(*inside, "link", "set", "eth0", "up")
            _do(*inside, "link", "set", "lo", "up")
            host.start()
        return self

    def __exit__(self, *_: object) -> None:
        for n, host in enumerate(self.hosts.values()):
            host.kill()
            # A connection that still waits for its peer keeps the namespace, and so the link.
            subprocess.run(["ip", "link", "delete", f"{self._mark}v{n}"], capture_output=True)
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True)
        subprocess.run(["ip", "link", "delete", self._mark], capture_output=True)

    def cut(self, host: str, *, way: Way = "both", peers: Sequence[str] | None = None) -> None:
        """Drop what the host sends, receives, or both; with `peers` only between it and these hosts."""
        rules = []
        for peer in self.hosts if peers is None else peers:
            if peer != host:
                rules += [f"add rule inet cut out ip daddr {self.hosts[peer].address} drop"] * (way != "in")
                rules += [f"add rule inet cut into ip saddr {self.hosts[peer].address} drop"] * (way != "out")
        self._filter(host, rules)

    def slow(self, host: str, kbytes_per_second: int) -> None:
        """Drop what the host sends and receives beyond a rate."""
        over = f"limit rate over {kbytes_per_second} kbytes/second burst 20 kbytes drop"
        self._filter(
            host, [f"add rule inet cut out oifname eth0 {over}", f"add rule inet cut into iifname eth0 {over}"]
        )

    def heal(self, host: str) -> None:
        """End each cut and each limit of the host."""
        self._nft(host, "add table inet cut", "delete table inet cut")

    def _filter(self, host: str, rules: Sequence[str]) -> None:
        chains = [
            f"add chain inet cut {chain} {{ type filter hook {hook} priority 0; }}"
            for chain, hook in (("out", "output"), ("into", "input"))
        ]
        self._nft(host, "add table inet cut", *chains, *rules)

    def _nft(self, host: str, *lines: str) -> None:
        _do("ip", "netns", "exec", self.hosts[host].namespace, "nft", "; ".join(lines))


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr.strip()}"
