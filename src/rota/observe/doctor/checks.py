"""All checks, in the order in which they are asked, and the round that asks them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from rota.errors import SchemaMissing, SchemaTooNew
from rota.observe.doctor import growth, server, work
from rota.observe.doctor.finding import Finding, Level, Limits, bad, skip, warn
from rota.observe.doctor.work import COUNT_MAX
from rota.store import migrate
from rota.store.db import Database
from rota.store.probe import CannotLook, MayNotLook, Probe, open_any_probe

Facts = dict[str, Any]
ROTAS = "rota "
"""With which the application_name of each of Rota's own connections begins."""
LISTED = 10
"""So many of anything are named."""
HEADS = 1_000
"""Jobs of each queue and priority whose types are looked at."""
RUNNING = 1_000
LATE = timedelta(minutes=1)
RETENTION_MARGIN = timedelta(days=1)
"""A pass of retention comes once an hour, and one that has to wait comes again."""
PARTITION_DAYS = 7
LOCKED = "look again; if it stays so, who locks it: SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


@dataclass(slots=True)
class Patient:
    """What is examined."""

    probe: Probe
    notify: bool | None = None
    """What the App says; None without one."""
    refusal: str | None = None
    """What a pooler said to Rota's session settings."""
    types: Sequence[Facts] | None = None
    """What the App declares: name, queue, priority; None without one."""
    known: dict[str, Facts] = field(default_factory=dict)
    """Facts that were looked up, by statement: several checks judge the same."""

    def facts(self, statement: str, **params: Any) -> Facts:
        """Look something up, once."""
        if statement not in self.known:
            self.known[statement] = self.probe.facts(statement, params)
        return self.known[statement]


@dataclass(frozen=True, slots=True)
class Check:
    """One question."""

    name: str
    question: str
    ask: Callable[[Patient], Facts]
    judge: Callable[[Facts, Limits], Finding]


def _server(patient: Patient) -> Facts:
    return {**patient.facts("doctor_server"), "round_trip_s": patient.probe.round_trips_s()}


def _pooler(patient: Patient) -> Facts:
    return {
        "notify": patient.notify,
        "refusal": patient.refusal,
        "shares": patient.refusal is None and patient.probe.shares_sessions(),
    }


def _listen(patient: Patient) -> Facts:
    silent = patient.notify is False or patient.refusal is not None
    return {
        "notify": False if patient.notify is False else None,
        "heard_s": None if silent else patient.probe.hears_after_s(),
    }


def _migrations(patient: Patient) -> Facts:
    ours = {migration.number: migration.name for migration in migrate.migrations()}
    facts: Facts = {
        "missing": list(ours.values()),
        "too_new": "",
        "newer": [],
        "other": [],
        "count": 0,
    }
    try:
        applied = patient.probe.rows("migrations", {}, ("number", "name", "oldest_release"))
        recorded = patient.probe.rows("definitions", {}, ("name", "hash", "release"))
        changed = patient.probe.rows("definitions_changed", {}, ("name",))
    except SchemaMissing:
        return facts
    stale, _ = migrate.compare([tuple(row.values()) for row in recorded])
    facts |= {
        "stale": [definition.name for definition in stale],
        "changed": [row["name"] for row in changed],
    }
    facts |= {
        "missing": [
            name
            for number, name in ours.items()
            if number not in {row["number"] for row in applied}
        ],
        "count": len(applied),
    }
    facts["other"] = [
        row["name"] for row in applied if row["name"] != ours.get(row["number"], row["name"])
    ]
    facts["newer"] = [row["name"] for row in applied if row["number"] not in ours]
    try:
        migrate.pending([tuple(row.values()) for row in applied], patient.probe.database.schema)
    except SchemaTooNew as error:
        facts["too_new"] = str(error)
    return facts


def _clock(patient: Patient) -> Facts:
    before = time.time()
    at = patient.facts("doctor_clock")["at"]
    return {"skew_s": at - (before + time.time()) / 2}


def _types(patient: Patient) -> Facts:
    return patient.facts("doctor_types", heads=HEADS, limit=LISTED)


def _queues(patient: Patient) -> Facts:
    return patient.facts("doctor_queues", limit=LISTED)


def _workers(patient: Patient) -> Facts:
    return patient.facts("doctor_workers", limit=LISTED)


def _jobs(patient: Patient) -> Facts:
    return patient.facts("doctor_jobs", limit=COUNT_MAX, late=LATE)


def _growth(patient: Patient) -> Facts:
    return patient.facts("doctor_growth", prefix=ROTAS, limit=RUNNING)


