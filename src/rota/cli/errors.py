"""`rota errors` lists how attempts failed, each error once."""

from __future__ import annotations

from rota.cli.flags import option
from rota.cli.jobs import TIME, read_moment
from rota.cli.listing import Field, Listing, count, label, number, spare
from rota.cli.table import Kind
from rota.cli.target import Viewer
from rota.client.base import LIST_MAX
from rota.model.units import list_some
from rota.records import ErrorRecord

SINCE = "1d"
ERRORS_COUNTED = 1_000
"""Most attempts that are counted for a type, a class and a response code."""


def errors(
    job_type: str | None = option("--type NAME", "Only errors of this type."),
    since: str = option("--since TIME", f"Start of the period. {TIME}.", default=SINCE),
    limit: int = option("--limit", "Maximum number.", default=20, min=1, max=LIST_MAX),
    *,
    viewer: Viewer,
) -> None:
    """List how attempts failed, each error once, the latest first.

    Counts up to 1,000 attempts of a type and class. To act on the jobs of an error, give its type,
    class and message to an action: rota retry --type T --error-type E --error TEXT.
    """
    begin = read_moment(since, "--since") or SINCE
    ERRORS.show(
        viewer,
        lambda opened: opened.jobs.errors(since=begin, job_type=job_type, limit=limit),
        counted_to=ERRORS_COUNTED,
    )


def _show(error: ErrorRecord, _: object) -> str:
    code = f" ({error.response_code})" if error.response_code is not None else ""
    return f"{error.error_type or 'failed'}{code}: {error.message or ''}"


ERRORS = Listing(
    "errors",
    (
        Field("type", "job_type", Kind.TYPE),
        Field("error", _show, Kind.ERROR),
        count("attempts", most=ERRORS_COUNTED),
        count("jobs", most=ERRORS_COUNTED),
        number("dead"),
        spare(label("releases", lambda error, _: list_some(error.releases, joint=", "))),
        spare(Field("first", "first_at")),
        Field("last", "last_at"),
        spare(label("last job", "last_job")),
    ),
    empty="no attempt failed in this time",
)
