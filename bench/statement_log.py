"""Every statement of a connection with its time, from the server's own log, BEGIN included."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

OPTIONS = "-c log_min_duration_statement=0 -c log_parameter_max_length=0"
"""Startup options of the connections to log."""

_HEAD = re.compile(
    r"(?P<at>\d{4}-\S+ \S+) \S+ \[\d+\] LOG:  duration: (?P<ms>[\d.]+) ms  (?:statement|execute "
    r"[^:]*): (?P<text>.*)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One execution."""

    at: datetime
    """Its end, by the server's clock; the log is in UTC."""
    took_ms: float
    text: str


class StatementLog:
    """The server's log from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = path.stat().st_size

    def statements(self) -> Iterator[Statement]:
        """Return every statement since this log was opened.

        Parse and bind of prepared statements belong to the execution and are not counted again.
        """
        with self._path.open("rb") as log:
            log.seek(self._from)
            head: re.Match[str] | None = None
            lines: list[str] = []
            for raw in log:
                line = raw.decode(errors="replace").rstrip("\n")
                if line.startswith("\t"):
                    lines.append(line.strip())
                    continue
                if head is not None:
                    yield _statement(head, lines)
                head, lines = _HEAD.match(line), []
            if head is not None:
                yield _statement(head, lines)

    def by_text(self, width: int = 70) -> Counter[str]:
        """Count the executions of each, by the beginning of its text."""
        return Counter(statement.text[:width] for statement in self.statements())


def _statement(head: re.Match[str], lines: list[str]) -> Statement:
    return Statement(
        datetime.fromisoformat(head["at"]).replace(tzinfo=UTC),
        float(head["ms"]),
        " ".join([head["text"], *lines]),
    )
