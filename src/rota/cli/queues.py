"""`rota queues` lists queues, concurrency limits and pauses; with a verb it changes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rota.cli.flags import argument, flag, option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, count, label, number
from rota.cli.output import Times, print_json, print_text
from rota.cli.target import Actor, Reason, Viewer
from rota.client.queues import check_lasting
from rota.errors import UsageError
from rota.model.bounds import COUNT_MAX, check_queue
from rota.model.units import plural, show_count
from rota.records import ConcurrencyLimit, Pause

FORCE = "Take the queue's name as it is, even if no job, type or worker has the queue."


def queues(viewer: Viewer) -> None:
    """List queues and priorities with due and future jobs, all concurrency limits and all pauses.

    A concurrency limit is the most jobs of a queue, or of a job type, that run at once over all
    workers; `rota queues set` changes that of a queue.
    """
    with viewer.session() as opened:
        found = opened.queues.list()
        limits = opened.queues.concurrency_limits()
        pauses = {paused.queue: paused for paused in opened.queues.pauses()}
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json(
            {
                "queues": found,
                "counted_to": COUNT_MAX,
                "concurrency_limits": limits,
                "paused_all": pauses.pop(None, None),
                "paused": list(pauses.values()),
            }
        )
        return
    QUEUES.print(found, times)
    for limit in limits:
        print_text(_describe(limit, times))
    for paused in pauses.values():
        print_text(f"{_name_paused(paused)}: {_describe_pause(paused, times)}")


def _describe(limit: ConcurrencyLimit, times: Times) -> str:
    text = f"{limit.kind} {limit.name}: {limit.running:,} of at most "
    text += f"{limit.max_running:,} run"
    if limit.blocked_since is not None:
        blocked = show_count(limit.blocked, COUNT_MAX)
        text += f", {blocked} blocked since {times.show(limit.blocked_since)}"
    return text


def set_(
    name: str = argument("QUEUE", "Name of the queue."),
    max_running: int | None = option(
        "--max-running NUMBER",
        "Most jobs of the queue that run at once over all workers, 1 to 100,000.",
    ),
    no_limit: bool = flag("--no-limit", "As many as the workers have slots."),
    force: bool = flag("--force", FORCE),
    *,
    actor: Actor,
) -> None:
    """Limit how many jobs of a queue run at once.

    It holds from the next claim on; jobs that run continue.
    """
    if (max_running is None) != no_limit:
        raise UsageError("give either --max-running or --no-limit")
    with actor.session() as opened:
        said: Any = {"why": actor.why, "by": actor.by, "force": force}
        before = opened.queues.set_max_running(name, max_running, **said)
    facts = {"queue": name, "max_running": max_running, "before": before}
    actor.say(facts, f"queue {name}: {_limit(max_running)} (before: {_limit(before)})")


def _limit(max_running: int | None) -> str:
    if max_running is None:
        return "no limit"
    return f"at most {plural(max_running, 'job runs', 'jobs run')} at once"


@dataclass(frozen=True, slots=True)
class Lasting:
    """How long a pause or a trip lasts: the options of the commands that begin it."""

    duration: str | None = option("--for DURATION", "How long: 2h. Default: no end.")
    until: str | None = option(
        "--until TIME", "When it ends: a local time (2026-01-14T18:00), or one with UTC offset."
    )

    def read(self) -> dict[str, Any]:
        try:
            at = None if self.until is None else datetime.fromisoformat(self.until).astimezone()
        except (ValueError, OverflowError):
            raise UsageError(
                f"--until must be a time such as 2026-01-14T18:00, not {self.until!r}; "
                "--for takes a duration such as 2h"
            ) from None
        check_lasting(self.duration, at)  # before it connects
        return {"duration": self.duration, "until": at}


def pause(
    queue: str | None = argument("QUEUE", "Name of a queue; or give --all.", default=None),
    everything: bool = flag("--all", "Pause everything: all queues and all schedules."),
    force: bool = flag("--force", FORCE),
    *,
    lasting: Lasting,
    reason: Reason,
    viewer: Viewer,
) -> None:
    """Pause a queue, or everything: no further jobs start.

    Running jobs continue, and new jobs can be enqueued.
    """
    _refuse_unclear(queue=queue is not None, all=everything)
    lasts = lasting.read()
    if queue is not None:
        check_queue(queue, "a queue's name")  # before it connects
    with viewer.session() as opened:
        said: Any = {**lasts, "why": reason.why, "by": reason.by}
        if queue is None:
            paused = opened.queues.pause_all(**said)
        else:
            paused = opened.queues.pause(queue, force=force, **said)
        times = viewer.read_times(opened)
    if viewer.as_json:
        print_json({"paused": paused})
    else:
        print_text(f"{_name_paused(paused)}: {_describe_pause(paused, times)}")


def resume(
    queue: str | None = argument(
        "QUEUE", "Name of a queue; or give --all or --copy.", default=None
    ),
    everything: bool = flag(
        "--all", "End a pause of everything. Queues paused by name stay paused."
    ),
    copy: bool = flag(
        "--copy", "Allow this restored copy of a database to run jobs and schedules."
    ),
    force: bool = flag("--force", FORCE),
    *,
    reason: Reason,
    viewer: Viewer,
) -> None:
    """End a pause. Does nothing, and says so, if nothing was paused."""
    _refuse_unclear(queue=queue is not None, all=everything, copy=copy)
    if queue is not None:
        check_queue(queue, "a queue's name")  # before it connects
    with viewer.session() as opened, opened.connection.transaction():
        said: Any = {"why": reason.why, "by": reason.by}
        behind = opened.ids_behind() if copy else []
        if copy:
            name, resumed = "this copy", opened.queues.resume_copy(**said)
        elif queue is None:
            name, resumed = "everything", opened.queues.resume_all(**said)
        else:
            name, resumed = f"queue {queue}", opened.queues.resume(queue, force=force, **said)
        left = opened.queues.pauses()
        times = viewer.read_times(opened)
    moved = [{"sequence": counter.sequence, "last_id": counter.highest_id} for counter in behind]
    if viewer.as_json:
        print_json({"resumed": resumed, "still_paused": left} | ({"moved": moved} if copy else {}))
        return
    unchanged = "this is not a restored copy" if copy else f"{name} was not paused"
    print_text(f"{name} resumed" if resumed else unchanged)
    for row in moved:
        print_text(f"{row['sequence']} was behind its ids: moved to {row['last_id']}")
    for paused in left:
        print_text(f"still paused: {_name_paused(paused)}: {_describe_pause(paused, times)}")


def _name_paused(paused: Pause) -> str:
    return "everything" if paused.queue is None else f"queue {paused.queue}"


def _describe_pause(paused: Pause, times: Times) -> str:
    ends = (
        "until it is resumed"
        if paused.paused_until is None
        else f"ends {times.show(paused.paused_until)}"
    )
    why = "" if paused.paused_why is None else f": {paused.paused_why}"
    return f"paused {times.show(paused.paused_at)} by {paused.paused_by}, {ends}{why}"


def _refuse_unclear(**given: bool) -> None:
    if sum(given.values()) != 1:
        options = ", ".join(f"--{name}" for name in given if name != "queue")
        raise UsageError(f"give exactly one of: a queue, {options}")


QUEUES = Listing(
    "queues",
    (
        label("queue"),
        number("priority"),
        count("due"),
        count("later"),
        Field("oldest", "oldest_run_at"),
    ),
    empty="no jobs due, now or later",
)
app = make_noun(queues, set_=set_, pause=pause, resume=resume)
