"""Looking at jobs and waiting for them, sync and async; and what must not be called inside a
running loop.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import threading
from typing import Any

import pytest

import rota
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
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({}, r"payload must be a mapping with names, .* not {}"),
        ("user_id", "payload must be a mapping"),
        ({"filter": {}}, r"payload: an empty {} or \[\] matches whatever a job has there"),
        ({"at": [{"tags": ()}]}, r"payload: an empty {} or \[\] matches"),
        ({"day": object()}, "payload: a object cannot be stored"),
        ({"text": "\0"}, "payload: text with a NUL character cannot be stored"),
    ],
)
def test_a_part_of_a_payload_that_every_job_or_none_contains_is_refused(
    app: rota.App, part: Any, said: str
) -> None:
    for call in (app.find, app.jobs.cancel_many):
        with pytest.raises(rota.UsageError, match=said):
            call(payload=part)
    assert app.find(payload={"text": '[] \\"{}'}) == []


@pytest.mark.parametrize("limit", [0, 10_001, "5", None])
def test_a_limit_out_of_range_is_refused(app: rota.App, limit: int) -> None:
    with pytest.raises(rota.UsageError, match="limit must be a whole number from 1 to 10,000"):
        app.find(limit=limit)


def test_a_status_that_does_not_exist_is_refused_not_found_empty(app: rota.App) -> None:
    with pytest.raises(rota.UsageError, match=r"status must be one of queued, .*, not 'done'"):
        app.find(status="done")
    for unknown in ("job", "ids"):
        with pytest.raises(
            rota.UsageError, match=f"there is no filter '{unknown}'; there are job_type, queue"
        ):
            app.find(**{unknown: [1]})  # type: ignore[arg-type]


@rule("M10")
def test_a_job_reads_as_its_row(app: rota.App, mixed: dict[str, int]) -> None:
    job = app.get(mixed["succeeded"])

    assert (job.id, job.origin_id, job.queue, job.job_type, job.priority) == (
        job.id,
        job.id,
        "email",
        "fine",
        0,
    )
    assert (job.payload, job.meta, job.result, job.idempotency_key) == (
        {"user_id": 1},
        {"by": "me"},
        1,
        "a",
    )
    assert (job.status, job.status.is_over, job.attempts, job.max_attempts) == (
        rota.Status.SUCCEEDED,
        True,
        1,
        10,
    )
    assert job.created_at <= job.run_at
    assert (
        job.started_at is not None
        and job.finished_at is not None
        and job.started_at <= job.finished_at
    )
    assert job.finished_at.utcoffset() is not None

    dead = app.get(mixed["dead"])
    assert (dead.last_error, dead.error_type, dead.verdict, dead.verdict_rule) == (
        "no",
        "ValueError",
        "fatal",
        "fatal_on ValueError",
    )
    assert (dead.status.is_over, dead.status.is_settled, dead.finished_at) == (False, True, None)


def test_a_job_that_is_not_there_is_not_found(app: rota.App) -> None:
    with pytest.raises(rota.JobNotFound, match="no job 12345") as missing:
        app.get(12345)
    assert missing.value.job == 12345
    with pytest.raises(rota.JobNotFound):
        app.join(12345)
    with pytest.raises(rota.UsageError, match=r"a job's id must be a whole number .*, not '5'"):
        app.get("5")  # type: ignore[arg-type]


def test_join_returns_the_job_when_it_is_over_or_dead(app: rota.App, mixed: dict[str, int]) -> None:
    assert app.join(mixed["succeeded"]).result == 1
    assert app.join(mixed["dead"], timeout="1s").status == "dead"


def test_join_gives_up_after_its_timeout_and_the_job_goes_on(
    app: rota.App, mixed: dict[str, int]
) -> None:
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


async def test_every_call_that_touches_the_database_has_an_async_twin(database: str) -> None:
    app = rota.App(database)

    @app.job("work")
    async def work(n: int) -> int:
        return n

    first = await work.aenqueue(1)
    second, third = await work.aenqueue_many([{"n": 2}, {"n": 3}])
    fourth = await app.aenqueue(work.new(4))
    [fifth] = await app.aenqueue_many([work.new(5)])
    joined = asyncio.create_task(app.ajoin(third.id, timeout="30s"))
    with pytest.raises(rota.JoinTimeout):
        await app.ajoin(first.id, timeout="1ms")
    report = await app.adrain()

    assert report.succeeded == 5
    assert (await joined).result == 3
    ids = [one.id for one in (fifth, fourth, third, second, first)]
    assert [job.id for job in await app.afind(status="succeeded")] == ids
    assert (await app.aget(first.id)).result == 1
    with pytest.raises(rota.JobNotFound):
        await app.aget(12345)
    await app.aclose()


@pytest.mark.parametrize("verb", ["drain", "run"])
async def test_working_inside_a_running_loop_is_refused_by_the_name_of_the_twin(
    app: rota.App, verb: str
) -> None:
    app.job("work")(lambda: None)

    with pytest.raises(
        rota.UsageError,
        match=re.escape(
            f"{verb}() was called inside a running event loop: await a{verb}() instead"
        ),
    ):
        getattr(app, verb)()


@pytest.mark.parametrize(
    "verb",
    sorted(
        {verb for verb in dir(rota.App) if hasattr(rota.App, f"a{verb}")}
        - {"run", "drain", "close"}
    ),
)
async def test_every_call_that_would_block_a_running_loop_names_its_twin(verb: str) -> None:
    app = rota.App("postgresql://127.0.0.1:1/nowhere")
    needed = {"job": app.job("work")(lambda: None).new(), "jobs": [], "id": 1, "cron": None}
    call = getattr(app, verb)
    parameters = [
        one
        for one in inspect.signature(call).parameters.values()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    given = [needed.get(one.name, "x") for one in parameters if one.kind is not one.KEYWORD_ONLY]
    named = {one.name: "x" for one in parameters if one.kind is one.KEYWORD_ONLY}
    with pytest.raises(
        RuntimeWarning,
        match=re.escape(f"{verb}() blocks the running event loop; await a{verb}() instead"),
    ):
        call(*given, **named, **({"priority": 1} if verb == "reschedule" else {}))


async def test_a_sync_enqueue_inside_a_running_loop_warns_once(app: rota.App) -> None:
    app.job("work")(lambda: None)
    work = app.types["work"]

    with pytest.warns(
        RuntimeWarning,
        match=re.escape("enqueue() blocks the running event loop; await aenqueue() instead"),
    ) as warned:
        work.enqueue()
    assert [warning.filename for warning in warned] == [__file__]
    work.enqueue()  # a second warning would be an error
    work.enqueue_many([{}])


async def test_an_aenqueue_that_was_not_awaited_names_its_job_type(app: rota.App) -> None:
    app.job("send_mail")(lambda: None)
    send_mail = app.types["send_mail"]

    def forget() -> None:
        send_mail.aenqueue()  # type: ignore[unused-coroutine]
        gc.collect()

    with pytest.warns(
        RuntimeWarning, match="coroutine 'aenqueue of job type 'send_mail'' was never awaited"
    ):
        forget()
    assert await app.afind() == []
    await app.aclose()
