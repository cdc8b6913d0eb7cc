"""The format of log lines: plain or JSON, one line for each record, with the job whose handler
wrote it, and without credentials (`scrub`)."""

from __future__ import annotations

import copy
import json
import logging
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.declare.context import find_context
from rota.errors import UsageError
from rota.model.failure import escape
from rota.model.outcome import Failure
from rota.model.scrub import is_hiding, mask_texts, scrub_forms
from rota.model.scrub import scrub as scrub  # noqa: PLC0414 - also for others

TEXT_MAX = 32_768
"""A longer message, stack or field loses its middle: log collectors drop or split longer lines."""
WARNING_MAX = 2_000
"""The same limit for a Python warning: a library may put any value into its text."""
DATABASE_VARIABLE = "ROTA_WORKER_DATABASE"
"""Names the database in each line where `rota work` serves several databases."""
_OWN = ("rota_event", "rota_job", "rota_type", "rota_attempt", "rota_trace")
_USUAL = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime", *_OWN])
"""Attributes of a record that are not its `extra`."""
_find_trace: Callable[[logging.LogRecord], dict[str, str]] = lambda _: {}  # noqa: E731
"""Returns `trace_id` and `span_id` of a record; `rota.integrations.otel` sets it."""


class Form(StrEnum):
    """How records are written."""

    PLAIN = "plain"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe level of Rota's own lines."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def setup(
    log_format: Form | Literal["plain", "json"] = "plain",
    level: LogLevel | Literal["debug", "info", "warning", "error"] | None = "info",
    *,
    root_level: int = logging.WARNING,
) -> bool:
    """Log to stderr as `rota work` does.

    If the program has set up logging of its own, only the level of the logger `rota` is set.

    Args:
        log_format: "plain" or "json".
        level: the least severe level of Rota's own lines: "debug", "info", "warning" or "error";
            None: the same as of other loggers.
        root_level: the least severe level of other loggers' lines, as a number of `logging`.
            Defaults to warnings.

    Returns:
        Whether lines are now written in this format. Python's warnings and exceptions that end a
        thread are then log lines too.

    Raises:
        UsageError: there is no such format or level.
    """
    formatter = _formatter(log_format)
    if level is not None:
        if level not in list(LogLevel):
            raise UsageError(f"level must be one of {', '.join(LogLevel)}, not {level!r}")
        rota = logging.getLogger("rota")
        rota.setLevel(str(level).upper())
        # dictConfig() disables by default every logger that exists before its call.
        rota.disabled = False
    root = logging.getLogger()
    if root.handlers:
        return False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(JobFilter())
    root.addHandler(handler)
    root.setLevel(root_level)
    logging.captureWarnings(True)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _thread_failed
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _unraisable
    return True


@contextmanager
def hold_warnings() -> Iterator[None]:
    """Hold the warnings of a block until its end, when the log format is known."""
    held: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def hold(*args: Any, **named: Any) -> None:
        held.append((args, named))

    before, warnings.showwarning = warnings.showwarning, hold
    try:
        yield
    finally:
        if warnings.showwarning is hold:
            warnings.showwarning = before
        for args, named in held:
            warnings.showwarning(*args, **named)


def form() -> Form | None:
    """Return the format of the root logger; None: Rota did not set it up."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonFormatter):
            return Form.JSON
        if isinstance(handler.formatter, PlainFormatter):
            return Form.PLAIN
    return None


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        name = failed.thread.name if failed.thread is not None else "?"
        logging.getLogger("threading").error(
            "thread %s has failed", name, exc_info=failed.exc_value
        )


def _unraisable(failed: sys.UnraisableHookArgs) -> None:
    logging.getLogger("sys").error(
        "%s: %s",
        failed.err_msg or "exception ignored in",
        _text(failed.object),
        exc_info=failed.exc_value,
    )


class JobFilter(logging.Filter):
    """Gives each record `rota_job`, `rota_type` and `rota_attempt` of the handler that wrote it, or
    None; passes every record. Handlers' texts go through `scrub`; other code's texts too, while a
    handler has secret arguments.

    For a program with its own logging: `handler.addFilter(logs.JobFilter())`, then
    `%(rota_job)s` in its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "rota_job"):
            found = find_context()
            if found is not None or is_hiding():
                _scrub_record(record)
            job = None if found is None else found.job
            record.rota_job = job and job.id
            record.rota_type = job and job.job_type
            record.rota_attempt = job and job.attempts
            record.rota_trace = _find_trace(record)
        return True


