"""What must be true at the end of the story: a SELECT for each promise, and what it should find."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from story import stage

HELD = "held@shop.example"
"""Whose mail is on its way when the worker is killed."""


@dataclass(slots=True)
class Facts:
    """What happened, as far as the SELECTs need it."""

    signed_up: int = 0
    orders: int = 0
    cents: int = 0
    rolled_back: int = 0
    order: int = 0
    imported: int = 0
    held: int = 0
    effect: str = ""
    killed: str = ""
    """The worker that was killed with a mail; below, in the middle of the export."""
    exporter: str = ""
    export: int = 0
    delivery: int = 0
    monday: datetime = field(default_factory=datetime.now)
    """Seven in the morning of the day at which it ends."""


@dataclass(slots=True)
class Promise:
    """A promise, its SELECT, and what that found."""

    what: str
    select: str
    expected: tuple[Any, ...]
    found: tuple[Any, ...] = ()

    @property
    def is_kept(self) -> bool:
        return self.found == self.expected


def look(connection: psycopg.Connection, facts: Facts) -> list[Promise]:
    """Run the SELECTs; no row is an empty tuple."""
    found = [*_sign_ups(facts), *_crm(facts), *_purchases(facts), *_export(facts), *_night(facts)]
    for promise in found:
        promise.found = connection.execute(promise.select.encode()).fetchone() or ()
    return found


def _sign_ups(facts: Facts) -> list[Promise]:
    users = facts.signed_up
    return [
        Promise(
            "each who signed up got one welcome mail",
            "SELECT count(*), count(DISTINCT recipient) FROM outside.mail "
            "WHERE subject = 'Welcome, Ada'",
            (users, users),
        ),
        Promise(
            "… also where the worker was killed just after: a person said that it is done",
            f"SELECT status, (SELECT count(*) FROM outside.mail WHERE recipient = '{HELD}') "
            f"FROM rota.effects WHERE key = '{facts.effect}'",
            ("done", 1),
        ),
        Promise(
            "the sign-up that was rolled back left no user",
            f"SELECT count(*) FROM shop_user WHERE id = {facts.rolled_back}",
            (0,),
        ),
        Promise(
            "… and no job",
            f"SELECT count(*) FROM rota.jobs WHERE '{facts.rolled_back}' IN "
            "(payload->>'user', payload->>'user_id', payload->'data'->>'user')",
            (0,),
        ),
        Promise(
            "most sign-ups were quicker than the quickest one that called mail and CRM itself",
            "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) "
            "FILTER (WHERE how = 'POST /users') < min(ms) FILTER (WHERE how = 'inline') "
            "FROM outside.call",
            (True,),
        ),
    ]


def _crm(facts: Facts) -> list[Promise]:
    return [
        Promise(
            "the CRM got each user once, and each request was signed",
            "SELECT count(*), count(DISTINCT webhook_id), bool_and(verified) "
            "FROM outside.request WHERE receiver = 'crm' AND status = 204",
            (facts.signed_up, facts.signed_up, True),
        ),
        Promise(
            "the breaker spared it: less than two requests for each that failed",
            "SELECT count(*) < 40 FROM outside.request "
            "WHERE receiver = 'crm' AND status = 503 AND webhook_id IS NOT NULL",
            (True,),
        ),
        Promise(
            "the delivery that it refused was dead, with the reason",
            f"SELECT status, response_code, verdict FROM rota.jobs WHERE id = {facts.delivery}",
            ("dead", 422, "fatal"),
        ),
        Promise(
            "… and was requeued in the morning, and arrived",
            f"SELECT status FROM rota.jobs WHERE origin_id = {facts.delivery} "
            f"AND id <> {facts.delivery}",
            ("succeeded",),
        ),
    ]


def _purchases(facts: Facts) -> list[Promise]:
    orders = facts.orders
    delivery = (
        "FROM rota.jobs WHERE job_type = 'webhook' "
        f"AND payload->>'event_id' = 'order:{facts.order}'"
    )
    return [
        Promise(
            "each purchase sent its mail and its webhook once",
            "SELECT (SELECT count(DISTINCT subject) FROM outside.mail WHERE subject LIKE 'Your "
            "order%'), (SELECT count(*) FROM outside.mail WHERE subject LIKE 'Your order%'), "
            "(SELECT count(*) FROM outside.request WHERE receiver = 'partner' AND status = 204)",
            (orders, orders, orders),
        ),
        Promise(
            "the webhook that failed twice arrived at the third attempt",
            f"SELECT status, attempts {delivery}",
            ("succeeded", 3),
        ),
        Promise(
            "… and its failures are kept, with the response code",
            "SELECT string_agg(format('%s: %s, %s', attempt, response_code, verdict), '; ' "
            f"ORDER BY attempt) FROM rota.attempt WHERE job = (SELECT id {delivery})",
            ("1: 503, transient; 2: 503, transient",),
        ),
        Promise(
            "the sales of the day are added up",
            "SELECT sum(orders)::int, sum(cents)::int FROM shop_sales",
            (orders, facts.cents),
        ),
        Promise(
            "the import of a wrong file is dead at once, with the reason",
            f"SELECT status, attempts, last_error FROM rota.jobs WHERE id = {facts.imported}",
            ("dead", 1, "contacts.csv, line 3: 'nobody' is no address"),
        ),
        Promise(
            "… and left nothing half-done",
            "SELECT count(*) FROM shop_user WHERE email LIKE '%@import.example'",
            (0,),
        ),
    ]


def _export(facts: Facts) -> list[Promise]:
    rows = stage.OLD_ORDERS + facts.orders
    return [
        Promise(
            "the export was asked for twice, and is one",
            "SELECT count(*), min(id) FROM rota.report_run WHERE name = 'orders'",
            (1, facts.export),
        ),
        Promise(
            "the killed worker lost pages of it",
            "SELECT count(*) > 0, min(a.error_type) FROM rota.attempt a JOIN rota.jobs j "
            f"ON j.id = a.job WHERE a.worker = '{facts.exporter}' AND j.job_type = 'report.page'",
            (True, "LeaseExpired"),
        ),
        Promise(
            "… and the file is whole: each order once, as it was downloaded",
            "SELECT d.lines - 1, r.rows, d.sha256 = r.checksum FROM outside.download d "
            "JOIN rota.report_run r ON r.id = d.run",
            (rows, rows, True),
        ),
    ]


def _night(facts: Facts) -> list[Promise]:
    users = facts.signed_up
    return [
        Promise(
            "tonight's report has a line for each sign-up and purchase",
            "SELECT rows FROM rota.report_run WHERE name = 'activity'",
            (users + facts.orders,),
        ),
        Promise(
            "expired sessions are deleted, the others are not",
            "SELECT count(*) FROM shop_session",
            (stage.SESSIONS - stage.EXPIRED,),
        ),
        Promise(
            "… and stale files; the history says how many",
            "SELECT (result->>'sessions')::int, (result->>'files')::int "
            "FROM rota.job_history WHERE job_type = 'clean_up'",
            (stage.EXPIRED, stage.STALE),
        ),
        Promise(
            "each has one weekly report, and the next one is enqueued once",
            "SELECT (SELECT count(*) FROM shop_weekly_report), count(*), max(run_at - interval "
            "'7 d') FROM rota.jobs WHERE job_type = 'weekly_report' AND status = 'queued'",
            (users, users, facts.monday),
        ),
        Promise(
            "each overdue invoice was reminded of once",
            "SELECT count(*), count(DISTINCT subject) FROM outside.mail "
            "WHERE subject LIKE 'Invoice%'",
            (stage.OVERDUE, stage.OVERDUE),
        ),
        Promise(
            "nothing is left but those of next week, and the dead import",
            "SELECT count(*) FILTER (WHERE job_type = 'weekly_report'), count(*) FILTER "
            "(WHERE job_type <> 'weekly_report'), min(id) FROM rota.job",
            (users, 1, facts.imported),
        ),
    ]
