"""All checks in their order, and the function that runs them.

A check is data: its name, its question, where its facts come from, and a pure judgement of them.
Checks write nothing, and no query takes longer than two seconds. A check that the role may not make
says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from rota.errors import SchemaMissing, SchemaTooNew
from rota.model.bounds import COUNT_MAX, KEYS_READ
from rota.observe.doctor import growth, server, waits, work
from rota.observe.doctor.finding import (
    Facts,
    Finding,
    Level,
    Thresholds,
    attribute,
    bad,
    skip,
    warn,
)
from rota.store import migrate
from rota.store.db import Database
from rota.store.probe import Probe, QueryFailed, QueryForbidden, open_any_probe

ROTAS = "rota "
"""The prefix of the application_name of Rota's own connections."""
LISTED = 10
IDS = 10_000
"""Most keys of finished jobs, and runs of schedules, that are read for their jobs' ids."""
HEADS = 1_000
"""Most jobs of each queue and priority whose types are read."""
RUNNING = 1_000
WAITED_FOR = 100
"""Most lanes, concurrency limits, keys of rate limits and breakers that are read of each kind."""
UNCOUNTED_MAX = 100_000
LATE = timedelta(minutes=1)
RETENTION_MARGIN = timedelta(days=1)
"""How long a day may stay after its time: retention runs hourly, and may have to wait."""
PARTITION_DAYS = 7
LOCKED = (
    "run it again; if it stays so, find the blocker: SELECT pid, pg_blocking_pids(pid), query "
    "FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
)


@dataclass(slots=True)
class FactSource:
    """Where the checks read their facts: a database, and what the App says."""

    probe: Probe
    notify: bool | None = None
    """The App's setting; None without an App."""
    refusal: str | None = None
    """A pooler's error for Rota's session settings."""
    types: Sequence[Facts] | None = None
    """What the App declares: name, queue, priority; None without an App."""
    app_failure: str | None = None
    known: dict[str, Facts] = field(default_factory=dict)
    """Facts by statement: several checks judge the same facts."""

    def facts(self, statement: str, **params: Any) -> Facts:
        if statement not in self.known:
            self.known[statement] = self.probe.facts(statement, params)
        return self.known[statement]


Ask = Callable[[FactSource], Facts]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    question: str
    ask: Ask
    judge: Callable[[Facts, Thresholds], Finding]


def _server(source: FactSource) -> Facts:
    return {**source.facts("doctor_server"), "round_trip_s": source.probe.measure_round_trip_s()}


def _pooler(source: FactSource) -> Facts:
    return {
        "notify": source.notify,
        "refusal": source.refusal,
        "shares": source.refusal is None and source.probe.shares_sessions(),
    }


def _listen(source: FactSource) -> Facts:
    is_standby = source.facts("doctor_server")["is_standby"]
    silent = source.notify is False or source.refusal is not None or is_standby
    return {
        "is_standby": is_standby,
        "notify": source.notify,
        "notify_s": None if silent else source.probe.measure_notify_s(),
    }


def _migrations(source: FactSource) -> Facts:
    ours = {migration.number: migration.name for migration in migrate.migrations()}
    try:
        columns = ("number", "name", "oldest_release", "package")
        everything = source.probe.rows("migrations", {}, columns)
        applied = [row for row in everything if not row["package"]]
        recorded = source.probe.rows("definitions", {}, ("name", "hash", "release"))
        changed = source.probe.rows("definitions_changed", {}, ("name",))
    except SchemaMissing:
        return {"missing": list(ours.values())}
    stale, _ = migrate.compare([tuple(row.values()) for row in recorded])
    names = {row["number"]: row["name"] for row in applied}
    too_new = ""
    try:
        migrate.pending([tuple(row.values()) for row in applied], source.probe.database.schema)
    except SchemaTooNew as error:
        too_new = str(error)
    return {
        "missing": [name for number, name in ours.items() if number not in names],
        "too_new": too_new,
        "other": [name for number, name in names.items() if name != ours.get(number, name)],
        "stale": [definition.name for definition in stale],
        "changed": [row["name"] for row in changed],
        "newer": [name for number, name in names.items() if number not in ours],
        "count": len(applied),
    }


