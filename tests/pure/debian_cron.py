"""Cron as its daemon goes about it: a second implementation, that shares nothing with `rota.cron`.

It lives through the minutes one by one, reads what a zone's clock shows, and keeps the time up to
which it has run everything, as the main loop of Debian's cron does (`virtualTime`). Source: cron.c
and entry.c of vixie cron 3.0pl1, and cron(8), "NOTES", of Debian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Entry:
    """A line of a crontab: the times it names, and which of its fields begin with a star."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    wild: bool

    def names(self, wall: datetime) -> bool:
        if (
            wall.minute not in self.minutes
            or wall.hour not in self.hours
            or wall.month not in self.months
        ):
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday


def entry(text: str) -> Entry:
    """Read five fields of numbers, lists, ranges, steps and stars."""
    fields = text.split()
    minutes, hours, days, months, weekdays = (
        _numbers(field, *limits) for field, limits in zip(fields, RANGES, strict=True)
    )
    return Entry(
        minutes,
        hours,
        days,
        months,
        frozenset(day % 7 for day in weekdays),
        either_day=fields[2][0] != "*" and fields[4][0] != "*",
        wild="*" in (fields[0][0], fields[1][0]),
    )


def _numbers(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = ("", "", "") if span == "*" else span.partition("-")
        low = int(first) if first else least
        high = int(last) if last else (low if first and not step else most)
        found.update(range(low, high + 1, int(step or 1)))
    return frozenset(found)


def minutes(zone: ZoneInfo, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute from `start` up to `end`, in UTC, and what the zone's clock shows then."""
    count = int((end - start) / MINUTE)
    return [
        (at, at.astimezone(zone).replace(tzinfo=None))
        for at in (start + place * MINUTE for place in range(count))
    ]


def live_through(line: Entry, shown: list[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """The instants at which cron runs a line, each once: Debian's runs it once for each skipped
    minute that it names.

    Debian's takes leaps of three hours and more as corrections; here none is.
    """
    ran_up_to = shown[0][1] - MINUTE
    for at, clock in shown:
        if clock == ran_up_to + MINUTE:
            runs = line.names(clock)
            ran_up_to = clock
        # Set forward: wildcards by the clock; all others also for each skipped minute.
        elif clock > ran_up_to:
            missed = [
                ran_up_to + place * MINUTE
                for place in range(1, int((clock - ran_up_to) / MINUTE) + 1)
            ]
            runs = line.names(clock) if line.wild else any(map(line.names, missed))
            ran_up_to = clock
        else:  # set back: wildcards only, until the clock has come up with what was run
            runs = line.wild and line.names(clock)
        if runs:
            yield at


def changes(
    zone: ZoneInfo, start: datetime, end: datetime
) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """When a zone's clock is changed, to the minute, with the offsets before and after.

    Two changes within two days that undo each other would be missed; no zone has had them.
    """
    step = timedelta(days=2)
    at, offset = start, _offset(zone, start)
    while at < end:
        late, now = at + step, _offset(zone, at + step)
        if now != offset:
            low, high = at, late
            while high - low > MINUTE:
                middle = low + (high - low) // 2
                middle -= (middle - EPOCH) % MINUTE
                low, high = (middle, high) if _offset(zone, middle) == offset else (low, middle)
            yield high, offset, now
        at, offset = late, now


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    found = at.astimezone(zone).utcoffset()
    assert found is not None
    return found
