"""A second run of each handler of the demo is harmless."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from rota.app import App
from rota.declare.job_type import NewJob
from rota.demo import jobs, stage
from rota.testing import run_twice
from tests.support.rules import rule
from tests.support.web import serving

TABLES = [
    "rota_demo_app.app_user",
    "rota_demo_app.app_session",
    "rota_demo_app.app_report_page",
]


@rule("M50")
def test_a_second_run_of_each_handler_of_the_demo_is_harmless(
    empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", empty_database)
    monkeypatch.setenv(jobs.FILES, str(tmp_path))
    with psycopg.connect(empty_database, autocommit=True) as connection:
        stage.set_up(connection, empty_database, tmp_path)
    (tmp_path / "contacts.csv").write_text("email\nada@import.example\nbo@import.example\n")
    monkeypatch.setattr(jobs.jobs, "_owner", None)
    app = App(empty_database, schema=jobs.SCHEMA, jobs=[jobs.jobs], lifespan=jobs.lifespan)
    with serving() as partner:
        handlers: dict[str, NewJob] = {
            "send_welcome_email": jobs.send_welcome_email.new(1),
            "clean_up": jobs.clean_up.new(),
            "tell_partner": jobs.tell_partner.new(partner.url, 1),
            "import_contacts": jobs.import_contacts.new("contacts.csv"),
            "build_report": jobs.build_report.new("r", 100),
        }
        assert handlers.keys() == jobs.jobs.types.keys()
        for job in handlers.values():
            run_twice(job, tables=TABLES)
        assert len(partner.asked) == 1
    app.close()
