"""Cron expressions: which are accepted or refused, with which error; no search is needless."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rota.errors import UsageError
from rota.model import cron
from rota.model.cron import latest_fires, next_fire, next_fires, parse, read
from tests.pure.debian_cron import RANGES, entry
from tests.support.rules import rule

START = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        ("0 2 * * *", ["01 02:00", "02 02:00", "03 02:00"]),
        ("@daily", ["02 00:00", "03 00:00", "04 00:00"]),
        ("  0\t2 * *   SAT ", ["07 02:00", "14 02:00", "21 02:00"]),
        ("0 0 L * *", ["31 00:00", "30 00:00", "31 00:00"]),
        ("0 0 LW * *", ["31 00:00", "30 00:00", "29 00:00"]),
        ("0 12 * * 5L", ["27 12:00", "24 12:00", "29 12:00"]),
        ("0 12 * * fril", ["27 12:00", "24 12:00", "29 12:00"]),
        ("0 12 * * SUNL,mon#2", ["09 12:00", "29 12:00", "13 12:00"]),
        ("0-59/59 23/1 31/1 * 7/1", ["01 23:00", "01 23:59", "08 23:00"]),
        ("5-5/2 0 * * 5/2", ["01 00:05", "06 00:05", "08 00:05"]),
        ("50/5 23 * * *", ["01 23:50", "01 23:55", "02 23:50"]),
        # Either, as neither begins with a star.
        ("0 0 13 * 5", ["06 00:00", "13 00:00", "20 00:00"]),
        ("0 0 */15 * 1", ["16 00:00", "01 00:00", "31 00:00"]),  # both
        ("@every 90m", ["01 01:30", "01 03:00", "01 04:30"]),
    ],
)
@rule("M82")
def test_a_text_fires_at_the_times_that_it_names(text: str, ticks: list[str]) -> None:
    assert [f"{tick:%d %H:%M}" for tick in next_fires(parse(text, "UTC"), START, 3)] == ticks


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@every half", "the pace of '@every half' "),
        ("@every 500ms", "the pace of '@every 500ms' must be at least 1 s"),
    ],
)
@rule("M82")
def test_a_bad_pace_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse(text, "UTC")


@given(st.integers(1, 10**6), st.integers(0, 10**9))
@rule("M82")
def test_a_pace_keeps_its_beat_whenever_it_is_asked(pace_s: int, at_s: int) -> None:
    pace = parse(f"@Every  {pace_s}s", "Europe/Stockholm")
    after = datetime.fromtimestamp(at_s, UTC)
    first, second = next_fires(pace, after, 2)
    assert after < first <= after + timedelta(seconds=pace_s)
    assert second - first == timedelta(seconds=pace_s)
    assert next_fire(pace, first - timedelta(microseconds=1)) == first
    hours = first + timedelta(seconds=pace_s * 1000)
    assert latest_fires(pace, after, hours, 3) == [hours - n * (second - first) for n in (2, 1, 0)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("61 * * * *", "the minute '61' is wrong"),
        ("0 24 * * *", "the hour '24' is wrong"),
        ("0 0 0 * *", "the day-of-month '0' is wrong"),
        ("0 0 * 13 *", "the month '13' is wrong"),
        ("0 0 * * FOO", "the day-of-week 'FOO' is wrong"),
        ("*/0 * * * *", "the minute '*/0' is wrong"),
        ("\x1b[31m * * * *", r"the minute '\x1b[31m' is wrong"),
        ("* * * *", "it has 4 fields"),
        ("0 0 2 * * *", "none for seconds or years"),
        ("@reboot", "the names are @hourly, @daily"),
        ("0 0 31 2,4 *", "none of its months has that day"),
        ("0 0 */31 * MON#3", "never fires in Europe/Stockholm"),
        ("*/5 2 * 3 7L", "never fires in Europe/Stockholm"),  # always the hour that is left out
        ("*/90 * * * *", "'*/90 * * * *' would fire as '0 * * * *', because its step"),
        ("0 */36 * * *", "would fire as '0 0 * * *'"),
        ("0 0 */40 * *", "would fire as '0 0 1 * *'"),
        ("0 0 L/2 */13 mon-fri/9", "would fire as '0 0 L 1 mon'"),
        ("3,0-59/61 5/25 * * *", "would fire as '3,0 5 * * *'"),
        ("*/60 */24 * * */7", "would fire as '0 0 * * 0'"),
        ("10-20/11 0-12/13 * 1-12/12 0-7/7", "would fire as '10 0 * 1 0'"),
        ("0 22-2 * * *", "ranges that do not wrap"),
        ("0 0 * * MON-SUN", "MON-SUN is 1-7"),
        ("50/20 20/12 5-6/3 * 7/2", "would fire as '50 20 5 * 7'"),
        ("1" * 100_000, "at most 512 characters"),
        (None, "a cron expression is a string"),
    ],
)
@rule("M82")
def test_a_bad_text_is_refused_with_the_field_that_is_wrong_and_a_good_one(
    text: str, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, "Europe/Stockholm")
    said = str(caught.value)
    assert (
        says in said
        and "'30 2 * * 1-5' is half past two" in said
        and said.isprintable()
        and len(said) < 500
    )


EACH: list[tuple[str, list[datetime]]] = [
    ("{} * * * *", [START + timedelta(minutes=n) for n in range(60)]),
    ("0 {} * * *", [START + timedelta(hours=n) for n in range(24)]),
    ("0 0 {} * *", [START + timedelta(days=n) for n in range(31)]),
    ("0 0 1 {} *", [START.replace(month=n) for n in range(3, 13)]),
    ("0 0 * * {}", [START + timedelta(days=n) for n in range(7)]),
]
"""Each field alone, and the times that it chooses from."""


@rule("M82")
@pytest.mark.parametrize("place", range(5))
def test_stars_values_and_ranges_with_steps_fire_as_the_second_implementation_says(
    place: int,
) -> None:
    (text, times), (least, most) = EACH[place], RANGES[place]
    few = [least, least + 5, most]
    spans = ["*", *few, *(f"{first}-{last}" for first in few for last in few)]
    for span, step in product(spans, ("", "/1", "/5")):
        line = text.format(f"{span}{step}")
        try:
            found = next_fires(read(line, "UTC"), START - timedelta(seconds=1), len(times))
        except UsageError:
            found = []
        assert [time for time in found if time <= times[-1]] == [
            time for time in times if entry(line).names(time)
        ], line


@rule("M82")
def test_a_row_with_a_step_that_an_earlier_release_took_still_fires() -> None:
    ticks = next_fires(read("*/90 * * * *", "UTC"), START, 2)
    assert [f"{tick:%H:%M}" for tick in ticks] == ["01:00", "02:00"]


@rule("M82")
def test_a_zone_that_is_none_and_an_instant_without_one_are_refused() -> None:
    names = ["Europe/Stokholm", "", "America", "../etc/passwd", "localtime", "a\0b"]
    for name in names:
        with pytest.raises(UsageError, match=r"there is no time zone .* such as Europe/Stockholm"):
            parse("0 2 * * *", name)
    with pytest.raises(UsageError, match="has no time zone"):
        next_fire(parse("0 2 * * *", "UTC"), datetime(2026, 1, 1))  # noqa: DTZ001


odd = st.text(max_size=40) | st.text("0123456789*/-,#LW @\n", max_size=40)
almost = st.tuples(
    *(
        st.lists(st.sampled_from(terms), min_size=1, max_size=2).map(",".join)
        for terms in (
            ["*", "0", "59", "5-40/7", "50/5", "*/31"],
            ["*", "2", "2/3", "23", "0-3"],
            ["*", "L", "LW", "29", "30-31", "*/31", "L/2"],
            ["*", "2", "JAN-MAR", "*/12", "4"],
            ["*", "5L", "MON#1", "SUN-SAT", "7", "1#5", "L"],
        )
    )
).map(" ".join)


@rule("M82")
@given(
    odd | almost,
    st.sampled_from(["UTC", "Europe/Stockholm", "Pacific/Apia"]),
    st.datetimes(timezones=st.just(UTC)),
)
@example("0 0 29 2 *", "Europe/Stockholm", datetime.max.replace(tzinfo=UTC))
@example("* * * * *", "Pacific/Apia", datetime.min.replace(tzinfo=UTC))
@example("0 0 L 2 MON", "Europe/Stockholm", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
def test_a_text_is_refused_as_wrong_or_can_be_asked_for_ticks_at_any_time(
    text: str, zone: str, at: datetime
) -> None:
    try:
        parsed = parse(text, zone)
    except UsageError:
        return
    tick = next_fire(parsed, at)
    assert tick is None or tick > at
    missed = latest_fires(parsed, datetime.min.replace(tzinfo=UTC), at, 3)
    assert missed == sorted(set(missed)) and all(found <= at for found in missed)


@pytest.mark.parametrize(("most", "asked_most"), [(1, 6), (100, 210)])
@rule("M82")
def test_a_schedule_unread_for_a_year_is_not_walked_through(
    monkeypatch: pytest.MonkeyPatch, most: int, asked_most: int
) -> None:
    asked = []

    def counted(*arguments: object) -> datetime | None:
        asked.append(arguments)
        return next_fire(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cron, "next_fire", counted)
    until = START + timedelta(days=1)
    for text in ("* * * * *", "0-59 0-23 * * *"):
        asked.clear()
        ticks = latest_fires(
            parse(text, "Europe/Stockholm"), START - timedelta(days=365), until, most
        )
        assert ticks == [until - timedelta(minutes=back) for back in range(most)][::-1]
        assert len(asked) <= asked_most


@rule("M82")
def test_the_ticks_missed_are_those_later_than_one_instant_up_to_and_with_the_other() -> None:
    hourly = parse("0 * * * *", "UTC")
    until = START + timedelta(hours=3)
    assert latest_fires(hourly, START, until, 9) == [
        START + timedelta(hours=hours) for hours in (1, 2, 3)
    ]
    assert latest_fires(hourly, START, until - timedelta(microseconds=1), 9) == [
        START + timedelta(hours=hours) for hours in (1, 2)
    ]
    assert latest_fires(hourly, START - timedelta(microseconds=1), START, 9) == [START]
    assert (
        latest_fires(hourly, until, until, 9)
        == latest_fires(hourly, until, START, 9)
        == latest_fires(hourly, START, until, 0)
        == []
    )
