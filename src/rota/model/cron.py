"""When a cron expression fires. Pure.

cronsim knows which times of a plain calendar an expression names; this file knows when a zone's
clock shows them. Where clocks change, the rule is Debian cron's (decision 0013). An expression with
fixed hours and minutes fires once for each time that it names, even if the clock shows that time
twice or skips it. An expression whose minutes or hours begin with a star follows the clock, and so
keeps its pace in real time. "@every 30s" asks no clock: it fires at the multiples of its duration
since 1970.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError

from rota.errors import UsageError
from rota.model.units import plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT_MAX = 512
"""Most characters of a cron expression; all the minutes of an hour take 170."""
SHOWN_MAX = 80
YEARS_MAX = 50
"""An expression that names no time within so many years never fires. The rarest, 29 February on a
given weekday, comes within 40."""

EXAMPLE = "'30 2 * * 1-5' is half past two from Monday to Friday"
FIELDS = {
    "minute": "0-59",
    "hour": "0-23",
    "day-of-month": "1-31, L for the last, LW for the last weekday",
    "month": "1-12 or JAN-DEC",
    "day-of-week": "0-7 or SUN-SAT, MON-SUN is 1-7, "
    "5L for the last Friday, 1#2 for the second Monday",
}
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EVERY = "@every "
"""Before a duration: the pace of a schedule, also below a minute."""
_SPANS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
"""The first and the last value of each field."""
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_LAST_DAY = re.compile(rf"(?<![^ ,])({'|'.join(_DAYS)})(?=L(,\S+)?$)", re.IGNORECASE)
"""The name of the day in FRIL: cronsim takes only 5L."""
_STEPPED_RANGE = re.compile(r"([^ ,-]+)-([^ ,/]+)/\d+")
_SECOND = timedelta(seconds=1)
_START = datetime(1970, 1, 1, tzinfo=UTC)
_END = datetime(9999, 12, 30, tzinfo=UTC)
"""The latest instant that every zone's clock can show."""


class Cron(msgspec.Struct, frozen=True):
    """A valid cron expression in a time zone; `parse` makes it."""

    text: str
    """As the caller gave it, with its spaces normalised."""
    zone: ZoneInfo
    fields: str
    """The five fields that it stands for; '': it has a pace."""
    every: timedelta | None = None
    """Its pace."""

    @property
    def is_fixed(self) -> bool:
        """Whether it names hours and minutes, and so fires once for each when clocks change too."""
        return not any(field.startswith("*") for field in self.fields.split()[:2])


def parse(text: str, timezone: str) -> Cron:
    """Check a cron expression (five fields, a name such as @daily, or a pace such as "@every 30s")
    and the name of a time zone. Raises UsageError if one is wrong, if the expression never fires in
    that zone, or if one of its steps comes to no second value."""
    cron = read(text, timezone)
    meant = _drop_steps(cron.fields)
    if meant != cron.fields:
        raise UsageError(
            f"{_shorten(cron.text)!r} would fire as {_shorten(meant)!r}, because its step comes to "
            "no second value: each field starts anew with the next hour, day, month, year or week"
            f"; {EXAMPLE}"
        )
    return cron


def read(text: str, timezone: str) -> Cron:
    """Read the expression and the zone of a row, even if only an earlier release took them. Raises
    UsageError if one is wrong, or if the expression never fires in that zone."""
    zone = _zone(timezone)
    if not isinstance(text, str) or len(text) > TEXT_MAX:  # type: ignore[redundant-expr]
        raise UsageError(
            f"a cron expression is a string of at most {TEXT_MAX} characters: {EXAMPLE}"
        )
    text = " ".join(text.split())
    if text.lower().startswith(EVERY):
        pace_s = seconds(text[len(EVERY) :], name=f"the pace of {_shorten(text)!r}", least=1)
        return Cron(text, zone, "", timedelta(seconds=pace_s))
    fields = NAMED.get(text.lower(), _LAST_DAY.sub(lambda day: str(_number(day[0])), text))
    reason = _wrong(fields)
    if reason is not None:
        raise UsageError(f"{_shorten(text)!r} is no cron expression: {reason}; {EXAMPLE}")
    cron = Cron(text, zone, _STEPPED_RANGE.sub(_read_range, fields))
    if next_fire(cron, datetime(2000, 1, 1, tzinfo=UTC)) is None:
        raise UsageError(
            f"{_shorten(text)!r} never fires in {timezone}: "
            f"within {YEARS_MAX} years no day has such a date and time; {EXAMPLE}"
        )
    return cron


