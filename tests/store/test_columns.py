"""Lists of columns that files of SQL share: written out, and grown while sessions are open."""

from __future__ import annotations

import pytest

from rota.store import columns, ops
from rota.store.columns import CLAIMED, JOB
from rota.store.migrate import definitions
from tests.store.work import Connection, Hand, insert
from tests.support.rules import rule


def test_the_type_of_a_claimed_job_has_what_the_worker_reads(shared: Connection) -> None:
    rows = shared.execute(
        "select attname from pg_attribute where attrelid = 'rota.claimed_job'::regclass "
        "order by attnum"
    ).fetchall()
    assert tuple(row[0] for row in rows) == CLAIMED
    of_the_job = CLAIMED[len(columns.OF_THE_CLAIM) :]
    assert of_the_job == JOB[: len(of_the_job)]


@rule("M2", "M3")
def test_sessions_go_on_while_the_row_of_a_claim_grows(
    connection: Connection, second: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = insert(connection, 40)
    last = reversed(ids)
    old = Hand(second)
    taken: list[int] = []

    def claim_each_way() -> None:
        taken.extend(job.id for job in old.claim(2).jobs)
        taken.extend(job.id for job in old.claim(2, refused=[0]).jobs)
        taken.extend(
            row[0] for row in second.execute("select id from rota.claim('default', '{t}', 'w', 2)")
        )
        taken.extend(job.id for job in old.run(ops.claim_one(old.who, next(last))).jobs)

    for _ in range(3):
        claim_each_way()
    longer = {
        name: [*columns._LISTS[name], "first"] for name in ("content", "claimed", "claimed_values")
    }
    for name, listed in longer.items():
        monkeypatch.setitem(columns._LISTS, name, listed)
    definitions.cache_clear()
    with connection.transaction():
        for table in ("job", "job_history"):
            connection.execute(f"alter table rota.{table} add column first text".encode())
        connection.execute("alter type rota.claimed_job add attribute first text")
        for made in definitions():
            if "first" in made.text.split("$$")[0] or made.name == "job_finish":
                connection.execute(made.replacement("rota", is_new=False).encode())
    definitions.cache_clear()
    for _ in range(2):
        claim_each_way()
    assert len(taken) == len(set(taken)) == 35
