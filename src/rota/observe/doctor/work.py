"""Judgements of the jobs and of the workers. Pure: facts in, a finding out."""

from __future__ import annotations

from difflib import get_close_matches
from shlex import quote
from typing import Any

from rota.model.bounds import COUNT_MAX, KEY_MAX, KEYS_READ
from rota.model.failure import one_line
from rota.model.units import list_some, plural, words
from rota.model.wait import IS_IMPORTED
from rota.observe.doctor.finding import Cause, Facts, Finding, Thresholds, bad, ok, warn


def queues(facts: Facts, thresholds: Thresholds) -> Finding:
    unserved = facts["unserved"]
    if not unserved and facts["left"]:
        return ok(
            f"each queue with due jobs was served within the hour; {_describe_left(facts['left'])}"
        )
    if not unserved:
        return ok("each queue with due jobs is served")
    text = ", ".join(
        f"{queue['queue']!r} (due for {words(queue['waiting_s'])})" for queue in unserved
    )
    return bad(
        f"no worker serves these queues with due jobs: {text}",
        f"start a worker for it: rota work --queue {quote(unserved[0]['queue'] + '=10')}, or fix "
        "the name",
        cause="unserved queue",
        because=("restored copy", "no worker"),
    )


def _describe_left(queues: list[Facts]) -> str:
    """Say which queues lost their last worker, and when."""
    each = list_some(
        f"{queue['queue']!r} (its last one "
        f"{'stopped' if queue['state'] == 'stopped' else 'was last seen'} "
        f"{words(queue['quiet_s'])} ago)"
        for queue in queues
    )
    return f"no live worker serves {each}"


def urgent(facts: Facts, thresholds: Thresholds) -> Finding:
    queues = facts["queues"]
    if not queues:
        return ok("no job of high priority (above 0) has to wait for the only slot of its workers")
    text = ", ".join(
        f"{queue['queue']!r} ({plural(queue['workers'], 'worker')} of one slot)" for queue in queues
    )
    name = quote(queues[0]["queue"] + "=2")
    return warn(
        f"jobs of high priority (above 0) wait for the running one in these queues: {text}",
        f"give a worker two slots or more (--concurrency 2, or --queue {name}): it keeps one in "
        "five, at least one, for them",
    )


def types(facts: Facts, thresholds: Thresholds) -> Finding:
    strange = facts["strange"]
    if not strange:
        return ok(
            f"each type with waiting jobs is declared and known; {len(facts['types'])} are declared"
        )
    text = "; ".join(_strange(kind, facts["declared"]) for kind in strange)
    if any(not kind["is_declared"] for kind in strange):
        do = (
            f"{IS_IMPORTED}; otherwise deploy the release that declares it, or fix the name where "
            "it is enqueued"
        )
    elif any(kind["is_served"] for kind in strange):
        do = f"{IS_IMPORTED}; otherwise start a worker of the App that declares it"
    else:
        do = "start a worker of the App that declares it"
    return (bad if any(kind["waiting_s"] >= 0 for kind in strange) else warn)(
        text, do, cause="unknown type", because=_why_unknown(facts)
    )


def _why_unknown(facts: Facts) -> tuple[Cause, ...]:
    """Return the possible causes that no worker knows these types. A wrong name has no cause."""
    strange, of_app = facts["strange"], {kind["name"] for kind in facts["app"] or ()}
    if all(kind["is_declared"] for kind in strange):
        is_served = any(kind["is_served"] for kind in strange)
        return ("restored copy", "no worker", *(() if is_served else ("unserved queue",)))
    if all(not kind["is_declared"] and kind["job_type"] in of_app for kind in strange):
        return ("not synced",)
    return ()


def _strange(kind: Facts, declared: list[str]) -> str:
    why = "no worker knows it" if kind["is_declared"] else "not declared"
    meant = [] if kind["is_declared"] else get_close_matches(kind["job_type"], declared, 1)
    nearest = f": did you mean {meant[0]}?" if meant else ""
    return f"{kind['job_type']} ({plural(kind['jobs'], 'job')}, {why}){nearest}"


