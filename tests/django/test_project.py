"""Rota in a project of Django: its own tests, its commands and its migration."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from rota.declare.release import VERSION
from rota.store.migrate import migrate
from tests.django.project import ROOT, Project, install_django
from tests.support.databases import Databases
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually

pytestmark = [pytest.mark.system]

CASES = [
    f"tests.django.cases.{file.stem}"
    for file in sorted(Path(__file__).with_name("cases").glob("[a-z]*.py"))
]
WELCOMES = "insert into rota.job (job_type, payload) select 'welcome', '{\"customer_id\": 1}' from "


@pytest.fixture
def project(empty_database: str) -> Project:
    """The project, on a database that was never migrated."""
    return Project(empty_database)


@rule("M1", "M20", "M85", "M87")
def test_the_cases_of_django_s_own_runner_pass(project: Project) -> None:
    assert re.search(r"^OK$", project.run("test", *CASES), re.MULTILINE)


@rule("M1", "M20", "M85", "M87")
@pytest.mark.slow
def test_the_cases_pass_with_django_6(run_place: Path, empty_database: str) -> None:
    modern = Project(empty_database, install_django(run_place))
    assert re.search(r"^OK$", modern.run("test", *CASES), re.MULTILINE)


PYTEST = """
[pytest]
DJANGO_SETTINGS_MODULE = tests.django.settings
rota_app = rota.integrations.django.setup:app
filterwarnings = error
"""
PYTEST_CASES = """
import pytest
from rota.integrations.django import app
from tests.django.shop.jobs import welcome
from tests.django.shop.models import Customer


@pytest.mark.parametrize("is_committed", [False, pytest.param(True, marks=[
    pytest.mark.django_db(transaction=True)])])
def test_a_sign_up_sends_a_mail(rota_test, client, is_committed):
    assert rota_test.url == (app.url if is_committed else None)
    assert app.find() == []
    client.get("/signup/Ada")
    rota_test.enqueued(welcome)
    assert rota_test.drain().succeeded == 1
    assert Customer.objects.get().mails == 1


def test_nothing_of_another_test_is_left(rota_test):
    assert app.find() == [] and not Customer.objects.exists()