_JOB_FILTER = JobFilter()


def filter_last_resort() -> None:
    """Mask handlers' log texts that Python prints in a program without any logging setup."""
    if logging.lastResort is not None:
        logging.lastResort.addFilter(_JOB_FILTER)  # a second time it changes nothing


class PlainFormatter(logging.Formatter):
    """Time, level, message, the job in brackets, then stacks. Unprintable characters are
    escaped."""

    def format(self, record: logging.LogRecord) -> str:
        record = _filter(record)
        text = _show_message(record)
        if not _is_own(record):
            text = f"{_text(record.name)}: {text}"
        job = _job_of(record)
        if job is not None and not hasattr(record, "rota_event"):
            text += f" [job {job['job']} {job['job_type']} attempt {job['attempt']}]"
        if database := os.environ.get(DATABASE_VARIABLE):
            text += f" [{_text(database)}]"
        for stack in _stacks(record):
            text += f" | {_show(stack)}"
        at = _time(record).astimezone().isoformat(sep=" ", timespec="milliseconds")
        return escape(f"{at} {record.levelname:7} {text}")


class JsonFormatter(logging.Formatter):
    """One JSON object: `at`, `level`, `logger`, `message`; `job`, `job_type`, `attempt` if a
    handler wrote it; `event` and its fields in Rota's own lines; `stack` of an exception; `extra`
    with the attributes that the program added. ASCII only."""

    def format(self, record: logging.LogRecord) -> str:
        record = _filter(record)
        line: dict[str, Any] = {
            "at": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": str(record.levelname).lower(),
            "logger": _text(record.name),
            "message": _show_message(record),
        }
        if database := os.environ.get(DATABASE_VARIABLE):
            line["database"] = _text(database)
        event = getattr(record, "rota_event", None)
        if isinstance(event, msgspec.Struct):
            line["event"] = type(event).__name__
            for name, value in _facts(event).items():
                line[name] = scrub_forms(_text(value)) if isinstance(value, str) else _plain(value)
        else:
            line |= _job_of(record) or {}
        line |= getattr(record, "rota_trace", None) or {}
        if stacks := _stacks(record):
            line["stack"] = _show("\n".join(stacks))
        extra = {_text(name): _mask_form(value) for name, value in _list_extra(record)}
        if extra:
            line["extra"] = extra
        return json.dumps(line, allow_nan=False).replace("\x7f", "\\u007f")


def _formatter(log_format: str) -> logging.Formatter:
    match log_format:
        case Form.PLAIN:
            return PlainFormatter()
        case Form.JSON:
            return JsonFormatter()
    raise UsageError(f"log_format must be 'plain' or 'json', not {log_format!r}")


def _filter(record: logging.LogRecord) -> logging.LogRecord:
    """Return the record after `JobFilter`: a copy, because other handlers use the record too,
    unless the filter has seen it, perhaps in another thread."""
    if not hasattr(record, "rota_job"):
        record = copy.copy(record)
        _JOB_FILTER.filter(record)
    return record


def _job_of(record: logging.LogRecord) -> dict[str, Any] | None:
    job = getattr(record, "rota_job", None)
    if job is None:
        return None
    job_type, attempt = getattr(record, "rota_type", None), getattr(record, "rota_attempt", None)
    return {"job": _plain(job), "job_type": _plain(job_type), "attempt": _plain(attempt)}


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == "rota"