def next_fire(cron: Cron, after: datetime) -> datetime | None:
    """Return the first tick after an aware instant, in UTC; None: none within 50 years."""
    try:
        if cron.every is not None:
            return _START + (_utc(after) - _START) // cron.every * cron.every + cron.every
        return (_next_named if cron.is_fixed else _next_shown)(cron, _utc(after))
    except OverflowError:  # the calendar ends with the year 9999
        return None


def next_fires(cron: Cron, after: datetime, count: int) -> list[datetime]:
    """Return the next ticks after an aware instant, in order, in UTC."""
    return list(islice(_chain(cron, after), count))


def latest_fires(cron: Cron, after: datetime, until: datetime, most: int) -> list[datetime]:
    """Return the latest `most` ticks after `after`, up to and including `until`, in order, in UTC.
    Its cost does not depend on how long ago `after` is."""
    after, until = _utc(after), min(_utc(until), _END)
    few = list(islice(_between(cron, after, until), most + 1))
    if len(few) <= most:
        return few
    count = max(most, 1)
    while True:
        start = max(after, _earlier(cron, until, count) or after)
        found = deque(_between(cron, start, until), most)
        if start == after or len(found) == most:
            return list(found)
        # Clocks were set forward in between, so the calendar names more times than were shown.
        count *= 2


def count_fires(cron: Cron, after: datetime, until: datetime, most: int) -> int:
    """Count the ticks after `after`, up to and including `until`, at most up to `most`."""
    return sum(1 for _ in islice(_between(cron, _utc(after), min(_utc(until), _END)), most))


def _zone(timezone: str) -> ZoneInfo:
    try:
        if timezone.lower() == "localtime":  # differs between machines
            raise ValueError
        return ZoneInfo(timezone)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise UsageError(
            f"there is no time zone {timezone!r}: "
            "use a name of the IANA database, such as Europe/Stockholm; a new one needs new tzdata"
        ) from None


def _read_range(found: re.Match[str]) -> str:
    """Return a range with its step; a single value without: cronsim would go on from there."""
    return found[1] if _number(found[1]) == _number(found[2]) else found[0]


