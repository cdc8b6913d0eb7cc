"""What every driver must do, on a real server: rows, transactions, and the errors of the seam.

`adapters.py` says how to run another driver through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import psycopg
import pytest

import rota
from rota.errors import DatabaseUnavailable, PayloadError, SchemaError, SchemaMissing
from rota.model.job import Action
from rota.store import ops
from rota.store.driver import Operation, Query, Row
from rota.store.errors import (
    ObjectMissing,
    PartitionMissing,
    PayloadRefused,
    PrivilegeMissing,
    RowLocked,
    RowRefused,
    ServerTrouble,
    StoreError,
    Unstorable,
)
from rota.store.migrate import migrate
from tests.store.conformance.adapters import Adapter
from tests.store.conformance.kinds import ADAPTERS
from tests.store.rows import row
from tests.store.work import FAIL, SUCCEED, Connection, Hand, count
from tests.support.databases import Databases
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually

T = TypeVar("T")
Open = Callable[..., Adapter]


@pytest.fixture(params=list(ADAPTERS.values()), ids=list(ADAPTERS))
def kind(request: pytest.FixtureRequest) -> type[Adapter]:
    found: type[Adapter] = request.param
    return found


@pytest.fixture(scope="session")
def _one(server: PostgresServer, databases: Databases) -> Iterator[tuple[str, Connection]]:
    with databases.lend() as name, psycopg.connect(server.url(name), autocommit=True) as connection:
        yield server.url(name), connection


CLEAN = """
rollback; reset all; drop function if exists public.refuse cascade;
alter table rota.job drop constraint if exists mine;
delete from rota.job; delete from rota.job_history; delete from rota.idempotency;
delete from rota.attempt; delete from rota.action"""


@pytest.fixture
def connection(_one: tuple[str, Connection]) -> Iterator[Connection]:
    """Yield a connection to the one database of all these tests, which is cleaned behind each."""
    connection = _one[1]
    yield connection
    connection.execute(CLEAN)


@pytest.fixture
def database(_one: tuple[str, Connection], connection: Connection) -> str:
    return _one[0]


@pytest.fixture
def opener(kind: type[Adapter], database: str) -> Iterator[Open]:
    """Opens connections of the driver to the test's database."""
    opened: list[Adapter] = []

    def open_one(url: str = database, *, autocommit: bool = True) -> Adapter:
        opened.append(kind.open(url, autocommit=autocommit))
        return opened[-1]

    yield open_one
    for session in opened:
        session.close()


@pytest.fixture
def adapter(opener: Open) -> Adapter:
    return opener()


@dataclass
class DriverHand(Hand):
    """A worker reduced to its statements, which runs them through a driver."""

    adapter: Adapter | None = None

    def run(self, operation: Operation[T]) -> T:
        assert self.adapter is not None
        return self.adapter.run(operation)


