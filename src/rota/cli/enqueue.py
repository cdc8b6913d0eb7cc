"""`rota enqueue`: inserts one job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, cast

import msgspec
import typer

from rota.cli.flags import argument, option
from rota.cli.output import say
from rota.cli.target import JsonOption, Place, find_app
from rota.client.enqueue import UntypedJob
from rota.declare.job_type import JobType
from rota.declare.options import EnqueueOptions, UsingOptions, encode_asks
from rota.declare.payload import encode_untyped
from rota.errors import ConfigurationError, PayloadError, UnknownJobType, UsageError
from rota.model.bounds import NAME_MAX, check_text
from rota.model.job import Enqueued

FORCE = " (--force inserts it without a check)"

PayloadOption = Annotated[
    str, typer.Option(metavar="JSON", help="Arguments of the handler, as a JSON object.")
]
ForceOption = Annotated[
    bool,
    typer.Option(
        "--force", help="Allow a type the App does not declare; the payload is not checked."
    ),
]


@dataclass(frozen=True, slots=True)
class Overrides:
    """The options of a job that override the options of its type."""

    queue: str | None = option("--queue NAME", "Queue. Default: the type's.")
    priority: int | None = option(
        "--priority NUMBER", "Priority, -100 to 100; higher runs first. Default: the type's."
    )
    max_attempts: int | None = option(
        "--max-attempts NUMBER", "Maximum number of attempts, 1 to 10,000. Default: the type's."
    )
    expires: str | None = option(
        "--expires DURATION",
        "Time after the due time; a job not started by then becomes dead. Default: the type's.",
    )
    meta: str | None = option(
        "--meta JSON", "JSON object stored with the job; not passed to the handler."
    )
    group_key: str | None = option(
        "--group-key KEY",
        "Ordered group of the job: those with one key run in order. "
        "Default: the one that the type declares.",
    )

    def read(self) -> UsingOptions:
        """Return the options as `using(…)` takes them. Raises UsageError: a wrong meta."""
        meta = None if self.meta is None else read_object(self.meta, "--meta")
        return cast("UsingOptions", asdict(self) | {"meta": meta})


def enqueue(
    job_type: str = argument("TYPE", "Job type."),
    payload: PayloadOption = "{}",
    *,
    overrides: Overrides,
    run_at: str | None = option(
        "--run-at TIME", "Earliest start, with UTC offset: 2026-11-20T08:00:00+01:00. Default: now."
    ),
    timeout: str | None = option(
        "--timeout DURATION", "Longest run of an attempt. Default: the type's."
    ),
    delay: str | None = option(
        "--delay DURATION", "Earliest start, from now: 90s, 10m, 1h30m. Not with --run-at."
    ),
    key: str | None = option(
        "--key KEY",
        "If a job of this type already has this key, insert nothing. "
        "Default: the key that the type declares.",
    ),
    on_duplicate: str | None = option(
        "--on-duplicate WHAT",
        "If another job has the key: keep it, replace its payload, postpone it, or raise "
        "an error. Default: the type's.",
    ),
    group_capacity: int | None = option(
        "--group-capacity NUMBER",
        "Jobs of its group that may run at once when it begins, 1 to 1,000. Default: the type's.",
    ),
    force: ForceOption = False,
    place: Place,
    as_json: JsonOption = False,
) -> None:
    """Insert a job. Rota checks the payload against the job type."""
    options: UsingOptions = {
        "run_at": instant(run_at),
        "delay": delay,
        "timeout": timeout,
        "key": key,
        "group_capacity": group_capacity,
        "on_duplicate": on_duplicate,  # type: ignore[typeddict-item]
    }
    checked = EnqueueOptions().update({**overrides.read(), **options})
    given = arguments(job_type, payload)
    declared = find_type(place, job_type, force=force)
    if declared is not None:
        new = declared._make((), given, checked)
        with place.session() as opened:
            enqueued = opened.enqueue(new.using(connection=opened.connection))
    else:
        untyped = make_untyped(job_type, given, checked, overrides.read().get("meta"))
        with place.session() as opened:
            enqueued = opened.run(untyped.insert())
    _say(enqueued, as_json=as_json)


def make_untyped(
    job_type: str,
    arguments: dict[str, Any],
    options: EnqueueOptions,
    meta: Mapping[str, Any] | None,
) -> UntypedJob:
    """Make a job of a type that the App does not declare. Raises UsageError, PayloadError."""
    check_text(job_type, "the job type's name", NAME_MAX)
    return UntypedJob(job_type, encode_untyped(job_type, arguments), options, encode_asks(meta))


def instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "run_at must be a date and time with a UTC offset, as in 2026-11-20T08:00:00+01:00, "
            f"not {text!r}"
        ) from None
    if found.utcoffset() is None:
        raise UsageError(f"run_at needs a UTC offset: append Z or +01:00 to {text!r}")
    return found


def arguments(job_type: str, payload: str) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(payload.encode())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = f"""not valid JSON, as {{"user_id": 42}} is: {error}"""
        raise PayloadError(job_type, None, reason) from None
    if not isinstance(found, dict):
        raise PayloadError(
            job_type,
            None,
            f"""must be a JSON object, as in {{"user_id": 42}}, not {payload.strip()[:60]!r}""",
        )
    return found


def read_object(text: str, name: str) -> dict[str, Any]:
    try:
        return arguments("", text)
    except PayloadError as error:
        raise UsageError(f"{name}: {error.reason}") from None


def find_type(place: Place, name: str, *, force: bool) -> JobType[..., ..., Any] | None:
    """Find the type with this name or alias. None: no such type, and `force` is given."""
    app = place.find_app()[0] if force else find_app(place.app)
    if app is None:
        if force:
            return None
        raise ConfigurationError(
            f"no App to check job type {name!r} against: give --app module:attribute, "
            f"set ROTA_APP or [tool.rota] in pyproject.toml{FORCE}"
        )
    found = app._type_of(name)
    if found is None and not force:
        raise UnknownJobType(name, app._declarations.find_nearest(name), FORCE)
    return found


def _say(enqueued: Enqueued, *, as_json: bool) -> None:
    change = enqueued.change
    became = "has this idempotency key" if change is None else f"was {change}"
    holder = f"not inserted: job {enqueued.id} ({enqueued.status}) {became}"
    text = f"job {enqueued.id} {enqueued.status}" if enqueued.created else holder
    say(enqueued, text, as_json=as_json)