def _wrong(fields: str) -> str | None:
    """Say what is wrong with five fields; None: nothing."""
    count = len(fields.split())
    if fields.startswith("@"):
        return f"the names are {', '.join(NAMED)}, and {EVERY}30s is a pace"
    if count == 6:
        return (
            "it has six fields, and Rota has none for seconds or years: "
            f"{EVERY}30s fires twice a minute"
        )
    if count != 5:
        return (
            f"it has {plural(count, 'field')}, "
            "not the five for minute, hour, day of month, month, day of week"
        )
    for place, (name, takes) in enumerate(FIELDS.items()):
        alone = ["*"] * 5
        alone[place] = fields.split()[place]
        try:
            CronSim(" ".join(alone), datetime(2000, 1, 1))  # noqa: DTZ001 - of the plain calendar
        except CronSimError:
            return (
                f"the {name} {_shorten(alone[place])!r} is wrong "
                f"(it takes {takes}, lists with commas, ranges that do not wrap, steps as in */5)"
            )
    try:
        CronSim(fields, datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError:
        return "it never fires, because none of its months has that day"
    return None


def _drop_steps(fields: str) -> str:
    """Return five fields without the steps that come to no second value."""
    return " ".join(
        ",".join(_drop_step(term, *_SPANS[place]) for term in field.split(","))
        for place, field in enumerate(fields.split())
    )


def _drop_step(term: str, first: int, last: int) -> str:
    base, _, step = term.partition("/")
    if not step or base.upper() in ("L", "LW"):
        return base
    low, _, high = base.partition("-")
    start = first if base == "*" else _number(low)
    end = _number(high) if high else last
    if last == 7:
        end = min(end, start + 6)  # 7 is the day 0
    return term if int(step) <= max(end - start, 1) else str(first) if base == "*" else low


def _number(value: str) -> int:
    name = value.upper()
    if name in _MONTHS:
        return _MONTHS.index(name) + 1
    return _DAYS.index(name) if name in _DAYS else int(value)


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise UsageError(
            f"{instant!r} has no time zone: pass an aware datetime, such as datetime.now(UTC)"
        )
    return instant.astimezone(UTC)


def _between(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    return takewhile(lambda tick: tick <= until, _chain(cron, after))


def _chain(cron: Cron, after: datetime) -> Iterator[datetime]:
    tick = next_fire(cron, after)
    while tick is not None:
        yield tick
        tick = next_fire(cron, tick)


def _next_named(cron: Cron, after: datetime) -> datetime | None:
    """Find the next tick of a fixed expression: each named time ticks once, when the clock first
    shows the time, or leaps over it."""
    for wall in CronSim(cron.fields, _wall(after, cron.zone)):
        first, second = _instants(wall, cron.zone)
        tick = first if first <= second else _change(second, first, cron.zone)
        if tick > after:  # otherwise the clock showed it before it was set back
            return tick
    return None


def _next_shown(cron: Cron, after: datetime) -> datetime | None:
    """Find the next tick of a starred expression: a minute when the clock shows a named time."""
    zone = cron.zone
    first, second = _instants(_wall(after, zone), zone)
    turn = _change(first, second, zone) if first == after.replace(microsecond=0) < second else None
    last_year, start = after.year + YEARS_MAX, _wall(after, zone)
    while (wall := next(CronSim(cron.fields, start), None)) is not None and wall.year <= last_year:
        first, second = _instants(wall, zone)
        if turn is not None and turn <= first:
            # The clock shows earlier times again before this one comes.
            change, turn = turn, None
        elif first > second:
            # The clock never shows it.
            change = _change(second, first, zone)
        else:
            return first if first > after else second
        after, start = change - _SECOND, _wall(change, zone) - _SECOND
    return None


def _earlier(cron: Cron, until: datetime, count: int) -> datetime | None:
    """Return an instant with `count` named plain times from it to `until`; None: fewer exist."""
    try:
        if cron.every is not None:
            return until - count * cron.every
        back = CronSim(cron.fields, _wall(until, cron.zone), reverse=True)
        wall = next(islice(back, count - 1, None), None)
        return wall and min(_instants(wall, cron.zone)) - _SECOND
    except OverflowError:
        return None


def _wall(instant: datetime, zone: ZoneInfo) -> datetime:
    """Return what the clock shows: a time of the plain calendar."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _instants(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the instants at which the clock shows a time: twice the same, or first and second. If
    the clock never shows the time, their order is wrong, and the leap is between them."""
    first, second = (
        wall.replace(tzinfo=zone, fold=fold, microsecond=0).astimezone(UTC) for fold in (0, 1)
    )
    return first, second


def _change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Find the second at which the clock changes, between two instants around it."""

    def is_changed(second: int) -> bool:
        return (before + timedelta(seconds=second)).astimezone(zone).utcoffset() != offset

    offset = before.astimezone(zone).utcoffset()
    seconds = range(int((after - before).total_seconds()) + 1)
    return before + timedelta(seconds=bisect(seconds, False, key=is_changed))