@pytest.fixture
def small_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk of fifty jobs takes so many statements that not all are on their way at once."""
    monkeypatch.setattr("rota.store.ops.enqueue.INSERT_MAX", 10)


def needs_autocommit(adapter: Adapter) -> None:
    if not adapter.has_autocommit:
        pytest.skip("this driver refuses autocommit")


def command(text: str) -> Operation[None]:
    yield Query("", command=text)


# Rows


@rule("M21")
def test_a_job_comes_back_as_it_was_enqueued(adapter: Adapter) -> None:
    at = datetime(2999, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    given = row(
        queue="größe", payload='{"n": [1, null, "ü%s%"]}', priority=-7, run_at=at, expires_s=1.5,
        max_attempts=3, idempotency_key="k%(x)s", meta='{"by": "test"}', payload_version=2,
    )  # fmt: skip
    done = adapter.run(ops.insert(given))
    job = adapter.run(ops.find(ids=[done.id]))[0]
    assert (done.created, done.status, job.id) == (True, "queued", done.id)
    assert (job.queue, job.priority, job.run_at, job.max_attempts) == ("größe", -7, at, 3)
    assert (job.payload, job.meta) == ({"n": [1, None, "ü%s%"]}, {"by": "test"})
    assert (job.idempotency_key, job.payload_version) == ("k%(x)s", 2)
    assert job.expires_at == at + timedelta(seconds=1.5)
    assert job.run_at.utcoffset() is not None


@rule("M20")
def test_a_connection_with_another_search_path_and_other_formats_is_served(
    adapter: Adapter,
) -> None:
    for setting in (
        "search_path = pg_temp",
        "datestyle = 'German'",
        "intervalstyle = sql_standard",
    ):
        adapter.execute(f"set {setting}")
    at = datetime(2999, 1, 2, 3, 4, 5, tzinfo=UTC)
    done = adapter.run(ops.insert(row(run_at=at, timeout=timedelta(days=1, seconds=1.5))))
    adapter.execute("set datestyle = 'ISO'")  # psycopg reads no other one as text
    [job] = adapter.run(ops.find(ids=[done.id]))
    assert (job.run_at, job.timeout_s) == (at, 86_401.5)


@rule("M21")
@pytest.mark.usefixtures("small_statements")
def test_a_bulk_is_in_the_order_of_the_call(adapter: Adapter) -> None:
    rows = [row(payload=f'{{"n": {n}}}', priority=n % 5) for n in range(55)]
    done = adapter.run(ops.insert_many(rows), atomic=True)
    ids = [job.id for job in done]
    assert ids == sorted(ids) and all(job.created for job in done)
    found = adapter.run(ops.find(ids=[ids[0], ids[-1]]))
    assert [job.payload for job in found] == [{"n": 54}, {"n": 0}]
    assert adapter.run(ops.insert_many([])) == []


@rule("M21")
def test_the_server_works_while_the_next_statement_is_made(adapter: Adapter, database: str) -> None:
    if not adapter.sends_ahead:
        pytest.skip("this driver makes all before it sends, or sends one at a time")

    def make(holder: Connection) -> Iterator[dict[str, int]]:
        yield {"count": 2}
        eventually(lambda: _is_waited_for(holder), what="the server works on the first")
        holder.rollback()
        yield {"count": 1}

    def reserve(holder: Connection) -> Operation[list[Row]]:
        return (yield Query("ids_reserve", each=make(holder)))

    with psycopg.connect(database) as holder:
        holder.execute("alter sequence rota.job_id_seq cache 1")  # nextval waits for its end
        [[first], [second]] = adapter.run(reserve(holder))
    assert (len(first), second) == (2, [first[1] + 1])


def _is_waited_for(holder: Connection) -> bool:
    found = holder.execute(
        "select exists (select from pg_locks l where not l.granted "
        "and pg_backend_pid() = any (pg_blocking_pids(l.pid)))"
    ).fetchone()
    return found == (True,)


@rule("M51")
def test_a_key_that_is_taken_names_its_job_and_one_that_is_freed_is_taken_anew(
    adapter: Adapter,
) -> None:
    first = adapter.run(ops.insert(row(idempotency_key="k")))
    again = adapter.run(ops.insert(row(idempotency_key="k")))
    assert again == rota.Enqueued(first.id, False, "queued")
    many = adapter.run(ops.insert_many([row(idempotency_key=key) for key in ("k", "l", "l")]))
    assert [job.created for job in many] == [False, True, False]
    assert (many[0].id, many[2].id) == (first.id, many[1].id)
    adapter.run(ops.act(ops.ActionRequest(Action.CANCEL, "tester"), [first.id]))
    assert adapter.run(ops.insert(row(idempotency_key="k"))).created


@rule("M30", "M32")
def test_jobs_are_claimed_renewed_and_ended(adapter: Adapter, connection: Connection) -> None:
    ids = [adapter.run(ops.insert(row())).id for _ in range(3)]
    hand = DriverHand(connection, adapter=adapter)
    jobs = hand.claim().jobs
    assert [job.id for job in jobs] == ids and jobs[0].run_at.tzinfo is not None
    assert hand.start(*jobs) == hand.renew(*jobs) == set(ids)
    written = hand.settle((jobs[0], SUCCEED), (jobs[1], FAIL))
    assert (written[ids[0]].status, written[ids[1]].status) == ("succeeded", "failed")
    assert written[ids[1]].run_at is not None
    assert [attempt.message for attempt in adapter.run(ops.attempts(ids[1]))] == [
        "no route to host"
    ]


@rule("M87")
def test_actions_are_done_around_a_job_that_is_refused(
    adapter: Adapter, connection: Connection
) -> None:
    needs_autocommit(adapter)
    ids = [job.id for job in adapter.run(ops.insert_many([row() for _ in range(5)]))]
    refuse(connection, f"new.id = {ids[2]}", "exception 'not this one'")
    answers, refusals = adapter.run(
        ops.act_on_many(ops.ActionRequest(Action.DISCARD, "tester", "why"), ids)
    )
    assert [answer.job for answer in answers] == [job for job in ids if job != ids[2]]
    assert list(refusals) == [ids[2]] and "not this one" in refusals[ids[2]]


def refuse(connection: Connection, when: str, raises: str) -> None:
    """Have a trigger of the user's refuse rows."""
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        f" if {when} then raise {raises}; end if; return new; end $$".encode()
    )
    trigger = "create trigger refuse before insert or update on rota.job for each row"
    connection.execute(f"{trigger} execute function refuse()".encode())


