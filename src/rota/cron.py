"""When a cron text fires. Pure: on cronsim, whose rules are those of Debian's cron, also where clocks are set forward or back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from rota.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron text of five fields in a time zone, checked."""

    text: str
    zone: ZoneInfo


def parse(text: str, timezone: str) -> Cron:
    """Check a cron text and the name of a time zone. Raises UsageError."""
    try:
        zone = ZoneInfo(timezone)
    except (OSError, ValueError, LookupError):
        raise UsageError(f"there is no time zone {timezone!r}: name one of the IANA database, such as Europe/Stockholm") from None
    if len(text.split()) != 5:
        raise UsageError(f"{text!r} is no cron text: it has five fields, minute hour day month weekday, as in '0 2 * * *'")
    try:
        CronSim(text, datetime(2000, 1, 1, tzinfo=zone))
    except CronSimError as error:
        raise UsageError(f"{text!r} is no cron text: {error}") from None
    return Cron(text, zone)


def next_fire(cron: Cron, after: datetime) -> datetime | None:
    """The first tick after an aware instant, in UTC; None when there is none."""
    return next((tick.astimezone(UTC) for tick in CronSim(cron.text, after.astimezone(cron.zone))), None)


def missed_fires(cron: Cron, after: datetime, until: datetime, most: int) -> list[datetime]:
    """The ticks later than `after`, up to and with `until`: the latest `most` of them, in order, in UTC."""
    backwards = CronSim(cron.text, until.astimezone(cron.zone), reverse=True)
    ticks = takewhile(lambda tick: tick > after, (tick.astimezone(UTC) for tick in backwards))
    return list(islice(ticks, most))[::-1]