def _clock(source: FactSource) -> Facts:
    before = time.time()
    at = source.facts("doctor_clock")["at"]
    return {"skew_s": at - (before + time.time()) / 2}


def _privileges(source: FactSource) -> Facts:
    strangers = source.probe.rows("schema_others", {}, ("what", "cure"))
    return {**source.facts("doctor_privileges", claims=f"{ROTAS}claim"), "strangers": strangers}


def _packages(source: FactSource) -> Facts:
    columns = ("package", "subject", "message", "cure")
    return {"found": source.probe.rows("package_findings", {}, columns)}


def _ask(statement: str, **params: Any) -> Ask:
    return lambda source: source.facts(statement, **params)


def _join(*asks: Ask) -> Ask:
    return lambda source: {name: fact for ask in asks for name, fact in ask(source).items()}


_due = _ask("doctor_due", heads=HEADS, limit=LISTED)
_jobs = _ask("doctor_jobs", limit=COUNT_MAX, late=LATE)
_queues = _join(_due, _ask("doctor_queues", limit=LISTED, counted=COUNT_MAX))
_types = _join(_due, _ask("doctor_types"), lambda source: {"app": source.types})
_waits = _ask("doctor_waits", names=WAITED_FOR, limit=COUNT_MAX)
_workers = _ask("doctor_workers", limit=LISTED)
_growth = _ask("doctor_growth", prefix=ROTAS, limit=RUNNING, names=WAITED_FOR, deltas=UNCOUNTED_MAX)
_snapshot = _ask("doctor_snapshot", limit=LISTED)
_partitions = _ask("doctor_partitions", days=PARTITION_DAYS)
_retention = _ask("doctor_retention", margin=RETENTION_MARGIN)
_connections = _ask("doctor_connections", prefix=ROTAS)
_running = _ask("doctor_running", margin=LATE, limit=RUNNING)
_keys = _ask("doctor_keys", limit=KEYS_READ)
_urgent = _ask("doctor_urgent", limit=LISTED)
_effects = _ask("doctor_effects", limit=COUNT_MAX)
_secrets = _ask("doctor_secrets", limit=COUNT_MAX)
CHECKS = (
    Check("connection", "Is the server reachable and suitable?", _server, server.connection),
    Check("pooler", "Is there a pooler in between?", _pooler, server.pooler),
    Check("migrations", "Does the schema match this release?", _migrations, server.migrations),
    Check("privileges", "Does the role have the rights it needs?", _privileges, server.privileges),
    Check("clock", "Does this machine's clock agree with the database's?", _clock, server.clock),
    Check("listen", "Does LISTEN work?", _listen, server.listen),
    Check("snapshot", "What holds back vacuum?", _snapshot, server.snapshot),
    Check("vacuum", "Does vacuum remove dead rows?", _ask("doctor_vacuum"), server.vacuum),
    Check("partitions", "Do the coming days have partitions?", _partitions, server.partitions),
    Check("ids", "Are new ids above all old ones?", _ask("doctor_ids", limit=IDS), server.ids),
    Check("retention", "Is old history removed?", _retention, server.retention),
    Check("connections", "Are there free connections?", _connections, server.connections),
    Check("workers", "Is a worker alive?", _workers, work.workers),
    Check("queues", "Is each queue with due jobs served?", _queues, work.queues),
    Check("priority", "Do jobs of high priority have room beside slow ones?", _urgent, work.urgent),
    Check("types", "Does a worker know the type of each waiting job?", _types, work.types),
    Check("app", "Does the database have the App's declarations?", _types, work.app),
    Check("oldest", "How long do due jobs wait?", _join(_jobs, _due), work.oldest),
    Check("paused", "Is a queue paused?", _queues, work.pauses),
    Check("schedules", "Do schedules fire?", _jobs, work.schedules),
    Check("batches", "Does the job start that follows a batch?", _jobs, work.batches),
    Check("running", "Do jobs end in time?", _running, work.running),
    Check("keys", "Does a job that is gone hold an idempotency key?", _keys, work.keys),
    Check("effects", "Is there an effect that may have happened?", _effects, work.effects),
    Check("groups", "Does a dead job halt an ordered group?", _waits, waits.lanes),
    Check("concurrency", "Do jobs wait long for a concurrency limit?", _waits, waits.caps),
    Check("limits", "Do jobs wait long for a rate limit?", _waits, waits.rate_limits),
    Check("breakers", "Is a breaker open for long?", _waits, waits.breakers),
    Check("awaited", "Does a job wait for others for ever?", _waits, waits.wait_for_jobs),
    Check("secrets", "Can a worker open each secret?", _secrets, waits.secrets),
    Check("payloads", "Can a worker read each payload?", _waits, waits.payloads),
    Check("refusals", "Does the database refuse what workers do?", _workers, work.refusals),
    Check("fences", "Do workers finish jobs that they have lost?", _workers, work.fences),
    Check("packages", "What do the packages find?", _packages, work.packages),
    Check("dead", "Are there dead jobs?", _jobs, work.dead),
    Check("contention", "Outgrown: do workers block each other?", _growth, growth.contention),
    Check("order", "Outgrown: does a queue need strict order?", _growth, growth.order),
    Check("busy-groups", "Outgrown: do ordered groups fall behind?", _growth, growth.busy_lanes),
    Check("fast-limits", "Outgrown: is a rate limit too fast?", _growth, growth.fast_limits),
    Check("fan-out", "Outgrown: is there heavy fan-out?", _growth, growth.fan_out),
    Check("teams", "Outgrown: do several teams share this schema?", _growth, growth.teams),
    Check("replay", "Outgrown: is history used for replay?", _growth, growth.replay),
    Check(
        "streaming", "Outgrown: is status streamed through the table?", _growth, growth.streaming
    ),
)


