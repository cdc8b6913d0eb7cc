"""Limits of the values that people pass, and their checks."""

from __future__ import annotations

from datetime import UTC, datetime, timezone
from typing import Any

from rota.errors import UsageError

# Lengths of texts, in characters. The tables have the same numbers (tests/store/test_limits.py).

EXPIRES_S_MIN = 0.001
NAME_MAX = 200
"""For a job type, a schedule, a release, an error's class, and the name of a person who acts."""
QUEUE_MAX = 100
KEY_MAX = 255
WHY_MAX = 500
PRIORITY_MAX = 100
ATTEMPTS_MAX = 10_000
COUNT_MAX = 10_000
"""Jobs are counted up to this number: a look at a full queue must not cost more."""
KEYS_READ = 10_000
"""Most live keys that a pass of retention, or doctor, reads to find keys of deleted jobs."""
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""The latest instant of the tables: every client must be able to read the row and add an expiry."""


def check_aware(value: Any, name: str) -> datetime:
    """Return an instant with its offset as a number: in an hour that comes twice, Python calls both
    instants equal. Raises UsageError."""
    if not isinstance(value, datetime) or (offset := value.utcoffset()) is None:
        raise UsageError(
            f"{name} must be a datetime with a time zone, not {value!r}: "
            "the database's clock decides, so its zone must be known"
        )
    if value >= LATEST:
        raise UsageError(f"{name} must lie before the year {LATEST.year}, not {value!r}")
    return value.replace(tzinfo=timezone(offset), fold=0)


def check_bool(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be True or False, not {value!r}")
    return value


def check_integer(value: Any, name: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least:,} to {most:,}, not {value!r}")
    return value


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise UsageError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    return str(value)


def check_text(value: Any, name: str, most: int) -> str:
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= most
        or "\0" in value
        or not value.isprintable()
    ):
        raise UsageError(f"{name} must be 1 to {most} printable characters, not {value!r}")
    return value


def check_queue(value: Any, name: str) -> str:
    queue = check_text(value, name, QUEUE_MAX)
    if "," in queue:  # elsewhere a comma separates queues
        raise UsageError(f"{name} must be that of one queue, without a comma, not {value!r}")
    return queue
