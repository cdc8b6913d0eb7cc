"""The pages of Django, followed by a reader: a project, its worker, its tests and its dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

import django
import pytest

from tests.django.project import find_python
from tests.docs.reader import Reader, read_page
from tests.support.rules import rule
from tests.support.server import PostgresServer

PAGES = ["django.md", "django-tasks.md"]
READS = """
from django.test import TransactionTestCase
from rota.integrations.django import app


class ReadTest(TransactionTestCase):
    def test_a_job_is_read(self):
        assert app.find() == []

    async def test_a_job_is_read_on_a_loop(self):
        assert await app.afind() == []

    def test_a_pool_of_the_app_does_not_keep_the_database(self):
        with app._database.lend() as connection:
            connection.execute("select 1")
"""
LEADS = (
    "from django.urls import resolve; print(resolve('/admin/jobs/queues', 'urls').func.__module__)"
)


@rule("M1", "M20")
@pytest.mark.nightly
@pytest.mark.system
@pytest.mark.parametrize("is_newest", [False, True])
def test_a_reader_of_the_page_has_a_project_whose_jobs_commit_with_its_rows(
    server: PostgresServer, empty_database: str, place: Path, is_newest: bool
) -> None:
    page = "".join(map(read_page, PAGES))
    if not is_newest and django.VERSION < (6, 0):  # as the page says
        page = page.replace("from django.tasks import", "from django_tasks import")
    python = find_python("django-6.1") if is_newest else sys.executable
    with Reader(place, server, empty_database, python=python) as reader:
        reader.follow(page)
        reader.follow(read_page("dashboard.md", "In Django"))
        assert "rota.dashboard." in reader.type(f'python manage.py shell -c "{LEADS}"')
        reader.write("shop/test_reads.py", READS)
        # Django drops its database at the end, in which the App has connections of its own.
        reader.type("python manage.py test")
        reader.compare("OK")
        # What the page's tests have enqueued was in another database.
        assert reader.ask("select count(*) from rota.jobs") == [(1,)]
