"""A schedule's row has what its author said: in code, by API, command line or plain SQL."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import rota
from rota.cli import run
from tests.store.planned import set_clock
from tests.store.work import Connection
from tests.support.rules import rule

pytestmark = pytest.mark.nightly


SAID = (
    "job_type, payload, payload_version, queue, priority, max_attempts, cron, timezone, catch_up, "
    "overlap, jitter"
)
texts = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20
)
schedules = st.fixed_dictionaries(
    {
        "payload": st.fixed_dictionaries(
            {
                "said": st.dictionaries(
                    texts,
                    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
                    max_size=3,
                )
            }
        )
    },
    optional={
        "cron": st.sampled_from(
            ["0 2 * * *", "*/7 * * * *", " 30  2 L * 1-5", "@daily", "0 0 29 2 1"]
        ),
        "timezone": st.sampled_from(
            ["UTC", "Europe/Stockholm", "America/New_York", "Australia/Lord_Howe"]
        ),
        "catch_up": st.sampled_from(["skip", "latest", "all"]),
        "overlap": st.sampled_from(["skip", "allow"]),
        "jitter": st.integers(0, 86_400_000).map(lambda ms: timedelta(milliseconds=ms)),
        "queue": texts.map(lambda text: text.replace(",", ";")),
        "priority": st.integers(-100, 100),
        "max_attempts": st.integers(1, 10_000),
    },
)


def _handler(said: dict[str, Any]) -> None: ...


@rule("M10", "M15")
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedules)
def test_the_same_arguments_give_the_same_row_in_code_by_api_on_the_command_line_and_by_sql(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    set_clock(connection, "2026-03-28 12:00:00")
    monkeypatch.setenv("ROTA_DATABASE_URL", database)
    connection.execute("delete from rota.schedule")
    app = rota.App(database, release="1")
    job_type = app.job("t")(_handler)
    chosen = {name: given[name] for name in ("queue", "priority", "max_attempts") if name in given}
    timing = {
        name: given[name] for name in ("timezone", "catch_up", "overlap", "jitter") if name in given
    }
    job = job_type.using(**chosen).new(**given["payload"])
    app.schedule("code", given.get("cron"), job, **timing)
    app.sync()
    app.schedules.put("api", given.get("cron"), job, **timing)
    app.close()
    typed = {
        name: f"{value / timedelta(milliseconds=1):.0f}ms" if name == "jitter" else value
        for name, value in given.items()
    }
    options = [
        f"--{name.replace('_', '-')}={value}" for name, value in typed.items() if name != "payload"
    ]
    assert (
        run(
            [
                "schedules",
                "put",
                "cli",
                "t",
                "--force",
                f"--payload={json.dumps(given['payload'])}",
                *options,
            ]
        )
        == 0
    )
    columns = {"name": "sql", "job_type": "t", **given, "payload": json.dumps(given["payload"])}
    values = ", ".join(f"%({name})s" for name in columns)
    connection.execute(
        f"insert into rota.schedule ({', '.join(columns)}) values ({values})".encode(), columns
    )

    rows = {
        name: said
        for name, *said in connection.execute(f"select name, {SAID} from rota.schedule".encode())
    }
    assert rows.keys() == {"code", "api", "cli", "sql"}
    assert rows["code"] == rows["api"] == rows["cli"] == rows["sql"]
    planned = connection.execute(
        "select name, next_run_at from rota.schedule where name <> 'sql'"
    ).fetchall()
    assert len({next_run_at for _, next_run_at in planned}) == 1
