"""Jobs that wait for others: when they go on, and what they are told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import rota
from rota.model.job import Status
from rota.model.outcome import Failure
from rota.model.retry import DEFAULT_RETRY
from rota.model.settle import RetryRules, Transition, settle
from rota.store import ops
from rota.testing import Harness
from tests.store.work import BEGINNING, SUCCEED, Connection, Hand, insert, waits
from tests.support.rules import rule
from tests.support.wait import eventually

NOTES: list[Any] = []


@pytest.fixture
def shop(app: rota.App) -> rota.App:
    """An App with the types `page` (dead at once if n < 0), and `report`, which waits for pages and
    returns what came of them."""
    NOTES.clear()

    @app.job("page", max_attempts=1)
    async def page(n: int) -> int:
        if n < 0:
            raise ValueError(f"page {n}")
        return n * 10

    @app.job("report", takes_context=True)
    async def report(ctx: rota.Context, pages: list[int], on_failure: str = "continue") -> Any:
        NOTES.append((ctx.job.attempts, sorted(ctx.results)))
        if not ctx.results:
            raise rota.WaitFor(pages, on_failure=on_failure)  # type: ignore[arg-type]
        told = (ctx.results[id_] for id_ in pages)
        return [[result.outcome, result.result, result.error] for result in told]

    app.sync()
    return app


def pages(app: rota.App, *numbers: int, **options: Any) -> list[int]:
    return [app.enqueue(app.types["page"].new(n).using(**options)).id for n in numbers]


def report(app: rota.App, ids: list[int], **arguments: Any) -> int:
    return app.enqueue(app.types["report"].new(ids, **arguments)).id


def work(connection: Connection) -> list[Any]:
    """End all jobs that are due as their handlers would, until none goes on; return what the
    reports say that have ended."""
    hand, said = Hand(connection, types=["page", "report"]), list[Any]()
    for _ in range(20):
        sweep(hand)
        jobs = hand.claim().jobs
        if not jobs:
            return said
        results = hand.run(ops.read_results([job.id for job in jobs]))
        for job in jobs:
            told = results[job.id].values()
            if job.job_type == "page":
                transition = _end_page(job.payload["n"])
            elif told:
                said += [[(result.outcome, result.result, result.error) for result in told]]
                transition = SUCCEED
            else:
                wait = rota.WaitFor(
                    job.payload["pages"], on_failure=job.payload.get("on_failure", "continue")
                )
                transition = leave(job, wait)[1]
            ending = ops.Ending(job, transition, 0.1, frees_place=True)
            write: Any = ops.finish if transition.status.is_over else ops.leave
            assert isinstance(hand.run(write([ending], "1"))[job.id], ops.Written)
    raise AssertionError("a job begins again and again")


def _end_page(n: int) -> Transition:
    if n >= 0:
        return Transition("succeed", Status.SUCCEEDED, result_json=str(n * 10))
    failure = Failure("ValueError", f"page {n}", "fatal", "default")
    return Transition("give_up", Status.DEAD, failure=failure)


def leave(job: rota.Job, wait: rota.WaitFor) -> tuple[rota.Job, Transition]:
    """A job, and what is written of it when it begins to wait for others."""
    return job, settle(job, wait, RetryRules(1, DEFAULT_RETRY))


def sweep(hand: Hand) -> ops.WaitSweep:
    return hand.run(ops.sweep_waits("", 100))


def status(connection: Connection, id_: int) -> tuple[str, str | None]:
    [row] = connection.execute("select status, waits_for from rota.jobs where id = %s", [id_])
    return row[0], row[1]


@rule("M11")
def test_a_job_waits_for_others_uncharged_and_goes_on_with_their_results(
    shop: rota.App, connection: Connection
) -> None:
    first, second = pages(shop, 1, -2)
    connection.execute("update rota.job set run_at = now() + interval '1 h'")
    waiter = report(shop, [first, second])
    shop.drain()
    job = shop.get(waiter)
    assert (job.status, job.attempts, job.waits_for) == ("waiting", 0, f"job {second}")
    assert job.locked_by is None
    shop.retry(second)
    work(connection)
    assert shop.get(waiter).waits_for == f"job {first}"
    shop.retry(first)
    shop.drain()
    job = shop.get(waiter)
    assert (job.status, job.attempts) == ("succeeded", 1)
    assert job.result == [["succeeded", 10, None], ["dead", None, "page -2"]]
    assert [(1, []), (1, [first, second])] == NOTES


@rule("M11", "M36")
def test_a_cancel_an_expiry_and_a_deletion_are_ends_too(
    shop: rota.App, connection: Connection
) -> None:
    first, second, third = ids = pages(shop, 1, 2, 3, delay="1h", expires="2h")
    report(shop, ids)
    work(connection)
    shop.cancel(first, why="not needed")
    connection.execute(
        "update rota.job set run_at = now() - interval '2 h', expires_at = now() - interval '1 h' "
        "where id = %s",
        [second],
    )
    connection.execute("delete from rota.job where id = %s", [third])
    Hand(connection).run(ops.expire("w", BEGINNING, 0, 10))
    [(cancelled, expired, gone)] = work(connection)
    assert cancelled == ("cancelled", None, "not needed")
    assert expired[0] == "dead" and "not started before" in expired[2]
    assert gone == ("gone", None, None)


@rule("M11", "M44")
def test_a_job_that_was_requeued_is_waited_for_as_the_new_one(
    shop: rota.App, connection: Connection
) -> None:
    [page] = pages(shop, -1)
    work(connection)
    again = shop.retry(page, payload={"n": 4}).id
    shop.jobs.reschedule(again, delay="1h")
    waiter = report(shop, [page])
    work(connection)
    assert status(connection, waiter) == ("waiting", f"job {again}")
    shop.retry(again)
    assert work(connection) == [[("succeeded", 40, None)]]


@rule("M11", "M44")
def test_a_job_that_waits_for_a_dead_one_goes_on_when_a_person_ignores_that(
    shop: rota.App, connection: Connection
) -> None:
    [page] = pages(shop, -1)
    report(shop, [page], on_failure="wait")
    assert work(connection) == []
    shop.jobs.archive(page, why="not needed")
    assert work(connection) == [[("archived", None, "page -1")]]


@rule("M11")
def test_a_job_that_runs_too_early_is_told_nothing_and_waits_again(
    shop: rota.App, connection: Connection
) -> None:
    first, second = pages(shop, 1), pages(shop, 2, delay="1h")
    waiter = report(shop, [*first, *second])
    work(connection)
    shop.jobs.reschedule(waiter, delay="0s")
    assert work(connection) == []
    assert status(connection, waiter)[0] == "waiting"
    shop.retry(second[0])
    assert work(connection) == [[("succeeded", 10, None), ("succeeded", 20, None)]]


@rule("M11", "M60", "M61")
def test_a_job_that_waits_keeps_its_place_in_its_lane_and_frees_its_slot_of_a_cap(
    shop: rota.App, connection: Connection
) -> None:
    connection.execute(
        "update rota.job_type set on_retry = 'release', max_running = 1 where name = 'report'"
    )
    [page] = pages(shop, 1, delay="1h")
    report_ = shop.types["report"]
    first, behind = (shop.enqueue(report_.new([page]).using(group_key="g")).id for _ in range(2))
    other = report(shop, [page])
    work(connection)
    for id_, what in (first, f"job {page}"), (behind, "group g"), (other, f"job {page}"):
        assert status(connection, id_) == ("waiting", what)
    shop.retry(page)
    assert len(work(connection)) == 3


@rule("M11")
def test_a_job_may_wait_more_than_once_and_keeps_what_it_was_told(shop: rota.App) -> None:
    @shop.job("chain", takes_context=True)
    async def chain(ctx: rota.Context) -> Any:
        ids = []
        for n in range(3):
            id_ = await ctx.step(f"page {n}", enqueue_page, n)
            ids.append(id_)
            if id_ not in ctx.results:
                raise rota.WaitFor(id_)
        return [ctx.results[id_].result for id_ in ids]

    async def enqueue_page(n: int) -> int:
        return (await shop.aenqueue(shop.types["page"].new(n))).id

    id_ = shop.enqueue(chain.new()).id
    shop.drain()
    assert shop.get(id_).result == [0, 10, 20]
    assert len(shop.find(job_type="page", status="succeeded")) == 3


@rule("M11", "M43")
def test_a_wait_that_could_never_end_is_a_fatal_error_of_the_handler(shop: rota.App) -> None:
    @shop.job("wrong", takes_context=True)
    def wrong(ctx: rota.Context) -> None:
        raise rota.WaitFor(ctx.job)

    id_ = shop.enqueue(wrong.new()).id
    shop.drain()
    job = shop.get(id_)
    assert (job.status, job.verdict, job.verdict_rule) == ("dead", "fatal", "raised WaitFor")
    assert job.error_type == "rota.errors.UsageError"
    assert "waits for itself" in str(job.last_error)


@rule("M11", "M36", "M87")
def test_a_waiting_job_can_be_cancelled_and_discarded_and_expires_and_is_not_retried(
    shop: rota.App, connection: Connection
) -> None:
    ids = pages(shop, 1, delay="1h")
    first, second, third, fourth = (report(shop, ids) for _ in range(4))
    work(connection)
    shop.cancel(first)
    assert status(connection, first)[0] == "cancelled"
    shop.jobs.discard(second)
    assert status(connection, second) == ("dead", None)
    with pytest.raises(rota.WrongStatus):
        shop.retry(third)
    with Harness(shop) as bench, pytest.raises(rota.UsageError, match=f"waits for job {ids[0]} to"):
        bench.perform(third)
    connection.execute(
        "update rota.job set expires_at = now() - interval '1 s' where id = %s", [fourth]
    )
    Hand(connection).run(ops.expire("w", BEGINNING, 0, 10))
    job = shop.get(fourth)
    assert (job.status, job.error_type) == ("dead", "Expired")
    assert f"it waited for job {ids[0]} to end" in str(job.last_error)


@rule("M11", "M44")
def test_a_requeued_job_keeps_what_it_was_told_and_one_that_is_run_again_does_not(
    connection: Connection, app: rota.App
) -> None:
    app.job("t")(lambda: None)
    app.sync()
    done, waiter = insert(connection, 2)
    hand = Hand(connection)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[waiter], rota.WaitFor(done)))
    sweep(hand)

    def told(id_: int) -> list[int]:
        return list(hand.run(ops.read_results([id_]))[id_])

    assert told(waiter) == [done]
    app.jobs.discard(waiter)
    kept = app.retry(waiter).id
    assert told(kept) == [done]
    assert told(app.retry(waiter, again=True).id) == []
    app.jobs.discard(kept)
    assert told(app.retry(kept, fresh=True).id) == []


SLOW = """
alter function rota.wait_next(jsonb) rename to wait_next_at_once;
create function rota.wait_next(p_meta jsonb) returns bigint language plpgsql as $$
declare
  v_next bigint := rota.wait_next_at_once(p_meta);
