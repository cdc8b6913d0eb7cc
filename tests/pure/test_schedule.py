"""Which ticks are due, by every policy, and how a schedule is declared: nothing here connects to a
database.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota.model.cron import next_fire, parse
from rota.model.schedule import CATCH_UP_MAX, COUNTED_MAX, MISSED_S, Due, plan
from tests.support.rules import rule

CRONS = ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * 1", "15 3 1 * *"]
ZONES = ["UTC", "Europe/Stockholm", "America/New_York", "Australia/Lord_Howe"]
instants = st.integers(0, 3 * 365 * 86_400).map(
    lambda s: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=s)
)
periods = st.one_of(
    *(st.integers(0, days * 86_400).map(lambda s: timedelta(seconds=s)) for days in (1, 60))
)


def due(
    catch_up: str,
    since: datetime,
    cron: str = "* * * * *",
    zone: str = "UTC",
    jitter_s: float | None = None,
    **facts: Any,
) -> Due:
    return Due("s", cron, zone, catch_up, jitter_s, facts.pop("next_run_at", None), since, **facts)


@rule("M82")
@settings(max_examples=60)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.sampled_from(["skip", "latest", "all"]),
    instants,
    periods,
)
def test_a_plan_takes_ticks_of_the_cron_expression_in_order_after_the_beginning_and_not_after_now(
    cron: str, zone: str, catch_up: str, since: datetime, later: timedelta
) -> None:
    now, parsed = since + later, parse(cron, zone)
    made = plan(due(catch_up, since, cron, zone), now)
    found = [tick.at for tick in made.ticks]
    assert found == sorted(set(found))
    assert all(
        since < at <= now and next_fire(parsed, at - timedelta(seconds=1)) == at for at in found
    )
    assert made.next_run_at == next_fire(parsed, now)
    came, at = 0, next_fire(parsed, since)
    while at is not None and at <= now and came <= COUNTED_MAX:
        came, at = came + 1, next_fire(parsed, at)
    assert (made.missed, made.is_more) == (min(came, COUNTED_MAX) - len(found), came > COUNTED_MAX)
    if catch_up == "all":
        assert len(found) <= CATCH_UP_MAX
    else:
        assert len(found) <= 1
        assert all(next_fire(parsed, at) == made.next_run_at for at in found), (
            "the latest that has come"
        )
    if catch_up == "skip":
        assert all((now - at).total_seconds() <= MISSED_S for at in found)


@rule("M82")
@settings(max_examples=30)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    instants,
    st.lists(periods, min_size=1, max_size=6),
)
def test_however_passes_fall_all_ticks_are_taken_once_and_none_is_left_out(
    cron: str, zone: str, since: datetime, pauses: list[timedelta]
) -> None:
    parsed, taken, announced, now, full = parse(cron, zone), list[datetime](), None, since, False
    for pause in pauses:
        now += pause
        made = plan(due("all", since, cron, zone, next_run_at=announced), now)
        full |= len(made.ticks) == CATCH_UP_MAX
        taken += [tick.at for tick in made.ticks]
        announced = made.next_run_at
    assert taken == sorted(set(taken))
    if not full:
        expected, at = [], next_fire(parsed, since)
        while at is not None and at <= now:
            expected.append(at)
            at = next_fire(parsed, at)
        assert taken == expected


@rule("M82")
@given(instants, st.floats(1, 86_400), st.text(min_size=1, max_size=20))
def test_a_spread_stays_within_its_length_and_is_the_same_wherever_it_is_computed(
    since: datetime, jitter_s: float, name: str
) -> None:
    given_due = Due(name, "* * * * *", "UTC", "all", jitter_s, None, since)
    once, again = (
        plan(given_due, since + timedelta(minutes=5)),
        plan(given_due, since + timedelta(minutes=6)),
    )
    assert once.ticks == again.ticks[: len(once.ticks)]
    assert all(
        timedelta(0) <= tick.run_at - tick.at < timedelta(seconds=jitter_s) for tick in once.ticks
    )


def test_an_announced_tick_counts_though_a_newer_zone_file_no_longer_has_it() -> None:
    announced = datetime(2026, 3, 1, 11, 30, tzinfo=UTC)
    made = plan(
        due("latest", announced - timedelta(days=1), "0 * * * *", next_run_at=announced), announced
    )
    assert [tick.at for tick in made.ticks] == [announced]


def test_a_spread_is_this_one_for_ever() -> None:
    since = datetime(2026, 3, 1, tzinfo=UTC)
    made = plan(due("all", since, jitter_s=600.0), since + timedelta(minutes=1))
    assert [tick.run_at - tick.at for tick in made.ticks] == [timedelta(seconds=295.368225)]


# Declarations


@pytest.fixture
def jobs() -> rota.Jobs:
    """A list of job types with one that takes nothing and one that needs an argument."""
    made = rota.Jobs()
    made.job("clean")(lambda: None)

    @made.job("report")
    def report(day: str, pages: int = 1) -> None: ...

    return made


@rule("M10")
def test_a_schedule_is_declared_with_its_job_and_the_job_s_options(jobs: rota.Jobs) -> None:
    job = (
        jobs.types["report"]
        .using(queue="q", priority=3, max_attempts=2, expires="1h", meta={"m": 1}, group_key="g")
        .new(day="monday")
    )
    jobs.schedule(
        "weekly",
        "0 2 * * 1",
        job,
        timezone="Europe/Stockholm",
        catch_up="all",
        overlap="allow",
        jitter="5m",
    )
    row = jobs._schedules["weekly"].make_row()
    assert {name: value for name, value in row.items() if name not in ("payload", "meta")} == {
        "name": "weekly", "job_type": "report", "payload_version": None, "queue": "q",
        "priority": 3, "max_attempts": 2, "expires": "3600.000000 seconds", "group_key": "g",
        "cron": "0 2 * * 1", "timezone": "Europe/Stockholm", "catch_up": "all", "overlap": "allow",
        "jitter": "300.000000 seconds",
    }  # fmt: skip
    assert (bytes(row["payload"]), bytes(row["meta"])) == (b'{"day":"monday"}', b'{"m":1}')


@rule("M10")
def test_the_decorator_stands_above_the_job_and_leaves_the_job_type_as_it_is() -> None:
    jobs = rota.Jobs()

    @jobs.schedule("nightly", "0 2 * * *")
    @jobs.schedule("by hand", None)
    @jobs.job("clean", queue="slow")
    def clean() -> str:
        return "cleaned"

    assert clean() == "cleaned"
    assert [
        (schedule.name, schedule.cron, schedule.timezone, schedule.catch_up, schedule.overlap)
        for schedule in jobs._schedules.values()
    ] == [
        ("by hand", None, "UTC", "latest", "skip"),
        ("nightly", "0 2 * * *", "UTC", "latest", "skip"),
    ]


@pytest.mark.parametrize(
    ("cron", "options", "says"),
    [
        ("0 2 * *", {}, "is no cron expression"),
        (5, {}, "cron must be a string such as "),
        ("0 2 * * *", {"timezone": "Mars"}, "there is no time zone 'Mars'"),
        ("0 2 * * *", {"timezone": None}, "timezone must be an IANA name"),
        (None, {"timezone": "Mars"}, "there is no time zone 'Mars'"),
        ("0 2 * * *", {"catch_up": "some"}, "catch_up must be"),
        ("0 2 * * *", {"overlap": True}, "overlap must be"),
        ("0 2 * * *", {"jitter": "2d"}, "jitter must be at most 1 d, not '2d'"),
        ("0 2 * * *", {"jitter": 5}, "jitter must be a timedelta or a string"),
        ("0 2 * * *", {"zone": "UTC"}, "there is no option 'zone'"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    jobs: rota.Jobs, cron: Any, options: Any, says: str
) -> None:
    with pytest.raises(
        rota.errors.DeclarationError, match=f"^schedule 's' at {__file__}:\\d+: .*{says}"
    ):
        jobs.schedule("s", cron, jobs.types["clean"].new(), **options)
    with pytest.raises(rota.errors.DeclarationError, match=says):
        jobs.schedule("s", cron, **options)
    assert jobs._schedules == {}


def test_what_is_no_job_of_a_schedule_is_refused(jobs: rota.Jobs) -> None:
    clean, report = jobs.types["clean"], jobs.types["report"]
    wrong: list[Any] = [
        clean,
        "clean",
        clean.using(key="k").new(),
        clean.using(delay="1m").new(),
        clean.using(timeout="1m").new(),
        clean.using(run_at=datetime.now(UTC)).new(),
    ]
    for job in wrong:
        with pytest.raises(rota.errors.DeclarationError):
            jobs.schedule("s", "0 2 * * *", job)
    for decorated in (lambda: None, report):  # no job type, and one that needs an argument
        with pytest.raises(rota.errors.DeclarationError):
            jobs.schedule("s", "0 2 * * *")(decorated)
    assert jobs._schedules == {}


@rule("M10")
def test_a_name_is_declared_once_over_all_lists_of_an_app(jobs: rota.Jobs) -> None:
    jobs.schedule("s", "0 2 * * *", jobs.types["clean"].new())
    with pytest.raises(
        rota.errors.DeclarationError,
        match=f"'s' is declared twice: at {__file__}:\\d+ and at {__file__}:\\d+",
    ):
        jobs.schedule("s", "0 3 * * *", jobs.types["clean"].new())
    other = rota.Jobs()
    other.schedule("s", "0 2 * * *")(other.job("else")(lambda: None))
    with pytest.raises(rota.errors.DeclarationError, match="'s' is declared twice"):
        rota.App("postgresql://nowhere", jobs=[jobs, other])