def app(facts: Facts, thresholds: Thresholds) -> Finding:
    stored = {declared["name"]: declared for declared in facts["types"]}
    missing = [declared["name"] for declared in facts["app"] if declared["name"] not in stored]
    changed = [
        f"{declared['name']} ({', '.join(others)})"
        for declared in facts["app"]
        if declared["name"] in stored
        and (others := _list_others(declared, stored[declared["name"]]))
    ]
    text = [f"not declared: {', '.join(missing)}"] if missing else []
    text += [f"declared with other options: {', '.join(changed)}"] if changed else []
    if text:
        return warn(
            "; ".join(text),
            "run `rota sync` at deploy; until then what the database has counts. A worker of "
            "another release declares its own types whenever it starts",
            cause="not synced",
        )
    return ok(f"all types of the App ({len(facts['app'])}) are declared as it has them")


def _list_others(declared: Facts, stored: Facts) -> list[str]:
    return [option for option, value in declared.items() if stored[option] != value]


def workers(facts: Facts, thresholds: Thresholds) -> Finding:
    alive, waiting_s = facts["alive"], facts["waiting_s"]
    gone = ", ".join(
        f"{worker['name']} (silent for {words(worker['silent_s'])})" for worker in facts["gone"]
    )
    shows: Any = {"cause": "no worker", "because": ("restored copy",)}
    some = plural(alive, "worker is alive", "workers are alive")
    do = "check its log and its supervisor; its jobs come back when their leases expire"
    if not alive and waiting_s is not None:
        text = f"no worker is alive, and the oldest due job has been waiting for {words(waiting_s)}"
        if gone:
            return bad(f"{text}; gone within the hour: {gone}", f"start one; {do}", **shows)
        if waiting_s >= thresholds.alone_s or not facts["stopped"]:
            start = "start one with `rota work`, or check that cron runs `rota work --drain`"
            return bad(text, start, **shows)
        return ok(f"{text}; {facts['stopped']:,} stopped within the hour, as drains do")
    if gone:
        return warn(f"{some}; gone within the hour: {gone}", do, because=("restored copy",))
    return ok(f"{some}, {facts['stopped']:,} stopped within the hour")


def refusals(facts: Facts, thresholds: Thresholds) -> Finding:
    long = [worker for worker in facts["refused"] if worker["refused_s"] >= thresholds.refused_s]
    if not long:
        return ok("the database refuses nothing that a live worker does")
    text = "; ".join(
        f"{worker['name']}, for {words(worker['refused_s'])}: {worker['refused']}"
        for worker in long
    )
    return bad(
        f"the database refuses what workers must do: {text}",
        "fix what it names: a trigger, a publication, a right, a lock or a full disk; do not "
        "restart the workers: they keep the outcomes, and try again",
        cause="refusals",
        because=("other schema", "read-only server", "role of workers"),
    )


def fences(facts: Facts, thresholds: Thresholds) -> Finding:
    late = facts["rejected"]
    if not late:
        return ok("no worker of the last hour finished a job that it had lost")
    text = ", ".join(f"{worker['name']}: {worker['rejected']}" for worker in late)
    return warn(
        f"outcomes discarded, because the worker had lost the job: {text}",
        "the worker was frozen, starved or cut off for longer than a lease: "
        "give it CPU and memory, or the type a longer lease",
    )


def running(facts: Facts, thresholds: Thresholds) -> Finding:
    if facts["expired"]:
        text = ", ".join(
            f"job {job['id']} {job['job_type']} ({words(job['expired_s'])})"
            for job in facts["expired"]
        )
        return bad(
            f"leases have expired and no worker took the jobs: {text}",
            "start a worker or a drain: either takes these jobs",
            because=("restored copy", "no worker", "refusals"),
        )
    if facts["long"]:
        text = ", ".join(
            f"job {job['id']} {job['job_type']} for {words(job['running_s'])} "
            f"(timeout {words(job['timeout_s'])}) on {job['worker']}"
            for job in facts["long"]
        )
        return warn(
            f"running for longer than their timeout: {text}",
            "its handler does not stop: set timeouts on the calls that it makes, "
            "or use process=True",
        )
    return ok(f"{plural(facts['running'], 'job is', 'jobs are')} running, none beyond its timeout")


