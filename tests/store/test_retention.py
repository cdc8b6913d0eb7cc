"""What is over is forgotten in time, and nothing sooner."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from rota.errors import ConfigurationError, SchemaError
from rota.store import ops
from rota.store.migrate import migrate
from tests.store.planned import set_clock
from tests.store.work import (
    GIVE_UP,
    SUCCEED,
    Connection,
    Hand,
    after_it_waited,
    drop_days,
    insert,
    waits,
)
from tests.support.rules import rule
from tests.support.wait import eventually


def rows(connection: Connection, query: str, *params: object) -> list[TupleRow]:
    return connection.execute(query.encode(), params or None).fetchall()


def partitions(connection: Connection, table: str = "job_history") -> list[str]:
    """The days of a table, attached or not."""
    found = rows(
        connection,
        "select relname from pg_class where relkind = 'r' and relname ~ %s order by 1",
        f"^{table}_[0-9]{{8}}$",
    )
    return [name.removeprefix(f"{table}_") for (name,) in found]


def one_pass(hand: Hand) -> list[str]:
    """What a pass does about partitions; why each step that had to wait did."""
    waiting: list[str] = []
    for kinds in (("detach",), ("drop", "archive")):
        for step in hand.run(ops.partitions_due()):
            if step.step in kinds:
                why = hand.run(ops.take_step(step))
                waiting += [why] if why is not None else []
    return waiting


def held_up(hand: Hand, looking: Connection) -> list[str]:
    """Interrupt a pass as soon as it waits for a lock, as its statement timeout would."""
    pid = hand.connection.info.backend_pid
    is_waiting = waits(looking, hand.connection)
    with ThreadPoolExecutor(1) as pool:
        passing = pool.submit(one_pass, hand)
        try:
            eventually(lambda: passing.done() or is_waiting(), what="it waits")
        finally:
            looking.execute("select pg_cancel_backend(%s)", [pid])
        return passing.result(30)


# Partitions

TODAY = datetime(2031, 5, 10, tzinfo=UTC)


@pytest.fixture
def hand(connection: Connection) -> Hand:
    for table in ("job_history", "attempt"):
        for day in partitions(connection, table):
            connection.execute(f"drop table rota.{table}_{day}".encode())
    set_clock(connection, TODAY)
    hand = Hand(connection)
    hand.run(ops.ensure_partitions())
    return hand


@rule("M13")
def test_a_day_is_dropped_when_its_last_moment_is_older_than_what_is_kept(
    connection: Connection, hand: Hand
) -> None:
    # Tables that are somebody else's.
    connection.execute(
        "create table rota.job_history_20310501_mine (); "
        "create table rota.my_job_history_20310501 (); "
        "create schema other; create table other.job_history_20310501 ()"
    )
    set_clock(connection, TODAY + timedelta(days=15, microseconds=-1))
    assert hand.run(ops.partitions_due()) == []
    set_clock(connection, TODAY + timedelta(days=15))
    assert [step.name for step in hand.run(ops.partitions_due())] == ["job_history_20310510"]
    assert one_pass(hand) == []
    connection.execute("drop table other.job_history_20310501")
    assert partitions(connection)[0] == "20310511"
    assert hand.run(ops.partitions_due()) == []
    assert partitions(connection, "attempt")[0] == "20310510"
    set_clock(connection, TODAY + timedelta(days=91))
    assert {step.name for step in hand.run(ops.partitions_due())} == {
        "job_history_20310511",
        "attempt_20310510",
    }


@rule("M13")
def test_a_pass_takes_one_day_of_a_table_and_the_next_passes_the_others(
    connection: Connection, hand: Hand
) -> None:
    set_clock(connection, TODAY + timedelta(days=17, hours=1))
    for left in ("20310511", "20310512", "20310513", "20310513"):
        assert one_pass(hand) == []
        assert partitions(connection)[0] == left


@rule("M13")
def test_history_is_kept_for_as_long_as_the_row_of_the_settings_says_and_for_ever_without_one(
    connection: Connection, hand: Hand
) -> None:
    set_clock(connection, TODAY + timedelta(days=40))
    connection.execute("update rota.retention set keep = '39 days' where what = 'history'")
    assert [step.name for step in hand.run(ops.partitions_due())] == ["job_history_20310510"]
    connection.execute("update rota.retention set keep = '40 days' where what = 'history'")
    assert hand.run(ops.partitions_due()) == []
    connection.execute("delete from rota.retention")
    set_clock(connection, TODAY + timedelta(days=4000))
    assert hand.run(ops.partitions_due()) == []
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("insert into rota.retention (what, keep) values ('history', '23 hours')")


@rule("M13")
def test_a_partition_that_was_taken_off_by_a_pass_that_got_no_further_is_dropped(
    connection: Connection, hand: Hand
) -> None:
    connection.execute("alter table rota.job_history detach partition rota.job_history_20310510")
    assert hand.run(ops.partitions_due()) == []
    set_clock(connection, TODAY + timedelta(days=15))
    assert [step.step for step in hand.run(ops.partitions_due())] == ["drop"]
    assert one_pass(hand) == []
    assert partitions(connection)[0] == "20310511"


@rule("M13")
def test_a_reader_is_not_disturbed_and_what_it_holds_up_is_finished_once_it_is_gone(
    connection: Connection, database: str, hand: Hand
) -> None:
    insert(connection, 3)
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    set_clock(connection, TODAY + timedelta(days=15))
    hand.run(ops.ensure_partitions())
    with psycopg.connect(database) as reader, psycopg.connect(database, autocommit=True) as other:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        assert len(rows(reader, "select from rota.jobs")) == 3
        assert held_up(hand, other) == ["canceling statement due to user request"]
        assert rows(connection, "select count(*) from pg_inherits where inhdetachpending") == [(1,)]
        # Another worker finds it half off, and cannot finish it either; nor does it begin with the
        # next day.
        set_clock(connection, TODAY + timedelta(days=16))
        assert [step.command[-8:] for step in Hand(other).run(ops.partitions_due())] == ["finalize"]
        assert len(held_up(Hand(other), connection)) == 1
        # Meanwhile everything continues, and the reader sees the same rows.
        connection.execute("set lock_timeout = '10 s'")
        insert(connection)
        hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
        assert hand.run(ops.find())[0].status == "succeeded"
        assert len(rows(reader, "select from rota.jobs")) == 3
        hand.run(ops.ensure_partitions())
        assert partitions(connection)[-1] == "20310602"
    assert one_pass(hand) == []
    assert partitions(connection)[0] == "20310511"
    assert one_pass(hand) == []
    assert partitions(connection)[0] == "20310512"
    assert rows(connection, "select count(*) from rota.jobs") == [(1,)]


@rule("M13")
def test_a_step_that_another_worker_has_taken_meanwhile_harms_nothing(
    connection: Connection, hand: Hand
) -> None:
    set_clock(connection, TODAY + timedelta(days=16))
    [first] = hand.run(ops.partitions_due())
    assert hand.run(ops.take_step(first)) is None
    assert hand.run(ops.take_step(first)) is not None
    [drop] = [step for step in hand.run(ops.partitions_due()) if step.step == "drop"]
    assert hand.run(ops.take_step(drop)) is None
    assert hand.run(ops.take_step(drop)) is None
    assert hand.run(ops.take_step(first)) is not None


# Dead jobs


def _dead(connection: Connection, days: float, **columns: Any) -> int:
    [id_] = insert(connection, **columns)
    hand = Hand(connection)
    [job] = hand.claim().jobs
    hand.settle((job, GIVE_UP))
    connection.execute(
        "update rota.job set failed_at = rota.clock() - %s, updated_at = failed_at where id = %s",
        [timedelta(days=days), id_],
    )
    return id_


@rule("M13", "M44", "M51")
def test_a_job_that_was_dead_for_ninety_days_moves_to_history_with_a_resolution_and_frees_its_key(
    shared: Connection,
) -> None:
    waiting = _dead(shared, 89.9, idempotency_key="a")
    old = _dead(shared, 90.1, idempotency_key="b", meta='{"x": 1}')
    shared.execute(
        "update rota.job set losses = 1, progress = '{}', cancel_reason = 'r', cancel_requested_at "
        "= now() where id = %s",
        [old],
    )
    before = shared.execute("select to_jsonb(j) from rota.jobs j where id = %s", [old]).fetchone()
    hand = Hand(shared)
    assert hand.run(ops.archive_dead(10))[0] == 1
    assert hand.run(ops.archive_dead(10))[0] == 0
    after = shared.execute("select to_jsonb(j) from rota.jobs j where id = %s", [old]).fetchone()
    assert before is not None and after is not None
    assert {name for name in after[0] if after[0][name] != before[0][name]} == {
        "finished_at",
        "resolution",
    }
    resolution = after[0]["resolution"]
    assert (resolution.pop("at"), resolution) == (
        after[0]["finished_at"],
        {"by": "retention", "why": "dead for 90 days"},
    )
    assert rows(shared, "select id, status from rota.job") == [(waiting, "dead")]
    assert rows(shared, "select id from rota.job_history") == [(old,)]
    assert rows(shared, "select key from rota.idempotency") == [("a",)]
    assert rows(shared, "select count(*) from rota.attempt where job = %s", old) == [(1,)]


@rule("M44", "M60")
def test_a_job_that_halts_its_lane_waits_for_a_person_however_long(shared: Connection) -> None:
    shared.execute("insert into rota.job_type (name, on_dead) values ('t', 'halt')")
    halting = _dead(shared, 91, group_key="invoice:1")
    [follower] = insert(shared, group_key="invoice:1")
    hand = Hand(shared)
    assert hand.run(ops.archive_dead(10))[0] == 0
    assert rows(shared, "select id, status, waits_for from rota.job order by id") == [
        (halting, "dead", "person"),
        (follower, "queued", None),
    ]
    assert hand.claim().jobs == []


@rule("M44", "M85")
def test_who_asks_for_the_dead_gets_those_that_wait_for_a_person(shared: Connection) -> None:
    old, waiting = _dead(shared, 91), _dead(shared, 1)
    hand = Hand(shared)
    hand.run(ops.archive_dead(10))
    assert [job.id for job in hand.run(ops.find(status="dead"))] == [waiting]
    assert {job.id for job in hand.run(ops.find())} == {old, waiting}


@rule("M13")
def test_dead_jobs_go_in_batches_oldest_first_past_locked_ones(
    connection: Connection, database: str
) -> None:
    ids = [_dead(connection, days) for days in (95, 96, 97, 98, 10)]
    hand = Hand(connection)
    with psycopg.connect(database) as holder:
        holder.execute("select from rota.job where id = %s for update", [ids[3]])
        connection.execute("set lock_timeout = '150ms'")
        assert hand.run(ops.archive_dead(2))[0] == 2
        assert rows(connection, "select id from rota.job_history order by 1") == [
            (ids[1],),
            (ids[2],),
        ]
        assert hand.run(ops.archive_dead(2))[0] == 1
        assert hand.run(ops.archive_dead(2))[0] == 0
    assert hand.run(ops.archive_dead(2))[0] == 1
    assert rows(connection, "select id from rota.job") == [(ids[4],)]


def test_dead_jobs_that_find_no_partition_of_the_day_make_it(connection: Connection) -> None:
    _dead(connection, 91)
    drop_days(connection, "job_history")
    assert Hand(connection).run(ops.archive_dead(10))[0] == 1


# Keys and workers


@rule("M51")
def test_a_key_is_forgotten_when_its_time_is_over_and_not_before(shared: Connection) -> None:
    shared.execute(
        "insert into rota.idempotency (job_type, key, job, expires_at) values ('t', 'held', 1, "
        "null), ('t', 'later', 2, now() + interval '1 h'),"
        " ('t', 'over', 3, now() - interval '1 s'), ('u', 'over', 4, now() - interval '1 s'), "
        "('u', 'long over', 5, now() - interval '9 d')"
    )
    hand = Hand(shared)
    assert hand.run(ops.forget_rows("keys", 1)) == 1
    assert rows(shared, "select count(*) from rota.idempotency where key = 'long over'") == [(0,)]
    assert hand.run(ops.forget_rows("keys", 10)) == 2
    assert hand.run(ops.forget_rows("keys", 10)) == 0
    assert rows(shared, "select key from rota.idempotency order by 1") == [("held",), ("later",)]


@rule("M51")
def test_a_producer_that_waits_for_a_key_that_is_just_being_forgotten_gets_it(
    connection: Connection, second: Connection, database: str
) -> None:
    connection.execute(
        "insert into rota.idempotency (job_type, key, job, expires_at) values ('t', 'k', 1, now() "
        "- interval '1 s')"
    )
    with psycopg.connect(database) as retention:
        # What forgetting begins with: the key is there still, and locked.
        retention.execute("select from rota.idempotency for update")

        def forget() -> None:
            assert Hand(retention).run(ops.forget_rows("keys", 10)) == 1
            retention.commit()

        send = partial(insert, second, idempotency_key="k")
        assert len(after_it_waited(connection, second, send, forget)) == 1
    assert rows(
        connection,
        "select i.job = j.id from rota.idempotency i, rota.job j where i.expires_at is null",
    ) == [(True,)]


@rule("M51")
def test_forgetting_keys_does_not_wait_for_a_producer_that_has_taken_one_anew(
    connection: Connection, database: str
) -> None:
    connection.execute(
        "insert into rota.idempotency (job_type, key, job, expires_at) select 't', k, 1, now() - "
        "interval '1 s' from unnest('{a,b}'::text[]) k"
    )
    with psycopg.connect(database) as producer:
        producer.execute("insert into rota.job (job_type, idempotency_key) values ('t', 'a')")
        connection.execute("set lock_timeout = '150ms'")
        assert Hand(connection).run(ops.forget_rows("keys", 10)) == 1
    assert rows(connection, "select key from rota.idempotency") == [("a",)]


# The archive


def archived(connection: Connection, schema: str = "rota_archive") -> list[str]:
    query = (
        "select relname from pg_class where relnamespace = to_regnamespace(%s) and relkind = 'r'"
    )
    return sorted(name for (name,) in rows(connection, query, schema))


@rule("M13")
def test_an_expired_day_moves_to_the_archive_with_its_rows_and_stays_there(
    database: str, connection: Connection, hand: Hand
) -> None:
    migrate(database, archive="rota_archive")
    [id_] = insert(connection)
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    set_clock(connection, TODAY + timedelta(days=15))
    assert one_pass(hand) == []
    assert archived(connection) == ["job_history_20310510"]
    assert partitions(connection)[0] == "20310510"  # of the archive, whose name it keeps
    kept = "select id, status from rota_archive.job_history_20310510"
    assert rows(connection, kept) == [(id_, "succeeded")]
    assert rows(connection, "select from rota.jobs") == []
    set_clock(connection, TODAY + timedelta(days=4000))
    assert "job_history_20310510" not in {step.name for step in hand.run(ops.partitions_due())}
    migrate(database, archive="")
    set_clock(connection, TODAY + timedelta(days=16))
    assert one_pass(hand) == []
    assert archived(connection) == ["job_history_20310510"]
    connection.execute("drop schema rota cascade")
    assert rows(connection, kept) == [(id_, "succeeded")]


@rule("M13")
@pytest.mark.parametrize("why", ["it is missing", "it has such a table"])
def test_an_expired_day_that_the_archive_does_not_take_is_not_dropped(
    database: str, connection: Connection, hand: Hand, why: str
) -> None:
    migrate(database, archive="rota_archive")
    if why == "it is missing":
        connection.execute("drop schema rota_archive")
    else:
        connection.execute("create table rota_archive.job_history_20310510 ()")
    set_clock(connection, TODAY + timedelta(days=15))
    [reason] = one_pass(hand)
    assert "rota_archive" in reason
    [reason] = one_pass(hand)  # and is tried again
    assert rows(connection, "select to_regclass('rota.job_history_20310510') is null") == [(False,)]
    connection.execute("drop table if exists rota_archive.job_history_20310510")
    connection.execute("create schema if not exists rota_archive")
    assert one_pass(hand) == []
    assert archived(connection) == ["job_history_20310510"]


@rule("M13")
def test_of_two_workers_that_archive_a_day_the_second_one_does_nothing(
    database: str, connection: Connection, hand: Hand
) -> None:
    migrate(database, archive="rota_archive")
    set_clock(connection, TODAY + timedelta(days=15))
    [detach] = hand.run(ops.partitions_due())
    assert hand.run(ops.take_step(detach)) is None
    [step] = hand.run(ops.partitions_due())
    assert step.step == "archive"
    assert [hand.run(ops.take_step(step)) for _ in range(2)] == [None, None]
    assert archived(connection) == ["job_history_20310510"]


@rule("M13")
def test_an_archive_in_sql_cannot_be_the_schema_itself(shared: Connection) -> None:
    change = "update rota.installation set archive = %s"
    with pytest.raises(psycopg.errors.CheckViolation, match="archive_is_elsewhere"):
        shared.execute(change, ["rota"])
    shared.execute(change, ["kept"])
    shared.execute(change, [None])


@pytest.mark.nightly
@rule("M13")
def test_an_archive_that_cannot_be_used_is_refused(
    database: str, connection: Connection, role: str
) -> None:
    url = make_conninfo(database, user=role)
    connection.execute("drop schema rota cascade")
    connection.execute(f"create schema rota authorization {role}".encode())
    with pytest.raises(SchemaError, match=f"CREATE SCHEMA kept AUTHORIZATION {role}"):
        migrate(url, archive="kept")
    connection.execute("create schema kept")
    with pytest.raises(SchemaError, match=f"GRANT USAGE, CREATE ON SCHEMA kept TO {role}"):
        migrate(url, archive="kept")
    with pytest.raises(SchemaError, match="another schema than Rota's own"):
        migrate(url, archive="rota")
    with pytest.raises(ConfigurationError, match="a schema's name"):
        migrate(url, archive="Kept")
    connection.execute(f"grant usage, create on schema kept to {role}".encode())
    migrate(url, archive="kept")
    migrate(url)
    assert rows(connection, "select archive from rota.installation") == [("kept",)]
    migrate(url, archive="")
    assert rows(connection, "select archive from rota.installation") == [(None,)]


# Keys of jobs that were deleted by hand


def keyed(connection: Connection, *keys: str) -> list[int]:
    inserted = [insert(connection, idempotency_key=key) for key in keys]
    return [id_ for ids in inserted for id_ in ids]


def free(hand: Hand, limit: int = 100) -> int:
    return hand.run(ops.free_keys(limit))


@rule("M51")
def test_the_key_of_a_live_job_that_was_deleted_by_hand_is_freed(shared: Connection) -> None:
    hand = Hand(shared)
    [gone, _] = keyed(shared, "gone", "stays")
    shared.execute("delete from rota.job where id = %s", [gone])
    assert free(hand) == 1
    assert rows(shared, "select key from rota.idempotency") == [("stays",)]
    assert keyed(shared, "gone") and free(hand) == 0


@rule("M51", "M13")
@pytest.mark.parametrize("how", ["keeps failures only", "its partition was dropped"])
def test_the_key_of_a_job_that_has_ended_is_held_though_its_row_is_gone(
    shared: Connection, how: str
) -> None:
    shared.execute(
        "insert into rota.job_type (name, history) values ('t', %s)",
        ["failures" if how == "keeps failures only" else "all"],
    )
    keyed(shared, "k")
    hand = Hand(shared)
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    shared.execute("delete from rota.job_history")
    assert free(hand) == 0
    assert rows(shared, "select key from rota.idempotency") == [("k",)]
    assert keyed(shared, "k") == []


@rule("M51")
def test_the_keys_of_running_dead_and_uncommitted_jobs_are_held(
    connection: Connection, second: Connection
) -> None:
    keyed(connection, "queued", "running", "dead")
    hand = Hand(connection)
    [dead] = [job for job in hand.claim().jobs if job.idempotency_key == "dead"]
    hand.settle((dead, GIVE_UP))
    keyed(connection, "queued too")
    with second.transaction():
        keyed(second, "uncommitted")
        assert free(hand) == 0
    assert free(hand) == 0
    with second.transaction():
        second.execute("delete from rota.job where idempotency_key = 'queued too'")
        assert free(hand) == 0  # the delete may still be rolled back
    assert free(hand) == 1


@rule("M51")
def test_freeing_keys_reads_a_bounded_part_of_one_index_and_waits_for_no_lock(
    connection: Connection, second: Connection
) -> None:
    ids = keyed(connection, *(f"k{at}" for at in range(30)))
    connection.execute("delete from rota.job where id = any (%s)", [ids[::2]])
    hand = Hand(connection)
    assert [free(hand, 10), free(hand, 10)] == [5, 5]
    connection.execute("set lock_timeout = '150ms'")
    with second.transaction():
        second.execute("select from rota.idempotency where job = %s for update", [ids[20]])
        assert free(hand, 10) == 4
    assert free(hand, 10) == 0  # those of the first ten jobs again
    assert free(hand, 10) == 1


@rule("M51")
def test_a_new_process_reads_on_where_the_last_one_stopped_and_then_from_the_first(
    connection: Connection, second: Connection
) -> None:
    ids = keyed(connection, *(f"k{at}" for at in range(7)))

    def freed_in_turn(job: int) -> list[int]:
        connection.execute("delete from rota.job where id = %s", [job])
        return [free(Hand(own), 3) for own in (connection, second, connection)]

    assert freed_in_turn(ids[6]) == [0, 0, 1]  # the third reads the last one, and the first two
    assert rows(connection, "select job from rota.idempotency_read") == [(ids[1],)]
    assert freed_in_turn(ids[1]) == [0, 1, 0]
    connection.execute("delete from rota.idempotency_read")  # as in a dump without it
    assert freed_in_turn(ids[0]) == [1, 0, 0]
    position = rows(connection, "select ctid, job from rota.idempotency_read")
    assert free(Hand(second), 100) == 0
    # Where one pass reads all keys it writes nothing.
    assert rows(connection, "select ctid, job from rota.idempotency_read") == position


def test_workers_are_forgotten_a_day_after_they_stopped_or_fell_silent(shared: Connection) -> None:
    ages = {
        "alive": (30, 0, None),
        "silent": (30, 2, None),
        "stopped": (30, 2, 1.1),
        "quiet": (30, 0.9, None),
        "just stopped": (30, 1.5, 0.5),
    }
    for name, (started, beat, stopped) in ages.items():
        Hand(shared, name).send_heartbeat()
        at = [None if days is None else timedelta(days=days) for days in (started, beat, stopped)]
        shared.execute(
            "update rota.worker set started_at = now() - %s, heartbeat_at = now() - %s, stopped_at "
            "= now() - %s::interval where name = %s",
            [*at, name],
        )
    hand = Hand(shared)
    hand.run(ops.stop("alive"))
    assert len(rows(shared, "select from rota.worker")) == 5, (
        "a worker that stops does not pay for others"
    )
    assert hand.run(ops.forget_rows("workers", 10)) == 2
    assert {name for (name,) in rows(shared, "select name from rota.worker")} == {
        "alive",
        "quiet",
        "just stopped",
    }


# Settings


def test_migrate_sets_for_how_long_things_are_kept(database: str, connection: Connection) -> None:
    def kept() -> dict[str, int]:
        return {what: keep.days for what, keep in rows(connection, KEPT)}

    default = {
        "actions": 90, "attempts": 90, "dead": 90, "effects": 90, "figures": 400, "history": 14,
    }  # fmt: skip
    assert kept() == default
    connection.execute("delete from rota.retention where what = 'dead'")
    migrate(database, keep={"history": timedelta(days=30), "dead": timedelta(days=7)})
    assert kept() == default | {"history": 30, "dead": 7}
    migrate(database)
    assert kept()["history"] == 30


KEPT = "select what, keep from rota.retention"


@rule("M13")
def test_what_has_no_setting_is_kept_and_a_kind_that_is_none_is_named(shared: Connection) -> None:
    hand = Hand(shared)
    shared.execute("delete from rota.retention")
    assert [hand.run(ops.forget_rows(what, 10)) for what in ops.FORGOTTEN] == [0] * 11
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no kind of rows jobs"):
        shared.execute("select rota.rows_forget('jobs', 1)")


@rule("M13")
def test_of_a_kind_that_is_read_whole_a_portion_reads_no_more_than_it_takes(
    connection: Connection,
) -> None:
    connection.execute(
        "insert into rota.rate_limit_key (name, key, version, tat) "
        "select 'smtp', n::text, 1, rota.clock() - interval '2 days' "
        "from generate_series(1, 20000) n"
    )
    connection.execute("analyze rota.rate_limit_key")
    before = _count_read(connection)
    assert Hand(connection).run(ops.forget_rows("limits", 100)) == 100
    assert 100 <= _count_read(connection) - before < 200


def _count_read(connection: Connection) -> int:
    connection.execute("select pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    [[read]] = rows(
        connection, "select seq_tup_read from pg_stat_user_tables where relname = 'rate_limit_key'"
    )
    return int(read)
