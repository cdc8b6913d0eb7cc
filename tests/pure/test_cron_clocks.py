"""Clock changes of zones: the rule against a second implementation, for all zones and ten years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.cron import Cron, latest_fires, next_fire, next_fires, parse
from tests.pure.debian_cron import changes, entry, live_through, minutes
from tests.support.rules import rule

FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC",
    "Europe/Stockholm",
    "America/New_York",
    "America/Havana",  # set back from one o'clock to midnight, set forward at midnight
    "America/Santiago",  # set forward at midnight
    "America/Scoresbysund",  # changes at midnight, and its own time once
    "Africa/Casablanca",  # a change for Ramadan
    "Africa/Cairo",
    "Antarctica/Casey",  # leaps of three hours
    "Antarctica/Troll",  # leaps of two
    "Asia/Kathmandu",  # 5:45 from UTC, no changes
    "Australia/Lord_Howe",  # changes of half an hour
    "Pacific/Apia",
    "Pacific/Chatham",
]
TEXTS = [
    "*/17 * * * *",
    "*/20 0-3 * * *",
    "0 2 * * *",
    "0,30 0-23 * * *",
    "59 23 * * 6,0",
    "30 2 28-31 3,10 *",
]

fields = st.tuples(
    st.sampled_from(["*", "*/15", "*/7", "0", "30", "59", "0,30", "10-40/10"]),
    st.sampled_from(["*", "*/2", "0", "1", "2", "3", "23", "1-3", "0-23", "2,14"]),
    st.sampled_from(["*", "*", "1", "28-31", "*/2"]),
    st.sampled_from(["*", "*", "3,4", "9-11"]),
    st.sampled_from(["*", "*", "0", "1-5", "6,7"]),
).map(" ".join)
zones = st.sampled_from(ZONES)
instants = st.integers(0, 30 * 365 * 24 * 3600).map(
    lambda seconds: (
        datetime(2005, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=seconds % 7)
    )
)


@cache
def every_change() -> list[tuple[datetime, timedelta, timedelta, str]]:
    """Return the clock changes of all zones.

    Zones with the same change share one entry.
    """
    every: dict[tuple[datetime, timedelta, timedelta], str] = {}
    for name in sorted(available_timezones()):
        for change in changes(ZoneInfo(name), FROM, TO):
            every.setdefault(change, name)
    return [(*change, name) for change, name in every.items()]


def every_kind_of_change() -> list[tuple[datetime, timedelta, timedelta, str]]:
    """Return one change of each kind that TEXTS can tell apart: by the time on the wall, the shift,
    the weekday, the month, and whether it is one of its last days."""
    kinds: dict[object, tuple[datetime, timedelta, timedelta, str]] = {}
    for change in every_change():
        at, before, after, _ = change
        wall = at + before
        kind = (wall.time(), after - before, wall.weekday(), wall.month, wall.day >= 28)
        kinds.setdefault(kind, change)
    return list(kinds.values())


@cache
def changes_of(zone: str) -> list[datetime]:
    """Return when the clock of a zone was changed."""
    return [change for change, _, _ in changes(ZoneInfo(zone), FROM, TO)]


@st.composite
def near_a_change(draw: st.DrawFn, zone: str) -> datetime:
    """An instant some hours around a change of the zone's clock; any where it has none."""
    found = changes_of(zone)
    at = draw(st.sampled_from(found) if found else instants)
    return at + draw(st.timedeltas(timedelta(hours=-5), timedelta(hours=5)))


@pytest.mark.nightly
@rule("M82")
def test_ticks_are_those_of_debian_s_cron_at_every_kind_of_change_in_ten_years() -> None:
    lines = [(text, entry(text)) for text in TEXTS]
    assert len(every_change()) > 300, "the database of time zones is there"
    for change, before, after, name in every_kind_of_change():
        zone = ZoneInfo(name)
        shown = minutes(
            zone, change - timedelta(hours=1), change + abs(after - before) + timedelta(hours=1)
        )
        for text, line in lines:
            expected = list(live_through(line, shown))
            found = latest_fires(
                Cron(text, zone, text), shown[0][0] - timedelta(minutes=1), shown[-1][0], 60
            )
            assert found == expected, (name, text, change, before, after)