begin
  perform pg_advisory_xact_lock_shared(42);
  return v_next;
end $$;
select pg_advisory_lock(42);
"""
"""Now an answer takes as long as the session that ran this wants it to."""


@rule("M11")
def test_a_sweep_decides_on_the_wait_that_it_has_locked_not_on_the_one_it_has_seen(
    connection: Connection, second: Connection
) -> None:
    hand, sweeper = Hand(connection), Hand(second)
    done, waiter = insert(connection, 2)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[waiter], rota.WaitFor(done)))
    [live] = insert(connection)
    connection.execute(SLOW)
    with ThreadPoolExecutor(1) as pool:
        sweeping = pool.submit(sweep, sweeper)
        eventually(waits(connection, second), what="the sweep has seen the first wait")
        connection.execute("update rota.job set status = 'queued', waits_for = null")
        [again] = [job for job in hand.claim().jobs if job.id == waiter]
        hand.settle(leave(again, rota.WaitFor([live, done])))
        connection.execute("select pg_advisory_unlock(42)")
        assert sweeping.result(60).released == 0
    assert status(connection, waiter) == ("waiting", f"job {live}")


@rule("M11")
def test_two_sessions_do_not_sweep_side_by_side(connection: Connection, second: Connection) -> None:
    done, waiter = insert(connection, 2)
    hand, sweeper = Hand(connection), Hand(second)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), leave(jobs[waiter], rota.WaitFor(done)))
    with connection.transaction():
        assert sweep(hand).released == 1
        assert sweep(sweeper).is_busy
    assert (sweep(sweeper).waits, status(connection, waiter)) == (0, ("queued", None))


@rule("M11", "M15")
def test_a_sweep_passes_a_job_that_is_locked_and_reads_on_from_where_it_stopped(
    connection: Connection, second: Connection
) -> None:
    hand = Hand(connection)
    done, locked, *waiters = insert(connection, 6)
    jobs = {job.id: job for job in hand.claim().jobs}
    waiting = [jobs[id_] for id_ in (locked, *waiters)]
    hand.settle((jobs[done], SUCCEED), *(leave(job, rota.WaitFor(done)) for job in waiting))
    [live] = insert(connection)
    connection.execute(
        "update rota.job set waits_for = 'job ' || %s, meta = jsonb_set(meta, "
        "'{rota.waits,jobs}', to_jsonb(array[%s::bigint])) where id = %s",
        [live, live, waiters[-1]],
    )
    with second.transaction():
        second.execute("select from rota.job where id = %s for update", [locked])
        assert hand.run(ops.sweep_waits("", 4)) == ops.WaitSweep(f"job {done}", 4, 3, False)
        assert hand.run(ops.sweep_waits(f"job {done}", 4)) == ops.WaitSweep(None, 1, 0, False)
    assert sweep(hand) == ops.WaitSweep(None, 2, 1, False)
    found = [status(connection, id_)[0] for id_ in (locked, *waiters)]
    assert found == [*["queued"] * 4, "waiting"]


@rule("M11")
def test_a_pass_with_too_much_to_decide_leaves_the_rest_to_the_next(
    connection: Connection,
) -> None:
    hand = Hand(connection)
    done, *waiters = insert(connection, 6)
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle((jobs[done], SUCCEED), *(leave(jobs[id_], rota.WaitFor(done)) for id_ in waiters))
    connection.execute(SLOW.replace("pg_advisory_xact_lock_shared(42)", "pg_sleep(0.3)"))
    released = [sweep(hand).released for _ in range(5)]
    assert sum(released) == 5
    assert 1 <= max(released) < 5


@rule("M11", "M12")
def test_what_a_producer_writes_into_meta_stops_no_job(
    shop: rota.App, connection: Connection
) -> None:
    for made_up in ('"x"', '{"jobs": ["x", 1.5]}', '{"jobs": 1}', "null"):
        id_ = report(shop, pages(shop, 1))
        connection.execute(
            "update rota.job set meta = jsonb_build_object('rota.waits', %s::jsonb) where id = %s",
            [made_up, id_],
        )
        assert work(connection) == [[("succeeded", 10, None)]], made_up
    # The ids of awaited jobs do not count towards the limit of meta.
    connection.execute(
        "insert into rota.job (job_type, queue, priority, meta) values "
        "('t', 'default', 0, jsonb_build_object('large', repeat('x', 65500)))"
    )
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.settle(leave(job, rota.WaitFor(range(2**62, 2**62 + 1_000))))
    assert status(connection, job.id)[0] == "waiting"


@rule("M11")
def test_a_job_that_is_given_the_meta_of_another_is_not_told_of_that_ones_jobs(
    shop: rota.App,
) -> None:
    @shop.job("tells", takes_context=True)
    async def tells(ctx: rota.Context, again: bool = True) -> None:
        NOTES.append(("rota.batch" in (ctx.job.meta or {}), sorted(ctx.results)))
        if again and not ctx.results:
            raise rota.WaitFor(await shop.aenqueue(shop.types["page"].new(1)))
        if again:
            await shop.aenqueue(tells.new(again=False).using(meta=ctx.job.meta))

    shop.batch([], then=tells.new().using(meta={"tenant": "x"}))
    shop.drain()
    assert [bool(told) for _, told in NOTES] == [False, True, False]
    assert [of_batch for of_batch, _ in NOTES] == [True, True, False]
    last = max(shop.find(job_type="tells"), key=lambda job: job.id)
    assert last.meta == {"tenant": "x"}


@rule("M11", "M50")
def test_a_drain_of_a_bench_goes_on_with_jobs_that_wait_also_in_the_transaction_of_a_test(
    shop: rota.App, connection: Connection
) -> None:
    with connection.transaction(force_rollback=True), Harness(shop, connection=connection) as bench:
        waiter = report(shop, pages(shop, 1, -2))
        assert len(bench.drain().performed) == 4
        assert shop.get(waiter).result == [["succeeded", 10, None], ["dead", None, "page -2"]]


# Circles


def stuck(connection: Connection) -> list[tuple[int, str]]:
    """The jobs that can never go on by themselves, with why."""
    asked = "select id, rota.wait_stuck(id) from rota.job order by id"
    return [(id_, why) for id_, why in connection.execute(asked) if why is not None]


@rule("M3", "M11")
def test_jobs_that_fill_a_lane_and_wait_for_jobs_behind_them_are_named(
    shop: rota.App, connection: Connection
) -> None:
    lane: Any = {"group_key": "g", "group_capacity": 2}
    [elsewhere] = pages(shop, 9, delay="1h")
    behind = pages(shop, 1, 2, delay="1h", **lane)
    report_ = shop.types["report"]
    first = shop.enqueue(report_.new([elsewhere]).using(**lane)).id
    second = shop.enqueue(report_.new([behind[0]]).using(**lane)).id
    work(connection)
    assert {status(connection, id_)[0] for id_ in (first, second)} == {"waiting"}
    assert stuck(connection) == [], "one of them will end"
    third = shop.enqueue(report_.new([behind[1]]).using(**lane)).id
    shop.retry(elsewhere)
    assert len(work(connection)) == 1
    assert stuck(connection) == [(second, "lane"), (third, "lane")]
    shop.cancel(behind[0])
    assert len(work(connection)) == 1