@dataclass(frozen=True, slots=True)
class Examination:
    findings: tuple[tuple[Check, Finding], ...]

    def at(self, level: Level) -> list[tuple[Check, Finding]]:
        return [(check, finding) for check, finding in self.findings if finding.level == level]

    def list_followers(self, name: str) -> list[tuple[Check, Finding]]:
        return [pair for pair in self.findings if pair[1].follows_from == name]

    def __getitem__(self, name: str) -> Finding:
        return next(finding for check, finding in self.findings if check.name == name)


def examine(
    database: Database,
    *,
    notify: bool | None = None,
    types: Sequence[Facts] | None = None,
    app_failure: str | None = None,
    thresholds: Thresholds | None = None,
    only: Sequence[str] = (),
) -> Examination:
    """Run all checks, or the checks in `only`.

    Args:
        notify: the App's setting; None without an App.
        types: what the App declares, by name and the options that the database has too; None
            without an App.
        app_failure: why the App cannot be imported.

    Raises:
        DatabaseUnavailable: the database does not answer, or the connection is lost.
        ConfigurationError: the URL or its login is wrong.
    """
    with open_any_probe(database) as (probe, refusal):
        refused = None if refusal is None else str(refusal)
        source = FactSource(probe, notify, refused, types, app_failure)
        wanted = [check for check in CHECKS if not only or check.name in only]
        found = {check.name: _judge(check, source, thresholds or Thresholds()) for check in wanted}
        attributed = attribute(found)
        return Examination(tuple((check, attributed[check.name]) for check in wanted))


def _judge(check: Check, source: FactSource, thresholds: Thresholds) -> Finding:
    if check.name == "app" and source.app_failure:
        return bad(source.app_failure, "fix that here: `rota work` ends with it, also from cron")
    if check.name == "app" and source.types is None:
        return skip(
            "no App was named", "give --app module:attribute to compare it with the database"
        )
    try:
        finding = check.judge(check.ask(source), thresholds)
        # SQL in an advice is to be copied, so it must name the schema that this database uses.
        return replace(
            finding,
            what_to_do=finding.what_to_do.replace(" rota.", f" {source.probe.database.schema}."),
        )
    except QueryForbidden as error:
        # For the check of privileges this is the answer itself.
        judge = bad if check.name == "privileges" else skip
        return judge(str(error), "docs/operate/roles.md lists the rights to grant")
    except QueryFailed as error:
        # Not skipped: a locked table stops workers too.
        return warn(str(error), LOCKED, because=("other schema",))
    except SchemaMissing:
        return skip("Rota's schema is missing or older than this release", "see migrations")
