"""Stored payloads meet newer handlers: unknown fields, versions, upgrades, old names, and what fits
none of them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import rota
from tests.api.rows import Rows, warnings_of
from tests.support.rules import rule


@rule("M12", "M45", "M84")
def test_unknown_fields_are_ignored_with_one_warning_per_type_that_has_nothing_of_the_payload(
    app: rota.App, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []

    @app.job("send_mail")
    async def send_mail(user_id: int) -> None:
        seen.append(user_id)

    app.job("plain")(lambda: None)
    for user_id in (1, 2, 3):
        rows.insert("send_mail", f'{{"user_id": {user_id}, "colour": "red"}}')
    fields = {"a" * 1_000: 1, "b\n\x1b[2J": 1} | {f"field_{at}": 1 for at in range(3_000)}
    rows.insert("plain", json.dumps(fields))
    report = app.drain()

    assert (report.succeeded, sorted(seen)) == (4, [1, 2, 3])
    told = "its handler does not take {} of a stored payload; it takes {}"
    assert sorted(warnings_of(caplog)) == [
        f"job type 'plain': {told.format('3,002 fields', 'no arguments')}",
        f"job type 'send_mail': {told.format('1 field', 'user_id')}",
    ]


@rule("M12")
def test_payloads_of_older_versions_are_upgraded_step_by_step(app: rota.App, rows: Rows) -> None:
    def named(payload: dict[str, Any]) -> dict[str, Any]:
        return {"user_id": payload["user"]}

    def with_language(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "language": "en"}

    @app.job("send_mail", version=3, upgrade={1: named, 2: with_language})
    async def send_mail(user_id: int, language: str) -> list[Any]:
        return [user_id, language]

    ids = [
        rows.insert("send_mail", '{"user": 1}', version=1),
        rows.insert("send_mail", '{"user_id": 2}', version=2),
        rows.insert("send_mail", '{"user_id": 3, "language": "de"}', version=3),
        # Without a version: tried as the current one …
        rows.insert("send_mail", '{"user_id": 4, "language": "de"}'),
        rows.insert("send_mail", '{"user": 5}'),  # … then as version 1
        send_mail.enqueue(6, "fr").id,
    ]
    app.drain()

    assert [rows.job(id_)["result"] for id_ in ids] == [
        [1, "en"],
        [2, "en"],
        [3, "de"],
        [4, "de"],
        [5, "en"],
        [6, "fr"],
    ]
    assert rows.job(ids[-1])["payload_version"] == 3


@rule("M12")
def test_a_payload_that_does_not_fit_is_dead_at_once_where_no_release_is_known(
    app: rota.App, rows: Rows
) -> None:
    started = []

    @app.job("send_mail")
    async def send_mail(user_id: int) -> None:
        started.append(user_id)

    whys = {
        rows.insert("send_mail", payload, version): why
        for payload, version, why in (
            ("{}", None, "argument 'user_id': missing"),
            ('{"user_id": "five"}', None, "argument 'user_id': expected int, got str"),
            ('{"user_id": 1}', 2, "stored as version 2, this release knows up to version 1"),
        )
    }
    report = app.drain()

    assert (started, report.dead) == ([], 3)
    for id_, why in whys.items():
        job = rows.job(id_)
        assert (job["status"], job["attempts"], job["verdict"], job["verdict_rule"]) == (
            "dead",
            0,
            "fatal",
            "payload mismatch",
        )
        assert why in job["last_error"] and job["error_type"] == "rota.errors.PayloadError"
        assert len(rows.attempts(id_)) == 1


@rule("M2", "M12", "M43")
def test_an_upgrade_that_raises_fails_its_attempt_whatever_it_raises_and_the_worker_goes_on(
    app: rota.App, rows: Rows
) -> None:
    raised = [KeyError("not there"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]

    def broken(payload: dict[str, Any]) -> dict[str, Any]:
        raise raised[payload["at"]]

    @app.job("send_mail", version=2, upgrade={1: broken})
    async def send_mail(user_id: int) -> None: ...

    old = [rows.insert("send_mail", json.dumps({"at": at}), version=1) for at in range(len(raised))]
    current = rows.insert("send_mail", '{"user_id": 1}', version=2)
    report = app.drain()

    assert (report.failed, rows.job(current)["status"]) == (4, "succeeded")
    for id_, error in zip(old, raised, strict=True):
        [attempt] = rows.attempts(id_)
        assert rows.job(id_)["status"] == "failed"
        assert attempt["error_type"].rpartition(".")[2] == type(error).__name__
        assert "in broken" in attempt["stack"]
