"""Judgements of the server and of Rota's schema in it. Pure: facts in, a finding out. Each function
answers the question that stands beside it in `CHECKS`."""

from __future__ import annotations

from rota.model.failure import list_names
from rota.model.units import plural, words
from rota.observe.doctor.finding import Cause, Facts, Finding, Thresholds, bad, ok, size, skip, warn

POSTGRESQL_MIN = 150_000
_NO_UPKEEP: tuple[Cause, ...] = ("restored copy", "role of workers", "no worker")
"""Why no worker does the hourly maintenance."""
MONITOR = "grant pg_monitor to this role to see more"


def connection(facts: Facts, thresholds: Thresholds) -> Finding:
    version, trip_s = facts["version"], facts["round_trip_s"]
    if version < POSTGRESQL_MIN:
        return bad(f"PostgreSQL {version // 10_000} is too old", "move to PostgreSQL 15 or newer")
    if facts["encoding"] != "UTF8":
        return bad(
            f"the database has encoding {facts['encoding']}",
            "create one with ENCODING 'UTF8' TEMPLATE template0 and move there",
        )
    if facts["is_read_only"]:
        return bad(
            "the server is read-only: a standby, or default_transaction_read_only is on",
            "connect to the primary",
            cause="read-only server",
        )
    for name, timeout_s in facts["timeouts_s"].items():
        if 0 < (timeout_s or 0) < thresholds.timeout_s:
            return warn(
                f"{name} is {timeout_s:g} s: the server ends a session that needs longer, which "
                "seems an outage",
                f"ALTER ROLE … SET {name} = '1min' for the roles of Rota, or 0",
            )
    text = (
        f"PostgreSQL {version // 10_000}.{version % 10_000}, "
        f"a round trip takes {trip_s * 1000:.1f} ms"
    )
    if trip_s > thresholds.round_trip_s:
        return warn(
            text,
            "run the workers closer to the database: "
            "each claim and each finish takes two round trips",
        )
    return ok(text)


def pooler(facts: Facts, thresholds: Thresholds) -> Finding:
    use = "use App(notify=False) behind it, and run `rota migrate` without it"
    if facts["refusal"]:
        return bad(facts["refusal"], use, cause="pooler")
    if facts["shares"] and facts["notify"] is False:
        return ok("there is a transaction pooler, and the App has notify=False")
    if facts["shares"]:
        return bad(
            "connections share sessions, as behind a transaction pooler: "
            "LISTEN does not work through it",
            use,
            cause="pooler",
        )
    if facts["notify"] is False:
        return warn(
            "there is no transaction pooler, and the App has notify=False",
            "leave notify out: workers are then woken at once",
        )
    return ok("each connection has a session of its own")


def listen(facts: Facts, thresholds: Thresholds) -> Finding:
    if facts["notify"] is False:
        return skip("the App has notify=False: workers poll")
    if facts["is_standby"]:
        return skip("a standby takes no LISTEN")
    if facts["notify_s"] is None:
        return bad(
            "a NOTIFY did not arrive within 2 s: "
            "jobs are picked up by polling only, and a cancel takes effect late",
            "check for a pooler in transaction mode; use App(notify=False) behind one",
            because=("pooler",),
        )
    return ok(f"a NOTIFY arrived after {facts['notify_s'] * 1000:.0f} ms")


def privileges(facts: Facts, thresholds: Thresholds) -> Finding:
    role, owner = facts["role"], facts["owner"]
    if facts["strangers"]:
        return bad(
            f"others could run code with the rights of {owner}: "
            f"{'; '.join(stranger['what'] for stranger in facts['strangers'])}",
            "; ".join(stranger["cure"] for stranger in facts["strangers"]),
        )
    if facts["others"]:
        return bad(
            f"workers are connected as {', '.join(facts['others'])}, which does not own the "
            "schema: "
            "they cannot create tomorrow's partitions",
            f"let the workers connect as {owner}, or GRANT {owner} TO that role",
            cause="role of workers",
        )
    if facts["is_owner"]:
        return ok(f"{role} owns the schema, as a worker's role must")
    may = (
        "can enqueue"
        if facts["inserts"]
        else "can read"
        if facts["reads"]
        else "can do nothing here"
    )
    return warn(
        f"{role} {may}; the schema's owner is {owner}",
        f"run workers and `rota migrate` as {owner}; for anything else this role is enough",
    )


