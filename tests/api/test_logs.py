"""Log lines: one for each record whatever is in it, and with the job that wrote it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota import events, logs
from rota.model.outcome import Failure
from tests.docs.reader import read_page
from tests.support.rules import rule

PAGE = read_page("logs.md")
NASTY = "one\ntwo\r\n\x1b[31mred\x00\x7f\x85\u2028\u2029\u202e\udc80 é 🎉\\n"
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
def test_what_would_end_a_line_or_colour_a_screen_is_written_as_an_escape() -> None:
    plain = logs.PlainFormatter().format(_record(NASTY, error=_raised(KeyError("a\nb"))))
    shown = (
        r"one\ntwo\r\n\x1b[31mred\x00\x7f\x85\u2028\u2029\u202e\udc80 é 🎉\n | Traceback (most "
        r"recent call last):\n  File"
    )
    assert f"WARNING shop: {shown}" in plain and plain.endswith(r"KeyError: 'a\nb'")
    said = json.loads(logs.JsonFormatter().format(_record(NASTY)))
    assert said["message"] == NASTY.replace("\udc80", "?") and (said["level"], said["logger"]) == (
        "warning",
        "shop",
    )


@rule("M84")
def test_a_call_whose_arguments_do_not_fit_is_one_line_and_says_both() -> None:
    for record in (_record("%d jobs\n", "many"), _record("%s and %s", 1)):
        assert "(its arguments do not fit: " in logs.PlainFormatter().format(record)
        assert json.loads(logs.JsonFormatter().format(record))["message"].startswith(
            str(record.msg)
        )


@rule("M84")
def test_a_text_that_is_too_long_loses_its_middle() -> None:
    line = json.loads(logs.JsonFormatter().format(_record("a" * 50_000 + "z" * 50_000)))
    assert (
        len(line["message"]) == logs.TEXT_MAX + 3
        and line["message"].startswith("a")
        and line["message"].endswith("z")
    )


@rule("M84")
def test_a_python_warning_is_about_two_thousand_characters_at_most() -> None:
    record = _record("%s", "f.py:1: UserWarning: " + "x" * 50_000 + "z")
    record.name = "py.warnings"
    for said in (
        json.loads(logs.JsonFormatter().format(record))["message"],
        logs.PlainFormatter().format(record),
    ):
        assert 1_900 < len(said) < 2_100 and "UserWarning" in said and said.endswith("z")


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
@pytest.mark.parametrize(
    ("status", "level"),
    [("queued", logging.WARNING), ("failed", logging.WARNING), ("dead", logging.ERROR)],
)
def test_a_lost_job_that_is_dead_is_an_error_in_the_log(
    caplog: pytest.LogCaptureFixture, status: str, level: int
) -> None:
    caplog.set_level(logging.DEBUG, "rota")
    events.Bus().emit(
        events.JobReaped(job=1, job_type="t", attempt=1, claim=1, worker="w", status=status)
    )
    assert [record.levelno for record in caplog.records] == [level]


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


@rule("M84")
def test_a_record_that_is_formatted_elsewhere_keeps_its_job(app: rota.App) -> None:
    kept: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    handler = Keep()
    handler.addFilter(logs.JobFilter())
    shop.addHandler(handler)
    app.job("t")(lambda: shop.warning("said"))
    id_ = app.types["t"].enqueue().id
    app.drain()
    shop.removeHandler(handler)
    assert (
        logs.PlainFormatter()
        .format(kept[0])
        .endswith(f"WARNING shop: said [job {id_} t attempt 1]")
    )
    assert (
        logging.Formatter("%(rota_job)s %(rota_type)s %(rota_attempt)s").format(kept[0])
        == f"{id_} t 1"
    )


PROGRAM = """
import logging
import sys
import rota

app = rota.App(release="1")

@app.job("apart", process=True)
def apart() -> None:
    logging.getLogger("shop").warning("one\\ntwo")

@app.job("fails", max_attempts=1)
def fails() -> None:
    raise ValueError("a\\nb")

if sys.argv[1:] == ["own"]:
    logging.basicConfig(format="own %(message)s", level=logging.INFO)
