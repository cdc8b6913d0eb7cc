"""Several worker processes under one parent, on Linux: it starts them, replaces dead processes,
forwards stop requests, and reaps orphans. `rota.runtime.supervised` is the child's side.

The parent imports nothing of the application, so the application cannot harm the parent. It sends
stop requests through the channel, not as signals: so they reach a child that is still importing or
whose loop is blocked, and no request counts twice.
"""

from __future__ import annotations

import logging
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Protocol

import msgspec

from rota.declare.program import describe_exit
from rota.logs import DATABASE_VARIABLE
from rota.model.back_off import BackOff
from rota.model.units import plural
from rota.runtime.child_process import ChildProcess, find_exited, is_hang_up_ignored
from rota.runtime.http import ping
from rota.runtime.supervised import METRICS, STOP, STOP_NOW, Vitals

logger = logging.getLogger("rota")

BACK_OFF_S = (0.25, 10.0)
"""The first and the longest pause before a process is replaced; doubled with each further end."""
QUIET_S = 60.0
"""Seconds without the end of a process after which the pauses begin anew."""
REST_S = 60.0
"""The pause of a database whose processes cannot work, while other databases may be worked."""
TURN_S = 1.0
SILENT_S = 10.0
"""Seconds after which a silent child, or a stuck parent, fails the liveness probe."""
PING_S = 55.0
"""The shortest time between two pings, however many processes report a good pass each minute."""
_HOPELESS = (2, 3)
"""Exit statuses of wrong usage and configuration, which a retry does not fix. After a process was
fit, they count as any other end: a login that fails for a moment must not end other processes."""
_DATABASE_AWAY = 5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class SumsMetrics(Protocol):
    """Adds up what worker processes measure, with the figures of ended processes."""

    def note(self, pid: int, text: str, database: str | None) -> None: ...
    def end(self, pid: int) -> None: ...
    def collect(self, asks: Mapping[int, Callable[[], None]]) -> str: ...


@dataclass(eq=False)
class ServedDatabase:
    """A database and its worker processes. Until a process is fit, it has no second process."""

    name: str | None = None
    """Where it is, for the log and the metrics; None: it is the App's only database."""
    url: str | None = None
    """None: the App knows it."""
    started: int = 0
    start_at: float = 0.0
    is_fit: bool | None = None
    """Whether a process has found its configuration and schema in order; None: not known yet."""
    has_passed: bool = False
    """Whether a process has reported a good pass since the last ping."""
    ended_at: float = float("-inf")
    """When a process last ended without a stop request."""
    back_off: BackOff = field(default_factory=lambda: BackOff(*BACK_OFF_S))

    @property
    def environment(self) -> dict[str, str]:
        if self.name is None or self.url is None:
            return {}
        return {"ROTA_DATABASE_URL": self.url, DATABASE_VARIABLE: self.name}

    def find_pause_s(self, now: float) -> float:
        """Return how long to wait before a process that ends now is replaced."""
        if now - self.ended_at > QUIET_S:
            self.back_off.tries = 0
        self.ended_at = now
        return self.back_off.next_s()

    def describe(self, pid: int) -> str:
        return f"worker process {pid}" + (f" of {self.name}" if self.name else "")


class WorkerChild(ChildProcess):
    """A worker process, seen from its parent."""

    def __init__(self, arguments: list[str], database: ServedDatabase) -> None:
        super().__init__(arguments, environment=database.environment)
        self.database = database
        self.vitals = Vitals(readiness="starting")
        self.received_at: float | None = None
        """When `vitals` arrived; None before the first message."""

    def send(self, request: str) -> None:
        """Send a stop request; a child that has ended needs none."""
        with suppress(EOFError):
            self.channel.send(request)

    def receive(self) -> Iterator[Vitals]:
        with suppress(EOFError):
            while (message := self.channel.receive(0)) is not None:
                # A child of another release may send a message that this release cannot read.
                with suppress(msgspec.ValidationError):
                    yield msgspec.convert(message, Vitals)

    def liveness(self, now: float) -> str | None:
        silent_s = 0.0 if self.received_at is None else now - self.received_at
        return f"silent for {silent_s:.0f} s" if silent_s > SILENT_S else self.vitals.liveness


