"""Rota as the backend of Django's tasks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from unittest import skipUnless

from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from rota.integrations.django import RotaBackend, app
from rota.testing import Harness
from tests.django.shop.models import Customer
from tests.django.shop.tasks import (
    OPTIONS,
    count_mail,
    fail,
    fail_twice,
    find_customer,
    once,
    return_a_function,
)

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import default_task_backend, signals
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist, TaskResultMismatch
else:
    from django_tasks import default_task_backend, signals
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch


class TaskTest(TestCase):
    """Tasks in the transaction of a test."""

    customer: Customer

    @classmethod
    def setUpTestData(cls) -> None:
        cls.customer = Customer.objects.create(name="Ada")

    def setUp(self) -> None:
        self.harness = Harness(app)
        self.addCleanup(self.harness.close)
        self.sent: list[tuple[str, str]] = []
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(signals, name)
            signal.connect(self.hear)
            self.addCleanup(signal.disconnect, self.hear)
        self.names = {id(getattr(signals, attribute)): attribute for attribute in vars(signals)}

    def hear(self, signal: Any, task_result: Any, **_: Any) -> None:
        self.sent.append((self.names[id(signal)], str(task_result.status)))

    def test_a_task_is_enqueued_with_its_options_and_run(self) -> None:
        assert isinstance(default_task_backend.get_result, type(self.hear))
        result = count_mail.using(priority=7).enqueue(self.customer.pk, by=2)
        assert (str(result.status), result.args, result.kwargs) == (
            "READY",
            [self.customer.pk],
            {"by": 2},
        )
        job = app.get(int(result.id))
        assert (job.queue, job.priority) == ("mail", 7)
        assert job.job_type == "tests.django.shop.tasks.count_mail"
        assert self.harness.drain().succeeded == 1
        result.refresh()
        assert (str(result.status), result.return_value, result.attempts) == ("SUCCESSFUL", 2, 1)
        assert result.enqueued_at <= result.started_at == result.last_attempted_at
        assert result.started_at <= result.finished_at
        assert count_mail.get_result(result.id) == result
        assert self.sent == [
            ("task_enqueued", "READY"),
            ("task_started", "RUNNING"),
            ("task_finished", "SUCCESSFUL"),
        ]

    def test_the_errors_of_every_attempt_are_kept(self) -> None:
        result = fail_twice.enqueue()
        for _ in range(3):
            self.harness.perform(int(result.id))
            result.refresh()
        assert (str(result.status), result.return_value, result.attempts) == ("SUCCESSFUL", 3, 3)
        assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
        assert [
            f"attempt {n} of {result.id}" in result.errors[n - 1].traceback for n in (1, 2)
        ] == [True, True]
        assert len(result.worker_ids) == 3 and all(result.worker_ids)
        started = ("task_started", "RUNNING")
        assert self.sent[1:] == [started, started, started, ("task_finished", "SUCCESSFUL")]

    def test_a_task_that_failed_for_good_is_finished(self) -> None:
        result = fail.enqueue("no such order")
        done = self.harness.perform(int(result.id))
        assert done.status == "dead"
        result.refresh()
        assert (str(result.status), result.is_finished) == ("FAILED", True)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            _ = result.return_value
        assert result.finished_at is not None
        assert self.sent[-1] == ("task_finished", "FAILED")

    def test_a_task_that_a_person_has_moved_runs_in_any_queue(self) -> None:
        result = count_mail.enqueue(self.customer.pk)
        app.jobs.reschedule(int(result.id), queue="elsewhere")
        assert self.harness.perform(int(result.id)).status == "succeeded"
        result.refresh()
        assert (result.return_value, str(count_mail.get_result(result.id).status)) == (
            1,
            "SUCCESSFUL",
        )

    def test_a_task_is_enqueued_by_its_name_too(self) -> None:
        job = app.enqueue("tests.django.shop.tasks.find_customer", {"args": ["Ada"]})
        assert self.harness.perform(job.id).result == self.customer.pk

    def test_what_json_cannot_hold_is_refused_as_argument_and_as_result(self) -> None:
        with self.assertRaisesMessage(TypeError, "Unsupported type"):
            fail.enqueue(object())  # type: ignore[arg-type]
        done = self.harness.perform(int(return_a_function.enqueue().id))
        assert "Unsupported type" in str(done.error), done

    def test_a_task_waits_for_its_time(self) -> None:
        at = datetime.now(UTC) + timedelta(hours=1)
        result = find_customer.using(run_after=at).enqueue("Ada")
        assert self.harness.drain().performed == []
        self.harness.advance("2h")
        self.harness.drain()  # the schedule may have run, too
        result.refresh()
        assert result.return_value == self.customer.pk
        assert find_customer.get_result(result.id).task.run_after == at

    @skipUnless(OPTIONS, "Django 6.0 takes no options of a backend")
    def test_a_task_has_options_of_rota(self) -> None:
        result = once.enqueue(1)
        assert once.enqueue(1).id == result.id
        assert once.enqueue(2).id != result.id
        job = app.get(int(result.id))
        assert (job.max_attempts, job.idempotency_key) == (8, "once:1")
        options = app.types[job.job_type]._declaration.options
        assert (options.max_attempts, options.timeout_s) == (8, 20)

    async def test_an_async_view_enqueues_and_reads(self) -> None:
        result = await count_mail.aenqueue(self.customer.pk)
        assert (await self.harness.adrain()).succeeded == 1
        await result.arefresh()
        assert result.return_value == 1
        await sync_to_async(self.customer.refresh_from_db)()
        assert self.customer.mails == 1

    def test_a_result_that_is_none_is_refused(self) -> None:
        result = fail.enqueue("x")
        plain = app.enqueue("welcome", {"customer_id": 1})
        with self.assertRaises(TaskResultMismatch):
            once.get_result(result.id)
        for wrong in ("7" * 30, "no-id", "0", str(plain.id)):
            with self.subTest(wrong), self.assertRaises(TaskResultDoesNotExist):
                once.get_result(wrong)

    def test_a_wrong_queue_and_a_wrong_option_are_refused(self) -> None:
        with self.assertRaises(InvalidTask):
            once.using(queue_name="unknown")
        with self.assertRaisesMessage(ValueError, "OPTIONS has no option 'retries'"):
            RotaBackend("other", {"OPTIONS": {"retries": 1}})

    def test_workers_serve_the_queues_of_the_backend(self) -> None:
        config = app._config(None, 10, None, "30s", None)
        assert set(config.queues or ()) >= {"default", "mail", "bulk", "email"}


class CommittedTaskTest(TransactionTestCase):
    """Tasks and transactions."""

    def test_a_task_is_rolled_back_with_the_rows_of_its_view(self) -> None:
        with self.assertRaises(PermissionError), transaction.atomic():
            once.enqueue(1)
            raise PermissionError
        assert app.find() == []
