"""The dashboard in a Django project, for who may sign in to the admin.

`path("admin/jobs/", include("rota.dashboard.django"))`, before `path("admin/", admin.site.urls)`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.db.transaction import non_atomic_requests
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.urls import NoReverseMatch, re_path, reverse
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from rota.dashboard.access import VERBS, Access
from rota.dashboard.request import Request, Response, read_query
from rota.dashboard.site import Dashboard, dashboard
from rota.integrations.django.django_app import find_app

SEE = "rota.view_jobrow"
FORM = "application/x-www-form-urlencoded"
PERMISSIONS = {
    "limit": ("limit_queue",),
    "pause": ("pause_queue", "pause_schedule"),
    "reset": ("reset_breaker",),
    "resolve": ("resolve_effect",),
    "resume": ("resume_queue", "resume_schedule"),
    "trigger": ("trigger_schedule",),
}
"""The permissions of the app `rota` that a user needs for a verb; other verbs need `VERB_job`."""


@cache
def _find_dashboard() -> Dashboard:
    return dashboard(find_app(), authorize=find_access)


def find_access(request: HttpRequest) -> Access | None:
    """Return what the permissions of a user allow; None: he may see no job."""
    user: Any = request.user
    if not (user.is_active and user.is_staff and user.has_perm(SEE)):
        return None
    verbs = {
        verb
        for verb in VERBS
        if user.has_perms(
            [f"rota.{permission}" for permission in PERMISSIONS.get(verb, (f"{verb}_job",))]
        )
    }
    return Access(user.get_username(), frozenset(verbs))


def show(request: HttpRequest, path: str) -> HttpResponseBase:
    """Answer a request. Who has not signed in is sent to the login."""
    user: Any = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return redirect_to_login(request.get_full_path(), _find_login())
    if request.method == "POST" and request.content_type != FORM:
        return HttpResponse("a form of this site is urlencoded", status=400)
    asked = Request(
        method=request.method or "GET",
        prefix=request.path.removesuffix(path).rstrip("/"),
        path=f"/{path}",
        query=read_query(request.META.get("QUERY_STRING", "")),
        headers={name.lower(): value for name, value in request.headers.items()},
        peer=request.META.get("REMOTE_ADDR"),
        scope=request,
        find_row=_find_row,
    )
    answer = _find_dashboard().admit(asked)
    if isinstance(answer, Response):
        return _send(answer)
    # Django says whether a form is from here, by the project's settings, even without
    # CsrfViewMiddleware. It reads the form for that.
    return csrf_protect(_answer)(request, answer)


def _answer(request: HttpRequest, asked: Request) -> HttpResponse:
    asked = replace(asked, token=get_token(request))
    body = request.body if asked.method == "POST" else b""
    return _send(_find_dashboard().answer(asked, body))


def _send(answer: Response) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=dict(answer.headers))


def _find_login() -> str | None:
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return None  # settings.LOGIN_URL


def _find_row(job: int) -> str | None:
    try:
        return reverse("admin:rota_jobrow_change", args=[job])
    except NoReverseMatch:
        return None


# An action on many is a transaction for each thousand. `show` guards the forms.
view = non_atomic_requests(find_app().using)(csrf_exempt(show))
urlpatterns = [re_path(r"^(?P<path>.*)$", view, name="rota_dashboard")]
