"""What may go wrong with a deployment: a table of faults, each with where it strikes and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from .hosts import Way
from .services import COMMANDERS, WORKERS, Deployment

Act = Callable[[Deployment, str], None]

#: Hosts that may be cut off or killed: a deployment has one of each service but the workers.
CLIENTS: Final = (*WORKERS, *COMMANDERS)
SERVERS: Final = ("code", "code2", "ctl", "spark", "jvm")
#: What all others need.
SHARED: Final = ("db", "store", "code", "code2")
CLOCK_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Fault:
    """Something goes wrong on a host, and ends after some seconds within the bounds."""

    hosts: tuple[str, ...]
    seconds: tuple[float, float]
    begin: Act
    end: Act
    #: How often it is drawn, beside the others.
    weight: float = 1.0


def _heal(at: Deployment, host: str) -> None:
    at.lab.heal(host)


def _cut(way: Way) -> Act:
    return lambda at, host: at.lab.cut(host, way=way)


def _from(*peers: str) -> Act:
    return lambda at, host: at.lab.cut(host, peers=peers)


def _kill(at: Deployment, host: str) -> None:
    at.kill(host)


def _boot(at: Deployment, host: str) -> None:
    at.boot(host)


def _fail_over(at: Deployment, _: str) -> None:
    at.kill(at.primary)
    at.promote()


def _rejoin(at: Deployment, _: str) -> None:
    at.lab[at.replica].start()
    at.make_replica()


def _set_clock(seconds: float) -> Act:
    def act(at: Deployment, host: str) -> None:
        (at.lab[host].folder / "clock").write_text(str(seconds))

    return act


def _cut_primary(at: Deployment, _: str) -> None:
    at.lab.cut(at.primary)


def _heal_primary(at: Deployment, _: str) -> None:
    at.lab.heal(at.primary)


def _restart_database(at: Deployment, _: str) -> None:
    at.restart_database()


def _upgrade(at: Deployment, host: str) -> None:
    """The next version of the code server starts beside the present one."""
    if host == "code2" and at.is_idle("jvm"):
        at.start("jvm")
    at.start_or_boot(host)


def _end_the_old(at: Deployment, host: str) -> None:
    at.kill("code" if host == "code2" else "code2")


def _nothing(at: Deployment, host: str) -> None:
    pass


#: A cut for longer than 35 s, the patience of the judge of leases, loses what the host builds.
FAULTS: Final[Mapping[str, Fault]] = {
    "cut off": Fault((*CLIENTS, *SERVERS), (5, 90), _cut("both"), _heal, 3),
    "cut off, outgoing": Fault((*CLIENTS, *SERVERS), (5, 90), _cut("out"), _heal),
    "cut off, incoming": Fault((*CLIENTS, *SERVERS), (5, 90), _cut("in"), _heal),
    "cut off from the database": Fault(CLIENTS, (5, 60), _from("db", "db2"), _heal, 2),
    "cut off from the store": Fault((*CLIENTS, "spark"), (5, 60), _from("store"), _heal, 2),
    "cut off from Spark": Fault(CLIENTS, (5, 60), _from("spark", "jvm"), _heal),
    "slow link": Fault(CLIENTS, (20, 60), lambda at, host: at.lab.slow(host, 48), _heal),
    "host killed": Fault((*CLIENTS, "ctl", "spark"), (5, 60), _kill, _boot, 3),
    "clock behind": Fault(CLIENTS, (30, 90), _set_clock(-CLOCK_SECONDS), _set_clock(0)),
    "clock ahead": Fault(CLIENTS, (30, 90), _set_clock(CLOCK_SECONDS), _set_clock(0)),
    "store away": Fault(("store",), (10, 120), _cut("both"), _heal),
    "store killed": Fault(("store",), (5, 30), _kill, _boot, 0.5),
    "database away": Fault(("db",), (5, 30), _cut_primary, _heal_primary),
    "database restarted": Fault(("db",), (1, 2), _restart_database, _nothing),
    "failed over": Fault(("db",), (5, 30), _fail_over, _rejoin),
    "upgraded": Fault(("code", "code2"), (30, 90), _upgrade, _end_the_old),
}


def may_strike(at: Deployment, name: str, host: str) -> bool:
    """A host without services is spared, unless it is the one that an upgrade starts; there is one upgrade at a time."""
    if name == "upgraded":
        return at.is_idle(host) and not at.is_idle("code" if host == "code2" else "code2")
    return not at.is_idle(host)


@contextmanager
def striking(at: Deployment, name: str, host: str, seconds: float = 0.0) -> Iterator[None]:
    """A fault that lasts as long as the block, and at least some seconds."""
    fault, began = FAULTS[name], time.monotonic()
    at.say(f"{name}: {host}")
    at.faults[name] += 1
    fault.begin(at, host)
    try:
        yield
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    finally:
        fault.end(at, host)
        at.say(f"{name}, ended: {host}")