def oldest(facts: Facts, thresholds: Thresholds) -> Finding:
    waiting_s = facts["waiting_s"]
    if waiting_s is None:
        return ok("nothing is due")
    text = f"the oldest due job has been waiting for {words(waiting_s)}"
    if waiting_s < thresholds.due_s[0]:
        return ok(text)
    because: tuple[Cause, ...] = ("restored copy", "no worker", "missing key")
    if (claimable_s := facts["claimable_s"] or 0.0) >= thresholds.due_s[0]:
        # The wait for other jobs explains nothing here.
        waiting_s = claimable_s
        text = f"the oldest due job that a worker could run has been waiting for {words(waiting_s)}"
    else:
        because += ("unserved queue", "unknown type", "pause", "unread payload")
    do = "the workers are busy: add slots or workers, or find what makes their jobs slow"
    if left := [one for one in facts["left"] if one["waiting_s"] >= thresholds.due_s[0]]:
        text = f"{text}; {_describe_left(left)}"
        do = f"start a worker for it: rota work --queue {quote(left[0]['queue'] + '=10')}"
    return (bad if waiting_s >= thresholds.due_s[1] else warn)(text, do, because=because)


def pauses(facts: Facts, thresholds: Thresholds) -> Finding:
    everything = facts["installation"]
    if everything and everything["copied"]:
        return bad(
            f"this is a copy of another database: its workers start paused: {everything['copied']}",
            "`rota queues resume --copy`, if its jobs may run here too",
            cause="restored copy",
        )
    if everything:
        [whole] = [pause for pause in facts["paused"] if pause["queue"] is None] or [None]
        return warn(
            f"everything is paused{_describe_pause(whole)}",
            "`rota queues resume --all`, once the reason for the pause is gone",
            cause="pause",
        )
    if not facts["paused"]:
        return ok("no queue is paused")
    text = "; ".join(f"{pause['queue']!r}{_describe_pause(pause)}" for pause in facts["paused"])
    return warn(
        f"paused: {text}",
        f"`rota queues resume {quote(facts['paused'][0]['queue'])}`, once the reason for the pause "
        "is gone",
        cause="pause",
    )


def _describe_pause(pause: Facts) -> str:
    until = f", until {pause['until']}" if pause["until"] else ""
    why = f": {one_line(pause['why'])}" if pause["why"] else ""
    due = plural(pause["due"], "job is due", "jobs are due")
    at_least = "≥ " if pause["due"] >= COUNT_MAX else ""
    return f" for {words(pause['since_s'])}{until}, by {pause['by']}{why} ({at_least}{due})"


def schedules(facts: Facts, thresholds: Thresholds) -> Finding:
    late = [
        f"{schedule['name']} by {words(schedule['late_s'])}"
        + (f" ({schedule['last_error']})" if schedule["last_error"] else "")
        for schedule in facts["overdue"]
        if schedule["stopped_why"] is None
    ]
    stopped = [
        f"{schedule['name']} ({schedule['stopped_why']})"
        for schedule in facts["overdue"]
        if schedule["stopped_why"] is not None
    ]
    failing = [f"{schedule['name']} ({schedule['why']})" for schedule in facts["failing"]]
    if not late and not stopped and not failing:
        return ok("no schedule is late, and none fails")
    count = facts["overdue_count"]
    text = [f"{count:,} schedules do not fire, such as these"] * (count > len(facts["overdue"]))
    text += [f"late: {', '.join(late)}"] * bool(late)
    text += [f"paused by Rota: {', '.join(stopped)}"] * bool(stopped)
    text += [f"failing: {', '.join(failing)}"] * bool(failing)
    do = [
        "fix the cause in brackets; without one start a worker, or let cron run "
        "`rota work --drain` each minute: either fires schedules"
    ] * bool(late)
    do += [
        "fix the stated cause: then they continue, at the latest after `rota schedules resume NAME`"
    ] * bool(stopped)
    do += [
        "deploy the type that the schedule names, or find out why its runs died: "
        "`rota schedules show NAME`"
    ] * bool(failing)
    is_own = stopped or failing or any(schedule["last_error"] for schedule in facts["overdue"])
    because: tuple[Cause, ...] = () if is_own else ("restored copy", "no worker")
    return bad("; ".join(text), "; ".join(do), because=because)


