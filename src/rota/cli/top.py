"""`rota top`: a live view of queues, running jobs, workers, rates and last errors."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rota.cli.flags import flag, option
from rota.cli.frame import FRAME_COUNT_MAX, Rates, frame
from rota.cli.output import columns_wide, console, print_json, print_lines
from rota.cli.target import Place
from rota.errors import DatabaseUnavailable, RotaError, SchemaError
from rota.model.bounds import COUNT_MAX
from rota.model.failure import one_line
from rota.store.db import Database
from rota.store.probe import Probe, QueryFailed, QueryForbidden, open_any_probe

QUEUES_MAX = 100
BATCHES_MAX = 10
LISTED = 50
"""Most rows of each kind that a frame reads."""
LIMITS = {
    "queues": QUEUES_MAX,
    "counted": FRAME_COUNT_MAX,
    "held": COUNT_MAX,
    "batches": BATCHES_MAX,
    "listed": LISTED,
}
EVERY_S = 2.0
EVERY_S_LEAST = 0.5
KEY_S = 0.1
"""Seconds between checks of the keyboard and of the watch."""
LEAVE_S = 1.0
LINES_MAX = 1_000
"""Most lines of a frame in a pipe."""
WIDTH_MAX = 10_000
"""Greatest width of a frame in a pipe: nothing that it shows is wider."""


def top(
    place: Place,
    every: float = option(
        "--every SECONDS", "Seconds between refreshes.", default=EVERY_S, min=EVERY_S_LEAST
    ),
    as_json: bool = flag("--json", "Print the facts of one frame as one JSON object, and exit."),
    once: bool = flag("--once", "Print one frame and exit. Implied if there is no terminal."),
) -> None:
    """Show queues, running jobs, workers and recent errors, live. Quit with q or Ctrl-C."""
    watch = Watch(place.find_database(), every)
    watch.read()
    if as_json:
        watch.close()
        print_json(_shape(watch.facts or {}))
        return
    out = console()
    # rich draws nothing live on a dumb terminal.
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()) or out.is_dumb_terminal:
        print_lines(watch.frame(columns_wide() or WIDTH_MAX, LINES_MAX))
        watch.close()
        return
    watch.start()
    try:
        _show(watch)
    finally:
        watch.close()


def _shape(facts: dict[str, Any]) -> dict[str, Any]:
    """Make JSON of the facts of a frame, with the names and shapes of the other commands."""
    queues = [
        {name: one[name] for name in ("queue", "priority", "due", "later")}
        | {
            "oldest_due": _instant(one["oldest_at"]) if one["due"] else None,
            "oldest_due_s": one["waiting_s"] if one["due"] else None,
        }
        for one in facts["queues"]
    ]
    workers = [
        {
            name: _instant(value) if name == "heartbeat_at" else value
            for name, value in one.items()
            if name not in ("heartbeat_epoch_s", "is_alive", "quiet_s")
        }
        for one in facts["workers"]
    ]
    pause = facts["installation"] and {
        name: _instant(value) if name.endswith(("_at", "_until")) else value
        for name, value in facts["installation"].items()
    }
    shown = {name: value for name, value in facts.items() if name != "installation"}
    return shown | {
        "at": _instant(facts["at"]),
        "queues": queues,
        "workers": workers,
        "paused_all": pause,
        "counted_to": FRAME_COUNT_MAX,
    }


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class Watch(threading.Thread):
    """Reads the database periodically, in a thread of its own.

    An unavailable database must not keep the screen from reacting to a key.
    """

    def __init__(self, database: Database, every_s: float) -> None:
        super().__init__(name="rota-top", daemon=True)
        self.turn = 0
        """Number of refreshes so far. Written by this thread, read by the screen."""
        self._database = database
        self._every_s = every_s
        self.facts: dict[str, Any] | None = None
        """The result of the last query."""
        self._stale_why: str | None = None
        self._rates = Rates()
        self._rate = 0.0
        self._over = threading.Event()
        self._opened: Any = None
        self._probe: Probe | None = None

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self.read()
            except (RotaError, QueryFailed) as error:
                self._stale_why = one_line(
                    f"stale, trying again every {self._every_s:g} s: {error}", 300
                )
                self._disconnect()
            self.turn += 1
        self._disconnect()

    def read(self) -> None:
        """Read the facts of a frame. Raises DatabaseUnavailable, SchemaError."""
        if self._probe is None:
            self._opened = open_any_probe(self._database)
            self._probe, _ = self._opened.__enter__()
        try:
            facts = self._probe.facts("top", LIMITS)
        except QueryForbidden as error:
            raise SchemaError(str(error)) from None
        except QueryFailed as error:
            raise DatabaseUnavailable(str(error)) from None
        self.facts, self._rate, self._stale_why = facts, self._rates.see(facts["workers"]), None

    def frame(self, width: int, height: int) -> list[Text]:
        assert self.facts is not None
        return frame(self.facts, self._rate, width=width, height=height, stale_why=self._stale_why)

    def close(self) -> None:
        """End the thread. Waits at most `LEAVE_S` for a database that does not answer."""
        self._over.set()
        if self.is_alive():
            self.join(LEAVE_S)
        else:
            self._disconnect()

    def _disconnect(self) -> None:
        opened, self._opened, self._probe = self._opened, None, None
        if opened is not None:
            with suppress(RotaError):  # the connection is already closed
                opened.__exit__(None, None, None)


def _show(watch: Watch) -> None:
    out = console()
    shown: tuple[int, int, int] | None = None
    with _keys() as read_key, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            width, height = out.size
            if shown != (watch.turn, width, height):
                shown = (watch.turn, width, height)
                live.update(Group(*watch.frame(width, height)), refresh=True)
            if read_key() in ("q", "Q", "\x03"):
                return


@contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys while the block runs.

    Restores the terminal afterwards, also after SIGTERM and Ctrl-C.
    """
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    handlers = {
        number: signal.signal(number, _leave)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }

    def read_key() -> str:
        ready, _, _ = select.select([stdin], [], [], KEY_S)
        return os.read(stdin, 1).decode(errors="replace") or "q" if ready else ""

    try:
        tty.setcbreak(stdin)
        yield read_key
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(number: int, frame: object) -> None:
    raise typer.Exit(0 if number == signal.SIGINT else 128 + number)
