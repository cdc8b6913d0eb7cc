"""What handlers write to a file.

A line is there as soon as it is written, whatever happens to the process, and even while the server
is away.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import psycopg

import rota


class Witness:
    """The file of this process."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / str(os.getpid()), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def says(self, what: str, ctx: rota.Context, how: str = "") -> None:
        """Append one line; short appends are atomic."""
        job = ctx.job
        os.write(
            self._file,
            f"{what}\t{job.id}\t{job.claims}\t{time.time()!r}\t{ctx.worker}\t{how}\n".encode(),
        )


def load(directory: Path, connection: psycopg.Connection, read: Counter[str] | None = None) -> None:
    """Copy the files of all processes into the table `chaos.witness`; `read`: how much of each is
    there already, which this changes."""
    read = Counter() if read is None else read
    with (
        connection.cursor() as cursor,
        cursor.copy("copy chaos.witness (said, job, claim, at_s, worker, how) from stdin") as copy,
    ):
        for path in sorted(directory.iterdir()):
            with path.open("rb") as file:
                file.seek(read[path.name])
                lines = file.read()
            copy.write(lines)
            read[path.name] += len(lines)
