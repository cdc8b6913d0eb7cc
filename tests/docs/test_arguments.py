"""arguments.md and payload-errors.md: what their examples and tables enqueue is stored and
arrives as they say, or is refused."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from tests.docs.reader import read_page
from tests.support.rules import rule

PAGE = read_page("arguments.md") + read_page("payload-errors.md")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON = "".join(block for language, block in BLOCKS if language == "python")
JSON = [json.loads(block) for language, block in BLOCKS if language == "json"]
Connection = psycopg.Connection[TupleRow]


def table(*columns: str) -> list[list[str]]:
    """The rows of all tables of the page with these columns, without the marks of code."""
    head = re.escape(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    lines = "".join(re.findall(rf"^{head}((?:\|.*\|\n)+)", PAGE, re.MULTILINE)).splitlines()
    cells = [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines]
    return [[cell.strip("`").replace(r"\|", "|") for cell in row] for row in cells]


class Recorder(rota.App):
    """An App that keeps what its handlers were called with, by the name of the job type."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        self.got: dict[str, dict[str, Any]] = {}
        declare = self.job

        def job(name: str) -> Callable[[Callable[..., Any]], Any]:
            def record(handler: Callable[..., Any]) -> Any:
                @functools.wraps(handler)
                def called(**arguments: Any) -> Any:
                    self.got[name] = arguments
                    return handler(**arguments)

                return declare(name)(called)

            return record

        vars(self)["job"] = job


@pytest.fixture
def names(database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of a module with the blocks of the page, its App a Recorder."""
    monkeypatch.setattr(rota, "App", lambda: Recorder(database))
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where annotations are looked up
    exec(PYTHON, vars(module))  # the page is ours
    yield vars(module)
    module.app.close()


def stored(connection: Connection) -> list[Any]:
    return [
        payload for (payload,) in connection.execute("select payload from rota.jobs order by id")
    ]


@rule("M12")
def test_the_examples_store_what_the_page_shows_and_their_values_arrive(
    names: dict[str, Any], connection: Connection
) -> None:
    assert stored(connection) == JSON
    names["app"].drain()
    day, get = names["date"], names.__getitem__
    assert names["app"].got == {
        "remind": {"customer": 812, "at": get("datetime")(2026, 1, 14, 8, 30, tzinfo=get("UTC"))},
        "ship": {
            "parcel": get("Parcel")([{"sku": "mug", "count": 2}], get("Address")("Main Street 3")),
            "customer": get("Customer")(name="Ada"),
        },
        "report": {"user_id": 12345, "from_": day(2026, 1, 1), "to": day(2026, 1, 7)},
        "compare": {
            "period": get("Period")(day(2026, 1, 1), day(2026, 1, 7)),
            "range": get("Range")(**{"from": day(2026, 1, 2)}),
            "span": {"from": day(2026, 1, 3)},
        },
    }


def handler_of(names: dict[str, Any], parameter: str) -> Callable[..., Any]:
    exec(f"def handler({parameter}) -> None: ...", names)  # the page is ours
    handler: Callable[..., Any] = names["handler"]
    return handler


@rule("M12")
def test_each_value_of_the_tables_is_stored_as_they_say_and_arrives(
    names: dict[str, Any], connection: Connection
) -> None:
    app = names["app"]
    meant = {}
    rows = table("annotation", "you pass", "stored", "arrives")
    assert len(rows) > 20
    for annotation, passed, stored_as, arrives in rows:
        name = f"{annotation} {passed}"
        declared = app.job(name)(handler_of(names, f"value: {annotation}"))
        given = eval(passed, names)
        id_ = declared.enqueue(value=given).id
        [(payload,)] = connection.execute("select payload from rota.job where id = %s", [id_])
        # As text, because the order of the fields counts too.
        assert json.dumps(payload) == json.dumps({"value": json.loads(stored_as)}), passed
        meant[name] = {"value": given if arrives == "the same" else eval(arrives, names)}
    app.got.clear()
    assert app.drain().succeeded == len(JSON) + len(rows)
    # As text, because 3 is not 3.0, nor an instant the same in every zone.
    assert {name: repr(app.got[name]) for name in meant} == {
        name: repr(arguments) for name, arguments in meant.items()
    }


@rule("M12")
def test_what_the_page_says_is_refused_is_refused_for_that_reason(
    names: dict[str, Any], connection: Connection
) -> None:
    app, before = names["app"], stored(connection)
    refused = table("annotation", "you pass", "reason")
    assert len(refused) > 10
    for annotation, passed, reason in refused:
        declared = app.job(f"{annotation} {passed}")(handler_of(names, f"value: {annotation}"))
        with pytest.raises(rota.PayloadError) as error:
            declared.enqueue(value=eval(passed, names))
        assert (error.value.argument or "").startswith("value")
        assert error.value.reason == reason
    assert stored(connection) == before

    declarations = table("parameter", "reason")
    assert len(declarations) > 5
    for parameter, reason in declarations:
        with pytest.raises(rota.errors.DeclarationError) as refusal:
            app.job(parameter)(handler_of(names, parameter))
        assert reason in str(refusal.value)
