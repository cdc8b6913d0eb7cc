"""What a schedule is, and which of its ticks are due. Pure: `plan` decides from the row and from
the database's now; the store writes the decision."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, ClassVar, Literal, get_args

import msgspec

from rota.errors import UsageError
from rota.model.bounds import check_choice, check_integer
from rota.model.cron import Cron, count_fires, latest_fires, next_fire, next_fires, read
from rota.model.record import ReadJson, Record
from rota.model.scrub import mask_fields

CatchUp = Literal["skip", "latest", "all"]
Overlap = Literal["skip", "allow"]

CATCH_UP_MAX = 100
"""Most ticks that `catch_up="all"` enqueues at once, the latest: more is an incident."""
COUNTED_MAX = 1_000
"""Ticks that have come are counted up to this, which takes 30 ms of the loop."""
MISSED_S = 300.0
"""Seconds after which `catch_up="skip"` misses a tick: longer than the gap between drains."""
JITTER_S_MAX = 86_400.0
NEXT_TIMES_MAX = 1_000
"""Most next ticks of a schedule that one call returns: each is computed, and they never end."""
MIDNIGHT = "0 0 * * *"


class Due(msgspec.Struct, frozen=True):
    name: str
    cron: str
    timezone: str
    catch_up: str
    jitter_s: float | None
    next_run_at: datetime | None
    """The tick that was announced; None: not planned yet, plan from `since` on."""
    since: datetime
    """Ticks up to this instant do not count."""
    unfit: str | None = None
    """Why its job cannot be enqueued; None: it can."""

    @property
    def definition(self) -> tuple[str, ...]:
        """Which schedule it is, and what a worker must be able to read of it."""
        return self.name, self.cron, self.timezone, self.catch_up


class Tick(msgspec.Struct, frozen=True):
    at: datetime
    """The time of the tick: the job's `scheduled_for`."""
    run_at: datetime


class Plan(msgspec.Struct, frozen=True):
    ticks: tuple[Tick, ...]
    next_run_at: datetime
    missed: int
    """Number of ticks that were due and are skipped."""
    is_more: bool = False
    """Whether there were more than were counted."""


def plan(due: Due, now: datetime) -> Plan:
    """Decide which ticks to enqueue at `now`, and which tick is next. Raises UsageError if its job
    is unfit, as all workers find, or if this worker cannot read it."""
    if due.unfit is not None:
        raise UsageError(due.unfit)
    check_choice(due.catch_up, "catch_up", get_args(CatchUp))
    cron = read(due.cron, due.timezone)
    following = next_fire(cron, now)
    if following is None:
        raise UsageError(f"{due.cron!r} has no scheduled time after {now:%Y-%m-%d %H:%M}Z")
    passed, count = _find_passed(cron, due, now)
    chosen = passed[-CATCH_UP_MAX:] if due.catch_up == "all" else passed[-1:]
    ticks = tuple(
        Tick(at, at + _spread(due.name, at, due.jitter_s))
        for at in chosen
        if not _is_missed(due.catch_up, at, now)
    )
    return Plan(ticks, following, min(count, COUNTED_MAX) - len(ticks), count > COUNTED_MAX)


def _find_passed(cron: Cron, due: Due, now: datetime) -> tuple[list[datetime], int]:
    """Return the latest ticks that have come and are not handled, in order, and how many there are.

    It returns one tick more than are caught up with. An announced tick counts, whatever a newer
    zone file or a change by hand has made of it.
    """
    announced = [] if due.next_run_at is None else [due.next_run_at]
    after = due.next_run_at or due.since
    if after > now:
        return [], 0
    latest = latest_fires(cron, after, now, CATCH_UP_MAX + 1)
    count = (
        len(latest)
        if len(latest) <= CATCH_UP_MAX
        else count_fires(cron, after, now, COUNTED_MAX + 1)
    )
    return (announced + latest)[-CATCH_UP_MAX - 1 :], len(announced) + count


def _is_missed(catch_up: str, at: datetime, now: datetime) -> bool:
    return catch_up == "skip" and (now - at).total_seconds() > MISSED_S


def _spread(name: str, at: datetime, jitter_s: float | None) -> timedelta:
    """Return how long after its tick a run is due: a hash of (name, tick), as in every process."""
    if not jitter_s:
        return timedelta(0)
    digest = sha256(f"{name}\0{at.timestamp():.6f}".encode()).digest()
    return timedelta(seconds=jitter_s * int.from_bytes(digest[:8]) / 2**64)