# Transactions


@rule("M20")
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_job_comes_and_goes_with_the_transaction(
    opener: Open, connection: Connection, kind: type[Adapter], autocommit: bool
) -> None:
    if not autocommit and not kind.begins_itself:
        pytest.skip("this driver begins no transaction by itself")
    adapter = opener(autocommit=autocommit)
    for end, jobs in ((adapter.rollback, 0), (adapter.commit, 1)):
        if autocommit:
            adapter.begin()
        adapter.ask(ops.insert(row()))
        assert count(connection) == 0
        end()
        assert count(connection) == jobs


@rule("M20")
def test_in_autocommit_a_job_is_there_at_once(adapter: Adapter, connection: Connection) -> None:
    needs_autocommit(adapter)
    adapter.ask(ops.insert(row()))
    assert count(connection) == 1


@rule("M20")
@pytest.mark.usefixtures("small_statements")
@pytest.mark.parametrize("in_transaction", [True, False])
def test_an_atomic_operation_is_all_or_nothing(
    adapter: Adapter, connection: Connection, in_transaction: bool
) -> None:
    connection.execute("alter table rota.job add constraint mine check (priority <> 7)")
    rows = [row(priority=7 if n == 42 else 0) for n in range(45)]
    if in_transaction:
        adapter.begin()
    with pytest.raises(RowRefused):
        adapter.run(ops.insert_many(rows), atomic=True)
    if in_transaction:
        adapter.rollback()
    assert count(connection) == 0
    adapter.run(ops.insert(row()))  # the connection can be used on
    assert count(connection) == 1


@rule("M20")
def test_an_error_of_the_commit_is_translated(adapter: Adapter, connection: Connection) -> None:
    needs_autocommit(adapter)
    refuse(connection, "new.priority = 7", "exception 'not this one'")
    connection.execute("drop trigger refuse on rota.job")
    trigger = "create constraint trigger refuse after insert on rota.job"
    deferred = f"{trigger} deferrable initially deferred for each row"
    connection.execute(f"{deferred} execute function refuse()".encode())
    with pytest.raises(RowRefused, match="not this one"):
        adapter.run(ops.insert_many([row(priority=7)]), atomic=True)
    assert count(connection) == 0


@rule("M20")
def test_a_savepoint_takes_back_what_came_after_it(
    adapter: Adapter, connection: Connection
) -> None:
    adapter.begin()
    kept = adapter.ask(ops.insert(row()))
    adapter.savepoint()
    adapter.ask(ops.insert(row()))
    adapter.rollback_to_savepoint()
    adapter.commit()
    assert connection.execute("select id from rota.job").fetchall() == [(kept.id,)]


# Errors

