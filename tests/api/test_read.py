"""Looking at jobs and waiting for them, sync and async; and what must not be called inside a
running loop.
"""

from __future__ import annotations

import inspect
import re
import threading
from typing import Any

import pytest

import rota
from rota.kinds.webhook import Webhooks
from tests.support.rules import rule


@pytest.fixture
def mixed(app: rota.App) -> dict[str, int]:
    """One job of each kind, by what became of it."""

    @app.job("fine", queue="email")
    async def fine(user_id: int) -> int:
        return user_id

    @app.job("poisoned", fatal_on=(ValueError,))
    async def poisoned() -> None:
        raise ValueError("no")

    ids = {
        "succeeded": fine.using(key="a", meta={"by": "me"}).enqueue(1).id,
        "dead": poisoned.enqueue().id,
        "queued": fine.using(delay="1d").enqueue(2).id,
    }
    app.drain()
    return ids


@rule("M85")
def test_jobs_are_found_by_each_filter_live_and_over(app: rota.App, mixed: dict[str, int]) -> None:
    def ids(**wanted: object) -> list[int]:
        return [job.id for job in app.find(**wanted)]  # type: ignore[arg-type]

    newest_first = sorted(mixed.values(), reverse=True)
    assert ids() == newest_first
    for status, id_ in mixed.items():
        assert ids(status=status) == [id_]
    assert ids(status=rota.Status.DEAD) == [mixed["dead"]]
    assert ids(job_type="poisoned") == [mixed["dead"]]
    assert ids(queue="email") == [mixed["queued"], mixed["succeeded"]]
    assert ids(queue="email", limit=1) == [mixed["queued"]]
    assert ids(queue="email", before=mixed["queued"]) == [mixed["succeeded"]]
    assert ids(key="a") == [mixed["succeeded"]]
    assert ids(error_type="ValueError") == [mixed["dead"]]
    assert ids(job_type="nothing of that name") == []
    assert ids(payload={"user_id": 1}) == [mixed["succeeded"]]
    assert ids(payload={"user_id": "1"}) == ids(payload={"user_id": 1}, meta={"by": "you"}) == []
    assert ids(meta={"by": "me"}) == [mixed["succeeded"]]


@rule("M85", "M87")
def test_a_part_of_a_payload_that_every_job_or_none_contains_is_refused(app: rota.App) -> None:
    wrong: list[tuple[Any, str]] = [
        ({}, r"payload must be a mapping with names, .* not {}"),
        ("user_id", "payload must be a mapping"),
        ({"filter": {}}, r"payload: an empty {} or \[\] matches whatever a job has there"),
        ({"at": [{"tags": ()}]}, r"payload: an empty {} or \[\] matches"),
        ({"day": object()}, "payload: a object cannot be stored"),
        ({"text": "\0"}, "payload: text with a NUL character cannot be stored"),
    ]
    for part, said in wrong:
        for call in (app.find, app.jobs.cancel_many):
            with pytest.raises(rota.UsageError, match=said):
                call(payload=part)
    assert app.find(payload={"text": '[] \\"{}'}) == []


def test_a_search_that_cannot_be_is_refused_and_not_found_empty(app: rota.App) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({"limit": limit}, "whole number from 1 to 10,000") for limit in (0, 10_001, "5", None)),
        ({"status": "done"}, r"status must be one of queued, .*, not 'done'"),
        ({"job": [1]}, "there is no filter 'job'; there are job_type, queue"),
        ({"ids": [1]}, "there is no filter 'ids'; there are job_type, queue"),
    ]
    for given, said in wrong:
        with pytest.raises(rota.UsageError, match=said):
            app.find(**given)


@rule("M10")
def test_a_job_reads_as_its_row(app: rota.App, mixed: dict[str, int]) -> None:
    job = app.get(mixed["succeeded"])
    expected = {
        "id": job.id, "origin_id": job.id, "queue": "email", "job_type": "fine", "priority": 0,
        "payload": {"user_id": 1}, "meta": {"by": "me"}, "result": 1, "idempotency_key": "a",
        "status": rota.Status.SUCCEEDED, "attempts": 1, "max_attempts": 10,
    }  # fmt: skip
    assert {name: getattr(job, name) for name in expected} == expected
    assert job.status.is_over and job.created_at <= job.run_at
    assert job.started_at is not None and job.finished_at is not None
    assert job.started_at <= job.finished_at
    assert job.finished_at.utcoffset() is not None

    dead = app.get(mixed["dead"])
    assert (dead.last_error, dead.error_type) == ("no", "ValueError")
    assert (dead.verdict, dead.verdict_rule) == ("fatal", "fatal_on ValueError")
    assert (dead.status.is_over, dead.status.is_settled, dead.finished_at) == (False, True, None)


