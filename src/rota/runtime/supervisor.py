"""Several worker processes under one parent, on Linux: it starts them, replaces those that die, passes on the order to stop, and reaps orphans.

The parent imports nothing of the application, so nothing of it can harm the parent. `rota.member` is the other end of its channel to each child.
Orders go through the channel, not as signals: so they reach a child that is still importing or whose loop is blocked, and none counts twice.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Any

import msgspec

from rota.errors import ProcessesFailed
from rota.runtime.http import ping
from rota.runtime.supervised import HURRY, STOP, Message

logger = logging.getLogger("rota")

ENDS_MAX = 5
"""So many processes that end within a minute, though nobody asked them to, end them all."""
ENDS_S = 60.0
BACK_OFF_S = (0.25, 10.0)
"""The first and the longest pause before a process is replaced; doubled with each that has ended within the minute."""
LOOK_S = 1.0
"""How often the parent looks up even if nothing happens."""
SILENT_S = 10.0
"""A child, or the parent itself, of which nothing was heard for so long is not well."""
PING_S = 55.0
"""So far apart are two pings at least, however many processes do a good pass each minute."""
_HOPELESS = (2, 3)
"""Usage and configuration do not get better by trying again. Once a process has found them right, such an end is like any other: a login that is
refused for a moment, or an App that is being replaced, must not end the others."""
_DATABASE_AWAY = 5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Child:
    """A worker process."""

    def __init__(self, command: list[str]) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel.setblocking(False)
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C in a terminal is for the parent
                )
            except OSError:
                self.channel.close()
                raise
        self.pid = self.process.pid
        self.unwell: str | None = None
        self.unready: str | None = "starting"
        self.passes = 0
        """Its good passes of upkeep, as it said last."""
        self.heard_at: float | None = None
        """When it last spoke; None before the first time."""
        self.is_mute = False
        """Whether it has closed its end: it says nothing more."""

    def order(self, order: bytes) -> None:
        """Tell it something; one that has ended needs no telling."""
        with suppress(OSError):
            self.channel.send(order)

    def messages(self) -> Iterator[Message]:
        """What it has said since."""
        try:
            while packet := self.channel.recv(65_536):
                with suppress(
                    msgspec.MsgspecError
                ):  # of another release, where the package was replaced beneath this process
                    yield msgspec.json.decode(packet, type=Message)
            self.is_mute = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_mute = True

    def trouble(self, now: float) -> str | None:
        """What is wrong with it."""
        silent_s = 0.0 if self.heard_at is None else now - self.heard_at
        return f"nothing heard of it for {silent_s:.0f} s" if silent_s > SILENT_S else self.unwell


class Fleet:
    """`count` processes of one command, whose last argument is to be the descriptor of the channel. `unwell` and `unready` may be asked from any
    thread; None means well, or ready."""

    def __init__(
        self, command: list[str], count: int, *, drain: bool, ping_url: str | None = None
    ) -> None:
        self.reports: list[dict[str, Any]] = []
        """What the children did, in the order in which they ended."""
        self._command = command
        self._count = count
        self._drain = drain
        self._ping_url = ping_url
        self._pinged_at: float | None = None
        self._children: dict[int, Child] = {}
        self._spawned = 0
        self._spawn_at = 0.0
        self._fit = False
        """Whether a child found nothing that would keep another from working. Until then there is one, so that what is wrong is said once."""
        self._orders = 0
        self._status = 0
        self._failure: ProcessesFailed | None = None
        self._ends: deque[tuple[float, bool]] = deque()
        """The ends that nobody asked for within the last minute: when, and whether it counts."""
        self._turned_at = monotonic()

    def run(self) -> int:
        """Keep the processes up until SIGTERM or SIGINT; in a drain until all have ended. Return the worst exit status of those that ended then.

        Raises:
            ProcessesFailed: they ended again and again.
        """
        with _signals() as signals:
            try:
                while self._children or self._missing:
                    self._turned_at = monotonic()
                    while self._missing and monotonic() >= self._spawn_at:
                        self._spawn()
                    self._listen(signals)
            finally:
                for child in self._children.values():
                    child.channel.close()  # whatever ends the parent ends them
        if self._failure is not None:
            raise self._failure
        if self._drain and self._ping_url is not None and self._status == 0 and not self._orders:
            ping(self._ping_url)
        return self._status

    def unwell(self) -> str | None:
        """Why the whole should be ended from outside. A process that is being replaced is no reason: that is what the parent is for."""
        now = monotonic()
        if now - self._turned_at > SILENT_S:
            return f"the parent process has been stuck for {now - self._turned_at:.0f} s"
        troubles = ((child.pid, child.trouble(now)) for child in list(self._children.values()))
        return next(
            (
                f"worker process {pid}: {trouble}"
                for pid, trouble in troubles
                if trouble is not None
            ),
            None,
        )

    def unready(self) -> str | None:
        """Why not all of them take jobs."""
        if self._orders:
            return "stopping"
        children = list(self._children.values())
        if len(children) < self._count:
            return f"{len(children)} of {self._count} worker processes are up"
        unready = ((child.pid, child.unready) for child in children)
        return (
            next((f"worker process {pid}: {why}" for pid, why in unready if why is not None), None)
            or self.unwell()
        )

    @property
    def _missing(self) -> int:
        if self._orders:
            return 0
        return (self._count if self._fit else 1) - (
            self._spawned if self._drain else len(self._children)
        )

    def _spawn(self) -> None:
        try:
            child = Child(self._command)
        except OSError as error:  # no files, no memory, no room for another process
            self._replace(f"a worker process could not be started: {error}", counts=True)
            return
        self._children[child.pid] = child
        self._spawned += 1
        logger.info("worker process %s started", child.pid)

    def _listen(self, signals: socket.socket) -> None:
        by_channel = {
            child.channel: child for child in self._children.values() if not child.is_mute
        }
        pause_s = min(LOOK_S, max(0.0, self._spawn_at - monotonic())) if self._missing else LOOK_S
        ready, _, _ = select.select([signals, *by_channel], [], [], pause_s)
        for channel in ready:
            if channel is not signals:
                self._hear(by_channel[channel])
        numbers = signals.recv(4096) if signals in ready else b""
        for number in numbers:
            if number != signal.SIGCHLD:
                self._order()
        if signal.SIGCHLD in numbers:
            self._reap()

    def _hear(self, child: Child) -> None:
        for message in child.messages():
            child.heard_at = monotonic()
            child.unwell, child.unready = message.unwell, message.unready
            self._fit = self._fit or message.fit
            if message.passes > child.passes:
                child.passes = message.passes
                self._passed()
            if message.report is not None:
                self.reports.append(message.report)

    def _passed(self) -> None:
        """One of them has done a good pass of upkeep: ping for all of them, from a thread, for the parent has to hear on."""
        now = monotonic()
        if self._ping_url is not None and (
            self._pinged_at is None or now - self._pinged_at >= PING_S
        ):
            self._pinged_at = now
            with suppress(
                RuntimeError
            ):  # no thread is to be had: a switch that is not told in time says so to people
                threading.Thread(
                    target=ping, args=(self._ping_url,), name="rota-ping", daemon=True
                ).start()

    def _order(self) -> None:
        """Stop; ordered again, hurry."""
        self._orders += 1
        logger.info(
            "stopping %s worker processes%s",
            len(self._children),
            "" if self._orders == 1 else " at once",
        )
        for child in self._children.values():
            child.order(STOP if self._orders == 1 else HURRY)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                pid, status = found
                child = self._children.get(pid)
                if (
                    child is not None
                ):  # else an orphan: as pid 1, this process is given all there are
                    child.process.returncode = os.waitstatus_to_exitcode(status)
                    self._hear(child)
                    child.channel.close()
                    del self._children[pid]
                    self._ended(child)

    def _ended(self, child: Child) -> None:
        code = child.process.returncode
        how = f"worker process {child.pid} {_in_words(code)}"
        if self._orders or self._drain:
            logger.info("%s", how)
            self._status = max(self._status, _exit_status(code))
        elif (
            code in _HOPELESS and not self._fit
        ):  # it was alone, and has said why, as the one and last line
            self._status = code
            self._give_up()
        else:
            self._replace(how, " though nobody asked it to", counts=code not in (0, _DATABASE_AWAY))

    def _replace(self, how: str, unasked: str = "", *, counts: bool) -> None:
        """Have another started after a pause. An outage of the database is not counted: to end the others would not make it come back."""
        now = monotonic()
        self._ends.append((now, counts))
        while now - self._ends[0][0] > ENDS_S:
            self._ends.popleft()
        if sum(counted for _, counted in self._ends) >= ENDS_MAX:
            self._failure = ProcessesFailed(
                f"{ENDS_MAX} worker processes ended within {ENDS_S:.0f} s; the last: {how}"
            )
            self._give_up()
            return
        pause_s = min(BACK_OFF_S[0] * 2 ** (len(self._ends) - 1), BACK_OFF_S[1])
        self._spawn_at = now + pause_s
        logger.warning("%s%s; another follows in %.1f s", how, unasked, pause_s)

    def _give_up(self) -> None:
        if self._children:
            self._order()
        self._orders = max(self._orders, 1)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"ended with status {code}"
    return f"was killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"  # not each has a name


def _exit_status(code: int) -> int:
    """What the end of a process that was asked to end adds to the whole: a signal that came while it was still importing did what was asked."""
    if code in (-signal.SIGTERM, -signal.SIGINT):
        return 0
    return 1 if code < 0 else code


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Hear signals as bytes of a socket, so that one wait hears everything."""
    hear, say = socket.socketpair()
    with hear, say:
        hear.setblocking(False)
        say.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        said_to = signal.set_wakeup_fd(say.fileno(), warn_on_full_buffer=False)
        try:
            yield hear
        finally:
            signal.set_wakeup_fd(said_to)
            for number, handler in before.items():
                signal.signal(number, handler)
