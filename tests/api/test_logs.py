"""Log lines: one for each record whatever is in it, and with the job that wrote it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota import events, logs
from rota.model.outcome import Failure
from tests.docs.reader import read_page
from tests.support import forked
from tests.support.rules import rule

PAGE = read_page("logs.md")
shop = logging.getLogger("shop")


class Broken:
    """Whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _record(
    msg: object, *args: object, error: BaseException | None = None, **extra: Any
) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.getLogger("shop").makeRecord(
        "shop", logging.WARNING, "f.py", 1, msg, args, info
    )
    vars(record).update(extra)
    return record


def _raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - with its traceback
        return caught


_anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.builds(Broken),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec=None), max_size=9) | st.integers(), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(_anything, st.lists(_anything, max_size=3), _anything, st.booleans())
@rule("M84")
def test_a_record_is_one_line_of_printable_signs_whatever_is_in_it(
    msg: Any, args: list[Any], extra: Any, raises: bool
) -> None:
    error = _raised(ValueError(msg)) if raises else None
    record = _record(
        msg, *args, error=error, about=extra, stack_info="Stack\nof calls" if raises else None
    )
    plain, line = logs.PlainFormatter().format(record), logs.JsonFormatter().format(record)
    assert plain.isprintable() and line.isascii() and line.isprintable()
    said = json.loads(line)
    assert said["message"].encode() is not None and said["extra"].keys() == {"about"}
    assert ("stack" in said) is raises


@rule("M84")
def test_a_text_that_is_too_long_loses_its_middle_and_a_warning_of_python_s_more() -> None:
    line = json.loads(logs.JsonFormatter().format(_record("a" * 50_000 + "z" * 50_000)))
    said = line["message"]
    assert len(said) == logs.TEXT_MAX + 3 and (said[0], said[-1]) == ("a", "z")
    record = _record("%s", "f.py:1: UserWarning: " + "x" * 50_000 + "z")
    record.name = "py.warnings"
    for said in (
        json.loads(logs.JsonFormatter().format(record))["message"],
        logs.PlainFormatter().format(record),
    ):
        assert len(said) < 2_100 and "UserWarning" in said and said.endswith("z")


@rule("M84")
def test_instants_numbers_and_ids_are_json_and_a_nan_is_the_only_text_of_its_field() -> None:
    about = {"at": datetime(2026, 1, 2, tzinfo=UTC), "loss": math.nan, "ids": [UUID(int=7), 8]}
    said = json.loads(logs.JsonFormatter().format(_record("x", about=about)))["extra"]["about"]
    assert said == {"at": "2026-01-02T00:00:00Z", "loss": "NaN", "ids": [str(UUID(int=7)), 8]}


@rule("M84")
def test_an_event_is_written_with_its_fields() -> None:
    failure = Failure("OSError", "no route", "transient", "default", 503, "a\nstack")
    event = events.JobDead(job=7, job_type="mail", attempt=2, claim=3, worker="w", failure=failure)
    said = json.loads(logs.JsonFormatter().format(_record("%s", event.text(), rota_event=event)))
    assert (
        said.pop("at")
        and said.pop("message") == "job 7 mail attempt 2: dead: OSError: no route (default)"
    )
    assert said == {
        "level": "warning", "logger": "shop", "event": "JobDead", "job": 7, "job_type": "mail",
        "attempt": 2, "claim": 3, "worker": "w", "queue": None, "schedule": None, "ran_s": None,
        "error_type": "OSError", "error": "no route", "verdict": "transient",
        "verdict_rule": "default", "response_code": 503, "stack": "a\nstack",
        "retry_after_s": None,
        "is_endpoint": False,
    }  # fmt: skip


@rule("M84")
def test_an_event_is_one_line_also_where_the_program_formats_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "rota")
    event = events.JobCancelled(
        job=1, job_type="a\nb", attempt=1, claim=1, worker="w", reason="\x1b[2J"
    )
    events.Bus().emit(event)
    assert caplog.messages == [r"job 1 a\nb attempt 1: cancelled: \x1b[2J"]


@rule("M84")
def test_a_lost_job_that_is_dead_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "rota")
    for status in ("queued", "failed", "dead"):
        events.Bus().emit(
            events.JobReaped(job=1, job_type="t", attempt=1, claim=1, worker="w", status=status)
        )
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.WARNING, logging.WARNING, logging.ERROR]


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """What the logger `shop` writes, as objects."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(logs.JobFilter())
    handler.setFormatter(logs.JsonFormatter())
    shop.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    shop.removeHandler(handler)


@rule("M84")
def test_what_a_handler_logs_says_which_job_it_was(
    app: rota.App, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    async def deeper() -> None:
        shop.warning("a task")

    @app.job("async")
    async def on_loop() -> None:
        shop.warning("on the loop")
        await asyncio.gather(
            asyncio.create_task(deeper()), asyncio.to_thread(shop.warning, "a thread")
        )

    @app.job("plain")
    def in_thread() -> None:
        shop.warning("in a thread")
        outside = threading.Thread(target=shop.warning, args=["outside"])
        outside.start()
        outside.join()

    ids = {"async": on_loop.enqueue().id, "plain": in_thread.enqueue().id}
    app.on(events.JobSucceeded, lambda event: shop.warning("a listener"))
    app.drain()
    said = {
        (line["message"], line.get("job"), line.get("job_type"), line.get("attempt"))
        for line in lines()
    }
    assert said == {
        *((text, ids["async"], "async", 1) for text in ("on the loop", "a task", "a thread")),
        ("in a thread", ids["plain"], "plain", 1),
        ("outside", None, None, None),
        ("a listener", None, None, None),
    }


PROGRAM = """
import logging
import sys
import threading
import warnings

