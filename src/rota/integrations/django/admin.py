"""Rota in Django's admin: lists that never count everything, and actions that ask for the reason.

Nothing can be added, changed or deleted: an action calls the App, which records who acted and why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partialmethod
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import OperationalError, connections, models, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html

from rota.client.base import ID_MAX
from rota.client.session import LOOK_MS
from rota.errors import RotaError
from rota.integrations.django.django_app import find_app
from rota.integrations.django.models import AttemptRow, JobRow, QueueRow, ScheduleRow

COUNTED_MAX = 1_000
"""Most rows that a list counts and an action takes."""
SHOWN_MAX = 80
"""Most characters of an error in a list."""


if TYPE_CHECKING:
    Pages = Paginator[Any]
    Site = admin.ModelAdmin[Any]
else:  # only the stubs of Django are generic
    Pages, Site = Paginator, admin.ModelAdmin


class BoundedPaginator(Pages):
    """Counts no further than COUNTED_MAX."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:COUNTED_MAX].count())


def make_action(verb: str) -> Any:
    """Make the action of a verb. The action needs the permission with the verb's name."""

    def act(
        site: ReadOnlyAdmin, request: HttpRequest, queryset: models.QuerySet[Any]
    ) -> HttpResponse | None:
        return _act(site, verb, request, queryset)

    made: Any = act
    made.__name__ = verb
    made.short_description = f"{verb.capitalize()} selected %(verbose_name_plural)s"
    made.allowed_permissions = (verb,)
    return made


class ReadOnlyAdmin(Site):
    """Shows rows of Rota. Its actions are verbs of the App, each with a permission of its own."""

    namespace = ""
    """The namespace of the App that has the verbs."""
    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def refuse(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: nobody adds, changes or deletes a row."""
        return False

    has_add_permission = has_change_permission = has_delete_permission = refuse

    def has_verb_permission(self, verb: str, request: HttpRequest) -> bool:
        """Whether this user may take an action."""
        user: Any = request.user
        return bool(user.has_perm(f"rota.{verb}_{self.opts.verbose_name}"))

    def find_call(self, verb: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(getattr(find_app(), self.namespace), verb)
        return call

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the list; give up a list that takes too long."""
        using = find_app().using
        if request.method != "GET":
            return super().changelist_view(request, extra_context)
        try:
            with transaction.atomic(using=using):
                before = _limit_statements(using, f"{LOOK_MS}ms")
                response = super().changelist_view(request, extra_context)
                if isinstance(response, TemplateResponse):
                    response.render()  # it reads the rows
                _limit_statements(using, before)  # the transaction may be one of the request
                return response
        except OperationalError:
            if not request.GET:
                raise
            text = f"The list took longer than {LOOK_MS // 1000} s: filter or search for less."
            self.message_user(request, text, messages.WARNING)
            return HttpResponseRedirect(request.path)


for _verb in ("retry", "cancel", "discard", "archive", "pause", "resume", "trigger"):
    _method: Any = partialmethod(ReadOnlyAdmin.has_verb_permission, _verb)
    setattr(ReadOnlyAdmin, f"has_{_verb}_permission", _method)  # as Django looks for it


def _limit_statements(using: str, most: str) -> str:
    """Limit the time of statements until the transaction ends; return the limit before."""
    with connections[using].cursor() as cursor:
        cursor.execute("show statement_timeout")
        [before] = cursor.fetchone() or ("0",)
        cursor.execute("select set_config('statement_timeout', %s, true)", [most])
    return str(before)


def _act(
    site: ReadOnlyAdmin, verb: str, request: HttpRequest, queryset: models.QuerySet[Any]
) -> HttpResponse | None:
    """Ask for the reason, then act on each of the rows."""
    chosen = list(queryset[:COUNTED_MAX])
    why = request.POST.get("why", "").strip()
    if not why:
        context = {
            **site.admin_site.each_context(request),
            "title": f"{verb.capitalize()} {site.opts.verbose_name_plural}",
            "verb": verb,
            "chosen": chosen,
            "opts": site.opts,
            "is_empty": "why" in request.POST,
        }
        return TemplateResponse(request, "admin/rota/act.html", context)
    using, done = find_app().using, 0
    for row in chosen:
        try:
            with transaction.atomic(using=using):
                site.find_call(verb)(row.pk, why=why, by=request.user.get_username())
            done += 1
        except RotaError as error:
            site.message_user(request, f"{row}: {error}", messages.ERROR)
    if done:
        site.message_user(request, f"{verb}: {done} of {len(chosen)} done", messages.SUCCESS)
    return None


class QueueFilter(admin.SimpleListFilter):
    """The known queues: the look-up reads no job."""

    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in QueueRow.objects.values_list("name", flat=True)]

    def queryset(
        self, request: HttpRequest, queryset: models.QuerySet[Any]
    ) -> models.QuerySet[Any]:
        return queryset if self.value() is None else queryset.filter(queue=self.value())


