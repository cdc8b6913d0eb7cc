"""Effects at the store: as workers in other languages keep them, as people settle them, what a
requeue does to them, and how long they stay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from rota.model.effect import EffectAnswer, EffectCall, IfUncertain
from rota.store import ops
from rota.store.driver import Operation, Query
from tests.store.cost import count_blocks
from tests.store.test_sql_worker import LOST, Shell
from tests.store.work import Connection, Hand, after_it_waited, insert
from tests.support.rules import rule

INVALID = "22023"
KEY = "mail:1"
Begun = tuple[int, int]
"""A job and its claim."""


@pytest.fixture
def shell(shared: Connection) -> Shell:
    return Shell(shared)


@pytest.fixture
def hand(shared: Connection) -> Hand:
    return Hand(shared)


def claim(shell: Shell) -> Begun:
    insert(shell.connection)
    return shell.claim_job()


def begin(shell: Shell, job: Begun, policy: str = "dead", key: str = KEY) -> tuple[str, Any]:
    """Announce an effect; the state and the result."""
    [answer] = shell.call("worker_effect_begin", *job, key, policy)
    return answer["state"], answer["result"]


def lose(shell: Shell, job: Begun) -> Begun:
    """Let the worker of a job be lost, and the job be claimed again."""
    reap(shell.connection, job)
    shell.connection.execute("update rota.job set run_at = rota.clock() where id = %s", [job[0]])
    shell.look_at_everything()
    return shell.claim_job()


def reap(connection: Connection, job: Begun) -> None:
    connection.execute(
        "update rota.job set locked_until = rota.clock() - interval '1 s' where id = %s", [job[0]]
    )
    connection.execute("select rota.job_reap('-infinity', 100)")


def read(connection: Connection, key: str = KEY) -> dict[str, Any] | None:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("select * from rota.effects where key = %s", [key]).fetchone()


def status(connection: Connection, key: str = KEY) -> str | None:
    found = read(connection, key)
    return None if found is None else found["status"]


def settle(shell: Shell, key: str = KEY, *, done: bool, **named: Any) -> str:
    [answer] = shell.call("effect_resolve", key, done, **named)
    return str(answer["effect_resolve"])


def refused(call: Callable[[], object]) -> tuple[str | None, str | None]:
    with pytest.raises(psycopg.Error) as caught:
        call()
    return caught.value.sqlstate, caught.value.diag.message_primary


# A worker in another language


@rule("M15", "M52")
def test_an_effect_that_is_done_is_done_for_every_job_with_its_result(shell: Shell) -> None:
    first = claim(shell)
    assert begin(shell, first) == ("begun", None)
    assert begin(shell, first) == ("begun", None)  # the first answer was lost
    assert status(shell.connection) == "intended"
    for _ in range(2):
        shell.call("worker_effect_finish", *first, KEY, Jsonb({"id": "m-7"}))
    assert begin(shell, first) == ("done", {"id": "m-7"})
    assert begin(shell, claim(shell)) == ("done", {"id": "m-7"})
    found = read(shell.connection)
    assert found is not None
    assert (found["status"], found["job"], found["step_of"]) == ("done", first[0], None)
    assert found["done_at"] >= found["intended_at"]
    begin(shell, first, key="no result")
    shell.call("worker_effect_finish", *first, "no result")
    assert begin(shell, first, key="no result") == ("done", None)


@rule("M15", "M52")
def test_an_effect_that_did_not_happen_is_begun_anew(shell: Shell) -> None:
    first = claim(shell)
    begin(shell, first)
    for _ in range(2):
        shell.call("worker_effect_withdraw", *first, KEY)
    assert status(shell.connection) is None
    assert begin(shell, claim(shell)) == ("begun", None)


@rule("M52")
def test_what_is_done_cannot_be_withdrawn_nor_what_another_claim_is_at(shell: Shell) -> None:
    first, second = claim(shell), claim(shell)
    begin(shell, first)
    shell.call("worker_effect_withdraw", *second, KEY)
    assert status(shell.connection) == "intended"
    shell.call("worker_effect_finish", *first, KEY)
    shell.call("worker_effect_withdraw", *first, KEY)
    assert status(shell.connection) == "done"


@rule("M15", "M52")
@pytest.mark.parametrize(
    ("policy", "state"), [("dead", "uncertain"), ("skip", "skip"), ("repeat", "begun")]
)
def test_what_a_lost_worker_began_is_uncertain_and_the_next_attempt_s_policy_decides(
    shell: Shell, policy: str, state: str
) -> None:
    first = claim(shell)
    begin(shell, first, "dead")
    second = lose(shell, first)
    assert status(shell.connection) == "uncertain"
    for _ in range(2):
        assert begin(shell, second, policy) == (state, None)
    found = read(shell.connection)
    assert found is not None
    assert found["status"] == ("intended" if policy == "repeat" else "uncertain")
    assert found["if_uncertain"] == policy
    assert found["uncertain_before"] == (1 if policy == "repeat" else 0)


@rule("M52")
def test_a_repeat_that_did_not_happen_leaves_what_was_uncertain_before(shell: Shell) -> None:
    first = claim(shell)
    begin(shell, first)
    second = lose(shell, first)
    assert begin(shell, second, "repeat") == ("begun", None)
    shell.call("worker_effect_withdraw", *second, KEY)
    shell.call("fail", *second, "OSError")
    assert status(shell.connection) == "uncertain"
    assert begin(shell, claim(shell)) == ("uncertain", None)


@rule("M15", "M52")
def test_another_job_is_held_off_until_the_first_is_over(shell: Shell) -> None:
    first, second = claim(shell), claim(shell)
    begin(shell, first)
    for policy in ("dead", "skip", "repeat"):
        assert begin(shell, second, policy) == ("held", None)
    # Its lease alone is not enough: its worker may be at it until the job is taken away.
    shell.connection.execute(
        "update rota.job set locked_until = rota.clock() - interval '1 h' where id = %s", [first[0]]
    )
    assert begin(shell, second, "repeat") == ("held", None)
    reap(shell.connection, first)
    assert begin(shell, second) == ("uncertain", None)


@rule("M32", "M52")
def test_a_worker_in_sql_that_lost_its_job_writes_no_effect(shell: Shell) -> None:
    first = claim(shell)
    begin(shell, first)
    second = lose(shell, first)
    for function in ("worker_effect_begin", "worker_effect_finish", "worker_effect_withdraw"):
        for key in (KEY, "mail:2"):
            assert refused(partial(shell.call, function, *first, key))[0] == LOST
    assert status(shell.connection) == "uncertain"
    assert status(shell.connection, "mail:2") is None
    begin(shell, second, "repeat")
    assert refused(lambda: shell.call("worker_effect_withdraw", *first, KEY))[0] == LOST
    assert refused(lambda: shell.call("worker_effect_finish", *first, KEY))[0] == LOST
    assert status(shell.connection) == "intended"


@rule("M13", "M15")
def test_the_result_of_an_effect_that_is_too_large_is_left_out_with_a_warning(shell: Shell) -> None:
    warnings: list[str | None] = []
    shell.connection.add_notice_handler(lambda seen: warnings.append(seen.message_primary))
    job = claim(shell)
    begin(shell, job)
    shell.call("worker_effect_finish", *job, KEY, Jsonb("x" * 65_536))
    assert warnings == ["the result of effect mail:1 is over 64 KiB and is not kept"]
    assert begin(shell, job) == ("done", None)


@rule("M52")
@pytest.mark.parametrize(("commits", "state"), [(True, "held"), (False, "begun")])
def test_of_two_transactions_that_begin_an_effect_at_once_one_waits_for_the_other(
    connection: Connection, second: Connection, commits: bool, state: str
) -> None:
    shell, beside = Shell(connection), Shell(second)
    mine, other = claim(shell), claim(shell)
    connection.execute("begin")
    assert begin(shell, mine) == ("begun", None)
    end = partial(connection.execute, "commit" if commits else "rollback")
    answer = after_it_waited(connection, second, lambda: begin(beside, other), end)
    assert answer == (state, None)


@rule("M15", "M52")
def test_what_cannot_be_begun_finished_or_settled_is_refused(shell: Shell) -> None:
    first, second = claim(shell), claim(shell)
    begin(shell, first)
    calls: list[tuple[Any, ...]] = [
        ("worker_effect_begin", *first, None, "dead"),
        ("worker_effect_begin", *first, "k" * 256, "dead"),
        ("worker_effect_begin", *first, "k", "never"),
        ("worker_effect_finish", *second, KEY),
        ("worker_effect_finish", *first, "mail:2"),
        ("effect_resolve", KEY, None),
        ("effect_resolve", KEY, False, Jsonb(1)),
        ("effect_resolve", KEY, True, Jsonb("x" * 65_536)),
    ]
    for function, *values in calls:
        assert refused(partial(shell.call, function, *values))[0] == INVALID, (function, values)
    assert status(shell.connection) == "intended"


# Steps, as our worker writes them


def step(hand: Hand, job: Begun, name: str, place: int, verb: Any = "intend") -> EffectAnswer:
    call = EffectCall(verb, *job, place, name, place, "repeat", '"r"' if verb == "finish" else None)
    return hand.run(ops.call_effect(call))


@rule("M52")
def test_a_step_belongs_to_its_job_and_not_to_others(shell: Shell, hand: Hand) -> None:
    first, second = claim(shell), claim(shell)
    assert step(hand, first, "charge", 1).state == "begun"
    assert step(hand, second, "charge", 1).state == "begun"
    step(hand, first, "charge", 1, "finish")
    assert step(hand, first, "charge", 1).result_json == '"r"'
    assert step(hand, second, "charge", 1).state == "begun"
    assert begin(shell, second, key="charge") == ("begun", None)


@rule("M52")
@pytest.mark.parametrize(
    ("policy", "state"), [("dead", "uncertain"), ("skip", "skip"), ("repeat", "begun")]
)
def test_an_attempt_that_comes_again_to_what_it_left_open_meets_it_as_the_next_one_would(
    shell: Shell, hand: Hand, policy: IfUncertain, state: str
) -> None:
    job = claim(shell)

    def tell(verb: Any, entry: int) -> EffectAnswer:
        return hand.run(ops.call_effect(EffectCall(verb, *job, entry, KEY, None, policy)))

    assert tell("intend", 1).state == tell("intend", 1).state == "begun"
    again = tell("intend", 2)
    assert (again.state, again.earlier) == (state, 1 if policy == "repeat" else 0)
    assert tell("finish", 1).state == ("lost" if policy == "repeat" else "ended")


@rule("M52")
def test_a_step_in_the_place_of_another_is_moved_and_writes_nothing(
    shell: Shell, hand: Hand
) -> None:
    job = claim(shell)
    step(hand, job, "reserve", 1)
    step(hand, job, "reserve", 1, "finish")
    moved = step(hand, job, "charge", 1)
    assert (moved.state, moved.expected) == ("moved", "reserve")
    moved = step(hand, job, "reserve", 2)
    assert (moved.state, moved.expected) == ("moved", None)
    kept = hand.run(ops.effects_of([job[0]], None, None, 10))
    assert [(row.key, row.place, row.status) for row in kept] == [("reserve", 1, "done")]


# A person


@rule("M52", "M87")
@pytest.mark.parametrize("done", [True, False])
def test_a_person_settles_what_is_uncertain_and_the_log_keeps_who_and_why(
    shell: Shell, done: bool
) -> None:
    first = claim(shell)
    begin(shell, first)
    assert settle(shell, done=done) == "held"
    assert status(shell.connection) == "intended"
    again = lose(shell, first)
    result = Jsonb("m-7") if done else None
    answer = settle(shell, done=done, p_result=result, p_why="as the\nlog says", p_by="ann")
    assert answer == ("done" if done else "not_done")
    assert begin(shell, again) == (("done", "m-7") if done else ("begun", None))
    logged = shell.connection.execute("select verb, job, by, why, detail from rota.action")
    assert logged.fetchall() == [
        ("resolve", first[0], "ann", "as the log says", {"effect": KEY, "as": answer})
    ]


@rule("M52")
def test_what_is_done_is_settled_as_not_done_only_where_it_is_to_happen_again(shell: Shell) -> None:
    job = claim(shell)
    begin(shell, job)
    shell.call("worker_effect_finish", *job, KEY)
    for refused in (False, None):
        assert settle(shell, done=False, p_again=refused) == "is_done"
    assert status(shell.connection) == "done"
    assert shell.connection.execute("select from rota.action").fetchall() == []
    assert settle(shell, done=False, p_again=True) == "not_done", "also while its job runs"
    assert begin(shell, job) == ("begun", None)


def requeue(connection: Connection, job: int, *, fresh: bool = False) -> int:
    [(new,)] = connection.execute(
        "select new_id from rota.job_requeue(array[%s]::bigint[], p_fresh => %s)", [job, fresh]
    ).fetchall()
    return int(new)


@rule("M52")
def test_a_step_is_settled_by_any_job_of_its_chain(shell: Shell, hand: Hand) -> None:
    first = claim(shell)
    chain = [first[0]]
    step(hand, first, "charge", 1)
    for _ in range(2):
        shell.connection.execute("select rota.fail(%s, %s, 'E', fatal => true)", first)
        chain.append(requeue(shell.connection, first[0]))
        first = shell.claim_job()
    for job in chain:
        shell.connection.execute("update rota.effect set done_at = null")
        assert settle(shell, "charge", done=True, p_step_of=job) == "done"
    assert settle(shell, "charge", done=False, p_step_of=chain[1], p_again=True) == "not_done"


# A requeue


@rule("M44", "M52")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_requeued_job_finds_its_effects_and_unless_it_starts_over_its_steps(
    shell: Shell, hand: Hand, fresh: bool
) -> None:
    first, other = claim(shell), claim(shell)
    for job in (first, other):
        step(hand, job, "reserve", 1)
        step(hand, job, "reserve", 1, "finish")
    step(hand, first, "charge", 2)
    begin(shell, first)
    begin(shell, first, key="mail:2")
    shell.call("worker_effect_finish", *first, "mail:2", Jsonb("m-7"))
    shell.call("fail", *first, "OSError", fatal=True)
    new = requeue(shell.connection, first[0], fresh=fresh)
    second = shell.claim_job()
    assert second[0] == new
    assert [status(shell.connection, key) for key in (KEY, "mail:2")] == ["uncertain", "done"]
    assert begin(shell, second) == ("uncertain", None)
    assert begin(shell, second, key="mail:2") == ("done", "m-7")
    steps = hand.run(ops.effects_of([new], None, None, 10))
    kept = [(row.key, row.step_of, row.status) for row in steps if row.step_of is not None]
    expected = [("reserve", first[0], "done"), ("charge", first[0], "uncertain")]
    assert kept == ([] if fresh else expected)
    [beside] = hand.run(ops.effects_of([other[0]], None, None, 10))
    assert (beside.key, beside.status) == ("reserve", "done")
    if fresh:
        assert step(hand, second, "charge", 1).state == "begun"
    else:
        assert step(hand, second, "reserve", 1).state == "done"
        assert step(hand, second, "charge", 2).earlier == 1


# How long they stay


def keep(connection: Connection, key: str, job: int, days: float, **columns: Any) -> None:
    """Insert an effect that was intended so long ago."""
    given = {"origin_id": 0, "entry": 1, "claim": 1, "if_uncertain": "dead", **columns}
    at = timedelta(days=days)
    names = ", ".join(given)
    values = ", ".join(f"%({name})s" for name in given)
    done = "rota.clock() - %(at)s" if columns.get("result") else "null"
    connection.execute(
        f"insert into rota.effect (key, job, intended_at, done_at, {names}) values "
        f"(%(key)s, %(job)s, rota.clock() - %(at)s, {done}, {values})".encode(),
        {"key": key, "job": job, "at": at, **given},
    )


def keys(connection: Connection) -> set[str]:
    return {key for (key,) in connection.execute("select key from rota.effect").fetchall()}


@rule("M13", "M52")
def test_effects_are_forgotten_after_ninety_days_but_none_that_a_job_may_ask_for(
    shared: Connection, hand: Hand
) -> None:
    [live] = insert(shared)
    dead = insert(shared, 2, status="dead")
    gone = live + 1_000
    keep(shared, "done long ago", gone, 91, result=Jsonb(1))
    keep(shared, "done", gone, 89, result=Jsonb(1))
    keep(shared, "uncertain long ago", gone, 91)
    keep(shared, "uncertain", gone, 89)
    keep(shared, "of a live job", live, 91, result=Jsonb(1))
    keep(shared, "of a dead job", dead[0], 91)
    keep(shared, "a step of a dead job", gone, 91, origin_id=dead[1], place=1)
    assert forget(hand, 100) == 2
    left = {"done", "uncertain", "of a live job", "of a dead job", "a step of a dead job"}
    assert keys(shared) == left
    shared.execute("delete from rota.job")
    assert forget(hand, 100) == 3
    shared.execute("update rota.retention set keep = '88 days' where what = 'effects'")
    assert forget(hand, 100) == 2
    shared.execute("delete from rota.retention where what = 'effects'")
    keep(shared, "without a setting", gone, 9_000, result=Jsonb(1))
    assert (forget(hand, 100), keys(shared)) == (0, {"without a setting"})


@rule("M13", "M52")
def test_the_effects_of_a_requeued_job_stay_as_long_as_it_does(
    shell: Shell, hand: Hand, shared: Connection
) -> None:
    first = claim(shell)
    begin(shell, first)
    shell.call("worker_effect_finish", *first, KEY)
    step(hand, first, "charge", 1)
    shell.call("fail", *first, "OSError", fatal=True)
    new = requeue(shared, first[0])
    shared.execute(
        "update rota.effect set intended_at = '2000-01-01', done_at = case when done_at is not "
        "null then '2000-01-01'::timestamptz end"
    )
    assert forget(hand, 100) == 0
    shared.execute("delete from rota.job where id = %s", [new])
    assert forget(hand, 100) == 2


def forget(hand: Hand, limit: int) -> int:
    return sum(hand.run(ops.forget_rows(what, limit)) for what in ("effects", "effects not done"))


@rule("M13")
def test_effects_are_forgotten_in_batches_the_oldest_first_past_locked_ones(
    connection: Connection, second: Connection
) -> None:
    hand = Hand(connection)
    for days in range(101, 106):
        keep(connection, f"done {days}", 1, days, result=Jsonb(1))
        keep(connection, f"intended {days}", 1, days)
    with second.transaction():
        second.execute("select from rota.effect where key = 'done 105' for update")
        assert forget(hand, 2) == 4
        assert keys(connection) == {
            "done 105", "done 102", "done 101",
            "intended 103", "intended 102", "intended 101",
        }  # fmt: skip


# What it costs

MANY = 20_000
BLOCKS = 150
"""What a statement may touch, for at most ten rows. Each of the many would cost one more."""


def cost(hand: Hand, operation: Operation[Any]) -> int:
    query = next(operation)
    assert isinstance(query, Query)
    statement = hand.database.statements[query.name]
    hand.connection.execute(statement, query.params)  # what planning reads, it reads once
    return count_blocks(hand.connection, statement, query.params)


@rule("M14", "M52")
@pytest.mark.parametrize("analysed", [False, True])
def test_what_reads_effects_reads_by_index_among_many(
    connection: Connection, analysed: bool
) -> None:
    hand = Hand(connection)
    connection.execute(
        "insert into rota.effect (key, job, claim, entry, if_uncertain, done_at) select 'k' || n, "
        "n, 1, 1, 'dead', rota.clock() from generate_series(1, %s) n",
        [MANY],
    )
    keep(connection, KEY, MANY + 1, 1)
    keep(connection, "old", MANY + 2, 91, result=Jsonb(1))
    if analysed:
        connection.execute("analyze rota.effect, rota.job")
    operations = {
        "not done": ops.effects(None, 10),
        "uncertain": ops.effects("uncertain", 10),
        "done": ops.effects("done", 10),
        "of jobs": ops.effects_of([7, 8, MANY + 1], None, None, 10),
        "with a key": ops.effects_of(None, "k9", None, 10),
        "doctor": doctor(),
        "forget done ones": ops.forget_rows("effects", 10),
        "forget others": ops.forget_rows("effects not done", 10),
    }
    costs = {name: cost(hand, operation) for name, operation in operations.items()}
    assert {name: blocks for name, blocks in costs.items() if blocks > BLOCKS} == {}


def doctor() -> Operation[None]:
    yield Query("doctor_effects", {"limit": 10_000})
