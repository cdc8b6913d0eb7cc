"""What the server did for a connection: every statement with its time, from the server's own log. Nothing is missed, a BEGIN included."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

OPTIONS = "-c log_min_duration_statement=0 -c log_parameter_max_length=0"
"""For the connections that are to be logged."""

_HEAD = re.compile(
    r"(?P<at>\d{4}-\S+ \S+) \S+ \[\d+\] LOG:  duration: (?P<ms>[\d.]+) ms  (?:statement|execute [^:]*): (?P<text>.*)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One execution."""

    at: datetime
    """Its end, on the server's clock, which logs UTC."""
    took_ms: float
    text: str


class StatementLog:
    """The server's log from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = path.stat().st_size

    def statements(self) -> Iterator[Statement]:
        """Every statement since this log was opened. Parsing and binding of prepared ones belong to the execution and are not counted again."""
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
        """How often each was executed, by the beginning of its text."""
        return Counter(statement.text[:width] for statement in self.statements())


def _statement(head: re.Match[str], lines: list[str]) -> Statement:
    return Statement(
        datetime.fromisoformat(head["at"]).replace(tzinfo=UTC),
        float(head["ms"]),
        " ".join([head["text"], *lines]),
    )