class Schedule(Record, frozen=True, kw_only=True):
    """A schedule as it was when it was read: one row of `rota.schedule`.

    Names are the column names; instants are aware datetimes.
    """

    __json_names__: ClassVar[dict[str, str | None]] = {"now": None, "hidden_fields": None}

    name: str
    """Identifies the schedule."""
    origin: str
    """What made it: code, api, cli or sql."""
    job_type: str
    """Name of the type of its jobs."""
    payload_json: str
    """The arguments of its jobs, as JSON text."""
    queue: str | None
    """Name of the queue of its jobs; None: the type's."""
    priority: int | None
    """-100 … 100; None: the type's."""
    max_attempts: int | None
    """How many attempts its jobs have; None: the type's number."""
    expires_s: float | None
    """Seconds until a job that has not started expires; None: the type's value."""
    meta_json: str | None
    """What is stored with its jobs beside their arguments, as JSON text; None: nothing."""
    group_key: str | None
    """The ordered group of its jobs; None: they have none."""
    cron: str | None
    """None: it runs only when a person triggers it."""
    timezone: str
    """Name of the time zone in which `cron` counts, as in "Europe/Berlin"."""
    catch_up: str
    """Which missed scheduled times become jobs: none (`skip`), the `latest` or `all`."""
    overlap: str
    """Whether a scheduled time is left out while an earlier run is live: `skip` or `allow`."""
    jitter_s: float | None
    """A job is due up to so many seconds after its scheduled time; None: at that time."""
    paused_at: datetime | None
    """Since when it is paused; None: it is not."""
    paused_by: str | None
    """Who paused it: `rota` if its job cannot be enqueued as it is; None: it is not paused."""
    paused_why: str | None
    """Why it is paused; None: it is not, or no reason was given."""
    disabled_at: datetime | None
    """Since when the newest release no longer declares it; None: it does, or no code made it."""
    next_run_at: datetime | None
    """The next scheduled time; None: there is none, or the next pass has still to plan it."""
    since: datetime
    """When it was made, changed or resumed: scheduled times up to then do not count."""
    last_run_at: datetime | None
    """When its last run was enqueued; None: there was none."""
    last_job: int | None
    """Id of the job of its last run; None: there was none."""
    last_error: str | None
    """Why the database did not take the due job, a worker cannot read the schedule, or the runs do
    nothing: their type is not declared, or the last three died. None: nothing is wrong."""
    release: str | None
    """The release of the code that declared it last; None: no code did."""
    created_at: datetime
    """When it was made."""
    updated_at: datetime
    """When its definition was last changed."""
    now: datetime
    """The database's clock at the time of the read."""
    hidden_fields: list[str] | None = None
    """The fields of its payload that are not shown: its type's secret and personal fields."""

    @property
    def shown_payload(self) -> str:
        """The arguments as JSON text, as they may be shown: `***` stands for secret and personal
        values."""
        return mask_fields(self.payload_json, self.hidden_fields)

    def facts(self, read_json: ReadJson) -> dict[str, Any]:
        """Return its values by their names in JSON. Called by the command line."""
        return super().facts(read_json) | {"payload": read_json(self.shown_payload)}

    def __repr__(self) -> str:  # as that of a job: nothing of the payload
        return f"<schedule {self.name!r} of {self.job_type}>"

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments of its jobs, as stored."""
        return msgspec.json.decode(self.payload_json, type=dict[str, Any])

    @property
    def meta(self) -> dict[str, Any] | None:
        """What is stored with its jobs beside their arguments."""
        return (
            None
            if self.meta_json is None
            else msgspec.json.decode(self.meta_json, type=dict[str, Any])
        )

    @property
    def is_active(self) -> bool:
        """Whether its jobs are enqueued."""
        return self.cron is not None and self.paused_at is None and self.disabled_at is None

    def next_times(self, count: int = 10) -> list[datetime]:
        """Return the next scheduled times, in the schedule's zone; without a cron expression, none.

        A pause or being disabled is ignored.

        Args:
            count: how many, 0 … 1,000.

        Raises:
            UsageError: the cron expression or the zone is invalid, or the count is out of range.
        """
        check_integer(count, "count", 0, NEXT_TIMES_MAX)
        return next_times(self.cron, self.timezone, self.now, count)


class Run(Record, frozen=True, kw_only=True):
    """One run of a schedule: a row of `rota.runs`."""

    job: int
    """Id of the job that it became."""
    scheduled_for: datetime | None
    """The scheduled time; None: a person triggered it."""
    enqueued_at: datetime
    """When the job was inserted, an aware datetime."""
    status: str
    """The job's status. `cancelled` with the error type `Overlap`: skipped, because an earlier run
    was not over. `gone`: its job was deleted from the table."""
    attempts: int | None
    """How many attempts of the job count; None: no row of the job is kept."""
    started_at: datetime | None
    """When the job's last handler began, an aware datetime; None: none began."""
    ended_at: datetime | None
    """When the job finished or last failed, an aware datetime; None: neither."""
    ran_s: float | None
    """How long its last attempt took; None: none has ended."""
    error_type: str | None
    """Class name of the job's last failure; None: none is recorded."""
    last_error: str | None
    """Message of the last failure, or why the job was cancelled; None: neither."""


def next_times(cron: str | None, timezone: str, after: datetime, count: int) -> list[datetime]:
    """Return the next ticks after an instant, in the zone. Raises UsageError."""
    if cron is None:
        return []
    parsed = read(cron, timezone)
    return [tick.astimezone(parsed.zone) for tick in next_fires(parsed, after, count)]
