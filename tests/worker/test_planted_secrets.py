"""Secrets are planted in every place that a failing job can fill; a search finds none of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.declare.secret import VARIABLE, make_key
from tests.support.cli import CommandLine
from tests.support.rules import rule
from tests.worker.leaky import FAILING, NAME, PLANTED, TOKEN
from tests.worker.table import Connection, rows

pytestmark = pytest.mark.nightly

SHOWN = (
    *(["jobs", "--json"], ["jobs"], ["schedules", "--json"], ["schedules", "show", "nightly"]),
    *(["stats", "--json"], ["top", "--json"], ["doctor", "--json"], ["check", "--json"]),
    *(["alerts", "--json"], ["workers", "--json"], ["secrets", "--json"]),
)
FIRST = NAME.split()[0]


def dump(connection: Connection) -> Iterator[tuple[str, str, str]]:
    """The rows of every table of the schema: as text, as a dump has them, and without payloads."""
    tables = rows(
        connection,
        "select c.relname from pg_class c where c.relnamespace = 'rota'::regnamespace"
        " and c.relkind in ('r', 'p')",
    )
    for (table,) in tables:
        with connection.cursor().copy(
            f"copy (select * from rota.{table}) to stdout".encode()
        ) as out:
            dumped = b"".join(map(bytes, out)).decode()
        as_text = rows(
            connection, f"select t::text, (to_jsonb(t) - 'payload')::text from rota.{table} t"
        )
        yield dumped, "".join(row[0] for row in as_text), "".join(row[1] for row in as_text)


@pytest.mark.system
@rule("M45")
def test_no_planted_secret_is_found_in_a_table_a_log_a_dump_or_on_a_screen(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    shutil.copy(Path(__file__).with_name("leaky.py"), tmp_path / "leaky_shop.py")
    rota_ = CommandLine(tmp_path, ROTA_DATABASE_URL=database, **{VARIABLE: make_key("k1")})

    def give(job_type: str) -> tuple[str, str]:  # to each its own: no job masks for another
        payload = {"token": f"{TOKEN}-{job_type}", "name": f"{NAME} the {job_type}"}
        return "--payload", json.dumps(payload)

    of_app = ("--app", "leaky_shop:app")
    for job_type in FAILING:
        rota_.ok("enqueue", job_type, *give(job_type), *of_app)
    cron = ("--cron", "0 2 * * *", *of_app)
    rota_.ok("schedules", "put", "nightly", "in_loop", *give("nightly"), *cron)
    found = []
    for log_format in ("json", "plain"):  # the second drain is that of a retry
        worker = rota_.ok("work", "--drain", *of_app, "--log-format", log_format)
        found.append(("log", worker.out + worker.err))
        connection.execute("update rota.job set run_at = now() where status = 'failed'")
    attempts = rows(connection, "select count(*) from rota.attempt")
    assert attempts == [(6,)]  # none of the cancelled job
    for options in ((), ("--json",)):
        id_ = rota_.ok("enqueue", "in_thread", *give("by hand"), *of_app).out.split()[1]
        by_hand = rota_("run", id_, *of_app, *options)
        assert by_hand.status == 1 and "***" in by_hand.out, by_hand
        found.append(("run", by_hand.out + by_hand.err))
    queries = "select coalesce(query, '') from pg_stat_activity where datname = current_database()"
    found += [("activity", query) for (query,) in rows(connection, queries)]
    found += [(arguments[0], (ran := rota_(*arguments)).out + ran.err) for arguments in SHOWN]
    for (id_,) in rows(connection, "select id from rota.jobs"):
        found.append(("job", rota_.ok("job", str(id_), "--verbose").out))
    everything = [*found]
    for dumped, as_text, without_payload in dump(connection):
        found += [("dump", dumped), ("table", as_text)]
        everything.append(("table", without_payload))
    assert sum("***" in text for _, text in found) > 20
    for planted in PLANTED:
        assert [where for where, text in found if planted in text] == []
    for planted in (NAME, FIRST):
        assert [where for where, text in everything if planted in text] == []