def _list_extra(record: logging.LogRecord) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(record).items() if name not in _USUAL]


def _scrub_record(record: logging.LogRecord) -> None:
    """Mask a record, also for handlers with another format. Rota's own texts are not searched for
    values, but a stack is a foreign text."""
    mask = scrub_forms if _is_own(record) else scrub
    text = _message(record)
    if mask(text) != text or _scrub_any(record.args, mask) is not record.args:
        record.msg, record.args = mask(text), None
    stack = _exception(record)
    if stack is not None and scrub(stack) != stack:
        # A formatter of another library would read the exception.
        record.exc_info, record.exc_text = None, scrub(stack)
    if record.stack_info:
        record.stack_info = scrub(record.stack_info)
    for name, value in _list_extra(record):
        setattr(record, name, _scrub_any(value, mask))


def _scrub_any(value: Any, mask: Callable[[str], str]) -> Any:
    """Return a value with its texts masked; the same object if nothing is masked."""
    try:
        shown = [_plain(value), str(value)]
        masked = mask_texts(shown, mask)
    except Exception:  # noqa: BLE001 - a foreign __str__, or a value nested too deeply
        return mask(_text(value))
    return value if masked == shown else masked[0]


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _message(record: logging.LogRecord) -> str:
    """Return the message, also of a call whose arguments do not fit: logging would print a
    traceback."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - the user's own __str__ and __repr__
        return f"{_text(record.msg)} (its arguments do not fit: {_text(record.args)})"


def _show_message(record: logging.LogRecord) -> str:
    return _show(_message(record), WARNING_MAX if record.name == "py.warnings" else TEXT_MAX)


def _show(text: str, most: int = TEXT_MAX) -> str:
    return _clean(_shorten(scrub_forms(text), most))


def _exception(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[1] is None:
        return record.exc_text
    try:
        return "".join(traceback.format_exception(record.exc_info[1]))
    except Exception:  # noqa: BLE001 - formatting runs code of foreign classes
        return f"{type(record.exc_info[1]).__name__} (its traceback cannot be shown)"


def _stacks(record: logging.LogRecord) -> list[str]:
    return [stack.strip() for stack in (_exception(record), record.stack_info) if stack]


def _facts(event: Any) -> dict[str, Any]:
    """Return the fields of an event, with its failure's fields on the same level."""
    facts: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(event).items():
        facts |= msgspec.structs.asdict(value) if isinstance(value, Failure) else {name: value}
    return {"error" if name == "message" else name: value for name, value in facts.items()}


def _plain(value: Any) -> Any:
    """Return the value as JSON types; as text if it is no JSON or too long."""
    try:
        encoded = _clean(_encoder.encode(value))
        # What is no JSON, such as NaN, becomes its name.
        return json.loads(encoded, parse_constant=str) if len(encoded) <= TEXT_MAX else _text(value)
    except Exception:  # noqa: BLE001 - a key that is no text, a circle, the value's own code
        return _text(value)


def _mask_form(value: Any) -> Any:
    try:
        return mask_texts(_plain(value), scrub_forms)
    except RecursionError:
        return scrub_forms(_text(value))


def _text(value: Any) -> str:
    """Return a value as text, whatever its class does."""
    try:
        return _clean(_shorten(value if isinstance(value, str) else repr(value)))
    except Exception:  # noqa: BLE001 - a foreign __repr__
        return f"({type(value).__name__} that cannot be shown)"


def _encode_other(value: Any) -> str:
    match value:
        case date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal() | UUID():
            return str(value)
        case _:
            return _text(value)


_encoder = json.JSONEncoder(ensure_ascii=False, default=_encode_other)


def _clean(text: str) -> str:
    """Replace lone surrogates, which are no UTF-8 and no JSON."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _shorten(text: str, most: int = TEXT_MAX) -> str:
    return text if len(text) <= most else f"{text[: most // 4]} … {text[-most * 3 // 4 :]}"
