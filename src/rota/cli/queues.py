"""`rota queues` lists queues, concurrency limits and pauses; `rota queues set` limits a queue."""

from __future__ import annotations

from rota.cli.flags import argument, flag, option
from rota.cli.grammar import make_noun
from rota.cli.listing import Field, Listing, count, label, number
from rota.cli.output import Times, print_json, print_text
from rota.cli.pause import in_words, pause, resume, what
from rota.cli.target import Actor, Viewer
from rota.errors import UsageError
from rota.model.bounds import COUNT_MAX
from rota.model.units import plural, show_count
from rota.records import ConcurrencyLimit


def queues(viewer: Viewer) -> None:
    """List queues and priorities with due and future jobs, all concurrency limits and all pauses.

    A concurrency limit is the most jobs of a queue, or of a job type, that run at once over all
    workers; `rota queues set` changes that of a queue.
    """
    with viewer.session() as opened:
        found = opened.queues.list()
        limits = opened.queues.concurrency_limits()
        pauses = {one.queue: one for one in opened.queues.pauses()}
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
    for one in pauses.values():
        print_text(f"{what(one)}: {in_words(one, times)}")


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
    *,
    actor: Actor,
) -> None:
    """Limit how many jobs of a queue run at once.

    It holds from the next claim on; jobs that run continue.
    """
    if (max_running is None) != no_limit:
        raise UsageError("give either --max-running or --no-limit")
    with actor.session() as opened:
        before = opened.queues.set_max_running(name, max_running, why=actor.why, by=actor.by)
    facts = {"queue": name, "max_running": max_running, "before": before}
    actor.say(facts, f"queue {name}: {_limit(max_running)} (before: {_limit(before)})")


def _limit(max_running: int | None) -> str:
    if max_running is None:
        return "no limit"
    return f"at most {plural(max_running, 'job runs', 'jobs run')} at once"


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
