"""Rota in a project of Django: its own tests, its commands and its migration."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest

from rota.declare.release import VERSION
from rota.store.migrate import migrate
from tests.django.project import ROOT, Project, find_python
from tests.support.databases import Databases
from tests.support.rules import rule
from tests.support.server import PostgresServer
from tests.support.wait import eventually

pytestmark = pytest.mark.system

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
    printed = project.run(f"test --exclude-tag nightly {' '.join(CASES)}")
    assert re.search(r"^OK$", printed, re.MULTILINE), printed


@pytest.mark.nightly
@rule("M1", "M20", "M85", "M87")
@pytest.mark.parametrize(
    ("name", "options"), [("django-6.0", "--exclude-tag nightly "), ("django-6.1", "")]
)
def test_the_cases_pass_with_django_6(empty_database: str, name: str, options: str) -> None:
    modern = Project(empty_database, find_python(name))
    printed = modern.run(f"test {options}{' '.join(CASES)}")
    assert re.search(r"^OK\b", printed, re.MULTILINE), printed


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
    assert not is_committed or rota_test.url == app.url
    assert app.find() == []
    client.get("/signup/Ada")
    rota_test.enqueued(welcome)
    assert rota_test.drain().succeeded == 1
    assert Customer.objects.get().mails == 1


def test_nothing_of_another_test_is_left(rota_test):
    assert app.find() == [] and not Customer.objects.exists()
"""


@pytest.mark.nightly
def test_the_fixture_of_pytest_works_in_the_transaction_of_pytest_django(
    empty_database: str, tmp_path: Path
) -> None:
    modern = Project(empty_database, find_python("django-6.1"))
    (tmp_path / "pytest.ini").write_text(PYTEST)
    (tmp_path / "test_shop.py").write_text(PYTEST_CASES)
    printed = modern.run_pytest(tmp_path)
    assert "3 passed" in printed, printed


@pytest.mark.nightly
def test_a_test_run_without_migrations_has_the_schema(empty_database: str) -> None:
    project = Project(empty_database, more={"NO_MIGRATIONS": "1"})
    printed = project.run("test tests.django.cases.joining.ViewTest")
    assert re.search(r"^OK$", printed, re.MULTILINE), printed


def dump(server: PostgresServer, url: str) -> str:
    """Return the schema of a database but for what Django and the shop have in it."""
    # Which session made the dump is different each time.
    command = [str(server.program("pg_dump")), "--schema-only", "--no-owner", "-n", "rota*", url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.sub(r"^\\(un)?restrict .*\n", "", text, flags=re.MULTILINE)


@pytest.mark.nightly
def test_both_migrations_make_the_same_schema_and_zero_leaves_nothing(
    server: PostgresServer, empty_database: str, empty_databases: Databases
) -> None:
    project = Project(empty_database, more={"SHOP_SCHEMA": "rota_shop"})
    project.run("migrate -v 0")
    made = dump(server, empty_database)
    with empty_databases.lend() as other:
        migrate(server.url(other), "rota_shop")
        assert dump(server, server.url(other)) == made
    with psycopg.connect(empty_database, autocommit=True) as connection:
        declared = connection.execute("select count(*) from rota_shop.job_type").fetchone()
        assert declared is not None and declared[0] > 3
        checked, again, zero = project.run_all(
            "rota migrate --check", "rota migrate", "migrate -v 0 rota zero"
        )
        assert (checked[0], again[0], zero[0]) == (0, 0, 0), (checked, again, zero)
        assert again[1].startswith("schema rota_shop: up to date\n")
        left = "select nspname from pg_namespace where nspname like 'rota%'"
        assert connection.execute(left).fetchall() == []
    project.run("migrate -v 0")
    assert dump(server, empty_database) == made


@pytest.mark.nightly
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
    checked, migrated, shown, unchanged = project.run_all(
        "check --database default",
        "migrate -v 0",
        "sqlmigrate rota 0001",
        "makemigrations --check rota",
    )
    assert "rota.W005" in checked[1]
    assert migrated[0] == 0, migrated
    assert f"-- Rota {VERSION}, migrations after 0000" in shown[1]
    assert "No changes" in unchanged[1]
    assert dump(server, project.url) == made


def test_each_release_has_a_migration_of_django() -> None:
    files = (ROOT / "src/rota/integrations/django/migrations").glob("0*.py")
    assert f"rota_{VERSION.replace('.', '_')}" in max(files).stem


CONNECTED = (
    "import\tos;from\tdjango.db\timport\tconnection;connection.ensure_connection();"
    "print('told',os.environ.get('ROTA_DJANGO_NAMES'))"
)
"""As a process that is no test has it: the names of a test's databases are for its children."""


@pytest.mark.nightly
@rule("M20")
def test_manage_py_has_the_commands_of_rota_and_their_exit_statuses(project: Project) -> None:
    ways = ("", " --systemd", " --k8s")
    wanted = {
        "rota jobs": (3, "no Rota schema"),
        "migrate -v 0": (0, ""),
        "rota --help": (0, "Act on jobs"),
        "help rota": (0, "Act on jobs"),
        "rota work --help": (0, "--concurrency"),
        'rota enqueue welcome --payload {"customer_id":1}': (0, "job 1"),
        "rota work --drain": (0, "DoesNotExist"),
        "rota bury": (2, "did you mean"),
        f"shell -c {CONNECTED}": (0, "told None"),
        **{
            f"rota crontab{way} --database other": (0, "rota.integrations.django.setup:app")
            for way in ways
        },
    }
    found = dict(zip(wanted, project.run_all(*wanted), strict=True))
    for command, (status, text) in wanted.items():
        assert found[command][0] == status and text in found[command][1], (command, found[command])
    for way in ways:
        printed = found[f"rota crontab{way} --database other"][1]
        assert re.search(r"DJANGO_SETTINGS_MODULE\W+(value: \")?tests.django.settings", printed)
        assert re.search(r"ROTA_DJANGO_DATABASE\W+(value: \W?)?other", printed), printed


@pytest.mark.nightly
@rule("M20")
def test_a_worker_with_processes_runs_jobs_and_stops(project: Project) -> None:
    project.run("migrate -v 0")
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
