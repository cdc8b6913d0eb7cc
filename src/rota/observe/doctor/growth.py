"""Signs that a team outgrows one table of one database. Pure: facts in, a finding out.
docs/operate/outgrown.md has the figure behind each limit."""

from __future__ import annotations

from rota.model.units import list_some, plural, words
from rota.observe.doctor.finding import Facts, Finding, Thresholds, ok, size, warn

SEE = "see docs/operate/outgrown.md"


def contention(facts: Facts, thresholds: Thresholds) -> Finding:
    waiting, sessions, workers = facts["waiting"], facts["sessions"], facts["workers"]
    text = (
        f"{waiting} of Rota's {plural(sessions, 'session')} wait for a lock, "
        f"{plural(workers, 'worker is alive', 'workers are alive')}, "
        f"{plural(facts['deadlocks'], 'deadlock')} in this database"
    )
    if waiting >= 2 and waiting > thresholds.waiting_share * sessions:
        return warn(
            text,
            "find the blocker with pg_blocking_pids(); if there are many workers, "
            f"run fewer with more slots each; {SEE}",
        )
    if workers > thresholds.workers:
        return warn(
            text,
            "more workers claim no faster, with all on two cores 50 finish a third of what 10 do: "
            f"run fewer with more slots each; {SEE}",
        )
    return ok(text)


def order(facts: Facts, thresholds: Thresholds) -> Finding:
    late = [queue for queue in facts["single"] if queue["waiting_s"] >= thresholds.single_s]
    if late:
        text = ", ".join(
            f"{queue['queue']!r} (due for {words(queue['waiting_s'])})" for queue in late
        )
        return warn(
            f"queues with one slot in total fall behind: {text}",
            f"order by key instead of by queue, or split it; {SEE}",
        )
    queues = plural(
        len(facts["single"]),
        "queue with one slot in total has due jobs",
        "queues with one slot in total have due jobs",
    )
    return ok(f"{queues}, none falls behind")


def busy_lanes(facts: Facts, thresholds: Thresholds) -> Finding:
    late = [
        lane
        for lane in facts["lanes"]
        if lane["jobs"] >= thresholds.lane_jobs and lane["waiting_s"] >= thresholds.lane_s
    ]
    if late:
        text = list_some(
            f"{lane['group_key']!r} ({plural(lane['jobs'], 'job')} or more, the next due for "
            f"{words(lane['waiting_s'])})"
            for lane in late
        )
        return warn(
            f"{plural(len(late), 'ordered group falls behind', 'ordered groups fall behind')} "
            f"while its jobs run: {text}",
            "make the group key narrower, put several steps into one job, or raise "
            f"Ordered(capacity=…) if the order permits it; {SEE}",
        )
    lanes = plural(
        len(facts["lanes"]), "ordered group that runs has", "ordered groups that run have"
    )
    return ok(f"{lanes} due jobs behind, none falls behind")


def fast_limits(facts: Facts, thresholds: Thresholds) -> Finding:
    fast = [limit for limit in facts["limits"] if limit["rate"] > thresholds.limit_rate]
    if fast:
        text = list_some(f"{limit['name']} ({limit['rate']:,.0f} a second)" for limit in fast)
        return warn(
            f"{plural(len(fast), 'rate limit is', 'rate limits are')} faster than one key "
            f"carries: {text}",
            "let one job do many of these calls and take(n) for them, give the limit a key, or "
            f"limit at the provider's proxy; {SEE}",
        )
    limits = plural(len(facts["limits"]), "rate limit", "rate limits")
    return ok(f"{limits} used within the hour, none too fast")


def fan_out(facts: Facts, thresholds: Thresholds) -> Finding:
    text = f"about {plural(facts['live'] or 0, 'live job')} in {size(facts['bytes'])}"
    if facts["uncounted"] >= thresholds.uncounted:
        return warn(
            f"{plural(facts['uncounted'], 'change')} of batches or more are not counted yet",
            f"make fewer and larger batches, and do not mix their jobs; {SEE}",
        )
    if (facts["live"] or 0) > thresholds.live_jobs:
        return warn(
            text, f"enqueue pages of work instead of items, or put fan-out on a broker; {SEE}"
        )
    return ok(text)


def teams(facts: Facts, thresholds: Thresholds) -> Finding:
    count = len(_apart([set(team) for team in facts["teams"]]))
    if count >= thresholds.teams:
        return warn(
            f"{count} groups of workers share no job type",
            f"give each team its own schema or database, or use an event log; {SEE}",
        )
    return ok(f"{plural(count, 'group')} of workers that share job types")


def _apart(teams: list[set[str]]) -> list[set[str]]:
    """Join sets that share a type until no two sets do."""
    groups: list[set[str]] = []
    for team in teams:
        shared = [group for group in groups if group & team]
        groups = [group for group in groups if not group & team] + [team.union(*shared)]
    return groups


def replay(facts: Facts, thresholds: Thresholds) -> Finding:
    text = f"{size(facts['history_bytes'])} of history"
    if facts["history_bytes"] > thresholds.history_bytes:
        return warn(
            text,
            "keep less (rota migrate --keep-history), and keep what is replayed in a log or a "
            f"warehouse; {SEE}",
        )
    return ok(text)


def streaming(facts: Facts, thresholds: Thresholds) -> Finding:
    inserted, updated = facts["inserted"] or 0, facts["updated"] or 0
    rate = updated / inserted if inserted >= 1_000 else 0.0
    reporting = plural(
        facts["reporting"], "running job reports progress", "running jobs report progress"
    )
    text = f"{reporting}; a job is updated {rate:.1f} times"
    if facts["reporting"] > thresholds.reporting or rate > thresholds.updates_a_job:
        return warn(
            text,
            f"report less often, or stream outside the table: Redis, SSE from the handler; {SEE}",
        )
    return ok(text)
