"""Adds up the metrics of several worker processes in their parent, which imports nothing of the
application."""

from __future__ import annotations

import threading
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ANSWER_S = 4.0
"""Longest wait for the processes. A frozen process counts with its last text."""
ADDED = ("counter", "histogram", "summary")


class Measured(NamedTuple):
    """The last text of Prometheus of a process."""

    place: int | None
    """From 1: a process takes the place of the process it replaces. None: only the counters of the
    text are added."""
    database: str | None
    """None: there is only one database."""
    text: str


class Sums:
    """The counters of all processes, also of ended ones, and the gauges of the processes that
    answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Guards all fields."""
        self._measured: dict[int, Measured] = {}
        """By pid."""
        self._missing: set[int] = set()
        self._ended = Measured(None, None, "")
        """The sum of the ended processes."""

    def note(self, pid: int, text: str, database: str | None = None) -> None:
        """Take the text of a process. `database` becomes a label of Rota's own metrics."""
        with self._changed:
            self._measured[pid] = Measured(self._find_place(pid), database, text)
            self._missing.discard(pid)
            self._changed.notify_all()

    def end(self, pid: int) -> None:
        """Keep the counters of an ended process: a sum that falls looks like a restart."""
        with self._changed:
            if pid in self._measured:
                last = self._measured.pop(pid)._replace(place=None)
                self._ended = self._ended._replace(text=_render([self._ended, last]))
            self._missing.discard(pid)
            self._changed.notify_all()

    def collect(self, asks: Mapping[int, Callable[[], None]]) -> str:
        """Ask the processes, wait for their answers, and return the sums."""
        with self._changed:
            self._missing = set(asks)
        for ask in asks.values():
            ask()
        until = monotonic() + ANSWER_S
        with self._changed:
            while self._missing and (left_s := until - monotonic()) > 0:
                self._changed.wait(left_s)
            measured = [
                last._replace(place=None) if pid in self._missing else last
                for pid, last in self._measured.items()
            ]
            return _render([self._ended, *measured])

    def _find_place(self, pid: int) -> int | None:
        if pid in self._measured:
            return self._measured[pid].place
        taken = {last.place for last in self._measured.values()}
        return next(place for place in count(1) if place not in taken)


def _render(measured: Iterable[Measured]) -> str:
    """Add up texts of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Addition(measured))
    return generate_latest(registry).decode()


class _Addition:
    def __init__(self, measured: Iterable[Measured]) -> None:
        self._families: dict[str, Family] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for place, database, text in measured:
            for family in text_string_to_metric_families(text):
                # The creation time of a counter says nothing about a sum.
                if not family.name.endswith("_created"):
                    self._add(family, place, database)

    def _add(self, family: Family, place: int | None, database: str | None) -> None:
        is_added = family.type in ADDED
        if not is_added and place is None:
            return
        self._families.setdefault(family.name, family)
        values = self._values.setdefault(family.name, {})
        for sample in family.samples:
            labels = dict(sample.labels)
            if not family.name.startswith("rota_"):
                if not is_added:
                    labels["process"] = str(place)  # a size or a time of one process
            elif database is not None:
                labels["database"] = database
            key = sample.name, tuple(labels.items())
            values[key] = values.get(key, 0.0) + sample.value

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        for name, first in self._families.items():
            family = Family(name, first.documentation, first.type)
            for (sample, labels), value in self._values[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family
