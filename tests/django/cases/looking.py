"""The dashboard in a Django project, under the login of the admin."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client, TransactionTestCase

from rota.integrations.django import app
from tests.django.shop.jobs import welcome


class DashboardTest(TransactionTestCase):
    """Ada may look and cancel jobs."""

    def setUp(self) -> None:
        self.ada = User.objects.create_user("ada", password="secret", is_staff=True)
        self.client = Client(enforce_csrf_checks=True)

    def allow(self, *names: str) -> None:
        """Give Ada permissions, and sign her in."""
        found = Permission.objects.filter(content_type__app_label="rota", codename__in=names)
        assert found.count() == len(names)
        self.ada.user_permissions.add(*found)
        self.sign_in()

    def sign_in(self) -> None:
        """Open a new browser."""
        self.client = Client(enforce_csrf_checks=True)
        self.client.force_login(self.ada)

    def test_who_is_not_signed_in_is_sent_to_the_login_others_are_refused(
        self,
    ) -> None:
        sent = self.client.get("/admin/jobs/dead?queue=email")
        self.assertRedirects(
            sent,
            "/admin/login/?next=/admin/jobs/dead%3Fqueue%3Demail",
            fetch_redirect_response=False,
        )
        self.client.force_login(self.ada)
        assert self.client.get("/admin/jobs/").status_code == 403
        refused = self.post("jobs/cancel", {"id": 1})  # and the form is not read for a token
        self.assertContains(refused, "You may not see this", status_code=403)
        self.allow("view_jobrow")
        self.assertContains(self.client.get("/admin/jobs/"), "ada, who may look only")
        User.objects.filter(username="ada").update(is_staff=False)
        assert self.client.get("/admin/jobs/").status_code == 403

    def test_permissions_are_verbs_and_a_form_has_the_token_of_django(self) -> None:
        self.allow("view_jobrow", "cancel_job", "pause_queue")
        job = welcome.using(delay="1h").enqueue(1)
        page, fields = self.open_form(job.id)
        [main] = re.findall(r"<main.*</main>", page, re.DOTALL)
        assert re.findall(r"<button[^>]*>(\w+)", main) == ["Cancel"]
        without = {name: text for name, text in fields.items() if name != "csrfmiddlewaretoken"}
        assert self.post("jobs/cancel", without).status_code == 403
        elsewhere: dict[str, Any] = {"HTTP_ORIGIN": "https://elsewhere.example"}
        assert self.post("jobs/cancel", fields, **elsewhere).status_code == 403
        kept = [middleware for middleware in settings.MIDDLEWARE if "csrf" not in middleware]
        with self.settings(MIDDLEWARE=kept):
            self.sign_in()  # a new client, whose middleware reads the settings again
            _, fields = self.open_form(job.id)
            wrong = {**fields, "csrfmiddlewaretoken": "x" * 64}
            assert self.post("jobs/cancel", wrong).status_code == 403, "guarded without it, too"
        assert app.get(job.id).status == "queued"
        self.sign_in()
        _, fields = self.open_form(job.id)
        assert self.post("jobs/cancel", fields).status_code == 303
        assert app.get(job.id).status == "cancelled"
        assert app.jobs.log()[0].by == "ada"
        refused = self.post("queues/pause", fields | {"queue": "email"})
        self.assertContains(refused, "ada may look, but not pause", status_code=403)

    def test_a_job_leads_from_the_dashboard_to_the_admin_and_back(self) -> None:
        self.allow("view_jobrow")
        job = welcome.using(delay="1h").enqueue(1).id
        pages = (f"/admin/jobs/jobs/{job}", f"/admin/rota/jobrow/{job}/change/")
        for page, other in (pages, pages[::-1]):
            self.assertContains(self.client.get(page), f'href="{other}"')

    def test_behind_a_proxy_a_form_is_from_here_if_the_settings_say_so(self) -> None:
        self.allow("view_jobrow", "cancel_job")
        job = welcome.using(delay="1h").enqueue(1)
        _, fields = self.open_form(job.id)
        behind: dict[str, Any] = {
            "HTTP_ORIGIN": "https://jobs.example",
            "HTTP_X_FORWARDED_HOST": "jobs.example",
            "HTTP_HOST": "10.0.0.7",
            "HTTP_SEC_FETCH_SITE": "none",  # an old browser sends nothing
        }
        assert self.post("jobs/cancel", fields, **behind).status_code == 403
        with self.settings(CSRF_TRUSTED_ORIGINS=["https://jobs.example"]):
            self.sign_in()  # a new client, whose middleware reads the settings again
            _, fields = self.open_form(job.id)
            assert self.post("jobs/cancel", fields, **behind).status_code == 303
        assert app.get(job.id).status == "cancelled"

    def open_form(self, job: int) -> tuple[str, dict[str, str]]:
        """Return the page of a job and what its form sends."""
        page = self.client.get(f"/admin/jobs/jobs/{job}").content.decode()
        found = re.findall('type="hidden" name="([^"]+)" value="([^"]*)"', page)
        fields = {unescape(name): unescape(value) for name, value in found}
        return page, fields | {"why": "not wanted"}

    def post(self, path: str, fields: dict[str, Any], **headers: Any) -> Any:
        """Send a form as browsers do."""
        return self.client.post(
            f"/admin/jobs/{path}",
            urlencode(fields),
            content_type="application/x-www-form-urlencoded",
            **{"HTTP_SEC_FETCH_SITE": "same-origin", **headers},
        )