ONE_OF_EACH = {
    name: ADAPTERS[name] for name in ("psycopg", "asyncpg", "SQLAlchemy Session", "Django")
}
"""A kind of each library, for what takes seconds."""
REFUSALS: dict[str, tuple[str, Callable[[], Operation[Any]], type[StoreError], str | None]] = {
    "a CHECK of the user's": (
        "alter table rota.job add constraint mine check (priority <> 7)",
        lambda: ops.insert(row(priority=7)), RowRefused, "23514",
    ),
    "a trigger of the user's": (
        "", lambda: ops.insert(row(queue="refused")), RowRefused, "P0001",
    ),
    "a NUL": ("", lambda: ops.insert(row(idempotency_key="a\0b")), Unstorable, None),
    "a NUL in JSON": ("", lambda: ops.insert(row(payload='{"a": "\\u0000"}')), Unstorable, "22P05"),
    "a number too large": ("", lambda: ops.insert(row(priority=2**40)), Unstorable, "22003"),
    "a payload too large": (
        "", lambda: ops.insert(row(payload=f'{{"a": "{"x" * 70_000}"}}')), PayloadRefused, "23514",
    ),
    "a payload that is no object": (
        "", lambda: ops.insert(row(payload="[]")), PayloadRefused, "23514",
    ),
    "a missing partition": (
        "", lambda: command("insert into rota.attempt (job, claim, attempt, worker, finished_at,"
        " outcome) values (1, 1, 1, 'w', '1999-01-01', 'failed')"), PartitionMissing, "23514",
    ),
    "a missing table": ("", lambda: command("select from rota.gone"), ObjectMissing, "42P01"),
    "a missing schema": ("", lambda: command("select gone.f()"), ObjectMissing, "3F000"),
    "a statement timeout": ("", lambda: command("select pg_sleep(60)"), RowLocked, "57014"),
    "a disk that is full": (
        "", lambda: ops.insert(row(queue="full")), ServerTrouble, "53100",
    ),
}  # fmt: skip


@pytest.fixture
def triggers(connection: Connection) -> None:
    connection.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.queue = 'refused' then raise exception 'not this one' using detail = 'at all';"
        " elsif new.queue = 'full' then raise disk_full; end if; return new; end $$"
    )
    trigger = "create trigger refuse before insert on rota.job for each row"
    connection.execute(f"{trigger} execute function refuse()".encode())


@rule("M2", "M20")
@pytest.mark.usefixtures("triggers")
def test_a_refusal_is_known_by_its_class_and_a_savepoint_saves_the_transaction(
    adapter: Adapter, connection: Connection
) -> None:
    for name, (prepare, operation, error, sqlstate) in REFUSALS.items():
        if prepare:
            connection.execute(prepare.encode())
        adapter.begin()
        kept = adapter.run(ops.insert(row()))
        adapter.savepoint()
        if sqlstate == "57014":
            adapter.execute("set local statement_timeout = '20ms'")
        with pytest.raises(error) as refused:
            adapter.run(operation())
        expected = "22021" if adapter.sends_nul and name == "a NUL" else sqlstate
        assert type(refused.value) is error and refused.value.sqlstate == expected, name
        assert refused.value.first_line and refused.value.name and refused.value.driver_error, name
        adapter.rollback_to_savepoint()
        adapter.run(ops.insert(row()))
        adapter.commit()
        found = "select min(id), count(*) from rota.job where id >= %s"
        assert connection.execute(found, [kept.id]).fetchone() == (kept.id, 2), name


@rule("M2")
@pytest.mark.usefixtures("triggers")
def test_an_error_carries_the_constraint_the_table_and_the_whole_text(
    adapter: Adapter, connection: Connection
) -> None:
    connection.execute("alter table rota.job add constraint mine check (priority <> 7)")
    with pytest.raises(RowRefused) as refused:
        adapter.run(ops.insert(row(priority=7)))
    assert (refused.value.constraint, refused.value.table) == ("mine", "job")
    with pytest.raises(RowRefused) as refused:
        adapter.run(ops.insert(row(queue="refused")))
    assert refused.value.first_line == "not this one" and "at all" in str(refused.value)
    assert refused.value.summary == f"{refused.value.name}: not this one"