def test_a_job_that_is_not_there_is_not_found(app: rota.App) -> None:
    with pytest.raises(rota.JobNotFound, match="no job 12345") as missing:
        app.get(12345)
    assert missing.value.job == 12345
    with pytest.raises(rota.JobNotFound):
        app.join(12345)
    with pytest.raises(rota.UsageError, match=r"a job's id must be a whole number .*, not '5'"):
        app.get("5")  # type: ignore[arg-type]


def test_join_returns_a_job_that_is_over_or_dead_and_gives_up_on_another_which_goes_on(
    app: rota.App, mixed: dict[str, int]
) -> None:
    assert app.join(mixed["succeeded"]).result == 1
    assert app.join(mixed["dead"], timeout="60s").status == "dead"
    with pytest.raises(
        rota.JoinTimeout, match=r"is still queued after 0\.05 s; the job continues"
    ) as late:
        app.join(mixed["queued"], timeout="50ms")
    assert (late.value.job, late.value.status) == (mixed["queued"], "queued")
    assert app.get(mixed["queued"]).status == "queued"


def test_join_waits_for_a_worker_in_another_thread(app: rota.App) -> None:
    goes_on = threading.Event()

    @app.job("work")
    def work() -> str:
        goes_on.wait(30)
        return "done"

    id_ = work.enqueue().id
    worker = threading.Thread(target=app.drain)
    worker.start()
    try:
        with pytest.raises(rota.JoinTimeout):
            app.join(id_, timeout="10ms")
        goes_on.set()
        assert app.join(id_, timeout="30s").result == "done"
    finally:
        goes_on.set()
        worker.join()


async def test_working_inside_a_running_loop_is_refused_by_the_name_of_the_twin(
    app: rota.App,
) -> None:
    app.job("work")(lambda: None)
    for verb in ("drain", "run"):
        said = f"{verb}() was called inside a running event loop: await a{verb}() instead"
        with pytest.raises(rota.UsageError, match=re.escape(said)):
            getattr(app, verb)()