import rota

app = rota.App(release="1")
if "rota.cli" in sys.modules:  # not in the process of a handler, which writes it as it is
    warnings.warn("at the import\\nof it")

@app.job("apart", process=True)
def apart() -> None:
    logging.getLogger("shop").warning("one\\ntwo")

@app.job("fails", max_attempts=1)
def fails() -> None:
    raise ValueError("a\\nb")

@app.job("warns")
def warns() -> None:
    warnings.warn("old\\nway")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
"""
OWN = PROGRAM + 'logging.basicConfig(format="own %(message)s", level=logging.INFO)\n'


def _work(place: Path, program: str, url: str, *options: str, status: int = 0) -> list[str]:
    """The lines that a drain of this program writes."""
    (place / "program.py").write_text(program)
    command = ["-m", "rota", "work", "--app", "program:app", "--drain", "--log-format", "json"]
    environment = {**os.environ, "ROTA_DATABASE_URL": url}
    done = forked.run([*command, *options], cwd=place, env=environment)
    assert done.returncode == status, done
    return done.stderr.splitlines()


@pytest.mark.nightly
@rule("M84")
@pytest.mark.skipif(sys.platform != "linux", reason="processes of their own are Linux's")
def test_rota_work_writes_json_in_its_processes_too_and_of_warnings_and_threads_that_fail(
    tmp_path: Path, database: str, app: rota.App
) -> None:
    apart, fails, warns = (app.enqueue(name).id for name in ("apart", "fails", "warns"))
    written = _work(tmp_path, PROGRAM, database, "--log-level", "debug")
    first, *lines = [json.loads(line) for line in written]
    assert first["logger"] == "py.warnings" and "at the import\nof it" in first["message"]
    [own] = [line for line in lines if line["logger"] == "shop"]
    assert (own["message"], own["job"], own["job_type"], own["attempt"]) == (
        "one\ntwo",
        apart,
        "apart",
        1,
    )
    [warned] = [line for line in lines if "old\nway" in line["message"]]
    assert (warned["logger"], warned["job"]) == ("py.warnings", warns)
    [failed] = [line for line in lines if line["logger"] == "threading"]
    assert failed["level"] == "error" and "ZeroDivisionError" in failed["stack"]
    of = {line["job"]: line for line in lines if line.get("event") in ("JobSucceeded", "JobDead")}
    dead = of[fails]
    assert (of[apart]["level"], dead["level"]) == ("info", "error")
    assert (dead["error_type"], dead["error"]) == ("ValueError", "a b")
    assert "ValueError: a\nb" in dead["stack"]


@rule("M84")
def test_what_keeps_a_worker_from_starting_is_a_line_in_the_form_that_was_asked_for(
    tmp_path: Path,
) -> None:
    nowhere = "postgresql://postgres@127.0.0.1:1/x"
    app = "import rota\napp = rota.App()\napp.job('t')(lambda: None)"
    for program, options, status, words in (
        (app, [], 5, "does not answer"),
        ("raise ValueError('a\\nb')", [], 3, "ValueError: a\nb"),
        ("", ["--concurrency", "many"], 2, "--concurrency"),
    ):
        [line] = _work(tmp_path, program, nowhere, *options, status=status)
        said = json.loads(line)
        assert said["level"] == "error" and words in said["message"]


@rule("M84")
def test_a_program_that_has_set_up_logging_is_left_alone(
    tmp_path: Path, database: str, app: rota.App
) -> None:
    id_ = app.enqueue("fails").id
    lines = _work(tmp_path, OWN.replace("warnings.warn", "str"), database)
    assert all(line.startswith("own ") for line in lines)
    assert any(f"job {id_} fails attempt 1: dead" in line for line in lines)


@rule("M84", "M86")
def test_a_program_that_has_set_up_logging_does_not_silence_rota_unawares(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logger = logging.getLogger("rota")
    before = logger.level
    logger.disabled = True  # as logging.config.dictConfig() does by default
    try:
        logs.setup("json", "warning")
        assert not logger.disabled
    finally:
        logger.disabled = False
        logger.setLevel(before)


def test_a_form_or_level_that_there_is_not_is_refused() -> None:
    with pytest.raises(rota.UsageError, match="log_format must be"):
        logs.setup(log_format="xml")  # type: ignore[arg-type]
    with pytest.raises(rota.UsageError, match="level must be"):
        logs.setup(level="loud")  # type: ignore[arg-type]


@rule("M84")
def test_the_blocks_of_the_page_do_what_it_says() -> None:
    ours, theirs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said = forked.run(
        ["-c", ours + 'import logging\nlogging.getLogger("x").warning("a\\nb")'], env=os.environ
    ).stderr
    assert [json.loads(line)["message"] for line in said.splitlines()] == ["a\nb"]
    check = 'logging.getLogger("shop").warning("one")\nlogging.getLogger("audit").warning("a\\nb")'
    plain, line = forked.run(["-c", theirs + check], env=os.environ).stderr.splitlines()
    assert plain == "WARNING one job=None type=None attempt=None"
    assert json.loads(line)["message"] == "a\nb"


@rule("M84")
def test_the_page_lists_the_fields_of_every_line() -> None:
    written = set(re.findall(r"^\| `(\w+)` \| every line", PAGE, re.MULTILINE))
    assert written == json.loads(logs.JsonFormatter().format(_record("text"))).keys()