"""


@pytest.mark.slow
def test_the_fixture_of_pytest_works_in_the_transaction_of_pytest_django(
    run_place: Path, empty_database: str, tmp_path: Path
) -> None:
    modern = Project(empty_database, install_django(run_place))
    (tmp_path / "pytest.ini").write_text(PYTEST)
    (tmp_path / "test_shop.py").write_text(PYTEST_CASES)
    printed = modern.run_module("pytest", "-q", "-p", "pytest_rota", place=tmp_path)
    assert "3 passed" in printed, printed


def test_a_test_run_without_migrations_has_the_schema(empty_database: str) -> None:
    project = Project(empty_database, more={"NO_MIGRATIONS": "1"})
    assert re.search(r"^OK$", project.run("test", "tests.django.cases.joining"), re.MULTILINE)


def dump(server: PostgresServer, url: str) -> str:
    """Return the schema of a database but for what Django and the shop have in it."""
    # Which session made the dump is different each time.
    command = [str(server.program("pg_dump")), "--schema-only", "--no-owner", "-n", "rota*", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.sub(r"^\\(un)?restrict .*\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("schema", ["rota", "rota_shop"])
def test_both_migrations_make_the_same_schema_and_zero_leaves_nothing(
    server: PostgresServer, empty_database: str, empty_databases: Databases, schema: str
) -> None:
    project = Project(empty_database, more={"SHOP_SCHEMA": schema})
    project.run("migrate", "-v", "0")
    made = dump(server, empty_database)
    with empty_databases.one() as other:
        migrate(server.url(other), schema)
        assert dump(server, server.url(other)) == made
    project.run("rota", "migrate", "--check")
    assert project.run("rota", "migrate").startswith(f"schema {schema}: up to date\n")
    with psycopg.connect(empty_database, autocommit=True) as connection:
        declared = connection.execute(f"select count(*) from {schema}.job_type").fetchone()
        assert declared is not None and declared[0] > 3
        project.run("migrate", "-v", "0", "rota", "zero")
        left = "select nspname from pg_namespace where nspname like 'rota%'"
        assert connection.execute(left).fetchall() == []
    project.run("migrate", "-v", "0")
    assert dump(server, empty_database) == made


def test_a_database_that_rota_migrate_made_is_taken_over(
    server: PostgresServer, project: Project
) -> None:
    migrate(project.url)
    made = dump(server, project.url)
    assert "rota.0001" in project.run("migrate")
    assert dump(server, project.url) == made
    with psycopg.connect(project.url, autocommit=True) as connection:
        connection.execute(
            "delete from rota.definition where name = 'queues'; drop view rota.queues"
        )
    assert "rota.W005" in project.run("check", "--database", "default")
    project.run("migrate", "-v", "0")
    assert dump(server, project.url) == made
    assert f"-- Rota {VERSION}, migrations after 0000" in project.run("sqlmigrate", "rota", "0001")
    assert "No changes" in project.run("makemigrations", "--check", "rota")


def test_each_release_has_a_migration_of_django() -> None:
    files = (ROOT / "src/rota/integrations/django/migrations").glob("0*.py")
    assert f"rota_{VERSION.replace('.', '_')}" in max(files).stem


def test_manage_py_has_the_commands_of_rota_and_their_exit_statuses(project: Project) -> None:
    assert "no Rota schema" in project.run("rota", "jobs", status=3)
    project.run("migrate", "-v", "0")
    page = project.run("rota", "--help")
    assert "Act on jobs" in page and project.run("help", "rota") == page
    assert "--concurrency" in project.run("rota", "work", "--help")
    assert "job 1" in project.run("rota", "enqueue", "welcome", "--payload", '{"customer_id": 1}')
    assert "DoesNotExist" in project.run("rota", "work", "--drain")
    assert "welcome" in project.run("rota", "jobs", "--settings", "tests.django.settings")
    for way in ("", "--systemd", "--k8s"):
        printed = project.run("rota", "crontab", *filter(None, [way]))
        assert "rota.integrations.django.setup:app" in printed
        assert re.search(r"DJANGO_SETTINGS_MODULE\W+(value: \")?tests.django.settings", printed)
    assert "did you mean" in project.run("rota", "bury", status=2)


@rule("M20")
@pytest.mark.waits
def test_a_worker_with_processes_runs_jobs_and_stops(project: Project) -> None:
    project.run("migrate", "-v", "0")
    with (
        psycopg.connect(project.url, autocommit=True) as connection,
        project.start("rota", "work", "--processes", "2") as worker,
    ):
        connection.execute(
            "insert into shop_customer (id, name, mails) values (1, 'Ada', 0), (2, 'Grace', 0)"
        )
        connection.execute(f"{WELCOMES} generate_series(1, 20)")
        connection.execute("insert into rota.job (job_type, payload) values ('count', '{}')")
        connection.execute(
            "insert into rota.job (job_type, queue, payload) values "
            "('tests.django.shop.tasks.count_mail', 'mail', '{\"args\": [2], \"kwargs\": {}}')"
        )
        succeeded = "select count(*), max(release) from rota.jobs where status = 'succeeded'"
        eventually(lambda: connection.execute(succeeded).fetchone() == (22, "shop-7"), 60)
        mails = connection.execute("select mails from shop_customer order by id").fetchall()
        assert mails == [(20,), (1,)]
        worker.send_signal(signal.SIGTERM)
        _, printed = worker.communicate(timeout=120)
        assert worker.returncode == 0, printed


@rule("M20")
def test_a_process_that_is_no_test_leaves_the_databases_of_its_children_alone(
    project: Project,
) -> None:
    code = (
        "import os; from django.db import connection; connection.ensure_connection(); "
        "print('told', os.environ.get('ROTA_DJANGO_NAMES'))"
    )
    assert "told None" in project.run("shell", "-c", code)


def test_a_line_of_cron_names_the_database_that_the_command_named(project: Project) -> None:
    for way in ("", "--systemd", "--k8s"):
        printed = project.run("rota", "crontab", *filter(None, [way]), "--database", "other")
        assert re.search(r"ROTA_DJANGO_DATABASE\W+(value: \W?)?other", printed), printed


SQLITE = """
import django
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import SystemCheckError

settings.configure(
    INSTALLED_APPS=["rota.integrations.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()
try:
    call_command("check", databases=["default"])
except SystemCheckError as error:
    assert "rota.E001" in str(error) and "PostgreSQL" in str(error), error
else:
    raise AssertionError("nothing was said")
"""


def test_who_forgot_the_database_is_told_that_it_must_be_postgresql() -> None:
    environment = {name: text for name, text in os.environ.items() if "DJANGO" not in name}
    done = subprocess.run(
        [sys.executable, "-c", SQLITE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
