"""Jobs in the tests of a project: attempts in the transaction of a test."""

from __future__ import annotations

from urllib.request import urlopen

from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import LiveServerTestCase, TestCase, TransactionTestCase, tag

import rota
from rota.integrations.django import app
from rota.testing import Harness
from tests.django.shop.jobs import count, greet, welcome
from tests.django.shop.models import Customer


class HarnessTest(TestCase):
    """A whole attempt in the transaction of a TestCase."""

    customer: Customer

    @classmethod
    def setUpTestData(cls) -> None:
        cls.customer = Customer.objects.create(name="Grace")

    def setUp(self) -> None:
        self.harness = Harness(app)
        self.addCleanup(self.harness.close)
        with self.assertRaisesRegex(rota.UsageError, "on the connection of the test"):
            _ = self.harness.url

    def test_a_sign_up_sends_a_mail(self) -> None:
        self.client.get("/signup/Ada")
        self.harness.enqueued(welcome)
        assert self.harness.drain().succeeded == 1
        assert Customer.objects.get(name="Ada").mails == 1

    def test_no_commit_is_waited_for(self) -> None:
        with transaction.atomic():
            job = welcome.enqueue(self.customer.pk)
            assert self.harness.perform(job.id).status == "succeeded"

    def test_an_async_handler_sees_the_rows_of_the_test(self) -> None:
        assert self.harness.perform(greet.new("Grace")).result == "hello Grace"
        assert self.harness.drain().succeeded == 1

    async def test_an_async_test_drains(self) -> None:
        await greet.aenqueue("Grace")
        assert (await self.harness.adrain()).succeeded == 2
        await sync_to_async(self.customer.refresh_from_db)()
        assert self.customer.mails == 1

    async def test_another_harness_in_async_code_is_refused(self) -> None:
        with self.assertRaisesMessage(rota.UsageError, "use the Harness that is open"):
            Harness(app)

    def test_a_command_would_see_nothing_of_the_transaction_and_is_refused(self) -> None:
        with self.assertRaisesMessage(CommandError, "use the Harness"):
            call_command("rota", "queues", "pause", "email", "--why", "a test")
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from rota.queue where paused_at is not null")
            assert cursor.fetchone() == (0,)

    def test_a_handler_that_fails_leaves_the_test_s_transaction_sound(self) -> None:
        assert repr(self.harness.perform(welcome.new(-1)).error).startswith("DoesNotExist")
        assert Customer.objects.count() == 1


class CommittedTest(TransactionTestCase):
    """The same without the transaction of a test."""

    def test_a_harness_works_in_the_test_database(self) -> None:
        with Harness(app) as harness:
            assert harness.url == app.url and "dbname=test_" in app.url
            self.client.get("/signup/Ada")
            assert harness.drain().succeeded == 1
        assert Customer.objects.get().mails == 1

    @tag("nightly")
    async def test_a_harness_works_in_an_async_test(self) -> None:
        await Customer.objects.acreate(name="Ada")
        async with Harness(app) as harness:
            await greet.aenqueue("Ada")
            assert (await harness.adrain()).succeeded == 2


@tag("nightly")
class LiveTest(LiveServerTestCase):
    """A server in another thread."""

    def test_a_request_to_the_server_enqueues_in_the_test_database(self) -> None:
        with urlopen(f"{self.live_server_url}/signup/Ada") as response:
            assert response.status == 200
        with Harness(app) as harness:
            assert harness.drain().succeeded == 1
        assert Customer.objects.get().mails == 1


@tag("nightly")
class ProcessTest(TransactionTestCase):
    """What runs in another process runs on the database of the test."""

    def test_a_process_of_its_own_sees_the_rows_of_the_test(self) -> None:
        Customer.objects.create(name="Grace")
        Customer.objects.create(name="Ada")
        with Harness(app) as harness:
            job = count.enqueue()
            assert harness.drain().succeeded == 1
        assert app.get(job.id).result == 2
