"""Rota in Django's admin."""

from __future__ import annotations

from typing import Any
from unittest import mock

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TestCase, tag
from django.test.utils import CaptureQueriesContext

from rota.integrations.django import admin as rota_admin
from rota.integrations.django import app
from rota.testing import Harness
from tests.django.shop.jobs import welcome, welcome_all

JOBS, QUEUES = "/admin/rota/jobrow/", "/admin/rota/queuerow/"


class AdminTest(TestCase):
    """A superuser and what she does."""

    def setUp(self) -> None:
        self.user = User.objects.create_superuser("ada", password="secret")
        self.client.force_login(self.user)

    def act(self, url: str, verb: str, *chosen: object, **more: Any) -> Any:
        """Choose rows and an action, as the list's form does."""
        return self.client.post(
            url, {"action": verb, "_selected_action": chosen, **more}, follow=True
        )

    def test_the_lists_and_the_page_of_a_job_show_what_there_is(self) -> None:
        with Harness(app) as harness:
            harness.perform(welcome.new(7))
        [job] = app.find()
        for url, text in [
            (JOBS, "matching query does not exist"),
            (f"{JOBS}{job.id}/change/", "{&quot;customer_id&quot;: 7}"),
            (f"{JOBS}{job.id}/change/", "failed"),
            ("/admin/rota/attemptrow/", f"{JOBS}{job.id}/change/"),
            ("/admin/rota/schedulerow/", "nightly"),
            (QUEUES, "email"),
            ("/admin/", "Failed attempts"),
        ]:
            with self.subTest(url):
                self.assertContains(self.client.get(url), text)
        assert self.client.get(f"{JOBS}add/").status_code == 403
        assert self.client.post(f"{JOBS}{job.id}/delete/").status_code == 403
        self.assertRedirects(self.client.get(f"/admin/rota/attemptrow/{job.id}/change/"), "/admin/")

    def test_a_job_is_found_by_id_key_type_status_and_queue(self) -> None:
        first = welcome.using(key="first").enqueue(1)
        second = welcome_all.enqueue(False)
        for query, found in [
            (f"q={first.id}", [first.id]),
            ("q=first", [first.id]),
            ("q=welcome_all", [second.id]),
            ("q=99999999999999999999", []),
            ("status__exact=queued", [second.id, first.id]),
            ("status__exact=dead", []),
            ("queue=email", [first.id]),
        ]:
            with self.subTest(query):
                response = self.client.get(f"{JOBS}?{query}")
                assert [row.id for row in response.context["cl"].result_list] == found

    def test_an_action_asks_for_the_reason_and_records_who(self) -> None:
        job = welcome.enqueue(1)
        asked = self.act(JOBS, "cancel", job.id)
        self.assertContains(asked, "Reason, recorded with your name")
        self.assertContains(self.act(JOBS, "cancel", job.id, why=" "), "Give a reason.")
        assert app.get(job.id).status == "queued"
        done = self.act(JOBS, "cancel", job.id, why="double order")
        self.assertContains(done, "Cancel: 1 of 1 done")
        [record] = app.jobs.log()
        assert (record.by, record.why) == ("ada", "double order")

    def test_each_verb_reaches_the_app_and_a_refusal_is_shown(self) -> None:
        jobs = [welcome.enqueue(n).id for n in range(3)]
        for verb in ("retry", "discard", "archive"):
            self.assertContains(
                self.act(JOBS, verb, *jobs, why="x"), f"{verb.capitalize()}: 3 of 3 done"
            )
        refused = self.act(JOBS, "discard", jobs[0], why="x")
        self.assertContains(refused, f"{jobs[0]} welcome: ")
        for verb, names in [("pause", ["email"]), ("resume", [])]:
            self.act(QUEUES, verb, "email", why="x")
            assert [pause.queue for pause in app.queues.pauses()] == names
        for verb in ("pause", "resume", "trigger"):
            done = self.act("/admin/rota/schedulerow/", verb, "nightly", why="x")
            self.assertContains(done, f"{verb.capitalize()}: 1 of 1 done")
        assert app.find(job_type="welcome_all")[0].schedule == "nightly"

    def test_each_verb_needs_its_permission(self) -> None:
        job = welcome.enqueue(1)
        reader = User.objects.create_user("bob", is_staff=True)
        self.client.force_login(reader)
        assert self.client.get(JOBS).status_code == 403
        reader.user_permissions.add(
            *Permission.objects.filter(codename__in=["view_jobrow", "retry_job"])
        )
        self.assertContains(self.client.get(JOBS), "Retry selected jobs")
        self.assertNotContains(self.client.get(JOBS), "Cancel selected jobs")
        self.act(JOBS, "cancel", job.id, why="x")
        assert app.get(job.id).status == "queued"

    @tag("nightly")
    def test_a_list_counts_a_part_and_gives_up_in_time(self) -> None:
        for _ in range(3):
            welcome.enqueue(1)
        with mock.patch.object(rota_admin, "COUNTED_MAX", 2):
            with CaptureQueriesContext(
                connection,
            ) as captured:
                response = self.client.get(JOBS)
            assert response.context["cl"].result_count == 2
            counts = [query["sql"] for query in captured if "COUNT(" in query["sql"]]
            assert counts and all("LIMIT 2" in statement for statement in counts)
        with mock.patch.object(rota_admin, "LOOK_MS", 1), connection.cursor() as cursor:
            cursor.execute(
                "insert into rota.job (job_type, payload) "
                "select 'slow', '{}' from generate_series(1, 20000)"
            )
            response = self.client.get(f"{JOBS}?status__exact=queued", follow=False)
            assert response.status_code == 302