async def test_every_call_that_would_block_a_running_loop_names_its_twin() -> None:
    twins = {verb for verb in dir(rota.App) if hasattr(rota.App, f"a{verb}")}
    for verb in twins - {"run", "drain", "close"}:
        app = rota.App("postgresql://127.0.0.1:1/nowhere")
        needed = {"job": app.job("work")(lambda: None).new(), "jobs": [], "id": 1, "cron": None}
        call = getattr(app, verb)
        parameters = [
            parameter
            for parameter in inspect.signature(call).parameters.values()
            if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        ]
        given = [
            needed.get(parameter.name, "x")
            for parameter in parameters
            if parameter.kind is not parameter.KEYWORD_ONLY
        ]
        named = {
            parameter.name: "x"
            for parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        said = f"{verb}() blocks the running event loop; await a{verb}() instead"
        with pytest.raises(RuntimeWarning, match=re.escape(said)):
            call(*given, **named, **({"priority": 1} if verb == "reschedule" else {}))


async def test_an_async_application_migrates_without_blocking_its_loop(database: str) -> None:
    app = rota.App(database, schema="twin")
    app.job("work")(lambda: None)
    assert (await app.amigrate()).applied
    await app.aenqueue("work", {})
    assert not (await app.amigrate()).applied
    await app.aclose()


async def test_a_call_without_a_twin_that_would_block_a_running_loop_names_a_thread() -> None:
    app = rota.App("postgresql://127.0.0.1:1/nowhere")
    said = "sync() blocks the running event loop; await asyncio.to_thread(sync, …) instead"
    with pytest.raises(RuntimeWarning, match=re.escape(said)):
        app.sync()


async def test_a_verb_of_a_kind_that_would_block_a_running_loop_names_its_twin() -> None:
    hooks = Webhooks()
    rota.App("postgresql://127.0.0.1:1/nowhere", jobs=[hooks.jobs])
    said = "pause() blocks the running event loop; await apause() instead"
    with pytest.raises(RuntimeWarning, match=re.escape(said)):
        hooks.pause("crm")


@rule("M85", "M87")
def test_errors_are_listed_once_by_release_and_their_jobs_are_found_and_retried(
    app: rota.App,
) -> None:
    @app.job("fetch", max_attempts=1)
    async def fetch(user_id: int, why: str) -> None:
        raise ConnectionError(why.format(user_id=user_id))

    for user_id in range(3):
        fetch.enqueue(user_id, "no answer for user {user_id} from 'crm-{user_id}' in 3.5 s")
    app.drain()
    other = fetch.enqueue(7, "no such user").id
    app.drain()
    first, second = app.jobs.errors()
    assert (second.job_type, second.error_type) == ("fetch", "ConnectionError")
    assert second.message == "no answer for user … from '…' in … s"
    assert (second.attempts, second.jobs, second.dead) == (3, 3, 3)
    assert second.releases == {app.release: 3} and second.first_at <= second.last_at
    assert (first.message, first.last_job, first.jobs) == ("no such user", other, 1)
    assert app.jobs.errors(limit=1) == [first]
    assert app.jobs.errors(job_type="no") == []
    assert app.jobs.errors(since=first.last_at) == [first]
    same = {"job_type": "fetch", "error_type": "ConnectionError", "error": second.message}
    assert [job.id for job in app.find(**same)] == [3, 2, 1]  # type: ignore[arg-type]
    retried = app.jobs.retry_many(status="dead", **same)  # type: ignore[arg-type]
    assert retried.done == [1, 2, 3]
    assert [error.dead for error in app.jobs.errors()] == [1, 0]


@rule("M87")
def test_an_action_takes_only_jobs_with_the_text_in_their_error(
    app: rota.App, connection: Any
) -> None:
    app.job("fetch")(lambda: None)
    connection.execute(
        "insert into rota.job (job_type, status, failed_at, last_error) values "
        "('fetch', 'failed', now(), 'no answer from 1'), ('fetch', 'failed', now(), 'no route'), "
        "('fetch', 'failed', now(), 'no answer from 2'), ('fetch', 'dead', now(), 'bad day'), "
        "('fetch', 'dead', now(), 'discarded by ann')"
    )
    cancelled = app.jobs.cancel_many(error="ANSWER from …", status="failed")
    assert cancelled.done == [1, 3]
    assert app.jobs.archive_many(error="discard…", why="x", status="dead").done == [5]
    again = app.jobs.retry_many(again=True, status="cancelled", since="1h", error="from 2")
    assert list(again.new_ids) == [3]
    with pytest.raises(rota.UsageError, match="error"):
        app.jobs.cancel_many(error="")


@rule("M85")
def test_the_pattern_of_an_error_matches_what_it_was_made_of(
    app: rota.App, connection: Any
) -> None:
    for message, pattern in (
        ("plain words, none of them special", "plain words, none of them special"),
        ("user 42 at 10.0.0.7:5432 said: 502", "user … at …:… said: …"),
        ("key \"a b\" of 'c' or `d`", "key \"a b\" of 'c' or `d`"),
        ("it can't reach the user's host", "it can't reach the user's host"),
        ("no mailbox for ann@shop.example, sorry", "no mailbox for … sorry"),
        ("c0ffee00-1d-4b of x", "… of x"),
        ("first 1\nsecond 2", "first …"),
        ("%_\\ 7", "%_\\ …"),
        ("x" * 300, "x" * 200),
        ("", ""),
        (None, None),
    ):
        connection.execute("delete from rota.attempt")
        connection.execute(
            "insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, "
            "outcome, message) values (1, 1, 1, 't', 'w', now(), 'failed', %s)",
            [message],
        )
        [error] = app.jobs.errors()
        assert error.message == pattern
        found = connection.execute(
            "select message ilike rota.error_like(%s) from rota.attempt", [pattern]
        )
        assert found.fetchone() == (None if message is None else True,), message


@rule("M85")
def test_a_flood_of_one_error_hides_no_other(app: rota.App, connection: Any) -> None:
    connection.execute(
        "insert into rota.attempt (job, claim, attempt, job_type, worker, finished_at, outcome, "
        "error_type, message) select n, 1, 1, 't', 'w', now(), 'failed', "
        "case n when 1 then 'Rare' else 'Flood' end, 'x' from generate_series(1, 12000) n"
    )
    counted = {error.error_type: error.attempts for error in app.jobs.errors()}
    assert counted == {"Flood": 1_000, "Rare": 1}


@rule("M45")
def test_what_users_hold_is_shown_in_one_line_without_what_is_in_a_payload(app: rota.App) -> None:
    shown: list[object] = [app, rota.Jobs()]

    @app.job("mail", takes_context=True)
    def mail(ctx: rota.Context, to: str) -> str:
        block = ctx.effect("mail:7")
        shown.extend([ctx, block])
        with block as effect:
            shown.append(effect)
            effect.result = to
        return to

    made = app.batch([mail.new("secret")])
    shown += [mail, mail.new("secret"), made.jobs[0], made]
    assert app.drain().succeeded == 1
    shown += [app.get(1), app.batches.get(made.id), *app.effects.find(job=1)]
    for text in map(repr, shown):
        assert len(text) < 80 and "\n" not in text and "secret" not in text, text
    assert {"<job type 'mail'>", "<job 1 mail succeeded>"} <= set(map(repr, shown))