def migrations(facts: Facts, thresholds: Thresholds) -> Finding:
    if facts["missing"]:
        return bad(
            f"the schema lacks {', '.join(facts['missing'])}",
            "run `rota migrate` as the owner of the schema",
            cause="other schema",
        )
    if facts["too_new"]:
        return bad(facts["too_new"], "install the newer release", cause="other schema")
    if facts["other"]:
        return bad(
            f"{', '.join(facts['other'])}: not this release's migration of that number",
            "no release made this schema: compare it with `rota migrate --sql`",
            cause="other schema",
        )
    if facts["stale"]:
        names = ", ".join(facts["stale"])
        return bad(
            f"the schema lacks this release's {names}",
            "run `rota migrate` as the owner of the schema",
            cause="other schema",
        )
    if facts["changed"]:
        return warn(
            f"changed since `rota migrate`: {', '.join(facts['changed'])}",
            "run `rota migrate --restore` as the owner of the schema: it puts them back",
            cause="other schema",
        )
    if facts["newer"]:
        return warn(
            f"the schema also has {', '.join(facts['newer'])}, of a newer release",
            "finish the deploy; this release can work with it",
        )
    return ok(f"{plural(facts['count'], 'migration')}, none missing")


def clock(facts: Facts, thresholds: Thresholds) -> Finding:
    skew_s = facts["skew_s"]
    if abs(skew_s) > thresholds.skew_s:
        way = "behind" if skew_s > 0 else "ahead of"
        return warn(
            f"this machine's clock is {words(abs(skew_s))} {way} the database's",
            "run NTP on both; jobs use the database's clock, logs and anything computed here do "
            "not",
        )
    return ok(f"this machine and the database agree within {max(abs(skew_s), 0.1):.1f} s")


def snapshot(facts: Facts, thresholds: Thresholds) -> Finding:
    holders = facts["holders"]
    if not holders:
        return ok("nothing holds an old snapshot")
    holder = max(holders, key=lambda holder: _grade(holder, thresholds))
    worst = _grade(holder, thresholds)
    text = f"the oldest is {_holder(holder)}"
    if worst == 0:
        hidden = any(holder["is_hidden"] for holder in holders)
        return ok(f"{text}{f' ({MONITOR})' if hidden else ''}")
    return (bad if worst == 2 else warn)(
        f"{text}: vacuum cannot remove dead rows younger than it, and claims slow down with time",
        _release(holder),
        cause="old snapshot",
    )


def _grade(holder: Facts, thresholds: Thresholds) -> int:
    if holder["held_s"] is None:
        return sum(holder["xids"] >= most for most in thresholds.snapshot_xids)
    return sum(holder["held_s"] >= most for most in thresholds.snapshot_s)


def _holder(holder: Facts) -> str:
    who = f"{holder['kind']} {holder['who']}"
    facts = [
        f"user {holder['user']}" if holder["user"] else "",
        f"application {holder['application']}" if holder["application"] else "",
        holder["state"] or "",
        f"for {words(holder['held_s'])}" if holder["held_s"] is not None else "",
        f"{holder['xids']:,} transactions old",
    ]
    return f"{who} ({', '.join(fact for fact in facts if fact)})"


def _release(holder: Facts) -> str:
    who = str(holder["who"])
    match holder["kind"]:
        case "prepared transaction":
            return f"end it where it was prepared, or here: ROLLBACK PREPARED '{who}'"
        case "replication slot":
            return (
                f"let its consumer catch up, or drop it: SELECT pg_drop_replication_slot('{who}')"
            )
        case "standby":
            return "end the long query there, or turn hot_standby_feedback off on it"
    return f"ask its owner to end it, or: SELECT pg_terminate_backend({who})"


def vacuum(facts: Facts, thresholds: Thresholds) -> Finding:
    tables = facts["tables"] or []
    if not facts["autovacuum"] or not facts["counts"]:
        off = "autovacuum" if not facts["autovacuum"] else "track_counts"
        return bad(
            f"{off} is off on this server: dead rows stay for ever",
            f"set {off} = on in postgresql.conf and reload",
        )
    disabled = [table["name"] for table in tables if table["is_off"]]
    if disabled:
        do = "; ".join(
            f"ALTER TABLE rota.{name} RESET (autovacuum_enabled); VACUUM rota.{name}"
            for name in disabled
        )
        return bad(f"autovacuum is off for {', '.join(disabled)}", do)
    full = [
        table
        for table in tables
        if (table["dead"] or 0)
        > thresholds.dead_rows + thresholds.dead_share * (table["live"] or 0)
    ]
    if full:
        text = ", ".join(
            f"{table['name']}: {table['dead']:,} dead and {table['live']:,} live rows, "
            f"{_vacuum_age(table)}"
            for table in full
        )
        return warn(
            text,
            "raise autovacuum_vacuum_cost_limit or run VACUUM by hand",
            because=("old snapshot",),
        )
    job = next((table for table in tables if table["name"] == "job"), None)
    return ok(
        f"job has {job['dead'] or 0:,} dead rows, {_vacuum_age(job)}" if job else "no figures yet"
    )