@rule("M84", "M45")
@pytest.mark.parametrize("kind", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_what_is_logged_of_an_error_is_short_whatever_a_trigger_says(
    adapter: Adapter, connection: Connection
) -> None:
    refuse(connection, "true", "exception 'password=hunter2 %', repeat('x', 100000)")
    with pytest.raises(RowRefused) as refused:
        adapter.run(ops.insert(row()))
    assert len(str(refused.value)) > 100_000
    assert 400 < len(refused.value.first_line) < len(refused.value.summary) < 600
    assert "hunter2" not in refused.value.first_line


@rule("M2", "M31")
def test_a_row_that_another_transaction_holds_is_locked(
    adapter: Adapter, connection: Connection
) -> None:
    job = adapter.run(ops.insert(row())).id
    connection.execute("begin")
    connection.execute("select from rota.job for update")
    adapter.execute("set lock_timeout = '50ms'")
    act = ops.ActionRequest(Action.CANCEL, "tester")
    with pytest.raises(RowLocked) as locked:
        adapter.run(ops.act(act, [job]))
    assert locked.value.sqlstate == "55P03"
    connection.execute("rollback")
    assert [answer.answer for answer in adapter.run(ops.act(act, [job]))] == ["cancelled"]


@rule("M51")
def test_a_serialization_failure_is_locked_and_the_driver_s_own_for_the_application(
    adapter: Adapter, connection: Connection
) -> None:
    adapter.begin()
    adapter.execute("set transaction isolation level repeatable read")
    adapter.execute("select 1")
    Hand(connection).run(ops.insert(row(idempotency_key="k")))
    adapter.savepoint()
    with pytest.raises(RowLocked) as failed:
        adapter.run(ops.insert(row(idempotency_key="k")))
    assert failed.value.sqlstate == "40001"
    adapter.rollback_to_savepoint()
    with pytest.raises(adapter.server_error):
        adapter.ask(ops.insert(row(idempotency_key="k")))
    adapter.rollback()


@rule("M2")
def test_a_connection_that_the_server_ends_raises_server_trouble(
    adapter: Adapter, connection: Connection
) -> None:
    pid = adapter.execute("select pg_backend_pid()")[0][0]
    connection.execute("select pg_terminate_backend(%s, 5000)", [pid])
    for _ in range(1 + adapter.stays_broken):
        with pytest.raises(ServerTrouble):
            adapter.run(ops.insert(row()))
    assert count(connection) == 0


@rule("M2")
def test_a_read_only_server_raises_server_trouble_of_its_own(adapter: Adapter) -> None:
    adapter.execute("set default_transaction_read_only = on")
    with pytest.raises(ServerTrouble) as trouble:
        adapter.run(ops.insert(row()))
    assert trouble.value.is_read_only
    assert adapter.run(ops.ask_rows(ops.Pause, "pauses")) == []


@pytest.mark.system
@rule("M2")
@pytest.mark.parametrize("kind", [ADAPTERS["psycopg"], ADAPTERS["asyncpg"]])
def test_a_server_that_restarts_raises_server_trouble_until_a_new_connection(
    own_server: PostgresServer, opener: Open
) -> None:
    migrate(own_server.url())
    adapter = opener(own_server.url())
    adapter.run(ops.insert(row()))
    own_server.restart("immediate")
    with pytest.raises(ServerTrouble):
        adapter.run(ops.insert(row()))
    assert len(opener(own_server.url()).run(ops.find())) == 1


# The errors that the application gets


def test_the_error_for_a_missing_schema_says_what_to_run(opener: Open, empty_database: str) -> None:
    adapter = opener(empty_database)
    with pytest.raises(ObjectMissing):
        adapter.run(ops.insert(row()))
    with pytest.raises(SchemaMissing, match="run `rota migrate`"):
        adapter.ask(ops.insert(row()))


def test_the_error_for_a_missing_privilege_says_where_the_grants_are(adapter: Adapter) -> None:
    adapter.execute("set role pg_monitor")
    with pytest.raises(PrivilegeMissing):
        adapter.run(ops.insert(row()))
    with pytest.raises(SchemaError, match=r"lacks a privilege: .*tables-and-sql\.md"):
        adapter.ask(ops.insert(row()))


@rule("M12")
def test_a_payload_that_is_too_large_is_a_payload_error(adapter: Adapter) -> None:
    with pytest.raises(PayloadError, match="70009 bytes, over the limit of 65536"):
        adapter.ask(ops.insert(row(payload=f'{{"a": "{"x" * 70_000}"}}')))


@pytest.mark.usefixtures("triggers")
def test_what_rota_has_no_word_for_is_the_driver_s_own_error(
    adapter: Adapter, connection: Connection
) -> None:
    for queue in ("refused", "full"):
        with pytest.raises(adapter.server_error) as refused:
            adapter.ask(ops.insert(row(queue=queue)))
        assert not isinstance(refused.value, StoreError | rota.RotaError)
        assert not isinstance(refused.value.__context__, StoreError)  # nothing of Rota's is shown
    pid = adapter.execute("select pg_backend_pid()")[0][0]
    connection.execute("select pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(adapter.server_error) as refused:
        adapter.ask(ops.insert(row()))
    assert not isinstance(refused.value, DatabaseUnavailable)
