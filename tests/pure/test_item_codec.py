"""Payloads of types whose handler takes a list: what may be an item, and what is said of one that
does not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import rota
from rota.errors import DeclarationError, PayloadError, UsageError
from tests.support.job import make_job
from tests.support.rules import rule


@dataclass
class Doc:
    id: int
    text: str = ""
    tags: list[str] = field(default_factory=list)


class Struct(msgspec.Struct, rename="camel"):
    doc_id: int
    text: str = ""


class Model(pydantic.BaseModel):
    id: int = pydantic.Field(alias="docId")
    text: str = ""


class Row(TypedDict):
    id: int
    text: NotRequired[str]


def declare(kind: Any, **options: Any) -> Any:
    def handler(items: Any) -> None: ...

    handler.__annotations__["items"] = list[kind]
    return rota.Jobs().job("index", chunk=10, **options)(handler)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Doc(1, "a"), '{"id":1,"text":"a","tags":[]}'),
        (Struct(1, "a"), '{"docId":1,"text":"a"}'),
        (Model(docId=1, text="a"), '{"docId":1,"text":"a"}'),
        (Row(id=1), '{"id":1}'),
    ],
)
@rule("M12")
def test_an_item_is_the_payload_of_one_job(item: Any, text: str) -> None:
    kind = Row if isinstance(item, dict) else type(item)
    codec = declare(kind)._declaration.codec
    assert codec.encode((item,), {}) == text
    assert codec.read_item(text) == (item, frozenset())
    assert codec.read_items([text, text]) == ([item, item], frozenset())


@rule("M12")
def test_the_fields_of_an_item_may_be_given_by_name() -> None:
    index = declare(Doc)
    assert index.new(id=1).payload_json == '{"id":1}'
    assert index._declaration.codec.read_item('{"id":1}')[0] == Doc(1)
    assert index._declaration.codec.decode('{"id":1}') == (
        {"id": 1, "text": "", "tags": []},
        frozenset(),
    )


@pytest.mark.parametrize(
    ("args", "given", "argument", "why"),
    [
        ((), {"id": 1, "txt": "a"}, "txt", "a Doc has no such field; did you mean 'text'?"),
        ((), {}, "id", "missing"),
        ((Doc(1),), {"id": 2}, None, "a job takes one Doc, or its fields by name"),
        ((Doc(1), Doc(2)), {}, None, "a job takes one Doc, or its fields by name"),
        ((1,), {}, None, "a job takes one Doc, not int"),
        ((Doc("x"),), {}, "id", "expected int, got str"),  # type: ignore[arg-type]
        ((Doc(1, "\0"),), {}, None, "text with a NUL character cannot be stored"),
        ((Doc(1, tags=[1]),), {}, "tags[0]", "expected str, got int"),  # type: ignore[list-item]
    ],
)
@rule("M12")
def test_an_item_that_does_not_fit_is_refused(
    args: Any, given: dict[str, Any], argument: str | None, why: str
) -> None:
    with pytest.raises(PayloadError) as refused:
        declare(Doc).new(*args, **given)
    assert (refused.value.argument, refused.value.reason) == (argument, why)


@rule("M12")
def test_a_stored_payload_that_does_not_fit_says_where_and_unknown_fields_are_named() -> None:
    codec = declare(Doc)._declaration.codec
    with pytest.raises(PayloadError) as refused:
        codec.read_item('{"id":1,"tags":[2]}')
    assert refused.value.argument == "tags[0]"
    assert codec.read_item('{"id":1,"gone":{"a":1}}') == (Doc(1), {"gone"})
    assert codec.read_items(['{"id":1,"gone":1}', '{"id":2}']) == ([Doc(1), Doc(2)], {"gone"})
    assert codec.read_items(['{"id":1}', '{"id":"x"}']) is None
    assert codec.read_items(['{"id":1},{"id":2}']) is None


@rule("M12")
def test_what_cannot_be_stored_in_an_item_is_refused() -> None:
    @dataclass
    class Event:
        at: datetime

    codec = declare(Event)._declaration.codec
    with pytest.raises(PayloadError) as refused:
        codec.encode((Event(datetime(2026, 1, 14)),), {})  # noqa: DTZ001
    assert (refused.value.argument, refused.value.reason[:31]) == (
        "at",
        "a datetime without a time zone;",
    )


@rule("M12", "M51", "M60", "M62")
def test_keys_and_groups_are_made_of_the_attributes_of_an_item() -> None:
    index = declare(
        Struct, unique=lambda doc_id: f"doc:{doc_id}", ordered=lambda text: f"group:{text}"
    )
    made = index.new(Struct(7, "a"))
    assert (made.key, made.group_key) == ("doc:7", "group:a")
    with pytest.raises(DeclarationError, match="takes 'id', which is no argument of the handler"):
        declare(Struct, unique=lambda id: "x")  # noqa: A006


@rule("M12")
def test_an_old_payload_is_upgraded_before_it_becomes_an_item() -> None:
    index = declare(Doc, version=2, upgrade={1: lambda old: {"id": old["number"]}})
    job = make_job(payload_json='{"number":3}', payload_version=1)
    assert index._declaration.read_items([job]) is None
    assert index._declaration.read_item(job)[0] == Doc(3)
    assert index._declaration.call_arguments(job)[0] == {"items": [Doc(3)]}
    assert index._declaration.arguments(job)[0]["id"] == 3


def no_list(item: Doc) -> None: ...
def two(items: list[Doc], more: int) -> None: ...
def bare(items: list) -> None: ...  # type: ignore[type-arg]
def none() -> None: ...
def numbers(items: list[int]) -> None: ...


def test_a_handler_with_chunk_takes_one_list_of_items_with_named_fields() -> None:
    handlers: list[Callable[..., None]] = [no_list, two, bare, none, numbers]
    for handler in handlers:
        with pytest.raises(DeclarationError):
            rota.Jobs().job("index", chunk=10)(handler)
    for options in ({"chunk": 0}, {"chunk": True}, {"chunk": 10, "process": True}):
        with pytest.raises(DeclarationError, match="chunk"):
            rota.Jobs().job("index", **options)


@rule("M35")
def test_a_job_of_a_call_has_no_timeout_of_its_own() -> None:
    index = declare(Doc)
    with pytest.raises(UsageError, match="a job has no timeout of its own, because one call takes"):
        index.using(timeout="1s")
    with pytest.raises(UsageError, match="a job has no timeout of its own"):
        index.new(id=1).using(timeout="1s")
