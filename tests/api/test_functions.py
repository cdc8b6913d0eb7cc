"""A declared job type is still the function that was written, for everything that asks a function
about itself."""

from __future__ import annotations

import asyncio
import collections.abc
import contextlib
import copy
import datetime
import functools
import inspect
import pickle
import sys
import typing
from typing import Any

import httpx
import pytest
from fastapi import BackgroundTasks, Depends, FastAPI

import rota

jobs = rota.Jobs()
ran: list[int] = []


@jobs.job("send", takes_context=True)
async def send(ctx: rota.Context, user: int, template: "str" = "welcome") -> str:  # noqa: UP037
    """Send a mail.

    It is one line longer.
    """
    ran.append(user)
    return f"{template} for {user}"


@jobs.job("double")
def double(number: int, by: int = 2) -> int:
    """Double a number."""
    return number * by


@jobs.job("note")
async def note(number: int) -> dict[str, int]:
    """Note a number."""
    ran.append(number)
    return {"number": number}


def test_a_function_with_an_enqueue_of_another_library_keeps_that_of_its_type() -> None:
    def send() -> None: ...

    vars(send).update(enqueue=print, price=3)
    job_type: Any = rota.Jobs().job("send")(send)
    assert job_type.enqueue.__self__ is job_type and job_type.price == 3


def test_it_has_the_names_the_signature_and_the_docstring_of_its_function() -> None:
    for job_type in (send, send.using(priority=3)):
        assert job_type.__name__ == "send" and job_type.__qualname__ == "send"
        assert job_type.__module__ == __name__
        assert inspect.getdoc(job_type) == "Send a mail.\n\nIt is one line longer."
        assert inspect.signature(job_type) == inspect.signature(send.func)
        assert inspect.unwrap(job_type) is send.func
        assert typing.get_type_hints(job_type) == {
            "ctx": rota.Context,
            "user": int,
            "template": str,
            "return": str,
        }
    assert repr(send) == "<job type 'send'>"


def test_it_says_that_a_call_must_be_awaited_only_where_it_must() -> None:
    # On 3.11 inspect's function knows no mark; frameworks ask asyncio's there.
    assert asyncio.iscoroutinefunction(send)
    assert asyncio.iscoroutinefunction(send.using(priority=3))
    assert not asyncio.iscoroutinefunction(double)
    if hasattr(inspect, "markcoroutinefunction"):
        assert inspect.iscoroutinefunction(send) and not inspect.iscoroutinefunction(double)


def test_it_is_pickled_and_copied_by_name_as_a_function_is() -> None:
    assert pickle.loads(pickle.dumps(double)) is double
    assert copy.copy(double) is double and copy.deepcopy(double) is double
    other = pickle.loads(pickle.dumps(double.using(priority=3)))
    assert other.func is double.func and other._options.priority == 3
    assert double._options.priority is None


async def test_fastapi_runs_it_in_the_background_as_a_route_and_as_a_dependency() -> None:
    site = FastAPI()

    @site.post("/later")
    async def later(tasks: BackgroundTasks) -> None:
        tasks.add_task(note, 1)
        tasks.add_task(note.using(priority=3), 2)

    @site.get("/depends")
    async def depends(
        noted: typing.Annotated[dict[str, int], Depends(note)],
        doubled: typing.Annotated[int, Depends(double)],
    ) -> tuple[dict[str, int], int]:
        return noted, doubled

    site.get("/note/{number}")(note)
    site.get("/double/{number}")(double)
    ran.clear()
    transport = httpx.ASGITransport(app=site)
    async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
        assert (await client.post("/later")).status_code == 200
        assert ran == [1, 2]
        assert (await client.get("/note/5")).json() == {"number": 5}
        assert (await client.get("/double/5?by=3")).json() == 15
        assert (await client.get("/depends?number=5")).json() == [{"number": 5}, 10]


# What is public


def test_dir_is_what_is_public() -> None:
    assert dir(rota) == sorted(rota.__all__)
    shown = {
        name
        for name, value in vars(rota).items()
        if not (name.startswith("_") or inspect.ismodule(value))
    }
    assert shown <= set(rota.__all__), "an editor completes names that are not public"
    of_records = {name for name in vars(rota.records) if name[0].isupper()}
    assert of_records & set(rota.__all__) == set()
    for name in rota.__all__:
        assert hasattr(rota, name)
    assert {"Duration", "Progress", "AttemptRecord", "RetryPolicy"} <= of_records
    # `help(rota.App.job)` needs no App.
    assert {"job", "command", "schedule"} <= set(dir(rota.App))


@pytest.mark.parametrize(
    ("call", "options"),
    [
        (vars(rota.App)["job"], {"takes_context", "queue", "timeout"}),
        (vars(rota.App)["command"], {"queue", "timeout"}),
        (vars(rota.App)["schedule"], {"job", "timezone", "overlap"}),
        (rota.JobType.using, {"connection", "delay"}),
        (rota.App.afind, {"connection", "status", "job_type"}),
        (rota.records.JobActions.cancel_many, {"why", "queue"}),
    ],
)
def test_help_and_completion_show_each_option_by_name(call: Any, options: set[str]) -> None:
    parameters = inspect.signature(call).parameters
    assert options <= parameters.keys()
    assert not any(found.kind is found.VAR_KEYWORD for found in parameters.values())


INTERNAL = {"database"}
"""Of an App: for Rota's own parts."""


def _classes(hint: object) -> typing.Iterator[type]:
    if isinstance(hint, type) and hint.__module__.partition(".")[0] == "rota":
        yield hint
    origin = typing.get_origin(hint)
    if isinstance(origin, type) and origin.__module__.partition(".")[0] == "rota":
        yield origin
    for argument in typing.get_args(hint):
        yield from _classes(argument)


@functools.cache
def _known() -> dict[str, object]:
    """The names that modules import for a type checker only; another module has each."""
    found = {**vars(typing), **vars(contextlib), **vars(collections.abc), **vars(datetime)}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "rota":
            found.update(vars(module))
    return found


def _returns(kind: type) -> typing.Iterator[type]:
    """The classes of Rota that one has by its public methods, properties and fields."""
    for name in dir(kind):
        if name.startswith("_") or name in INTERNAL:
            continue
        found = inspect.getattr_static(kind, name)
        function = getattr(found, "fget", None) or getattr(found, "func", None) or found
        yield from _classes(function)  # a part of an App, such as `app.queues`
        if inspect.isfunction(function):
            hints = typing.get_type_hints(function, globalns={**_known(), **function.__globals__})
            yield from _classes(hints.get("return"))
    if issubclass(kind, rota.Job.__mro__[1]):  # fields of a record
        for name, hint in typing.get_type_hints(kind).items():
            if not name.startswith("_"):
                yield from _classes(hint)


def test_what_an_app_a_job_and_a_context_give_can_be_imported_for_an_annotation() -> None:
    public = {
        member
        for module in (rota, rota.records, rota.events)
        for member in vars(module).values()
        if isinstance(member, type)
    }
    asked: set[type] = set()
    todo: list[type] = [rota.App, rota.Job, rota.Context, rota.records.Timeline, rota.records.Stats]
    while todo:
        kind = todo.pop()
        if kind not in asked:
            asked.add(kind)
            todo += _returns(kind)
    assert (
        rota.records.Progress in asked
        and rota.records.JobActions in asked
        and rota.records.AttemptRecord in asked
    )
    assert {unknown.__qualname__ for unknown in asked - public} == set()