@admin.register(JobRow)
class JobAdmin(ReadOnlyAdmin):
    """Jobs, the newest first."""

    list_display = ("id", "job_type", "queue", "status", "attempts", "run_at", "error")
    list_filter = ("status", QueueFilter)
    search_fields = ("id",)
    search_help_text = "A job's id, its key, or a job type"
    sortable_by = ("id",)
    ordering = ("-id",)
    actions = [*map(make_action, ("retry", "cancel", "discard", "archive"))]
    readonly_fields = ("dashboard", "payload", "timeline")

    def find_call(self, verb: str) -> Callable[..., Any]:
        app = find_app()
        call: Callable[..., Any] = getattr(app if verb in ("retry", "cancel") else app.jobs, verb)
        return call

    def get_search_results(
        self, request: HttpRequest, queryset: models.QuerySet[Any], search_term: str
    ) -> tuple[models.QuerySet[Any], bool]:
        """Find by id, else by key, else by job type."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal():
            return queryset.filter(id=min(int(term), ID_MAX)), False
        with_key = [job.id for job in find_app().find(key=term[:255])]
        found = queryset.filter(id__in=with_key) if with_key else queryset.filter(job_type=term)
        return found, False

    def error(self, row: Any) -> str:
        """The last error, shortened."""
        return str(row.last_error or "")[:SHOWN_MAX]

    def dashboard(self, row: Any) -> str:
        """The page of the job in the dashboard, if the project has that."""
        try:
            url = reverse("rota_dashboard", args=[f"jobs/{row.id}"])
        except NoReverseMatch:
            return "not in urlpatterns"
        return format_html('<a href="{}">job {}</a>', url, row.id)

    def payload(self, row: Any) -> str:
        """The arguments, without secrets."""
        return find_app().get(row.id).shown_payload

    def timeline(self, row: Any) -> str:
        """What happened to the job, and who acted."""
        entries = find_app().jobs.timeline(row.id).entries
        lines = (
            f"{timezone.localtime(entry.at):%Y-%m-%d %H:%M:%S} {entry.what} {entry.text}"
            for entry in entries
        )
        return format_html("<pre>{}</pre>", "\n".join(lines))


@admin.register(AttemptRow)
class AttemptAdmin(ReadOnlyAdmin):
    """Attempts that failed, the newest first."""

    list_display = ("finished_at", "link", "job_type", "attempt", "outcome", "error", "worker")
    list_display_links = None
    sortable_by = ()
    ordering = ("-finished_at",)

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> None:
        """Find none: the page of the job shows the attempt."""

    @admin.display(description="job")
    def link(self, row: Any) -> str:
        """The page of the job."""
        url = reverse("admin:rota_jobrow_change", args=[row.job])
        return format_html('<a href="{}">{}</a>', url, row.job)

    def error(self, row: Any) -> str:
        """The error, shortened."""
        return f"{row.error_type or ''}: {row.message or ''}"[:SHOWN_MAX]


@admin.register(ScheduleRow)
class ScheduleAdmin(ReadOnlyAdmin):
    """Schedules."""

    namespace = "schedules"
    list_display = ("name", "job_type", "cron", "next_run_at", "last_run_at", "paused_why")
    ordering = ("name",)
    actions = [*map(make_action, ("pause", "resume", "trigger"))]


@admin.register(QueueRow)
class QueueAdmin(ReadOnlyAdmin):
    """Queues, with the number of their due jobs."""

    namespace = "queues"
    list_display = ("name", "due", "max_running", "paused_at", "paused_by", "paused_why")
    ordering = ("name",)
    actions = [*map(make_action, ("pause", "resume"))]

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Any]:
        """Return the queues; `due` is counted up to the limit of `rota queues`."""
        due: dict[str, int] = {}
        for counts in find_app().queues.list():
            due[counts.queue] = due.get(counts.queue, 0) + counts.due
        whens = [models.When(name=name, then=count) for name, count in due.items()]
        return (
            super()
            .get_queryset(request)
            .annotate(due_jobs=models.Case(*whens, default=0, output_field=models.IntegerField()))
        )

    def due(self, row: Any) -> int:
        """How many jobs are due."""
        return int(row.due_jobs)
