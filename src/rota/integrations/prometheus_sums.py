"""Adds up the metrics of several worker processes in their parent, which imports nothing of the
application."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

ANSWER_S = 4.0
"""Longest wait for the processes. A frozen process counts with its last text."""
ADDED = ("counter", "histogram", "summary")


class Sums:
    """The counters of all processes, also of ended ones, and the gauges of the processes that
    answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        """Guards all fields."""
        self._texts: dict[int, str] = {}
        """The last text of each process, by pid."""
        self._databases: dict[int, str | None] = {}
        """The database of each process; None: there is only one database."""
        self._places: dict[int, int] = {}
        """The place of each process, from 1: a process takes the place of the process it
        replaces."""
        self._missing: set[int] = set()
        self._ended = ""
        """The sum of the ended processes."""

    def note(self, pid: int, text: str, database: str | None = None) -> None:
        """Take the text of a process. `database` becomes a label of Rota's own metrics."""
        with self._changed:
            self._texts[pid] = text
            self._databases[pid] = database
            self._find_place(pid)
            self._missing.discard(pid)
            self._changed.notify_all()

    def end(self, pid: int) -> None:
        """Keep the counters of an ended process: a sum that falls looks like a restart."""
        with self._changed:
            last = (None, self._databases.pop(pid, None), self._texts.pop(pid, ""))
            self._ended = _render([(None, None, self._ended), last])
            self._places.pop(pid, None)
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
            texts = [
                (None if pid in self._missing else self._places[pid], self._databases[pid], text)
                for pid, text in self._texts.items()
            ]
            return _render([(None, None, self._ended), *texts])

    def _find_place(self, pid: int) -> None:
        if pid not in self._places:
            taken = set(self._places.values())
            self._places[pid] = next(n for n in range(1, len(taken) + 2) if n not in taken)


Measured = tuple[int | None, str | None, str]
"""The measurement of a process: its place, its database, its text of Prometheus."""


def _render(texts: Iterable[Measured]) -> str:
    """Add up texts of Prometheus. A text without a place adds only its counters."""
    registry = CollectorRegistry()
    registry.register(_Addition(texts))
    return generate_latest(registry).decode()


class _Addition:
    def __init__(self, texts: Iterable[Measured]) -> None:
        self._families: dict[str, Family] = {}
        self._values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
        for place, database, text in texts:
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
        for name, one in self._families.items():
            family = Family(name, one.documentation, one.type)
            for (sample, labels), value in self._values[name].items():
                family.add_sample(sample, dict(labels), value)
            yield family
