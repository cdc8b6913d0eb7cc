"""reference.md is held against the code: a missing or extra option, or another default, fails
here.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import pkgutil
import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota import errors, events
from rota.cli import cli
from rota.client.actions import JobActions
from rota.client.base import JobFilters
from rota.client.find import Search
from rota.client.groups import Groups
from rota.client.queues import Queues
from rota.client.schedules import Schedules
from rota.client.selection import ActionFilters
from rota.declare.config import WorkerConfig
from rota.declare.options import JOB_DEFAULTS, JobOptions, UsingOptions
from rota.declare.schedule import TIMING_DEFAULTS, Timing
from rota.model.retry import RetryPolicy
from rota.store.ops import Filter
from tests.docs.reader import read_page
from tests.support.rules import rule
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]

DEFAULTS = {"Unpack[JobOptions]": JOB_DEFAULTS, "Unpack[Timing]": TIMING_DEFAULTS}
"""By the annotation of `**options`."""

Row = dict[str, str]


@cache
def tables() -> dict[str, list[Row]]:
    """The tables of the page, by the heading above each."""
    found: dict[str, list[Row]] = {}
    heading, columns = "", list[str]()
    for line in read_page("reference.md").splitlines():
        if line.startswith("#"):
            heading, columns = line.strip("# "), []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not columns:
                columns = cells
            elif not set(cells[0]) <= set("-"):
                assert len(cells) == len(columns), line
                found.setdefault(heading, []).append(dict(zip(columns, cells, strict=True)))
    return found


def names(cell: str) -> list[str]:
    """Return the words between backticks."""
    return re.findall("`([^`]*)`", cell)


def as_written(cell: str) -> Any:
    """A default: the value of the Python expression between backticks, or `required`."""
    if cell == "required":
        return inspect.Parameter.empty
    return eval(names(cell)[0], {"rota": rota})  # the page is ours


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the options of a function with their defaults, those of an unpacked TypedDict too."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= DEFAULTS[parameter.annotation]
        elif name != "self":
            found[name] = parameter.default
    return found


@pytest.mark.parametrize(
    ("heading", "function"),
    [
        ("`job(...)`", rota.Jobs.job),
        ("`rota.Unique(...)`", rota.Unique),
        ("`rota.Ordered(...)`", rota.Ordered),
        ("`rota.Process(...)`", rota.Process),
        ("`rota.Chunk(...)`", rota.Chunk),
        ("`schedule(...)`", rota.Jobs.schedule),
        ("`app.schedules.put(...)` and `await app.schedules.aput(...)`", Schedules.put),
        ("`app.schedules.put(...)` and `await app.schedules.aput(...)`", Schedules.aput),
        *(
            (
                "`app.schedules.pause(...)` and `await app.schedules.apause(...)`",
                getattr(Schedules, a + verb),
            )
            for verb in ("pause", "resume", "trigger", "delete")
            for a in ("", "a")
        ),
        ("`App(...)`", rota.App),
        ("`app.run(...)` and `await app.arun(...)`", rota.App.arun),
        ("`app.drain(...)` and `await app.adrain(...)`", rota.App.drain),
        ("`app.drain(...)` and `await app.adrain(...)`", rota.App.adrain),
        ("`app.queues.stats(...)` and `await app.queues.astats(...)`", Queues.stats),
        ("`app.queues.stats(...)` and `await app.queues.astats(...)`", Queues.astats),
        ("`app.join(...)` and `await app.ajoin(...)`", rota.App.join),
        ("`app.join(...)` and `await app.ajoin(...)`", rota.App.ajoin),
        ("`app.cancel(...)` and `await app.acancel(...)`", rota.App.cancel),
        ("`app.cancel(...)` and `await app.acancel(...)`", rota.App.acancel),
        ("`app.jobs.discard(...)` and other actions on one job", JobActions.adiscard),
        ("`app.jobs.discard(...)` and other actions on one job", JobActions.discard),
        ("`app.jobs.reschedule(...)` and `await app.jobs.areschedule(...)`", JobActions.reschedule),
        (
            "`app.jobs.reschedule(...)` and `await app.jobs.areschedule(...)`",
            JobActions.areschedule,
        ),
        ("`app.retry(...)` and `await app.aretry(...)`", rota.App.retry),
        ("`app.retry(...)` and `await app.aretry(...)`", rota.App.aretry),
        ("`app.queues.pause(...)` and `await app.queues.apause(...)`", Queues.pause),
        ("`app.queues.pause(...)` and `await app.queues.apause(...)`", Queues.apause),
        (
            "`app.queues.pause_all(...)` and `await app.queues.apause_all(...)`",
            Queues.pause_all,
        ),
        (
            "`app.queues.pause_all(...)` and `await app.queues.apause_all(...)`",
            Queues.apause_all,
        ),
        (
            "`app.queues.set_max_running(...)` and `await app.queues.aset_max_running(...)`",
            Queues.set_max_running,
        ),
        (
            "`app.queues.set_max_running(...)` and `await app.queues.aset_max_running(...)`",
            Queues.aset_max_running,
        ),
        ("`app.groups.list(...)` and `await app.groups.alist(...)`", Groups.list),
        ("`app.groups.list(...)` and `await app.groups.alist(...)`", Groups.alist),
        ("`rota.asgi.lifespan(...)`", rota.asgi.lifespan),
        ("`rota.asgi.drain_endpoint(...)`", rota.asgi.drain_endpoint),
        ("`rota.wsgi.drain_endpoint(...)`", rota.wsgi.drain_endpoint),
    ],
)
def test_each_option_is_on_the_page_with_its_default(
    heading: str, function: Callable[..., Any]
) -> None:
    assert {
        names(row["option"])[0]: as_written(row["default"]) for row in tables()[heading]
    } == parameters(function)


def test_each_option_of_rota_work_is_on_the_page_with_its_default() -> None:
    import typer

    command = typer.main.get_command(cli).commands["work"]  # type: ignore[attr-defined]
    written = {names(row["option"])[0]: row["default"] for row in tables()["`rota work`"]}

    assert [option.opts[0] for option in command.params if not option.hidden] == list(written)
    for option in command.params:
        if not option.hidden and option.default not in (None, False):
            assert written[option.opts[0]] == str(option.default)


def test_each_filter_of_an_action_and_of_a_search_is_on_the_page() -> None:
    filters = {names(row["filter"])[0] for row in tables()["Many jobs"]}
    assert filters == ActionFilters.__annotations__.keys()
    heading = "`app.find(...)` and `await app.afind(...)`"
    defaults = {
        name: as_written(row["default"])
        for row in tables()[heading]
        for name in names(row["option"])
    }
    assert defaults.keys() == Search.__annotations__.keys()
    assert defaults == {part.name: part.default for part in fields(Filter) if part.name in defaults}


def test_run_has_the_options_of_arun_except_signals_which_it_always_handles() -> None:
    options = parameters(rota.App.arun)
    del options["signals"]

    assert parameters(rota.App.run) == options


@pytest.mark.parametrize(
    ("options", "defaults"), [(JobOptions, JOB_DEFAULTS), (Timing, TIMING_DEFAULTS)]
)
def test_each_option_that_is_unpacked_has_a_default(options: type, defaults: object) -> None:
    assert list(options.__annotations__) == list(defaults)  # type: ignore[call-overload]


OPTIONS = (JobOptions, UsingOptions, Timing, JobFilters, Search, ActionFilters)


@pytest.mark.parametrize("options", OPTIONS)
def test_each_option_is_documented_where_it_is_declared(options: type) -> None:
    [declaration] = ast.parse(inspect.getsource(options)).body
    assert isinstance(declaration, ast.ClassDef)
    undocumented = [
        ast.unparse(field)
        for field, below in pairwise([*declaration.body, ast.Pass()])
        if isinstance(field, ast.AnnAssign)
        and not (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
    ]
    assert undocumented == []


def test_each_option_of_using_is_on_the_page() -> None:
    assert [names(row["option"])[0] for row in tables()["`using(...)`"]] == list(
        UsingOptions.__annotations__
    )


def test_each_retry_policy_is_on_the_page_with_its_options() -> None:
    written: dict[str, dict[str, Any]] = {}
    for row in tables()["Retry policies"]:
        policy = names(row["policy"])[0] if "`" in row["policy"] else row["policy"]
        written.setdefault(policy, {})[names(row["option"])[0]] = as_written(row["default"])
    shared = written.pop("all")

    assert {name: options | shared for name, options in written.items()} == {
        policy.__name__: parameters(policy) for policy in RetryPolicy.__subclasses__()
    }


OUTCOMES = rota.Retry, rota.Snooze, rota.RateLimited, rota.WaitFor, rota.Dead, rota.Cancel


def test_each_outcome_is_on_the_page_with_its_options() -> None:
    written: dict[str, dict[str, Any]] = {}
    for row in tables()["Outcomes"]:
        written.setdefault(names(row["outcome"])[0], {})[names(row["option"])[0]] = as_written(
            row["default"]
        )

    assert written == {outcome.__name__: parameters(outcome) for outcome in OUTCOMES}


def test_each_attribute_of_the_context_is_on_the_page() -> None:
    # Those are the worker's.
    public = {name for name in dir(rota.Context) if not name.startswith("_")} - {
        "request_stop",
        "encode_progress",
    }

    assert {names(row["name"])[0].partition("(")[0] for row in tables()["Context"]} == public


@rule("M84")
def test_each_event_is_on_the_page_with_its_level_and_fields() -> None:
    shared = {part.name for part in fields(events.JobEvent)}
    written = {}
    for row in tables()["Events"]:
        own = set(names(row["fields"]))
        written[names(row["event"])[0]] = (
            row["level"].upper(),
            own | shared if row["fields"].startswith("those") else own,
        )

    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event)
    ]
    assert written == {
        kind.__name__: (logging.getLevelName(kind.level), {part.name for part in fields(kind)})
        for kind in kinds
        if kind not in (events.Event, events.JobEvent)
    }


def test_each_exception_is_on_the_page_with_its_exit_status() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RotaError)
    ]

    written = {
        names(row["exception"])[0]: int(row["exit status"]) for row in tables()["Exceptions"]
    }
    assert written == {kind.__name__: kind.exit_code for kind in kinds}


def test_each_environment_variable_is_on_the_page() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"""environ(?:\.get\(|\[)["'](\w+)["']""", source))

    read -= {"PWD", "PYTHONPATH"}  # the shell's own variable, and Python's, are no settings
    assert {names(row["variable"])[0] for row in tables()["Environment variables"]} == read


@pytest.mark.parametrize(
    "row", tables()["Fixed times and limits"], ids=lambda row: names(row["where"])[0]
)
def test_each_fixed_time_and_limit_is_what_the_page_says(row: Row) -> None:
    where, _, constant = names(row["where"])[0].rpartition(".")
    found = pkgutil.resolve_name(where)
    # The fields of a class with slots are its objects'.
    holder = found() if found is WorkerConfig else found
    assert getattr(holder, constant) == float(row["value"])


async def test_a_worker_holds_the_connections_that_the_page_names_with_their_timeouts(
    database: str, connection: psycopg.Connection[TupleRow]
) -> None:
    written = {
        names(row["application_name"])[0]: row["how many"] for row in tables()["Connections"]
    }
    app = rota.App(database)
    app.job("work")(lambda: None)
    done = app.types["work"].new()
    working = asyncio.create_task(app.arun())
    await app.ajoin((await app.aenqueue(done)).id, timeout="30s")
    now_and_then = (
        "rota client",
        "rota cli",
        "rota start",
        "rota gates",
        "rota retention",
        "rota alert",
        "rota before drain",
        "rota reap",
    )
    expected = {name: int(count) for name, count in written.items() if name not in now_and_then}

    def are_open() -> bool:
        """Those of `now_and_then` may be open at this moment; and a job may be over before each of
        the others is.
        """
        found: dict[str, int] = dict(
            connection.execute(
                "select application_name, count(*) from pg_stat_activity where datname = "
                "current_database() and pid <> pg_backend_pid()"
                " and backend_type = 'client backend' group by 1"
            ).fetchall()
        )
        assert 1 <= found.pop("rota client") <= 4
        return found == expected

    await asyncio.to_thread(eventually, are_open)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await app.aclose()


def test_rotas_own_connections_have_the_timeouts_that_the_page_names(app: rota.App) -> None:
    with app._database.open_connection("test") as own:
        settings = [
            own.execute(f"show {name}").fetchone() for name in ("statement_timeout", "lock_timeout")
        ]

    assert settings == [("30s",), ("10s",)]