class Supervisor:
    """`count` processes of one command for each database; `arguments` end with the option that
    takes the channel's descriptor. `liveness` and `readiness` may be called from any thread; None
    means live, or ready.

    The processes are kept until a signal or a drain's end, or until no database can be worked:
    after that no child is started. A database that cannot be worked ends no process of another
    database.
    """

    def __init__(
        self,
        arguments: list[str],
        count: int,
        *,
        drain: bool,
        databases: Sequence[ServedDatabase] = (),
        ping_url: str | None = None,
        sums: SumsMetrics | None = None,
    ) -> None:
        self.reports: list[tuple[str | None, dict[str, Any]]] = []
        """The children's reports and their databases, in the order in which they ended."""
        self._arguments = arguments
        self._count = count
        self._databases = databases or [ServedDatabase()]
        self._drain = drain
        self._ping_url = ping_url
        self._sums = sums
        self._pinged_at = float("-inf")
        self._children: dict[int, WorkerChild] = {}
        self._stops = 0
        """Number of stop requests so far: the first leaves a grace period, the second none."""
        self._status = 0
        self._turned_at = monotonic()

    def run(self) -> int:
        """Keep the processes up until SIGTERM, SIGINT or SIGHUP; in a drain until all have ended.
        Return the worst exit status."""
        with _signal_socket() as signals:
            try:
                while self._children or any(map(self._count_missing, self._databases)):
                    self._turned_at = monotonic()
                    self._start_missing()
                    self._turn(signals)
            finally:
                for child in self._children.values():
                    child.close()  # their channel ends, and so do they
        if self._drain and self._ping_url is not None and self._status == 0 and not self._stops:
            ping(self._ping_url)
        return self._status

    def liveness(self) -> str | None:
        """Return why a probe should restart all processes; not because a process is replaced."""
        now = monotonic()
        if now - self._turned_at > SILENT_S:
            return f"the parent process has been stuck for {now - self._turned_at:.0f} s"
        for child in list(self._children.values()):
            if (problem := child.liveness(now)) is not None:
                return f"{child.database.describe(child.pid)}: {problem}"
        return None

    def readiness(self) -> str | None:
        if self._stops:
            return "stopping"
        children = list(self._children.values())
        if len(children) < (wanted := self._count * len(self._databases)):
            return f"{len(children)} of {wanted} worker processes are up"
        for child in children:
            if child.vitals.readiness is not None:
                return f"{child.database.describe(child.pid)}: {child.vitals.readiness}"
        return self.liveness()

    def metrics(self) -> str:
        """Ask all processes what they have measured, and return the sums. From any thread."""
        children = list(self._children.values())
        assert self._sums is not None
        return self._sums.collect({child.pid: partial(child.send, METRICS) for child in children})

    # Starting

    def _count_missing(self, database: ServedDatabase) -> int:
        if self._stops:
            return 0
        wanted = self._count if database.is_fit else 1
        if self._drain:
            return wanted - database.started
        return wanted - sum(child.database is database for child in self._children.values())

    def _start_missing(self) -> None:
        for database in self._databases:
            while self._count_missing(database) and monotonic() >= database.start_at:
                database.started += 1
                try:
                    child = WorkerChild(self._arguments, database)
                except OSError as error:  # no files, no memory, no room for another process
                    self._replace(database, f"a worker process could not be started: {error}", 1)
                else:
                    self._children[child.pid] = child
                    logger.info("%s started", database.describe(child.pid))

    # One turn: messages of the children, signals of the operator, ends of children

    def _turn(self, signals: socket.socket) -> None:
        by_descriptor = {
            child.channel.fileno(): child
            for child in self._children.values()
            if not child.channel.has_ended
        }
        start_at = [
            database.start_at for database in self._databases if self._count_missing(database)
        ]
        pause_s = min([TURN_S, *(max(0.0, at - monotonic()) for at in start_at)])
        ready, _, _ = select.select([signals.fileno(), *by_descriptor], [], [], pause_s)
        for descriptor in ready:
            if descriptor in by_descriptor:
                self._receive(by_descriptor[descriptor])
        numbers = signals.recv(4096) if signals.fileno() in ready else b""
        for number in numbers:
            # Both the kernel and the shell send SIGHUP when a terminal closes: it counts once.
            is_repeated = number == signal.SIGHUP and self._stops > 0
            if number != signal.SIGCHLD and not is_repeated:
                self._stop()
        if signal.SIGCHLD in numbers:
            self._reap()

    def _receive(self, child: WorkerChild) -> None:
        for vitals in child.receive():
            child.received_at = monotonic()
            if vitals.is_fit:
                child.database.is_fit = True
            if vitals.passes > child.vitals.passes:
                child.database.has_passed = True
                self._ping()
            if vitals.report is not None:
                self.reports.append((child.database.name, vitals.report))
            if vitals.metrics is not None and self._sums is not None:
                self._sums.note(child.pid, vitals.metrics, child.database.name)
            child.vitals = vitals

    def _ping(self) -> None:
        """Ping once each database had a good pass: in a thread, as the parent must not wait."""
        now, have_passed = monotonic(), all(database.has_passed for database in self._databases)
        if self._ping_url is not None and have_passed and now - self._pinged_at >= PING_S:
            self._pinged_at = now
            for database in self._databases:
                database.has_passed = False
            to = (self._ping_url,)
            with suppress(RuntimeError):  # no thread: the dead-man switch misses one ping
                threading.Thread(target=ping, args=to, name="rota-ping", daemon=True).start()

    def _stop(self) -> None:
        """Tell the children to stop; on the second call without a grace period."""
        self._stops += 1
        if self._children and self._stops <= 2:
            how, request = ("", STOP) if self._stops == 1 else (" at once", STOP_NOW)
            count = plural(len(self._children), "worker process", "worker processes")
            logger.info("stopping %s%s", count, how)
            for child in self._children.values():
                child.send(request)

    # Ending

    def _reap(self) -> None:
        while (pid := find_exited(self._children)) is not None:
            child = self._children[pid]
            self._receive(child)
            self._handle_end(child, child.reap())

    def _handle_end(self, child: WorkerChild, status: int) -> None:
        del self._children[child.pid]
        if self._sums is not None:
            self._sums.end(child.pid)
        # A process that waited for its database when it was told to stop has no trouble.
        is_away = status == _DATABASE_AWAY and not child.vitals.is_fit and not self._drain
        how = f"{child.database.describe(child.pid)} {describe_exit(status)}"
        self._replace(child.database, how, 0 if is_away else status)

    def _replace(self, database: ServedDatabase, how: str, status: int) -> None:
        """Let another process start after a pause, unless all are to end."""
        now = monotonic()
        pause_s = database.find_pause_s(now)
        if self._stops or self._drain:
            logger.log(logging.WARNING if _share(status) else logging.INFO, "%s", how)
            self._status = max(self._status, _share(status))
            return
        if status in _HOPELESS and not database.is_fit:  # it was alone, and has logged why
            database.is_fit = False
            pause_s = REST_S
            if all(database.is_fit is False for database in self._databases):
                self._status = status
                self._stop()
                return
        database.start_at = now + pause_s
        logger.warning("%s; another starts in %.1f s", how, pause_s)


def _share(status: int) -> int:
    """Return what a child adds to the exit status of all; 0 for a stop during its import."""
    if status in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return 0
    return 1 if status < 0 else status


@contextmanager
def _signal_socket() -> Iterator[socket.socket]:
    """Receive signals as bytes of a socket, so that a single `select` waits for everything."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        ignored = {signal.SIGHUP} if is_hang_up_ignored() else set()
        numbers = [number for number in _SIGNALS if number not in ignored]
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        descriptor = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield ours
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)
