"""What must be true at the end of the demo: one SELECT for each promise, with the expected
result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from rota.demo.jobs import PAGES
from rota.demo.stage import EXPIRED_SESSIONS, FILES, SESSIONS, STALE_FILES


@dataclass(frozen=True, slots=True)
class Facts:
    """What the demo did, as far as the SELECTs need it."""

    signed_up: int
    rolled_back: int
    """The id of the user whose sign-up was rolled back."""
    users: int
    partner_job: int
    poisoned_job: int
    report: str
    report_job: int
    killed: str
    """The name of the killed worker; below, of the worker that took over."""
    took_over: str


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, with the SELECT that tests it."""

    what: str
    select: str
    expected: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PromiseResult:
    """A promise with the result of its SELECT."""

    check: Promise
    result: tuple[Any, ...]

    @property
    def is_kept(self) -> bool:
        """Whether the result is as expected."""
        return self.result == self.check.expected


def check(connection: psycopg.Connection, checks: list[Promise]) -> list[PromiseResult]:
    """Run each SELECT; a missing row is an empty result."""
    return [
        PromiseResult(check, connection.execute(check.select.encode()).fetchone() or ())
        for check in checks
    ]


def promises(facts: Facts) -> list[Promise]:
    """Return the promises of this run."""
    return [*_of_sign_ups(facts), *_of_cleaning(), *_of_failures(facts), *_of_recovery(facts)]


def _of_sign_ups(facts: Facts) -> list[Promise]:
    return [
        Promise(
            "each user who signed up got one mail",
            "SELECT count(*), count(DISTINCT payload->>'user_id') FROM rota_demo.jobs "
            "WHERE job_type = 'send_welcome_email' AND status = 'succeeded'",
            (facts.signed_up, facts.signed_up),
        ),
        Promise(
            "… which the user's row says",
            "SELECT count(*) FROM rota_demo_app.app_user WHERE welcomed_at IS NOT NULL",
            (facts.signed_up,),
        ),
        Promise(
            "the user whose sign-up was rolled back is gone",
            f"SELECT count(*) FROM rota_demo_app.app_user WHERE id = {facts.rolled_back}",
            (0,),
        ),
        Promise(
            "… and so is the job",
            'SELECT count(*) FROM rota_demo.jobs WHERE payload @> \'{"user_id": '
            f"{facts.rolled_back}}}'",
            (0,),
        ),
    ]


def _of_cleaning() -> list[Promise]:
    return [
        Promise(
            "expired sessions are deleted, the others are not",
            "SELECT count(*) FILTER (WHERE expires_at < now()), count(*) FROM "
            "rota_demo_app.app_session",
            (0, SESSIONS - EXPIRED_SESSIONS),
        ),
        Promise(
            "stale files are deleted; the history says how many",
            "SELECT (result->>'sessions')::int, (result->>'files')::int, "
            "(result->>'files_left')::int "
            "FROM rota_demo.job_history WHERE job_type = 'clean_up'",
            (EXPIRED_SESSIONS, STALE_FILES, FILES - STALE_FILES),
        ),
    ]


def _of_failures(facts: Facts) -> list[Promise]:
    return [
        Promise(
            "a job that failed twice succeeded at the third attempt",
            f"SELECT status, attempts FROM rota_demo.jobs WHERE id = {facts.partner_job}",
            ("succeeded", 3),
        ),
        Promise(
            "… and its failures are kept, with the response code",
            "SELECT string_agg(format('%s: %s, %s', attempt, response_code, verdict), '; ' ORDER "
            "BY attempt) "
            f"FROM rota_demo.attempt WHERE job = {facts.partner_job}",
            ("1: 503, transient; 2: 503, transient",),
        ),
        Promise(
            "a poisoned job is dead after its attempts, with the reason",
            "SELECT status, attempts, last_error FROM rota_demo.job WHERE id = "
            f"{facts.poisoned_job}",
            ("dead", 3, "contacts.csv, line 3: 'nobody' is no address"),
        ),
        Promise(
            "… and left nothing half-done",
            "SELECT count(*) FROM rota_demo_app.app_user WHERE email LIKE '%@import.example'",
            (0,),
        ),
    ]


def _of_recovery(facts: Facts) -> list[Promise]:
    return [
        Promise(
            "the report was requested twice, and is one job",
            "SELECT count(*), min(id) FROM rota_demo.jobs WHERE idempotency_key = "
            f"'{facts.report}'",
            (1, facts.report_job),
        ),
        Promise(
            "the killed worker lost it",
            f"SELECT worker, error_type FROM rota_demo.attempt WHERE job = {facts.report_job}",
            (facts.killed, "LeaseExpired"),
        ),
        Promise(
            "… and another worker finished it; the first loss costs no attempt",
            "SELECT locked_by, status, attempts, losses FROM rota_demo.job_history WHERE id = "
            f"{facts.report_job}",
            (facts.took_over, "succeeded", 1, 1),
        ),
        Promise(
            "… with every user in it once",
            "SELECT count(*), sum(users) FROM rota_demo_app.app_report_page WHERE report = "
            f"'{facts.report}'",
            (PAGES, facts.users),
        ),
        Promise(
            "nothing is left but the dead job",
            "SELECT count(*), min(status) FROM rota_demo.job",
            (1, "dead"),
        ),
    ]