def _vacuum_age(table: Facts) -> str:
    ago_s = table["vacuumed_s"]
    return "not vacuumed yet" if ago_s is None else f"vacuumed {words(ago_s)} ago"


def partitions(facts: Facts, thresholds: Thresholds) -> Finding:
    missing = sorted({day for days in facts.values() for day in days})
    first = missing[0] if missing else None
    gaps = "; ".join(f"{table}: {_days(days)}" for table, days in facts.items() if days)
    do = (
        "start a worker as the owner of the schema, which creates them; "
        "if one is running, its log says why it does not"
    )
    if first is not None and first <= thresholds.partition_days[1]:
        by_hand = f"{do}; by hand: SELECT rota.partitions_ensure(7)"
        return bad(f"no partition for {gaps}", by_hand, because=_NO_UPKEEP)
    if first is not None and first <= thresholds.partition_days[0]:
        return warn(f"no partition for {gaps}", do, because=_NO_UPKEEP)
    return ok(f"today and the {plural((first or 8) - 1, 'day')} after it have partitions")


def _days(days: list[int]) -> str:
    return ", ".join(
        "today" if day == 0 else "tomorrow" if day == 1 else f"in {day} days" for day in days
    )


def ids(facts: Facts, thresholds: Thresholds) -> Finding:
    if not facts["behind"]:
        return ok("new ids are above all old ones")
    behind = ", ".join(
        f"{ids['sequence']} is at {ids['last_id']:,}, and an id is {ids['highest_id']:,}"
        for ids in facts["behind"]
    )
    return bad(
        f"{behind}: new jobs get the ids of old ones, or are refused",
        "run `rota queues resume --copy`, or as the owner: SELECT * FROM rota.ids_ensure()",
        because=("restored copy",),
    )


def retention(facts: Facts, thresholds: Thresholds) -> Finding:
    weight = (
        f"{plural(facts['days'], 'day')} of history, {size(facts['bytes'])}, "
        f"yesterday {size(facts['last_day_bytes'])}"
    )
    archive = facts["archive"]
    if archive:
        days = plural(archive["days"], "partition")
        weight += f", {days} in archive {archive['name']} ({size(archive['bytes'])})"
    if archive and not archive["is_open"]:
        return bad(
            f"archive {archive['name']} is missing, or the schema's owner may not create tables "
            f"there: expired partitions stay; {weight}",
            f"run `rota migrate --archive {archive['name']}` as the owner of the schema, which "
            "creates it, or says which right is missing; or `rota migrate --no-archive`",
        )
    if facts["pending"]:
        return warn(
            f"{', '.join(facts['pending'])} is half detached: it waits for every older snapshot",
            "end the oldest transaction; the next pass, within the hour, finishes it",
            because=("old snapshot",),
        )
    if facts["detached"]:
        return _judge_detached(facts["detached"], weight)
    if facts["overdue"]:
        return warn(
            f"{', '.join(facts['overdue'])} should have been removed; {weight}",
            "look for `retention:` in the workers' logs: usually a long transaction, "
            "or a worker that does not own the schema",
            because=("old snapshot", *_NO_UPKEEP),
        )
    forever = [
        what for what in ("history", "attempts", "dead") if what not in (facts["keep_s"] or {})
    ]
    return ok("; kept for ever: ".join([weight, *([", ".join(forever)] if forever else [])]))


def _judge_detached(days: list[Facts], weight: str) -> Finding:
    names = list_names(day["name"] for day in days)
    taken = list_names(day["name"] for day in days if day["is_taken"])
    return warn(
        f"detached, but still in Rota's schema: {names}; `rota jobs` does not show these days; "
        f"{weight}",
        f"the archive has a table of this name: {taken}: rename that table, and the next pass "
        "moves the day"
        if taken
        else "look for `retention:` in the workers' logs: the next pass that can removes them",
    )


def connections(facts: Facts, thresholds: Thresholds) -> Finding:
    used, most, ours, workers = facts["used"], facts["most"], facts["ours"], facts["workers"]
    whose = f"{ours} by Rota" + (f" ({plural(workers, 'worker')})" if workers else "")
    text = f"{used} of {plural(most, 'connection')} in use, {whose}"
    if used < thresholds.connections_share[0] * most:
        return ok(text)
    level = bad if used >= thresholds.connections_share[1] * most else warn
    return level(
        text,
        "a worker needs seven: run fewer workers with more slots, raise max_connections, "
        "or put PgBouncer in between (notify=False)",
    )