"""


def _work(place: Path, database: str, *options: str, own: bool = False) -> list[str]:
    (place / "program.py").write_text(PROGRAM.replace('sys.argv[1:] == ["own"]', str(own)))
    command = [sys.executable, "-m", "rota", "work", "--app", "program:app", "--drain", *options]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{place}:{Path(rota.__file__).parents[1]}",
        "ROTA_DATABASE_URL": database,
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stderr.splitlines()


@rule("M84")
@pytest.mark.skipif(sys.platform != "linux", reason="processes of their own are Linux's")
def test_rota_work_writes_json_in_its_processes_too(
    tmp_path: Path, database: str, app: rota.App
) -> None:
    app.job("apart")(lambda: None)
    app.job("fails")(lambda: None)
    apart, fails = app.types["apart"].enqueue().id, app.types["fails"].enqueue().id
    lines = [
        json.loads(line)
        for line in _work(tmp_path, database, "--log-format", "json", "--log-level", "debug")
    ]
    (own,) = [line for line in lines if line["logger"] == "shop"]
    assert (own["message"], own["job"], own["job_type"], own["attempt"]) == (
        "one\ntwo",
        apart,
        "apart",
        1,
    )
    of = {line["job"]: line for line in lines if line.get("event") in ("JobSucceeded", "JobDead")}
    assert (
        of[apart]["level"],
        of[fails]["level"],
        of[fails]["error_type"],
        of[fails]["error"],
    ) == ("info", "error", "ValueError", "a b")
    assert "ValueError: a\nb" in of[fails]["stack"]


TROUBLE = """
import threading
import warnings

import rota

app = rota.App(release="1")
warnings.warn("at the import\\nof it")

@app.job("t")
def t() -> None:
    warnings.warn("old\\nway")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
"""


def _errors(
    place: Path, program: str, url: str, *options: str, status: int = 0
) -> list[dict[str, Any]]:
    (place / "trouble.py").write_text(program)
    command = [
        sys.executable,
        "-m",
        "rota",
        "work",
        "--app",
        "trouble:app",
        "--drain",
        "--log-format",
        "json",
        *options,
    ]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{place}:{Path(rota.__file__).parents[1]}",
        "ROTA_DATABASE_URL": url,
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == status, done
    return [json.loads(line) for line in done.stderr.splitlines()]


@rule("M84")
def test_warnings_and_threads_that_fail_are_lines_too(
    tmp_path: Path, database: str, app: rota.App
) -> None:
    app.job("t")(lambda: None)
    id_ = app.types["t"].enqueue().id
    first, *lines = _errors(tmp_path, TROUBLE, database)
    assert first["logger"] == "py.warnings" and "at the import\nof it" in first["message"]
    (warned,) = [line for line in lines if line["logger"] == "py.warnings"]
    assert "old\nway" in warned["message"] and warned["job"] == id_
    (failed,) = [line for line in lines if line["logger"] == "threading"]
    assert failed["level"] == "error" and "ZeroDivisionError" in failed["stack"]


@rule("M84")
def test_what_keeps_a_worker_from_starting_is_a_line_in_the_form_that_was_asked_for(
    tmp_path: Path,
) -> None:
    nowhere = "postgresql://postgres@127.0.0.1:1/x"
    (away,) = _errors(
        tmp_path, "import rota\napp = rota.App()\napp.job('t')(lambda: None)", nowhere, status=5
    )
    assert away["level"] == "error" and "does not answer" in away["message"]
    (broken,) = _errors(tmp_path, "raise ValueError('a\\nb')", nowhere, status=3)
    assert broken["level"] == "error" and "ValueError: a\nb" in broken["message"]
    (wrong,) = _errors(tmp_path, "", nowhere, "--concurrency", "many", status=2)
    assert "--concurrency" in wrong["message"]


@rule("M84")
def test_a_program_that_has_set_up_logging_is_left_alone(
    tmp_path: Path, database: str, app: rota.App
) -> None:
    app.job("fails")(lambda: None)
    id_ = app.types["fails"].enqueue().id
    lines = _work(tmp_path, database, "--log-format", "json", own=True)
    assert all(line.startswith("own ") for line in lines) and any(
        f"job {id_} fails attempt 1: dead" in line for line in lines
    )


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


@pytest.mark.parametrize("wrong", [{"log_format": "xml"}, {"level": "loud"}])
def test_a_form_or_level_that_there_is_not_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(rota.UsageError, match=f"{next(iter(wrong))} must be"):
        logs.setup(**wrong)  # type: ignore[arg-type]


@rule("M84")
def test_the_blocks_of_the_page_do_what_it_says(app: rota.App) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    check = 'logging.getLogger("shop").warning("one")\nlogging.getLogger("audit").warning("a\\nb")'
    out = []
    for block, more in zip(
        blocks, ('import logging\nlogging.getLogger("x").warning("a\\nb")', check), strict=True
    ):
        done = subprocess.run(
            [sys.executable, "-c", block + more],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        out.append(done.stderr.splitlines())
    assert [json.loads(line)["message"] for line in out[0]] == ["a\nb"]
    assert (
        out[1][0] == "WARNING one job=None type=None attempt=None"
        and json.loads(out[1][1])["message"] == "a\nb"
    )


@rule("M84")
def test_the_page_lists_the_fields_of_every_line() -> None:
    written = set(re.findall(r"^\| `(\w+)` \| every line", PAGE, re.MULTILINE))
    assert written == json.loads(logs.JsonFormatter().format(_record("text"))).keys()
