"""One of several worker processes, seen from the inside: it hears its parent's orders, says how it is, and does not outlive the parent.

`rota.fleet` is the other end of the channel, a pair of SOCK_SEQPACKET sockets: a message is one packet, and the end of the parent, however it
came, is the end of the channel.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    import asyncio

logger = logging.getLogger("rota")

STOP = b"stop"
HURRY = b"hurry"
TELL_S = 1.0
"""How often a member says how it is."""
ORPHAN_S = 0.7
"""How long a member whose parent is gone may try to hand its jobs back."""


class Vitals(Protocol):
    """What a worker says of itself, in any thread; None means well, or ready."""

    def liveness(self) -> str | None: ...

    def readiness(self) -> str | None: ...

    @property
    def passes(self) -> int: ...


class Commanded(Protocol):
    """A worker, as its parent commands it."""

    @property
    def health(self) -> Vitals: ...

    def stop(self) -> None: ...

    def stop_now(self) -> None: ...


class Message(msgspec.Struct, omit_defaults=True):
    """What a member tells its parent."""

    fit: bool = False
    """The App was found, and the schema of its database fits: another process would not fail at that."""
    unwell: str | None = None
    unready: str | None = None
    passes: int = 0
    """Good passes of upkeep so far."""
    report: dict[str, Any] | None = None
    """What it did, as the last thing that it says."""


class Member:
    """This process. Its thread hears orders also while the loop is blocked; those that come before there is a worker are kept for it."""

    def __init__(self, fd: int) -> None:
        self._channel = socket.socket(fileno=fd)
        self._channel.set_inheritable(False)
        self._channel.settimeout(TELL_S)
        self._orders: list[bytes] = []
        self._lock = threading.Lock()
        self._worker: Commanded | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._without_worker = "starting"
        self._nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - open as long as the process
        threading.Thread(target=self._main, name="rota-member", daemon=True).start()

    @contextmanager
    def commanding(self, worker: Commanded, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Pass orders on to a worker, for a block."""
        with self._lock:
            self._worker, self._loop = worker, loop
            for order in self._orders:
                self._pass_on(order)
        try:
            yield
        finally:
            with self._lock:
                self._worker = self._loop = None
                self._without_worker = "stopping"

    def fit(self) -> None:
        """Say that nothing keeps this process from working."""
        self._tell(Message(fit=True, unready="starting"))

    def report(self, report: msgspec.Struct) -> None:
        """Say what was done."""
        self._tell(Message(report=msgspec.to_builtins(report), unready="stopping"))

    def _main(self) -> None:
        while True:
            try:
                order = self._channel.recv(16)
            except TimeoutError:
                self._tell_how_it_is()
                continue
            except OSError:
                order = b""
            if not order:
                self._orphaned()
                return
            with self._lock:
                self._orders.append(order)
                self._pass_on(order)

    def _orphaned(self) -> None:
        with self._lock:
            if self._worker is None:
                os._exit(1)
            # A thread below Python: it ends the process also where a handler does not let go of the interpreter, or standard error is clogged.
            faulthandler.dump_traceback_later(ORPHAN_S, exit=True, file=self._nowhere)
            self._pass_on(HURRY)
        logger.error(
            "the parent process is gone: this one hands its jobs back and ends within a second"
        )

    def _pass_on(self, order: bytes) -> None:
        if self._worker is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the worker is over
                self._loop.call_soon_threadsafe(
                    self._worker.stop_now if order == HURRY else self._worker.stop
                )

    def _tell_how_it_is(self) -> None:
        with self._lock:
            health = None if self._worker is None else self._worker.health
        if health is None:
            self._tell(Message(unready=self._without_worker))
        else:
            self._tell(
                Message(
                    unwell=health.liveness(),
                    unready=health.readiness(),
                    passes=health.passes,
                )
            )

    def _tell(self, message: Message) -> None:
        with suppress(OSError):  # the parent is gone, or frozen and the channel full
            self._channel.send(msgspec.json.encode(message))


joined: Member | None = None
"""This process's membership; None in a process that stands for itself."""


def join(fd: int) -> Member:
    """Make this process a member. First thing in it: from then on it does not outlive its parent."""
    global joined
    joined = Member(fd)
    return joined
