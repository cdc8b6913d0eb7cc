"""An App that makes a report of many rows, for worker processes that are killed."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psycopg

import rota
from rota.kinds import report

PAGE = 20_000
FREEZES = os.environ.get("REPORT_FREEZES", "never")
"""At which files the process is stopped before it writes: how their names end."""


class Freezing(report.Directory):
    """A directory; what is written after the process went on is something else."""

    def put(self, name: str, file: IO[bytes]) -> None:
        """Write it; then `late` is there."""
        if name.endswith(FREEZES):
            os.kill(os.getpid(), signal.SIGSTOP)
            super().put(name, io.BytesIO(b"late"))
            Path(os.environ["REPORT_FILES"], "late").touch()
        else:
            super().put(name, file)


reports = report.Reports(Freezing(os.environ["REPORT_FILES"]), options={"max_attempts": 100})
app = rota.App(jobs=[reports.jobs], lease="2s")


@reports.report("items", columns=["id", "name", "made_at"])
class Items:
    """All rows of a table, by key."""

    @staticmethod
    def ranges(params: dict[str, Any]) -> Iterator[tuple[int, int]]:
        for first in range(0, params["rows"], PAGE):
            yield first, min(first + PAGE, params["rows"])

    @staticmethod
    def rows(params: dict[str, Any], range: list[int]) -> Iterator[tuple[Any, ...]]:
        with (
            psycopg.connect(os.environ["ROTA_DATABASE_URL"]) as connection,
            connection.cursor("items") as cursor,
        ):
            cursor.itersize = 2_000
            yield from cursor.execute(
                "select id, name, made_at from item where id >= %s and id < %s order by id", range
            )
