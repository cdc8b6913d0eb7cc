"""How jobs are found beside a history of a fortnight: what is found, and what is read for it."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota.store import ops
from tests.store.work import CANCEL, FAIL, GIVE_UP, SUCCEED, Connection, Hand, insert
from tests.support.history import DAYS, fill
from tests.support.rules import rule

ROWS = 140_000
PAGE_BLOCKS = 1_000
"""What a search for something frequent, or through an index, may touch: a page of its rows, and the
edge of each partition.
"""


def found(hand: Hand, **wanted: Any) -> list[int]:
    return [job.id for job in hand.run(ops.find(**wanted))]


def move(connection: Connection, table: str, column: str, id_: int, ago: str) -> None:
    [(at,)] = connection.execute("select rota.clock() - %s::interval", [ago])
    connection.execute(
        "select rota.partition_ensure('job_history', (%s at time zone 'UTC')::date)", [at]
    )
    connection.execute(f"update rota.{table} set {column} = %s where id = %s".encode(), [at, id_])


class Search:
    """What one search reads.

    The catalog is read too where this session's copy of it has been emptied, as the first search
    does and any search after much DDL beside it: of three searches the one that reads least counts.
    """

    def __init__(self, connection: Connection, **wanted: Any) -> None:
        query = next(ops.find(**wanted))
        explain = b"explain (analyze, buffers, format json) "
        explain += Hand(connection).database.statements[query.name]
        self.blocks: float = math.inf
        for _ in range(3):
            with connection.transaction(force_rollback=True):
                before = self._read(connection)
                row = connection.execute(explain, query.params).fetchone()
                self.read = self._read(connection) - before
            assert row is not None
            plan = row[0][0]["Plan"]
            self.rows = plan["Actual Rows"]
            blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            self.blocks = min(self.blocks, blocks)

    def days(self, table: str = "job_history", how: str = "") -> set[str]:
        """Return the days of a table that were read; `how`: by `seq` or by `idx`."""
        return {
            name.rpartition("_")[2]
            for name, kind in self.read
            if name.startswith(f"{table}_2") and kind.startswith(how)
        }

    @staticmethod
    def _read(connection: Connection) -> Counter[tuple[str, str]]:
        rows = connection.execute(
            "select relname, seq_scan, idx_scan from pg_stat_xact_user_tables where schemaname = "
            "'rota'"
        ).fetchall()
        return Counter(
            {
                (name, kind): count or 0
                for name, seq, idx in rows
                for kind, count in (("seq", seq), ("idx", idx))
            }
        )


@pytest.mark.nightly
@rule("M85", "M14")
def test_a_search_reads_the_days_it_is_about_and_of_what_is_frequent_only_a_page(
    connection: Connection,
) -> None:
    fill(connection, ROWS)
    connection.execute("analyze rota.job, rota.job_history, rota.attempt, rota.idempotency")
    today = datetime.now(UTC)
    yesterday = f"{today - timedelta(days=1):%Y%m%d}"
    past = {f"{today - timedelta(days=ago):%Y%m%d}" for ago in range(2, DAYS + 2)}
    row = connection.execute(
        "select sum(pg_relation_size(c.oid) / 8192 + (select pg_relation_size(i.indexrelid) / 8192 "
        "from pg_index i where i.indrelid = c.oid)) "
        "from pg_class c where c.relname in (%s, %s)",
        [f"job_history_{yesterday}", f"job_history_{today:%Y%m%d}"],
    ).fetchone()
    assert row is not None
    two_days = int(row[0])

    # By the index on the id, or by those of attempts, keys and live rows.
    for wanted in (
        {},
        {"job_type": "type_7"},
        {"queue": "queue_3"},
        {"before": ROWS},
        {"status": "dead"},
        {"status": "dead", "since": timedelta(days=2)},
        {"status": "queued"},
        {"error_type": "PartnerError"},
        {"error": "CONNECTION refused"},
        {"error": "customer 14", "status": "dead", "since": timedelta(days=14)},
        {"error_type": "Nothing"},
    ):
        search = Search(connection, limit=20, **wanted)
        assert search.blocks < PAGE_BLOCKS, (wanted, search.blocks)
        assert not search.days() & past or "error" in wanted, wanted
    # What is rare is found by reading two days of history, whole, and no others.
    for wanted in (
        {"job_type": "rare"},
        {"job_type": "nothing"},
        {"status": "cancelled", "queue": "none"},
    ):
        search = Search(connection, limit=20, **wanted)
        assert search.blocks < two_days * 1.5 + PAGE_BLOCKS, (wanted, search.blocks, two_days)
        assert not search.days() & past
    # The holder of a key of long ago: beside the two days, one look by id into each of the others.
    [(old, key)] = connection.execute(
        "select id, idempotency_key from rota.job_history where idempotency_key is not null order "
        "by id limit 1"
    )
    search = Search(connection, limit=20, key=key)
    assert search.blocks < two_days * 1.5 + PAGE_BLOCKS and not search.days(how="seq") & past
    assert found(Hand(connection), key=key) == [old]
    # The measure works: a rare type of the whole fortnight reads it all.
    assert Search(connection, job_type="rare", since=timedelta(days=20)).days() >= past - {
        min(past)
    }


@rule("M85")
def test_pages_follow_each_other_without_a_gap_or_a_repetition(shared: Connection) -> None:
    fill(shared, 700)
    hand = Hand(shared)
    insert(shared, 5)
    since = timedelta(days=20)
    everything = found(hand, since=since, limit=10_000)
    assert len(everything) == 705 and everything == sorted(set(everything), reverse=True)
    pages: list[int] = []
    while page := found(hand, since=since, limit=97, before=pages[-1] if pages else None):
        pages += page
    assert pages == everything


@rule("M85")
def test_the_time_of_a_job_is_when_it_ended_or_died_and_of_one_still_to_be_done_now(
    shared: Connection,
) -> None:
    hand = Hand(shared, queues=["q"])
    succeeded, old, dead, long_dead = insert(shared, 4, queue="q")
    jobs = {job.id: job for job in hand.claim().jobs}
    hand.settle(
        (jobs[succeeded], SUCCEED),
        (jobs[old], SUCCEED),
        (jobs[dead], GIVE_UP),
        (jobs[long_dead], GIVE_UP),
    )
    move(shared, "job_history", "finished_at", old, "3 days")
    move(shared, "job", "failed_at", long_dead, "3 days")
    [queued] = insert(shared)
    move(shared, "job", "created_at", queued, "9 days")

    assert found(hand) == [queued, long_dead, dead, succeeded], (
        "all dead jobs, and what ended within a day"
    )
    assert found(hand, since=timedelta(hours=1)) == [queued, dead, succeeded]
    assert found(hand, since=timedelta(days=4)) == [queued, long_dead, dead, old, succeeded]
    assert found(hand, since=timedelta(days=4), until=timedelta(days=2)) == [long_dead, old]
    assert found(hand, until=timedelta(days=3) - timedelta(hours=1)) == [long_dead, old], (
        "a day before"
    )
    assert found(hand, since=datetime.now(UTC) - timedelta(hours=1), status="succeeded") == [
        succeeded
    ]
    assert found(hand, status="dead") == [long_dead, dead]
    assert found(hand, status="dead", since=timedelta(hours=1)) == [dead]
    assert found(hand, until=datetime.now(UTC) + timedelta(hours=1), since=timedelta(hours=1)) == [
        queued,
        dead,
        succeeded,
    ]


@rule("M85")
def test_an_error_is_found_in_any_attempt_of_the_time_whatever_became_of_the_job(
    shared: Connection,
) -> None:
    hand = Hand(shared)
    # Two hours ago may be yesterday.
    shared.execute(
        "select rota.partition_ensure('attempt', (rota.clock() at time zone 'UTC')::date - 1)"
    )
    late, off, failed, dead, fine = insert(shared, 5)

    def again() -> dict[int, Any]:
        shared.execute("update rota.job set run_at = rota.clock() where status = 'failed'")
        return {job.id: job for job in hand.claim().jobs}

    jobs = again()
    hand.settle(
        *((jobs[id_], FAIL) for id_ in (late, off, failed)),
        (jobs[dead], GIVE_UP),
        (jobs[fine], SUCCEED),
    )
    jobs = again()
    hand.settle((jobs[late], SUCCEED), (jobs[off], CANCEL), (jobs[failed], FAIL))

    every = [dead, failed, off, late]
    assert (
        found(hand, error_type="OSError")
        == found(hand, error="NO ROUTE to")
        == found(hand, error_type="OSError", error="route")
        == every
    )
    assert found(hand, error="no route", status="succeeded") == [late]
    assert found(hand, error="no route", status="failed") == [failed]
    assert found(hand, error="no route", before=off) == [late]
    assert (
        found(hand, error_type="OSError", queue="other")
        == found(hand, error_type="OSError", job_type="u")
        == []
    )
    assert (
        found(hand, error="no_route") == found(hand, error="%") == found(hand, error="\\") == []
    ), "no pattern, but a text"
    shared.execute("update rota.attempt set finished_at = finished_at - interval '2 hours'")
    assert found(hand, error="no route", since=timedelta(hours=1)) == [dead, failed], (
        "of those not over, the last error counts"
    )
    assert (
        found(hand, error="no route", since=timedelta(hours=3), until=timedelta(hours=1)) == every
    )


@rule("M85", "M51")
def test_who_has_a_key_is_found_at_any_time_and_under_any_type(shared: Connection) -> None:
    hand = Hand(shared, types=["t", "u"])
    [first] = insert(shared, idempotency_key="k")
    [second] = insert(shared, job_type="u", idempotency_key="k")
    insert(shared, idempotency_key="other")
    hand.settle(*((job, SUCCEED) for job in hand.claim().jobs))
    shared.execute(
        "select rota.partition_ensure('job_history', (max(finished_at) at time zone 'UTC')::date - "
        "9) from rota.job_history"
    )
    shared.execute("update rota.job_history set finished_at = finished_at - interval '9 days'")
    assert found(hand) == []
    assert found(hand, key="k") == [second, first]
    assert found(hand, key="k", job_type="u") == [second]
    assert found(hand, key="k", status="cancelled") == []


@rule("M22", "M85")
def test_a_search_for_what_cannot_be_is_refused(app: rota.App, shared: Connection) -> None:
    wrong: list[dict[str, Any]] = [
        {"since": datetime(2026, 1, 14)},  # noqa: DTZ001
        {"until": datetime(2026, 1, 14)},  # noqa: DTZ001
        {"until": "yesterday"},
        {"since": 5},
        {"error": 5},
        {"waiting": 1},
    ]
    for wanted in wrong:
        with pytest.raises(rota.UsageError, match=next(iter(wanted))):
            app.find(**wanted)
