"""What a call without a connection does: it joins Django's."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any
from unittest import mock

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, tag

import rota
from rota.errors import SchemaMissing
from rota.integrations.django import app
from rota.integrations.django.django_app import DjangoApp
from rota.integrations.django.schema import InstallSchema
from rota.testing import Harness
from tests.django.shop.jobs import explain, greet, welcome, welcome_all
from tests.django.shop.models import Customer


class ViewTest(TestCase):
    """A view that enqueues, in the transaction of the test."""

    def test_a_job_is_committed_with_its_row(self) -> None:
        job = self.client.get("/signup/Ada").json()["job"]
        found = app.get(job)
        assert found.payload == {"customer_id": Customer.objects.get().pk}
        assert [listed.id for listed in app.find()] == [job]

    def test_a_job_is_rolled_back_with_its_row(self) -> None:
        with self.assertRaises(PermissionError):
            self.client.get("/signup/Mallory")
        assert app.find() == []

    def test_a_job_of_another_test_is_not_there(self) -> None:
        assert app.find() == []

    async def test_an_async_view_enqueues_in_the_transaction_of_the_test(self) -> None:
        await sync_to_async(Customer.objects.create)(name="Ada")
        response: Any = await self.async_client.get("/ask/Ada")
        assert (await app.aget(response.json()["job"])).job_type == "greet"

    async def test_an_async_call_is_rolled_back_with_the_test(self) -> None:
        assert await app.afind() == []

    async def test_a_plain_call_in_async_code_is_refused_by_django(self) -> None:
        with self.assertWarns(RuntimeWarning), self.assertRaises(SynchronousOnlyOperation):
            welcome.enqueue(1)

    def test_actions_and_batches_join_too(self) -> None:
        with self.assertRaises(ValueError), transaction.atomic():
            batch = app.batch([welcome.new(1), welcome.new(2)], then=explain.new())
            app.cancel(batch.jobs[0].id)
            app.queues.pause("email")
            raise ValueError
        assert app.find() == []
        assert app.queues.list() == []


class CommitTest(TransactionTestCase):
    """The same where transactions are real."""

    databases = {"default", "other"}

    def test_outside_of_atomic_each_job_is_committed_at_once(self) -> None:
        job = welcome.enqueue(1)
        other = connections["default"].copy()
        with other.cursor() as cursor:
            cursor.execute("select id from rota.jobs")
            assert cursor.fetchall() == [(job.id,)]
        other.close()

    def test_a_flush_has_emptied_what_the_test_before_left(self) -> None:
        assert app.find() == []
        assert [schedule.name for schedule in app.schedules.list()] == ["nightly"]
        welcome.enqueue(1)
        call_command("flush", interactive=False, verbosity=0, database="other")
        assert len(app.find()) == 1
        call_command("flush", interactive=False, verbosity=0)
        assert app.find() == []
        assert [schedule.name for schedule in app.schedules.list()] == ["nightly"]

    def test_a_flush_empties_the_tables_of_packages_too(self) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "create table rota.shop_endpoint (id int primary key);"
                "create table rota.shop_delivery (endpoint int references rota.shop_endpoint);"
                "insert into rota.shop_endpoint values (1)"
            )
            call_command("flush", interactive=False, verbosity=0)
            cursor.execute("select count(*) from rota.shop_endpoint")
            assert cursor.fetchone() == (0,)
            cursor.execute("drop table rota.shop_endpoint, rota.shop_delivery")

    def test_a_transactional_type_needs_atomic_and_no_connection(self) -> None:
        with self.assertRaisesMessage(rota.UsageError, "with transaction.atomic()"):
            welcome_all.enqueue(False)
        with transaction.atomic():
            welcome_all.enqueue(False)
        assert len(app.find()) == 1

    def test_another_alias_is_named_with_using(self) -> None:
        with connections["other"].cursor() as cursor:
            cursor.execute("select to_regnamespace('rota') is null")
            assert cursor.fetchone() == (True,), "only the alias of ROTA has the schema"
        with self.assertRaises(SchemaMissing):
            welcome.using("other").enqueue(1)

    @tag("nightly")
    def test_jobs_may_be_in_the_database_of_another_alias(self) -> None:
        elsewhere = DjangoApp("other")
        with mock.patch("rota.integrations.django.schema.find_app", return_value=elsewhere):
            for alias in ("default", "other"):  # on the former it does nothing
                with connections[alias].schema_editor() as editor:
                    InstallSchema().database_forwards("rota", editor)
            with self.assertRaises(ValueError), transaction.atomic(using="other"):
                welcome.using("other").enqueue(1)
                elsewhere.enqueue("welcome", {"customer_id": 2})
                assert len(elsewhere.find()) == 2
                raise ValueError
            assert elsewhere.find() == app.find() == []
            assert welcome.using("other").enqueue(1).id
            assert [job.job_type for job in elsewhere.find()] == ["welcome"]
            for alias in ("default", "other"):
                with connections[alias].schema_editor() as editor:
                    InstallSchema().database_backwards("rota", editor)
        assert app.find() == []

    def test_call_command_runs_the_commands_of_rota(self) -> None:
        job = welcome.enqueue(7)
        printed = StringIO()
        call_command("rota", "jobs", "--json", stdout=printed)
        assert [listed["id"] for listed in json.loads(printed.getvalue())["jobs"]] == [job.id]
        with self.assertRaises(CommandError) as refused:
            call_command("rota", "job", "99", stderr=printed)
        assert refused.exception.returncode == 2

    def test_a_command_may_name_another_database(self) -> None:
        welcome.enqueue(7)
        with self.assertRaises(CommandError) as refused:
            call_command("rota", "jobs", "--database", "other", stderr=StringIO())
        assert refused.exception.returncode == 3, "it has no schema"
        printed = StringIO()
        call_command("rota", "migrate", "--database=other", stdout=printed)
        call_command("rota", "jobs", "--json", "--database", "other", stdout=printed)
        assert json.loads(printed.getvalue().splitlines()[-1])["jobs"] == []
        assert app.using == "default" and len(app.find()) == 1
        with connections["other"].cursor() as cursor:
            cursor.execute("drop schema rota cascade")

    def test_a_handler_enqueues_all_or_none_in_its_own_transaction(self) -> None:
        Customer.objects.create(name="Ada")
        with Harness(app) as harness:
            failed = harness.perform(welcome_all.new(True))
            assert repr(failed.error) == "ValueError('no mails today')"
            harness.refute_enqueued(welcome)
            harness.perform(welcome_all.new(False))
            assert harness.drain().succeeded == 1
        assert Customer.objects.get().mails == 1

    def test_an_async_handler_reads_and_enqueues(self) -> None:
        Customer.objects.create(name="Ada")
        with Harness(app) as harness:
            assert harness.perform(greet.new("Ada")).result == "hello Ada"
            assert harness.drain().succeeded == 1


class ForbiddenTest(SimpleTestCase):
    """Django's own guard holds for jobs."""

    def test_a_test_without_databases_cannot_enqueue(self) -> None:
        with self.assertRaisesMessage(AssertionError, "not allowed in SimpleTestCase"):
            welcome.enqueue(1)
