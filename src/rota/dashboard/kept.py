"""What is dear to find, found at most twice a minute however many look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from rota.cli.doctor import describe_finding, list_declared
from rota.errors import RotaError
from rota.observe.doctor.checks import examine
from rota.observe.doctor.finding import Level

if TYPE_CHECKING:
    from rota.app import App
    from rota.records import ErrorRecord

KEPT_S = 30.0
SHOWN = (Level.BAD, Level.WARN)

T = TypeVar("T")


class Kept(Generic[T]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0
        self._found: T | None = None

    def get(self, find: Callable[[], T]) -> T:
        """Return what is kept, or find it anew. Meanwhile other requests get the older value."""
        if self._lock.acquire(blocking=self._found is None):
            try:
                if self._found is None or time.monotonic() >= self._until:
                    self._found = find()
                    self._until = time.monotonic() + KEPT_S
            finally:
                self._lock.release()
        assert self._found is not None
        return self._found


class Memory:
    """What a dashboard keeps from one request to the next."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._checks: Kept[list[dict[str, str | None]]] = Kept()
        self.errors: Kept[list[ErrorRecord]] = Kept()

    def find_checks(self) -> list[dict[str, str | None]]:
        """Return what doctor finds that is bad or worth a warning, the worst first."""
        return self._checks.get(self._examine)

    def _examine(self) -> list[dict[str, str | None]]:
        app = self._app
        try:
            found = examine(app._database, notify=app._notify, types=list_declared(app))
        except RotaError:
            return []  # the page that asks meets the same error, and says it
        return [describe_finding(*pair) for level in SHOWN for pair in found.at(level)]
