"""What a fresh clone in an empty home has to pass: a project, a private PostgreSQL, a job from
INSERT to history.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from rota import embedded
from tests.support.cli import CommandLine, StartedCommandLine
from tests.support.project import with_private_server

pytestmark = [pytest.mark.smoke, pytest.mark.nightly, pytest.mark.system]


@pytest.fixture
def project() -> Iterator[Path]:
    with with_private_server() as project:
        yield project


@pytest.fixture
def rota(project: Path) -> CommandLine:
    return StartedCommandLine(project, ROTA_APP="shop:app")


def test_a_job_goes_from_insert_to_history_with_nothing_configured(
    rota: CommandLine, project: Path
) -> None:
    migrated = rota.ok("migrate")
    # It says where the data are.
    assert "0001_tables" in migrated.out and str(project / ".rota") in migrated.err
    assert rota.ok("sync", "--json").json["declared"] == ["report", "send_mail"]
    enqueue = ("enqueue", "send_mail", "--payload", '{"user_id": 42}', "--key", "welcome:42")
    enqueued = rota.ok(*enqueue, "--json").json

    url = embedded.start(project / ".rota")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """insert into rota.job (job_type, payload) values ('send_mail', '{"user_id": 43}')"""
        )
        done = rota.ok("work", "--drain")
        assert done.out == "claimed 2, succeeded 2, failed 0, dead 0, oldest due: none\n"
        history = connection.execute(
            "select id, status, queue, priority, attempts, result, release from rota.job_history "
            "order by id"
        ).fetchall()
        assert [row[1:] for row in history] == [
            ("succeeded", "email", 5, 1, {"user": 42}, "shop-1"),
            ("succeeded", "email", 5, 1, {"user": 43}, "shop-1"),
        ]
        assert history[0][0] == enqueued["id"]
        assert connection.execute("select from rota.job").fetchall() == []
    again = rota.ok(*enqueue, "--json")
    assert json.loads(again.out) == {
        "id": enqueued["id"], "created": False, "status": "succeeded", "change": None
    }  # fmt: skip