def batches(facts: Facts, thresholds: Thresholds) -> Finding:
    unfollowed = facts["unfollowed"]
    if not unfollowed:
        return ok("no job is refused that follows a batch")
    text = "; ".join(
        f"batch {batch['id']}, for {words(batch['ended_s'])}: {one_line(batch['then_error'])}"
        for batch in unfollowed
    )
    return bad(
        f"the job that follows a batch cannot be enqueued: {text}",
        "fix the cause, and a worker enqueues it within ten seconds; if a result is too large or "
        "not kept, enqueue the job yourself",
    )


def keys(facts: Facts, thresholds: Thresholds) -> Finding:
    count, example = facts["orphans"], facts["example"]
    if not count:
        return ok(f"none of the {KEYS_READ:,} oldest idempotency keys is that of a deleted job")
    at_least = "" if facts["read"] < KEYS_READ else "≥ "
    return warn(
        f"a DELETE of live jobs left {at_least}{plural(count, 'idempotency key')}, "
        f"such as {one_line(example['key'], 100)!r} of {one_line(example['job_type'], 100)}",
        "cancel jobs with `rota cancel` instead of a DELETE; the next enqueue takes such a key, or "
        "retention frees it",
    )


def effects(facts: Facts, thresholds: Thresholds) -> Finding:
    count, oldest = facts["uncertain"], facts["oldest"]
    at_least = "≥ " if count >= COUNT_MAX else ""
    if not count:
        return ok("no effect is uncertain")
    some = plural(count, "effect")
    if oldest is None:
        return ok(
            f"{at_least}{some} may or may not have happened; their policy asks no operator to look"
        )
    key = one_line(oldest["key"], KEY_MAX)  # whole: it is for a command
    of = "" if oldest["step_of"] is None else f" --job {oldest['job']}"
    return warn(
        f"{at_least}{some} may or may not have happened, {facts['waiting']:,} of them waiting for "
        f"an operator: the oldest is {key!r} of job {oldest['job']}, for {words(oldest['age_s'])}",
        f"look at the provider, then `rota effects resolve {quote(key)}{of} --done` or "
        f"`--not-done`, and `rota retry` the dead job; `rota effects --status uncertain` lists "
        "them",
    )


def dead(facts: Facts, thresholds: Thresholds) -> Finding:
    count = facts["dead"]
    if not count:
        return ok("no job is dead")
    at_least = "≥ " if count >= COUNT_MAX else ""
    most = [
        f"{group['job_type']}, {group['error_type'] or 'no error'} ({group['jobs']})"
        for group in facts["dead_of"]
    ]
    first = facts["dead_of"][0]
    which = f"--status dead --type {quote(first['job_type'])}"
    if first["error_type"]:
        which += f" --error-type {quote(first['error_type'])}"
    return warn(
        f"{at_least}{plural(count, 'dead job')}, the oldest for {words(facts['dead_s'])}; "
        f"most: {'; '.join(most)}",
        f"see `rota jobs {which}`, fix the cause, then `rota retry {which}`, or "
        "`rota archive` with these options",
    )


def packages(facts: Facts, thresholds: Thresholds) -> Finding:
    found = facts["found"]
    if not found:
        return ok("packages have found nothing")
    said = list_some(f"{problem['package']}: {one_line(problem['message'])}" for problem in found)
    return warn(said, one_line(found[0]["cure"]))
