"""docs/django.md, followed by a reader: a project, its worker and its tests."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.docs.reader import Reader, read_page
from tests.support.rules import rule
from tests.support.server import PostgresServer

pytestmark = [pytest.mark.system, pytest.mark.slow]

READS = """
from django.test import TransactionTestCase
from mysite.queue import queue


class ReadTest(TransactionTestCase):
    def test_a_job_is_read(self):
        assert queue.find() == []

    async def test_a_job_is_read_on_a_loop(self):
        assert await queue.afind() == []

    async def test_a_job_is_read_on_a_later_loop(self):
        assert await queue.afind() == []
"""


@rule("M1", "M20")
def test_a_reader_of_the_page_has_a_project_whose_jobs_commit_with_its_rows(
    server: PostgresServer, empty_database: str, tmp_path: Path
) -> None:
    with Reader(tmp_path, server, empty_database) as reader:
        reader.follow(read_page("django.md"))
        reader.write("shop/test_reads.py", READS)
        # Django drops its database at the end, in which the App has connections of its own.
        reader.type("python manage.py test")
        reader.compare("OK")
    with psycopg.connect(empty_database) as connection:
        # What the page's tests have enqueued was in another database.
        assert connection.execute("select count(*) from rota.jobs").fetchone() == (1,)