@rule("M82")
@settings(max_examples=40)
@given(st.data(), fields, zones)
def test_around_a_change_the_next_tick_is_the_second_implementation_s(
    data: st.DataObject, text: str, zone: str
) -> None:
    after = data.draw(near_a_change(zone))
    cron = parse(text, zone)
    start = after.replace(second=0, microsecond=0)
    shown = minutes(cron.zone, start - timedelta(hours=30), start + timedelta(hours=30))
    expected = [tick for tick in live_through(entry(text), shown) if tick > after]
    found = next_fire(cron, after)
    if expected:
        assert found == expected[0]
    else:
        assert found is not None and found > shown[-1][0]


@rule("M82")
@settings(max_examples=12)
@given(fields, instants)
def test_in_utc_a_text_means_what_it_says(text: str, after: datetime) -> None:
    line = entry(text)
    shown = minutes(
        ZoneInfo("UTC"), after.replace(second=0, microsecond=0), after + timedelta(days=2)
    )
    expected = [at for at, clock in shown if at > after and line.names(clock)]
    assert next_fires(parse(text, "UTC"), after, len(expected)) == expected


@rule("M82")
@settings(max_examples=20)
@given(st.data(), fields, zones, zones)
def test_it_does_not_matter_in_which_zone_an_instant_is_given(
    data: st.DataObject, text: str, zone: str, other: str
) -> None:
    after = data.draw(near_a_change(zone))
    cron = parse(text, zone)
    assert next_fire(cron, after.astimezone(ZoneInfo(other))) == next_fire(cron, after)


@rule("M82")
@given(st.data(), fields, zones)
def test_ticks_ascend_and_none_is_lost_or_doubled_however_they_are_asked_for(
    data: st.DataObject, text: str, zone: str
) -> None:
    after = data.draw(near_a_change(zone) | instants)
    cron = parse(text, zone)
    chain = next_fires(cron, after, 40)
    assert len(chain) == 40 and all(early < late for early, late in pairwise([after, *chain]))
    until = data.draw(
        st.sampled_from(chain)
        | st.datetimes(
            after.replace(tzinfo=None), chain[-2].replace(tzinfo=None), timezones=st.just(UTC)
        )
    )
    most = data.draw(st.integers(0, 45))
    ticks = [tick for tick in chain if tick <= until]
    assert latest_fires(cron, after, until, most) == ticks[max(len(ticks) - most, 0) :]


@rule("M82")
@pytest.mark.parametrize(
    ("text", "after", "next_one"),
    [
        # Half past two for the second time: it has fired.
        ("45 2 * * *", "2026-10-25 01:30", "2026-10-26 01:45"),
        # Twenty to three for the first time: two is next.
        ("*/20 2 * * *", "2026-10-25 00:40", "2026-10-25 01:00"),
        ("*/20 2 * * *", "2026-03-29 00:59", "2026-03-30 00:00"),
        ("30 2 * * *", "2026-03-29 00:59", "2026-03-29 01:00"),
    ],
)
def test_in_the_nights_of_a_change_the_next_tick_is_this(
    text: str, after: str, next_one: str
) -> None:
    found = next_fire(parse(text, "Europe/Stockholm"), datetime.fromisoformat(f"{after}+00:00"))
    assert found == datetime.fromisoformat(f"{next_one}+00:00")


@rule("M82")
def test_missed_ticks_are_found_also_when_the_calendar_names_times_that_no_clock_showed() -> None:
    cron = parse("*/10 2,3 * * *", "Europe/Stockholm")
    until = datetime(2026, 3, 29, 1, 5, tzinfo=UTC)
    missed = latest_fires(cron, until - timedelta(days=9), until, 3)
    assert [f"{tick:%d %H:%M}" for tick in missed] == ["28 02:40", "28 02:50", "29 01:00"]


@rule("M82")
def test_a_leap_over_a_whole_day_runs_that_day_s_jobs_and_repeats_none() -> None:
    """Samoa had no 30 December 2011."""
    noon = next_fires(parse("0 12 * * *", "Pacific/Apia"), datetime(2011, 12, 29, tzinfo=UTC), 4)
    assert [f"{tick:%d %H:%M}" for tick in noon] == ["29 22:00", "30 10:00", "30 22:00", "31 22:00"]
    each_hour = next_fires(
        parse("0 * * * *", "Pacific/Apia"), datetime(2011, 12, 30, 8, 30, tzinfo=UTC), 3
    )
    assert [f"{tick:%d %H:%M}" for tick in each_hour] == ["30 09:00", "30 10:00", "30 11:00"]
