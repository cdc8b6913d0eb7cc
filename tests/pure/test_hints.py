"""Who uses the words of another library is told Rota's."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota.cli import of_jobs
from rota.cli.breakers import _split
from rota.cli.grammar import explain_value
from rota.errors import RotaError

app = rota.App("postgresql:///x")
later: Any = rota
calls: Any = app


@app.job
def method(self: Any, x: int) -> None: ...


@app.job(takes_context=True)
def contextual(x: Any) -> None: ...


@app.job("bare")
def bare(context: Any, x: int) -> None: ...


def misplaced(x: Any, ctx: Any) -> None: ...


def yielding() -> Any:
    yield 1


unchecked: Any = {"method": method, "contextual": contextual, "bare": bare}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: later.Queue, "in Rota: rota.App"),
        (lambda: calls.enqueue_in, r"in Rota: job_type.using\(delay="),
        (lambda: calls.discard, "in Rota: app.jobs.discard"),
        (lambda: calls.jobs.cancel, "in Rota: app.cancel"),
        (lambda: unchecked["method"].kiq, r"in Rota: .enqueue\(…\)"),
        (lambda: unchecked["method"].enqueue(1), "'x': missing; self counts as an argument"),
        (lambda: unchecked["bare"].enqueue(1), "'x': missing; context counts as an argument"),
        (lambda: unchecked["contextual"].enqueue(1), "its first parameter, x, is the Context"),
        (lambda: unchecked["contextual"].enqueue(x=1), "its first parameter, x, is the Context"),
        (lambda: app.job("t")(lambda ctx, x: None), "ctx counts as an argument of the job"),
        (lambda: later.App(broker="x"), "rota.App takes no 'broker'; in Rota: the URL"),
        (lambda: later.Retry("x", countdown=60), "takes no 'countdown'; in Rota: after="),
        (
            lambda: later.App(releas="x"),
            "takes no 'releas'; did you mean 'release'.; it takes url,",
        ),
        (lambda: later.Batch, "in Rota: app.batch"),
        (lambda: later.__getattr__("logs"), "in Rota: import rota.logs"),
        (lambda: calls.list, r"in Rota: app.find\(…\)"),
        (lambda: calls.jobs.list, r"in Rota: app.find\(…\)"),
        (lambda: unchecked["method"].map, r"in Rota: app.enqueue_many\("),
        (lambda: unchecked["method"].new(1, 2).enqueue, r"in Rota: app.enqueue\(new_job\)"),
        (lambda: app.job(takes_context=True)(misplaced), "to the first parameter, which is x and"),
        (lambda: app.job("t")(yielding), "not a generator, which yields"),
        (lambda: unchecked["method"].using("postgresql://x").enqueue(1, 2), "not a URL, which"),
        (lambda: calls.worker, "in Rota: `rota work`, or app.run"),
        (lambda: rota.App("localhost:5432/x").find(), "no postgresql:// at its beginning"),
        (lambda: later.RateLimit("x", "100 per 5 minutes"), r"RateLimit\('x', 100, \"5m\"\)"),
        (lambda: later.Delays(1, 2), "rota.Delays: after must be a timedelta"),
        (lambda: rota.App("mysql://a:b@c/d").find(), "Rota needs PostgreSQL; this URL is of mysql"),
        (lambda: rota.App(jobs=["shop/good.py:jobs"]), "not a file: shop.good:jobs"),
    ],
)
def test_a_word_of_another_library_is_answered_with_rota_s(
    call: Callable[[], Any], said: str
) -> None:
    with pytest.raises((RotaError, AttributeError), match=said):
        call()


def test_the_import_of_another_library_s_word_is_answered_too() -> None:
    with pytest.raises(ImportError, match=r"name 'task' from 'rota'; in Rota: @app.job"):
        exec("from rota import task")
    assert not hasattr(rota, "task")


def test_a_value_of_the_wrong_kind_is_said_in_plain_words() -> None:
    said = "Input should be a valid integer, unable to parse string as an integer"
    assert explain_value(f"Invalid value for 'ID': {said}") == (
        "Invalid value for 'ID': it must be a whole number"
    )


def test_a_breaker_is_named_as_the_list_prints_it() -> None:
    assert _split("webhook crm", None) == ("webhook", "crm")
    assert _split("webhook", "crm one") == ("webhook", "crm one")
    assert _split("webhook", None) == ("webhook", None)


def test_a_secret_of_a_command_of_jobs_is_read_from_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def put(name: str, *, secret: str | None = None) -> str:
        """Put it.

        Args:
            secret: of it.
        """
        return f"{name} {secret}"

    monkeypatch.setattr("sys.stdin", io.StringIO("whsec_x\n"))
    of_jobs._make(put)(app=None, as_json=False, name="crm", secret="-")
    assert capsys.readouterr().out == "crm whsec_x\n"