CHECKS = (
    Check("connection", "Can it be reached, and is it fit for Rota?", _server, server.connection),
    Check("pooler", "Does a pooler stand in between?", _pooler, server.pooler),
    Check("migrations", "Is the schema this release's?", _migrations, server.migrations),
    Check(
        "privileges",
        "Does the role suffice?",
        lambda patient: patient.facts("doctor_privileges", claims=f"{ROTAS}claim"),
        server.privileges,
    ),
    Check("clock", "Does this machine's clock agree with the database's?", _clock, server.clock),
    Check("listen", "Does LISTEN work?", _listen, server.listen),
    Check(
        "snapshot",
        "Who holds back vacuum?",
        lambda patient: patient.facts("doctor_snapshot", limit=LISTED),
        server.snapshot,
    ),
    Check(
        "vacuum", "Do dead rows go?", lambda patient: patient.facts("doctor_vacuum"), server.vacuum
    ),
    Check(
        "partitions",
        "Are the days to come ready?",
        lambda patient: patient.facts("doctor_partitions", days=PARTITION_DAYS),
        server.partitions,
    ),
    Check(
        "retention",
        "Does what is old go?",
        lambda patient: patient.facts("doctor_retention", margin=RETENTION_MARGIN),
        server.retention,
    ),
    Check(
        "connections",
        "Are there connections left?",
        lambda patient: patient.facts("doctor_connections", prefix=ROTAS),
        server.connections,
    ),
    Check("workers", "Is a worker alive?", _workers, work.workers),
    Check("queues", "Is each queue with due jobs served?", _queues, work.queues),
    Check("types", "Is each type that waits known?", _types, work.types),
    Check(
        "app",
        "Is what the App declares in the database?",
        lambda patient: {**_types(patient), "app": patient.types},
        work.app,
    ),
    Check("oldest", "Do due jobs wait for long?", _jobs, work.oldest),
    Check("paused", "Is a queue paused?", _queues, work.pauses),
    Check("schedules", "Do schedules fire?", _jobs, work.schedules),
    Check(
        "running",
        "Do jobs end?",
        lambda patient: patient.facts("doctor_running", margin=LATE, limit=RUNNING),
        work.running,
    ),
    Check("fences", "Do workers come too late?", _workers, work.fences),
    Check("dead", "Does anybody see to dead jobs?", _jobs, work.dead),
    Check(
        "contention", "Outgrown: are many workers in each other's way?", _growth, growth.contention
    ),
    Check("order", "Outgrown: is strict order asked of a queue?", _growth, growth.order),
    Check("fan-out", "Outgrown: do jobs come in heavy fan-out?", _growth, growth.fan_out),
    Check("teams", "Outgrown: do different teams consume here?", _growth, growth.teams),
    Check("replay", "Outgrown: is history kept to be replayed?", _growth, growth.replay),
    Check(
        "streaming", "Outgrown: is status streamed through the table?", _growth, growth.streaming
    ),
)


@dataclass(frozen=True, slots=True)
class Examination:
    """What all checks have found, in their order."""

    findings: tuple[tuple[Check, Finding], ...]

    def at(self, level: Level) -> list[tuple[Check, Finding]]:
        """Those of one level."""
        return [(check, finding) for check, finding in self.findings if finding.level == level]

    def __getitem__(self, name: str) -> Finding:
        return next(finding for check, finding in self.findings if check.name == name)


def examine(
    database: Database,
    *,
    notify: bool | None = None,
    types: Sequence[Facts] | None = None,
    limits: Limits | None = None,
    only: Sequence[str] = (),
) -> Examination:
    """Ask all checks, or those of these names.

    Args:
        notify: what the App says; None without one.
        types: what the App declares (name, queue, priority); None without one.

    Raises:
        DatabaseUnavailable: the database does not answer, or is gone on the way.
        ConfigurationError: the URL is wrong, or its login.
    """
    with open_any_probe(database) as (probe, refusal):
        patient = Patient(probe, notify, None if refusal is None else str(refusal), types)
        wanted = [check for check in CHECKS if not only or check.name in only]
        return Examination(
            tuple((check, _judge(check, patient, limits or Limits())) for check in wanted)
        )


def _judge(check: Check, patient: Patient, limits: Limits) -> Finding:
    if check.name == "app" and patient.types is None:
        return skip(
            "no App was named", "give --app module:attribute to compare it with the database"
        )
    try:
        finding = check.judge(check.ask(patient), limits)
        # Advice that is SQL is to be copied: there as in all SQL of ours, the word before the dot is the schema.
        return replace(
            finding,
            what_to_do=finding.what_to_do.replace(" rota.", f" {patient.probe.database.schema}."),
        )
    except MayNotLook as error:
        judged = (
            bad if check.name == "privileges" else skip
        )  # whether the role suffices is known then
        return judged(str(error), "docs/doctor.md lists what it has to be granted")
    except CannotLook as error:
        return warn(
            str(error), LOCKED
        )  # not skipped: a table that somebody locks stops workers as well
    except SchemaMissing:
        return skip("there is no schema of Rota's, or an older one", "see migrations")
