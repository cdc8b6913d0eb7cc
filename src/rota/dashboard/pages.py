"""The pages: what each reads, and which template shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from rota.cli.batches import BATCHES
from rota.cli.breakers import BREAKERS
from rota.cli.check import ALERTS, RULE_COLUMNS, RULES
from rota.cli.effects import EFFECTS
from rota.cli.errors import ERRORS
from rota.cli.errors import SINCE as ERRORS_SINCE
from rota.cli.groups import GROUPS
from rota.cli.jobs import JOBS, is_of_day, list_facts, read_moment
from rota.cli.limits import LIMITS
from rota.cli.output import Times
from rota.cli.overview import TYPES, WORKERS, find_types, find_workers
from rota.cli.queues import QUEUES
from rota.cli.schedules import RUN_LIST, SCHEDULES, find_next_times
from rota.client.base import ID_MAX
from rota.client.queues import HOURS_MAX
from rota.client.session import open_session
from rota.client.timeline import fold
from rota.dashboard import actions, enqueue, filters
from rota.dashboard.life import draw_life, list_parts, show_instant, sum_parts
from rota.dashboard.look import Act, Look
from rota.dashboard.overview import HOURS, list_bars, list_times, show_overview
from rota.dashboard.request import Response
from rota.dashboard.sparks import count_members, draw_runs
from rota.dashboard.tree import grow_of_batch, grow_of_job
from rota.errors import UsageError
from rota.model.job import Action, Status
from rota.model.states import takes
from rota.records import ActionRecord

ON_PAGE = 50
SCHEDULE_TIMES = 10
RUNS, RUNS_OF = 20, 100
"""How many last runs are drawn, and of how many schedules."""
MEMBERS = 20
LOG_MAX = 1_000
LOG_FILTERS = {"verb": "Did", "by": "Who", "job": "Job", "since": "Since"}
LONGER = "14d"
"""How far back a search looks that found too little: history is kept so long by default."""
JOB_VERBS = ("retry", "cancel", "discard", "archive")


def find_page(
    routes: Sequence[tuple[str, Callable[..., Response]]], path: str
) -> Callable[[Any], Response] | None:
    for pattern, page in routes:
        found = re.fullmatch(pattern, path)
        if found is not None:
            return partial(page, **found.groupdict())
    return None


def list_jobs(look: Look) -> Response:
    """Jobs that match, the newest first; the next page by the last id."""
    return _show_jobs(look, "Jobs", {})


def list_dead(look: Look) -> Response:
    return _show_jobs(look, "Dead jobs", {"status": "dead"})


def _show_jobs(look: Look, title: str, fixed: dict[str, str]) -> Response:
    picked = filters.pick({**look.request.query, **fixed})
    only_searched = {name: text for name in ("until", "batch") if (text := look.read(name))}
    try:
        search = _read_search(look, picked)
        found, refused = look.opened.find(**search, limit=ON_PAGE + 1), ""
    except UsageError as error:
        search, found, refused = {}, [], str(error)
    jobs = look.opened.explain(found[:ON_PAGE])
    more = jobs[-1].id if len(found) > ON_PAGE else None
    asked = {name: text for name, text in picked.items() if name not in fixed} | only_searched
    verbs = _list_verbs(look, picked.get("status"))
    return look.show(
        "jobs.html", title, {"jobs": jobs, "next_before": more}, refused, longer=LONGER,
        is_of_day=not refused and is_of_day(search),
        JOBS=JOBS, asked=asked, picked=picked, fixed=fixed, labels=filters.FILTERS,
        statuses=list(Status), verbs=verbs,
        verbs_of_all=verbs if jobs and picked and not only_searched else [],
    )  # fmt: skip


def _read_search(look: Look, picked: dict[str, str]) -> dict[str, Any]:
    search = filters.parse(picked) | {"until": read_moment(look.read("until"), "until")}
    for name in ("before", "batch"):
        if look.read(name):
            search[name] = look.read_number(name, 1, ID_MAX)
    return search


def _list_verbs(look: Look, status: str | None) -> list[str]:
    """Return the actions permitted on jobs with a status; None: with any status."""
    able = [verb for verb in JOB_VERBS if status is None or status in takes(Action(verb))]
    return [verb for verb in able if verb in look.request.access.verbs]


def show_job(look: Look, id: str, refused: str = "") -> Response:
    """A job: what happened to it, and what it is now; and why a correction was refused."""
    timeline = look.opened.jobs.timeline(int(id))
    now = look.opened.read_clock()
    effects = look.opened.effects.find(job=int(id))
    job = timeline.job
    parts = list_parts(job, timeline.attempts, now)
    return look.show(
        "job.html", f"Job {id}", {"job": timeline}, entries=fold(timeline.entries),
        life=draw_life(parts, is_live=not job.status.is_settled), sums=sum_parts(parts),
        due=show_instant(job.run_at, now),
        tree=[] if look.request.wants_json else grow_of_job(look, job, timeline.chain),
        its=list(list_facts(job, Times(now), verbose=True)), effects=effects, EFFECTS=EFFECTS,
        refused=refused, typed=(look.request.form.get("payload") or [job.payload_json])[0],
        is_open=job.status is Status.DEAD and not job.resolution,
        verbs=[] if job.resolution else _list_verbs(look, job.status),
    )  # fmt: skip


def fix_job(act: Act, id: str) -> Response:
    """Retry a dead job with corrected arguments, which the type checks; show errors beside
    these."""
    who = act.begin("retry")
    try:
        payload = msgspec.json.decode(act.need("payload"))
        if not isinstance(payload, dict):
            raise UsageError("the payload must be an object: the arguments by name")
        made = act.app.retry(int(id), payload=payload, **who)
    except (msgspec.DecodeError, RecursionError, UsageError) as error:
        is_json = isinstance(error, UsageError)
        said = str(error) if is_json else f"the payload is no JSON: {error}"
        with open_session(act.app, is_read_only=True) as opened:
            look = Look(opened, act.request, act.app, act.memory)
            return show_job(look, id, said)
    return act.go(f"/jobs/{made.id}", f"retried with other arguments, as job {made.id}")


def list_errors(look: Look) -> Response:
    """How attempts failed, each error once; its dead jobs are a link away."""
    since = look.read("since") or ERRORS_SINCE
    found, refused = [], ""
    try:
        moment = read_moment(since, filters.FILTERS["since"]) or ERRORS_SINCE
        found = look.opened.jobs.errors(since=moment, job_type=look.read("job_type"))
    except UsageError as error:
        refused = str(error)
    return look.show(
        "errors.html", "Errors", {"errors": found}, refused, since=since, ERRORS=ERRORS
    )


def list_queues(look: Look) -> Response:
    return look.show(
        "queues.html", "Queues",
        {
            "queues": look.opened.queues.list(),
            "pauses": look.opened.queues.pauses(),
            "limits": look.opened.queues.concurrency_limits(),
        },
        QUEUES=QUEUES,
    )  # fmt: skip


def list_batches(look: Look) -> Response:
    rows = {"batches": look.opened.batches.list()}
    return look.show("batches.html", "Batches", rows, BATCHES=BATCHES)


def show_batch(look: Look, id: str) -> Response:
    """A batch: how far it is, what it belongs to, and the members that need somebody first."""
    batch = look.opened.batches.get(int(id))
    members = count_members(batch, look.opened.count_live_members(batch.id))
    dead = look.opened.find(batch=batch.id, status="dead", limit=MEMBERS)
    newest = look.opened.find(batch=batch.id, limit=MEMBERS)
    jobs = {job.id: job for job in (*dead, *newest)}
    return look.show(
        "batch.html", f"Batch {id}",
        {"batch": batch, "members": members, "jobs": [*jobs.values()][:MEMBERS]},
        tree=[] if look.request.wants_json else grow_of_batch(look, batch), JOBS=JOBS,
        cancel_max=actions.CANCEL_MAX,
    )  # fmt: skip


def list_schedules(look: Look) -> Response:
    """Schedules, each with its last runs as a picture."""
    runs = look.opened.read_last_runs(RUNS_OF, RUNS)
    return look.show(
        "schedules.html", "Schedules", {"schedules": look.opened.schedules.list()},
        SCHEDULES=SCHEDULES, drawn={name: draw_runs(found) for name, found in runs.items()},
    )  # fmt: skip


def show_schedule(look: Look, name: str) -> Response:
    """A schedule: its next times, and how its last runs ended."""
    found = look.opened.schedules.get(name)
    runs = look.opened.schedules.runs(name, limit=ON_PAGE)
    times, problem = find_next_times(found, SCHEDULE_TIMES)
    return look.show(
        "schedule.html", f"Schedule {name}",
        {"schedule": found, "next_times": times, "problem": problem, "runs": runs},
        RUNS=RUN_LIST,
    )  # fmt: skip


def show_statistics(look: Look) -> Response:
    """What ended in the last hours, by type; of one type by hour."""
    hours = look.read_number("hours", HOURS, HOURS_MAX)
    job_type = look.read("job_type")
    stats = look.opened.queues.stats(hours=hours, job_type=job_type)
    now = look.opened.read_clock()
    return look.show(
        "statistics.html", "Statistics", {"stats": stats}, hours=hours, job_type=job_type,
        bars=list_bars(stats.hours, hours, now),
        took=list_times(stats.hours, hours, now) if job_type else [],
        types=[job_type["name"] for job_type in find_types(look.opened)],
    )  # fmt: skip


def list_log(look: Look) -> Response:
    """Who did what, and why."""
    until = read_moment(look.read("before"), "before")
    if isinstance(until, timedelta):
        raise UsageError("before must be an instant, such as 2026-01-14T09:30+00:00")
    asked = {name: text for name in LOG_FILTERS if (text := look.read(name))}
    chosen: Any = dict(asked)
    if "job" in asked:
        chosen["job"] = look.read_number("job", 1, ID_MAX)
    if "since" in asked:
        chosen["since"] = read_moment(asked["since"], "since")
    found = look.opened.jobs.log(until=until, **chosen, limit=LOG_MAX + 1)
    shown = found[:LOG_MAX]
    more = shown[-1].at if len(found) > len(shown) else None
    return look.show(
        "log.html", "Audit log", {"log": shown}, lines=fold_log(shown), asked=asked,
        labels=LOG_FILTERS, next_before=more,
    )  # fmt: skip


def fold_log(log: Sequence[ActionRecord]) -> list[tuple[ActionRecord, list[int]]]:
    """Return a line for each act of a person: what was done to many jobs for one reason, each
    within a second of the other, is one, with their ids."""
    lines: list[tuple[ActionRecord, list[int]]] = []
    last: ActionRecord | None = None
    for entry in log:
        is_one = (
            last is not None
            and None not in (entry.job, last.job)
            and (entry.verb, entry.by, entry.why) == (last.verb, last.by, last.why)
            and last.at - entry.at <= timedelta(seconds=1)
        )
        if is_one:
            lines[-1][1].append(entry.job or 0)
        else:
            lines.append((entry, [entry.job] if entry.job else []))
        last = entry
    return lines


def list_effects(look: Look) -> Response:
    """Effects that are not done; a person resolves uncertain effects."""
    rows = {"effects": look.opened.effects.find()}
    return look.show("effects.html", "Effects", rows, EFFECTS=EFFECTS)


def list_breakers(look: Look) -> Response:
    """Breakers that count failures, or are not closed."""
    rows = {"breakers": look.opened.breakers.list()}
    return look.show("breakers.html", "Breakers", rows, BREAKERS=BREAKERS)


def list_limits(look: Look) -> Response:
    """Rate limits, and what waits for them."""
    rows = {"limits": look.opened.limits.list()}
    return look.show("limits.html", "Rate limits", rows, LIMITS=LIMITS)


def list_alerts(look: Look) -> Response:
    rows = {
        "alerts": look.opened.alerts.list(),
        "rules": look.opened.read_table("alert_rules", columns=RULE_COLUMNS),
    }
    both = [(ALERTS, "alerts"), (RULES, "rules")]
    return look.show("lists.html", "Alerts", rows, all=both, rows_of=rows)


def show_doctor(look: Look) -> Response:
    return look.show("doctor.html", "Doctor", {"checks": look.memory.find_checks()})


def _list(title: str, listed: Any, find: Callable[[Any], Any]) -> Callable[[Look], Response]:
    def page(look: Look) -> Response:
        rows = list(find(look.opened))
        return look.show(
            "lists.html",
            title,
            {listed.name: rows},
            all=[(listed, listed.name)],
            rows_of={listed.name: rows},
        )

    return page


GETS: list[tuple[str, Callable[..., Response]]] = [
    (r"/", show_overview),
    (r"/jobs", list_jobs),
    (r"/jobs/(?P<id>[0-9]{1,18})", show_job),
    (r"/dead", list_dead),
    (r"/errors", list_errors),
    (r"/many/(?P<verb>retry|cancel|discard|archive)", actions.preview),
    (r"/queues", list_queues),
    (r"/schedules", list_schedules),
    (r"/schedules/(?P<name>.+)", show_schedule),
    (r"/workers", _list("Workers", WORKERS, find_workers)),
    (r"/enqueue", enqueue.show_types),
    (r"/types/(?P<name>.+)/enqueue", enqueue.show_form),
    (r"/types", _list("Job types", TYPES, find_types)),
    (r"/groups", _list("Ordered groups", GROUPS, lambda opened: opened.groups.list())),
    (r"/limits", list_limits),
    (r"/breakers", list_breakers),
    (r"/batches", list_batches),
    (r"/batches/(?P<id>[0-9]{1,18})", show_batch),
    (r"/effects", list_effects),
    (r"/statistics", show_statistics),
    (r"/log", list_log),
    (r"/alerts", list_alerts),
    (r"/doctor", show_doctor),
]
POSTS: list[tuple[str, Callable[..., Response]]] = [
    (r"/jobs/(?P<verb>retry|cancel|discard|archive)", actions.act_on_jobs),
    (r"/jobs/(?P<id>[0-9]{1,18})/retry", fix_job),
    (r"/jobs/(?P<id>[0-9]{1,18})/again", actions.run_again),
    (r"/types/(?P<name>.+)/enqueue", enqueue.enqueue_job),
    (r"/many/(?P<verb>retry|cancel|discard|archive)", actions.act_on_many),
    (r"/queues/(?P<verb>pause|resume)", actions.turn_queue),
    (r"/queues/limit", actions.limit_queue),
    (r"/limits/limit", actions.change_limit),
    (r"/schedules/(?P<verb>pause|resume|trigger)", actions.turn_schedule),
    (r"/batches/(?P<id>[0-9]{1,18})/cancel", actions.cancel_batch),
    (r"/effects/resolve", actions.resolve_effect),
    (r"/breakers/reset", actions.reset_breaker),
]
