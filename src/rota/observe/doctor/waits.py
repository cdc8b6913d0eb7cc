"""Judgements of what holds jobs back: lanes, limits, breakers, other jobs. Pure."""

from __future__ import annotations

from rota.model.failure import list_names, one_line
from rota.model.units import list_some, plural, words
from rota.model.wait import STUCK
from rota.observe.doctor.finding import Facts, Finding, Thresholds, bad, ok, warn


def lanes(facts: Facts, thresholds: Thresholds) -> Finding:
    halted = facts["halted"]
    if not halted:
        waiting = plural(facts["laned"], "job waits", "jobs wait")
        return ok(f"{waiting} for ordered groups and concurrency limits")
    text = list_some(
        f"{group['group_key']!r} by job {group['job']}, for {words(group['since_s'] or 0)}"
        for group in halted
    )
    what = plural(len(halted), "ordered group is halted", "ordered groups are halted")
    return bad(
        f"{what} by a dead job: {text}",
        f"find out why it died, then: `rota retry {halted[0]['job']}` or `rota archive`",
    )


def caps(facts: Facts, thresholds: Thresholds) -> Finding:
    late = [cap for cap in facts["caps"] if (cap["since_s"] or 0) >= thresholds.cap_s]
    if late:
        text = list_some(
            f"{cap['name']}: {_count(cap)}, for {words(cap['since_s'])}" for cap in late
        )
        return warn(
            f"jobs wait for a concurrency limit: {text}",
            "raise the limit (max_running= of the type, rota queues set NAME --max-running N), or "
            "make the jobs shorter",
        )
    reached = plural(len(facts["caps"]), "concurrency limit has", "concurrency limits have")
    return ok(f"{reached} waiting jobs, none for long")


def rate_limits(facts: Facts, thresholds: Thresholds) -> Finding:
    missing = [limit for limit in facts["limits"] if limit["missing"]]
    if missing:
        text = list_some(f"{limit['name']}: {_count(limit)}" for limit in missing)
        return warn(
            f"jobs wait for a rate limit that has no row in rota.rate_limit: {text}",
            "if your code names it, rota sync declares it; otherwise they start when they are due",
        )
    far = [limit for limit in facts["limits"] if (limit["ahead_s"] or 0) >= thresholds.backlog_s]
    if far:
        text = list_some(
            f"{limit['name']}: {_count(limit)}, {words(limit['ahead_s'])}" for limit in far
        )
        return warn(
            f"the backlog of a rate limit reaches far ahead: {text}",
            "raise it if the provider permits (rota limits set NAME N), or enqueue fewer jobs",
        )
    keys = plural(len(facts["limits"]), "key of a rate limit", "keys of rate limits")
    return ok(f"jobs wait for {keys}")


def payloads(facts: Facts, thresholds: Thresholds) -> Finding:
    unread = facts["unread"]
    if not unread:
        return ok("no job waits for a release that can read its payload")
    text = list_some(
        f"{_count(held)} of type {held['job_type']}, for {words(held['since_s'])}: release "
        f"{list_names(held['releases'])} cannot ({one_line(held['error'] or '')}); at "
        f"{held['until']} they try again, and the next job is dead if no other is alive"
        for held in unread
    )
    return (bad if any(held["since_s"] >= thresholds.unread_s for held in unread) else warn)(
        f"jobs wait for a release that can read their payloads: {text}",
        "start workers of a release that reads them, or deploy one that does: a default for a new "
        "argument; for one that was renamed version= and upgrade=, because a default loses its "
        "value (docs/understand/payload-versions.md)",
        cause="unread payload",
        because=("restored copy",),
    )


def secrets(facts: Facts, thresholds: Thresholds) -> Finding:
    keyless = facts["keyless"]
    if not keyless:
        return ok(
            f"workers have the keys of {plural(facts['read'], 'waiting job')} with secret arguments"
            if facts["sealed"]
            else "no type has secret arguments"
        )
    lacking = [key for key in keyless if not key["known"]] or keyless
    text = list_some(f"{key['key']}: {_count(key)}, as job {key['job']}" for key in lacking)
    if lacking[0]["known"]:
        return warn(
            f"jobs wait for keys of secrets with which a worker could not open them: {text}",
            "give all workers the same ROTA_SECRET_KEYS: one lacks the key, or has another one of "
            "its id; else the value was changed",
            because=("restored copy",),
        )
    return bad(
        f"jobs wait for keys of secrets that no worker of the last hour has: {text}",
        "add these keys to ROTA_SECRET_KEYS of the workers, and start them again; a worker without "
        "the package cryptography has none: pip install 'rota[secrets]'",
        cause="missing key",
        because=("restored copy", "no worker"),
    )


def breakers(facts: Facts, thresholds: Thresholds) -> Finding:
    long = [
        breaker for breaker in facts["breakers"] if (breaker["open_s"] or 0) >= thresholds.open_s
    ]
    if long:
        text = list_some(
            f"{' '.join(filter(None, (breaker['name'], breaker['key'])))} for "
            f"{words(breaker['open_s'])} ({breaker['reason'] or 'no reason'})"
            for breaker in long
        )
        return warn(
            f"breakers have been open for long: {text}",
            "look at the provider; when it works again: rota breakers reset NAME [KEY]",
        )
    return ok(f"{plural(len(facts['breakers']), 'breaker is open', 'breakers are open')}")


def wait_for_jobs(facts: Facts, thresholds: Thresholds) -> Finding:
    stuck = facts["stuck"]
    if stuck:
        text = list_some(
            f"job {wait['job']} for {wait['waits_for']}, which {STUCK[wait['why']]}"
            for wait in stuck
        )
        return bad(
            f"{plural(len(stuck), 'job waits', 'jobs wait')} for others for ever: {text}",
            f"rota job {stuck[0]['job']} says for which jobs it waits",
        )
    return ok(f"{plural(facts['awaiting'], 'job waits', 'jobs wait')} for other jobs to end")


def _count(row: Facts) -> str:
    return plural(row["jobs"], "job")
