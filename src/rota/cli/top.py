"""`rota top`: a live view of queues, running jobs, workers, rates and last errors."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import datetime
from typing import Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from rota.cli.flags import flag, option
from rota.cli.frame import FRAME_COUNT_MAX, frame
from rota.cli.output import columns_wide, console, print_json, print_lines
from rota.cli.target import Place
from rota.errors import DatabaseUnavailable, RotaError, SchemaError
from rota.model.bounds import COUNT_MAX
from rota.model.failure import one_line
from rota.store.db import Database
from rota.store.probe import Probe, QueryFailed, QueryForbidden, open_any_probe

LIMITS = {
    "queues": 100,
    "counted": FRAME_COUNT_MAX,
    "held": COUNT_MAX,
    "batches": 10,
    "listed": 50,
}
"""Most rows of each kind that a frame reads, and most jobs that it counts."""
KEY_S = 0.1
"""Seconds between checks of the keyboard."""
LINES_MAX = 1_000
"""Most lines of a frame in a pipe."""
WIDTH_MAX = 10_000
"""Greatest width of a frame in a pipe: nothing in a frame is wider."""
INSTANT = re.compile("at|.*_(at|until)|oldest_due")
"""Names of instants among the facts."""


def top(
    place: Place,
    every: float = option("--every SECONDS", "Seconds between refreshes.", default=2.0, min=0.5),
    as_json: bool = flag("--json", "Print the facts of one frame as one JSON object, and exit."),
    once: bool = flag("--once", "Print one frame and exit. Implied if there is no terminal."),
) -> None:
    """Show queues, running jobs, workers and recent errors, live. Quit with q or Ctrl-C."""
    # rich draws nothing live on a dumb terminal.
    is_live = sys.stdin.isatty() and sys.stdout.isatty() and not console().is_dumb_terminal
    with closing(Watch(place.make_database(place.find_owner()))) as watch:
        watch.read()
        if as_json:
            print_json(_read_instants(watch.facts))
        elif once or not is_live:
            print_lines(watch.make_frame(columns_wide() or WIDTH_MAX, LINES_MAX))
        else:
            _show(watch, every)


def _read_instants(value: Any, name: str = "") -> Any:
    """Return JSON of the database with its instants parsed, to print them as elsewhere."""
    match value:
        case dict():
            return {key: _read_instants(part, key) for key, part in value.items()}
        case list():
            return [_read_instants(part) for part in value]
        case str() if INSTANT.fullmatch(name):
            return datetime.fromisoformat(value)
    return value


class Watch:
    """Reads facts for frames. While the database is unavailable, a frame shows the last facts."""

    def __init__(self, database: Database) -> None:
        self.facts: dict[str, Any] = {}
        self._database = database
        self._stale_why: str | None = None
        self._opened = ExitStack()
        self._probe: Probe | None = None

    def read(self) -> None:
        if self._probe is None:
            self._probe, _ = self._opened.enter_context(open_any_probe(self._database))
        try:
            self.facts = self._probe.facts("top", LIMITS)
        except QueryForbidden as error:
            raise SchemaError(str(error)) from None
        except QueryFailed as error:
            raise DatabaseUnavailable(str(error)) from None
        self._stale_why = None

    def read_again(self, every_s: float) -> None:
        try:
            self.read()
        except RotaError as error:
            self._stale_why = one_line(f"stale, trying again every {every_s:g} s: {error}", 300)
            self.close()

    def make_frame(self, width: int, height: int) -> list[Text]:
        return frame(self.facts, width=width, height=height, stale_why=self._stale_why)

    def close(self) -> None:
        self._probe = None
        with suppress(RotaError):  # the connection is already closed
            self._opened.close()


def _show(watch: Watch, every_s: float) -> None:
    out = console()
    shown: tuple[int, int] | None = None
    read_at = time.monotonic()
    with _keys() as read_key, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            if shown != out.size:
                shown = out.size
                live.update(Group(*watch.make_frame(*shown)), refresh=True)
            if read_key() in ("q", "Q", "\x03"):
                return
            if time.monotonic() >= read_at + every_s:
                watch.read_again(every_s)
                read_at, shown = time.monotonic(), None


@contextmanager
def _keys() -> Iterator[Any]:
    """Read single keys in the block; restore the terminal, also after SIGTERM and Ctrl-C."""
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
