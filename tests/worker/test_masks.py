"""Whose values are masked where: those of a job in its own texts, and nothing of Rota's."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import rota
from rota import logs
from rota.declare.secret import VARIABLE, make_key
from tests.support.rules import rule
from tests.worker.table import Connection, rows

WORDS = ("26677", "2026", "error", "home", "shop", "warning", "Anna")
"""Values that are in nearly any line by chance."""
shop = logging.getLogger("shop")


@dataclass
class Person:
    """The payload of a job of a call for many."""

    name: rota.Personal[str]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, make_key("k1"))


class OwnFormatter(logging.Formatter):
    """Writes a record as packages for JSON do: all of its attributes, and its exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the one line."""
        line = {
            name: value for name, value in vars(record).items() if name not in ("args", "exc_info")
        }
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@pytest.fixture
def listen() -> Iterator[Callable[[logging.Formatter, bool], io.StringIO]]:
    """Write all log lines to a stream in a format, behind the filter or not."""
    added = []

    def add(formatter: logging.Formatter, is_filtered: bool) -> io.StringIO:
        handler = logging.StreamHandler(stream := io.StringIO())
        handler.setFormatter(formatter)
        if is_filtered:
            handler.addFilter(logs.JobFilter())
        logging.getLogger().addHandler(handler)
        added.append(handler)
        return stream

    rota_level = logging.getLogger("rota").level
    logging.getLogger("rota").setLevel(logging.INFO)
    yield add
    logging.getLogger("rota").setLevel(rota_level)
    for handler in added:
        logging.getLogger().removeHandler(handler)


@rule("M45")
@pytest.mark.parametrize("is_filtered", [False, True])
def test_values_of_a_job_are_masked_in_its_own_texts_only(
    app: rota.App,
    connection: Connection,
    listen: Callable[[logging.Formatter, bool], io.StringIO],
    is_filtered: bool,
) -> None:
    stream = listen(logs.JsonFormatter(), is_filtered)
    met = asyncio.Barrier(2)

    @app.job(max_attempts=1, takes_context=True)
    async def hides(
        ctx: rota.Context, words: rota.Personal[list[str]], token: rota.Secret[str]
    ) -> None:
        await met.wait()
        ctx.progress(1, note="Anna at home")
        shop.warning("Anna at home said %s", token.reveal())
        await met.wait()
        raise ValueError(f"no {token.reveal()} for Anna")

    @app.job(max_attempts=1)
    async def other(n: int) -> None:
        await met.wait()
        await met.wait()
        shop.warning("Anna: /home/shop/error.py of 2026 and 26677", extra={"home": "warning"})
        raise ValueError("Anna: an error of 2026 at home in job 26677")

    app.sync()
    hides.enqueue(list(WORDS), rota.Secret("error"))
    other.enqueue(1)
    assert app.drain().dead == 2
    said = rows(connection, "select last_error from rota.jobs order by id")
    assert said == [("no *** for ***",), ("Anna: an error of 2026 at home in job 26677",)]
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["level"] for line in lines} >= {"warning", "error"}
    assert not [line for line in lines if "*" in line["at"] + line["level"] + line["logger"]]
    texts = [(line["message"], line.get("extra")) for line in lines if line["logger"] == "shop"]
    assert texts == [
        ("*** at *** said ***", None),
        ("Anna: /home/shop/error.py of 2026 and 26677", {"home": "warning"}),
    ]
    dead = [line for line in lines if line.get("event") == "JobDead"]
    assert {line["error"]: line["error_type"] for line in dead} == dict.fromkeys(
        [text for (text,) in said], "ValueError"
    )


@rule("M45")
def test_a_call_for_many_and_a_thread_without_a_job_hide_the_values_of_all(
    app: rota.App, connection: Connection, listen: Callable[[logging.Formatter, bool], io.StringIO]
) -> None:
    stream = listen(logs.PlainFormatter(), False)

    @app.job(chunk=5, max_attempts=1)
    def greet(people: list[Person]) -> None:
        names = " and ".join(sorted(person.name for person in people))
        thread = threading.Thread(target=shop.warning, args=["greet %s", names])
        thread.start()
        thread.join()
        raise rota.Dead(f"no mail to {names}")

    app.sync()
    many: Any = greet
    for name in ("Anna", "Anna Svensson"):
        many.enqueue(name=name)
    assert app.drain().dead == 2
    assert rows(connection, "select last_error from rota.jobs") == [("no mail to *** and ***",)] * 2
    assert "shop: greet *** and ***" in stream.getvalue() and "Anna" not in stream.getvalue()


@rule("M45")
def test_a_format_of_its_own_gets_no_value_from_a_record(
    app: rota.App, listen: Callable[[logging.Formatter, bool], io.StringIO]
) -> None:
    stream = listen(OwnFormatter(), True)

    @app.job
    def charge(token: rota.Secret[str], name: rota.Personal[str]) -> None:
        clear = token.reveal()
        shop.warning(
            "sent", extra={"tok": clear, "deep": {"a": [clear, 7]}, "n": 12, "e": KeyError(clear)}
        )
        shop.warning({"d": clear})
        try:
            raise ValueError(clear)
        except ValueError:
            shop.exception("E %s", name)
        try:
            raise LookupError("plain")
        except LookupError:
            shop.exception("plain")
        thread = threading.Thread(target=shop.warning, args=["T", {"x": clear}], daemon=True)
        thread.start()
        thread.join()

    charge.enqueue(rota.Secret("S3CR-charge"), name="Perx")
    assert app.drain().succeeded == 1
    written = stream.getvalue()
    assert "S3CR" not in written and "Perx" not in written
    lines = [json.loads(line) for line in written.splitlines()]
    sent, _, masked, plain = [line for line in lines if line["name"] == "shop"][:4]
    assert (sent["deep"], sent["n"]) == ({"a": ["***", 7]}, 12)
    assert "ValueError: ***" in masked["exc_text"] and masked["message"] == "E ***"
    assert "LookupError: plain" in plain["exception"]
