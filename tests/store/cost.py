"""What a statement reads."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import TupleRow


def count_blocks(
    connection: psycopg.Connection[TupleRow], statement: str | bytes, parameters: Any = None
) -> int:
    """Run a statement; return how many blocks it has touched, with those that planning reads."""
    text = statement.encode() if isinstance(statement, str) else statement
    [[plan]] = connection.execute(
        b"explain (analyze, buffers, format json) " + text, parameters
    ).fetchall()
    read = plan[0]["Plan"]
    return int(read["Shared Hit Blocks"] + read["Shared Read Blocks"])
