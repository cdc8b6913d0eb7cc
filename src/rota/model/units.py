"""Durations, sizes of memory and counts, as people write them and as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from rota.errors import UsageError

Duration = timedelta | str
"""A `timedelta`, or a string such as "250ms", "20s", "5m", "1h30m", "1.5h", "1d", "2w"."""

LONGEST_S = 36525 * 86400.0
"""A hundred years. Now plus this is still an instant that PostgreSQL and Python can hold."""

_UNITS_S = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FORM = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _UNITS_S))
_LADDER = (("s", 1), ("min", 60), ("h", 3600), ("d", 86400))


def seconds(
    value: timedelta | str, *, name: str, least: float | None = None, most: float | None = None
) -> float:
    """Return a duration in seconds: of a `timedelta`, or of numbers with the units w, d, h, m, s,
    ms, the larger unit first, each at most once. Raises UsageError, which calls it `name`, if it is
    a bare number, no duration, or outside of 0 … a hundred years or of `least` … `most` seconds."""
    result_s = _parse(value, name)
    shortest_s, longest_s = least or 0.0, LONGEST_S if most is None else most
    if not shortest_s <= result_s <= longest_s:
        bound = (
            f"at least {words(shortest_s)}"
            if result_s < shortest_s
            else f"at most {words(longest_s)}"
        )
        raise UsageError(f"{name} must be {bound}, not {_show(value)}")
    return result_s


def is_duration(value: object) -> bool:
    return isinstance(value, str) and value != "" and _FORM.fullmatch(value) is not None


def format_interval(of_s: float | None) -> str | None:
    """Return seconds as PostgreSQL reads them, whatever its settings."""
    return None if of_s is None else f"{of_s:.6f} seconds"


def words(seconds: float) -> str:
    """Format a duration for people: "250 ms", "10 s", "2 min 40 s", "85 min", "1 h 30 min", "3 d".
    A unit is used for exactly one of it, and from one and a half on. Below ten of it, the next
    smaller unit gives the rest: exact to 5 %."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    whole_s = round(seconds)
    rung = max(
        [i for i, (_, size) in enumerate(_LADDER) if whole_s == size or whole_s >= 1.5 * size],
        default=0,
    )
    unit, size = _LADDER[rung]
    if rung == 0:
        return f"{round(seconds, 1 if seconds < 10 else None):g} s"
    if seconds >= 10 * size:
        return f"{round(seconds / size)} {unit}"
    smaller, smaller_size = _LADDER[rung - 1]
    whole, rest = divmod(round(seconds / smaller_size), size // smaller_size)
    return f"{whole} {unit} {rest} {smaller}" if rest else f"{whole} {unit}"


def age(seconds: float) -> str:
    """Format seconds since an instant: "3 s ago", "now"; or until it, if negative: "in 59 min"."""
    if abs(seconds) < 1:
        return "now"
    text = words(round(abs(seconds)))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def show_count(count: int, most: int) -> str:
    """Return a number that was counted up to `most`, as `1,234` or `≥ 10,000`."""
    return f"≥ {count:,}" if count >= most else f"{count:,}"


def _parse(value: Any, name: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = _FORM.fullmatch(value) if isinstance(value, str) and value else None
    if isinstance(value, str) and value.startswith(("-", "−")) and _FORM.fullmatch(value[1:]):
        raise UsageError(f"{name} must not be negative, not {_show(value)}")
    if match is None:
        raise UsageError(
            f'{name} must be a timedelta or a string such as "20s", "5m", "1h30m" or "250ms", '
            f"not {_show(value)}"
        )
    return sum(
        float(number) * unit_s
        for number, unit_s in zip(match.groups(), _UNITS_S.values(), strict=True)
        if number
    )


def _show(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


# Counts


def list_some(texts: Iterable[str], most: int = 3, joint: str = "; ") -> str:
    """Join the first texts, and say how many more there are."""
    listed = list(texts)
    more = [f"and {len(listed) - most:,} more"] if len(listed) > most else []
    return joint.join(listed[:most] + more)


def plural(count: int, one: str, many: str | None = None) -> str:
    """Format a count with its noun: "1 job", "1,000 jobs". `one` is the singular, with what follows
    if that differs too ("job is running"); `many` defaults to the singular with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


# Sizes of memory

Size = str
"""Such as "512MiB": a number and one of KiB, MiB, GiB."""

_UNITS_BYTES = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(KiB|MiB|GiB)", re.ASCII)


def size_bytes(value: object, *, name: str, least: int = 0) -> int:
    """Return a size in bytes. Raises UsageError, which names the option `name`."""
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise UsageError(f'{name} must be a size such as "512MiB" or "2GiB", not {value!r}')
    size = int(float(found[1]) * _UNITS_BYTES[found[2]])
    if size < least:
        raise UsageError(f"{name} must be at least {least // 1024**2} MiB, not {value!r}")
    return size


def local_time(at: datetime | None) -> str:
    """Return an instant in the zone of this process, to the second, with its offset."""
    return "" if at is None else at.astimezone().isoformat(sep=" ", timespec="seconds")
