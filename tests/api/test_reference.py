"""The pages of the reference are held against the code: a missing or extra option, or another
default, fails here. What is generated is read as a reader would, and compared with what the code
takes; what mkdocstrings shows comes from docstrings, which must name each argument.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_origin

import griffe
import psycopg
import pytest
from psycopg.rows import TupleRow

import rota
from rota import errors, events, records
from rota.cli import cli
from rota.client.base import JobFilters
from rota.client.find import Search
from rota.client.selection import ActionFilters
from rota.declare.config import WorkerConfig
from rota.declare.options import JOB_DEFAULTS, JobOptions, UsingOptions
from rota.declare.schedule import TIMING_DEFAULTS, Timing
from rota.model.outcome import Outcome
from rota.model.retry import RetryPolicy
from rota.store.ops import Filter
from tests.docs.reader import read_page
from tests.support.rules import rule
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
PLACES = {page: page.read_text("utf-8") for page in (ROOT / "docs/reference").glob("*.md")}

DEFAULTS = {
    "Unpack[JobOptions]": JOB_DEFAULTS,
    "Unpack[Timing]": TIMING_DEFAULTS,
}
"""By the annotation of `**options`."""

Row = dict[str, str]


@cache
def tables(page: str) -> dict[str, list[Row]]:
    """The tables of a page, by the heading above each."""
    found: dict[str, list[Row]] = {}
    heading, columns = "", list[str]()
    for line in read_page(page).splitlines():
        if line.startswith("#"):
            heading, columns = line.strip("# "), []
        elif line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])]
            if not columns:
                columns = cells
            elif not set(cells[0]) <= set("-"):
                assert len(cells) == len(columns), line
                found.setdefault(heading, []).append(dict(zip(columns, cells, strict=True)))
        else:
            columns = []
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
            is_several = parameter.kind is parameter.VAR_POSITIONAL  # of `Delays`, at least one
            found[name] = inspect.Parameter.empty if is_several else parameter.default
    return found


@pytest.mark.parametrize(
    ("page", "heading", "function"),
    [
        ("job-types.md", "`rota.records.JobOptions`", rota.Jobs.job),
        *(
            ("job-types.md", f"`rota.{kind.__name__}`", kind)
            for kind in (
                rota.Unique, rota.Ordered, rota.Process, rota.Chunk, rota.RateLimit, rota.Breaker,
            )
        ),
        *(
            ("retry-policies.md", f"`rota.{kind.__name__}`", kind)
            for kind in RetryPolicy.__subclasses__()
        ),
    ],
)  # fmt: skip
def test_each_option_is_on_the_page_with_its_default(
    page: str, heading: str, function: Callable[..., Any]
) -> None:
    assert {
        names(row["option"])[0]: as_written(row["default"]) for row in tables(page)[heading]
    } == parameters(function)


def test_each_option_of_a_schedule_is_on_the_page_with_its_default() -> None:
    assert {
        names(row["option"])[0]: as_written(row["default"])
        for row in tables("schedule-calls.md")["Options of a schedule"]
    } == TIMING_DEFAULTS


def list_commands() -> Iterator[tuple[str, Any]]:
    """Yield each command as typer has made it, by its words."""
    import typer

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        commands = getattr(command, "commands", {})
        if not commands or (command.invoke_without_command and path != "rota"):
            yield path, command
        for name, inner in commands.items():
            yield from walk(inner, f"{path} {name}")

    yield from walk(typer.main.get_command(cli), "rota")


def test_the_page_has_every_command_and_no_other() -> None:
    headings = re.findall(r"^### `(rota .*)`$", read_page("command-line.md"), re.MULTILINE)
    assert sorted(headings) == sorted(dict(list_commands()))


@pytest.mark.parametrize(("name", "command"), list(list_commands()), ids=str)
def test_each_option_of_a_command_is_on_the_page_with_its_default(name: str, command: Any) -> None:
    page = read_page("command-line.md")
    section = re.split(r"^##", page.partition(f"### `{name}`\n")[2], flags=re.MULTILINE)[0]
    rows = {
        names(row["option"])[0]: row
        for heading in (f"`{name}`", "Shared options", "Filters")
        for row in reversed(tables("command-line.md").get(heading, []))
    } | {names(row["option"])[0]: row for row in tables("command-line.md").get(f"`{name}`", [])}
    also = section.rpartition("\nAnd ")[2] if "\nAnd " in section else ""
    written = {names(row["option"])[0] for row in tables("command-line.md").get(f"`{name}`", [])}
    written |= set(names(also))
    if "(#filters)" in also:
        written |= {names(row["option"])[0] for row in tables("command-line.md")["Filters"]}
    known = {
        option.opts[0]
        if option.opts[0].startswith("-")
        else (option.metavar or option.name).upper()
        for option in command.params
        if not option.hidden
    }
    assert written == known
    for option in command.params:
        is_shown = option.default not in (None, False, [], ()) and not option.hidden
        if is_shown and option.opts[0].startswith("-"):
            default = getattr(option.default, "value", option.default)
            assert rows[option.opts[0]]["default"] == f"`{default}`", option.opts
        if option.help and not option.hidden and option.opts[0] in rows:
            said = rows[option.opts[0]]["meaning"]
            whole = option.help.replace("\\[", "[").removeprefix("Filter: ").casefold()
            said = said.removeprefix("Filter: ").replace("\\|", "|")
            assert " ".join(whole.split()) == said.casefold()


def test_each_filter_of_an_action_and_of_a_search_is_on_the_page() -> None:
    found = {
        heading: {names(row["filter"])[0]: row["meaning"] for row in rows}
        for heading, rows in tables("job-filters.md").items()
    }
    search = found["Filters of a search"]
    assert search.keys() == Search.__annotations__.keys()
    assert f"Defaults to {Filter().limit}." in search["limit"]
    assert {part.default for part in fields(Filter) if part.name in search} == {None, 100}
    assert found["Filters of an action on many jobs"].keys() == ActionFilters.__annotations__.keys()


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
    [rows] = tables("enqueue-options.md").values()
    assert [names(row["option"])[0] for row in rows] == list(UsingOptions.__annotations__)


def test_each_outcome_is_on_the_page() -> None:
    written = {name for row in tables("outcomes.md")["Outcomes"] for name in names(row["outcome"])}
    assert written == {f"rota.{kind.__name__}" for kind in Outcome.__subclasses__()}


BLOCK = re.compile(r"^::: (\S+)", re.MULTILINE)
IN_COMMON = {"why", "by", "connection"}
"""Arguments that app.md explains for all calls."""


def test_each_block_names_what_there_is() -> None:
    named = [name for text in PLACES.values() for name in BLOCK.findall(text)]
    assert len(named) == len(set(named)) > 70
    for name in named:
        pkgutil.resolve_name(name)


def find_places() -> dict[str, list[str]]:
    """The pages that are about each name: by a block, or by a heading."""
    found: dict[str, list[str]] = {}
    for page, text in PLACES.items():
        of_rota = re.findall(r"^### (\w+)$", text, re.MULTILINE) if page.stem == "errors" else []
        headings = re.findall(r"^#+ `(rota[\w.]+)`", text, re.MULTILINE)
        for name in (*BLOCK.findall(text), *headings, *(f"rota.{one}" for one in of_rota)):
            found.setdefault(name, []).append(page.name)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *(f"rota.{name}" for name in rota.__all__ if name != "__version__"),
        *(f"rota.records.{name}" for name in records.__all__),
    ],
)
def test_each_public_name_is_on_exactly_one_page(name: str) -> None:
    [page] = find_places()[name]
    assert f"| `{name}` | [{page}]({page}) |" in read_page("api.md")


def list_returned() -> Iterator[type]:
    """Yield each public class of Rota that App, its parts, Job and Context return."""
    waiting: list[type] = [rota.App, rota.Job, rota.Context, rota.JobType, rota.Jobs]
    seen = set(waiting)
    while waiting:
        kind = waiting.pop()
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            member = getattr(member, "func", getattr(member, "fget", member))
            said = str(getattr(member, "__annotations__", {}).get("return", ""))
            where = getattr(member, "__globals__", {})
            is_hidden = name.startswith("_") and name != "__enter__"
            for word in () if is_hidden else re.findall(r"[A-Z]\w+", said):
                one = where.get(word) or getattr(records, word, None)
                if not isinstance(one, type) or not one.__module__.startswith("rota."):
                    continue
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
                    yield one


def test_each_class_that_a_call_returns_is_on_a_page() -> None:
    returned = list(list_returned())
    public = {
        getattr(module, name): f"{module.__name__}.{name}"
        for module in (records, rota)
        for name in module.__all__
        if isinstance(getattr(module, name), type)
    }
    assert records.Queues in returned and records.Pause in returned and records.Effect in returned
    places = find_places()
    lost = [one for one in returned if public.get(one, "") not in places]
    assert lost == []


def list_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each function, class and public method that a block shows."""
    for text in PLACES.values():
        for name in BLOCK.findall(text):
            shown = pkgutil.resolve_name(name)
            if get_origin(shown) is not None or isinstance(shown, str):
                continue
            if not inspect.ismodule(shown) and not inspect.isclass(shown):
                yield name, shown
            elif f"::: {name}\n    options:\n      members: false\n" in text:
                continue
            elif inspect.ismodule(shown):
                for one in ("lifespan", "drain_endpoint", "setup"):
                    if hasattr(shown, one):
                        yield f"{name}.{one}", getattr(shown, one)
            else:
                yield from _list_methods(name, shown)


def _list_methods(name: str, kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    if issubclass(kind, rota.App | Outcome):
        yield name, kind
    for one in dir(kind):
        if not one.startswith("_") and one not in NOT_SHOWN:
            member = inspect.getattr_static(kind, one)
            is_ours = str(getattr(member, "__module__", "")).startswith("rota.")
            if callable(member) and is_ours and not inspect.isclass(member):
                yield f"{name}.{one}", member


NOT_SHOWN = {"facts", "request_stop", "encode_progress"}


@pytest.mark.parametrize(("name", "call"), list(list_calls()))
def test_each_argument_of_a_call_is_explained(name: str, call: Callable[..., Any]) -> None:
    """By its own line, in the words of the docstring, or by a call that has the same."""
    said = inspect.getdoc(call) or ""
    passed_on = {"self", "args", "kwargs"}
    arguments = [one for one in inspect.signature(call).parameters if one not in passed_on]
    for argument in {*arguments} - {*IN_COMMON, *SELF_EVIDENT}:
        is_explained = (
            re.search(rf"^\s+\**{argument}: ", said, re.MULTILINE)
            or re.search(rf"`{argument}\b", said)
            or re.search(ELSEWHERE, " ".join(said.split()))
            or arguments == [argument]  # that the first sentence is about
        )
        assert is_explained, argument


ELSEWHERE = r"\b(?:[Aa]s|those of) `[\w.]+`"
"""Where a docstring leaves its arguments to that of another call."""
SELF_EVIDENT = {"id", "name"}
"""Arguments that the name says: of the job, or of what the call is about."""


def read_sections(page: str) -> dict[str, str]:
    """The text below each heading of the third level."""
    parts = re.split(r"^##+ ", read_page(page), flags=re.MULTILINE)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def list_fields(text: str) -> set[str]:
    """The names of a list of fields, each with its meaning."""
    return set(re.findall(r"^- `(\w+)`: \S", text, re.MULTILINE))


@rule("M84")
def test_each_event_is_on_the_page_with_its_level_and_fields() -> None:
    sections = read_sections("events.md")
    shared = {part.name for part in fields(events.JobEvent)}
    assert shared <= set(names(sections["Jobs"]))
    kinds = [
        kind
        for kind in vars(events).values()
        if isinstance(kind, type)
        and issubclass(kind, events.Event)
        and kind not in (events.Event, events.JobEvent)
    ]
    written = {
        name: (text.split()[1].strip(".").upper(), list_fields(text))
        for name, text in sections.items()
        if text.strip().startswith("Level ")
    }
    assert written == {
        kind.__name__: (
            logging.getLevelName(kind.level),
            {part.name for part in fields(kind)}
            - (shared if issubclass(kind, events.JobEvent) else set()),
        )
        for kind in kinds
    }


def test_each_exception_is_on_the_page_with_its_exit_status_and_fields() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RotaError)
    ]
    written = {
        name: (int(text.split()[2].strip(".")), list_fields(text))
        for name, text in read_sections("errors.md").items()
        if text.strip().startswith("Exit status ")
    }
    assert written == {
        kind.__name__: (kind.exit_code, set(inspect.get_annotations(kind))) for kind in kinds
    }


def test_a_call_is_shown_with_what_it_returns_and_with_its_twin() -> None:
    extensions = griffe.load_extensions(str(ROOT / "scripts/api.py"))
    package = griffe.load("rota", search_paths=[str(ROOT / "src")], extensions=extensions)
    assert isinstance(package, griffe.Module)
    shown = package["client.queues.Queues.list"]
    assert str(shown.returns) == "builtins.list[QueueDepth]"
    assert shown.labels == {"await alist"}
    # How Rota makes the parts of an App is left out; how programs make an App is not.
    assert "__init__" not in package["client.base.Namespace"].members
    assert "__init__" in package["app.App"].members


def test_each_environment_variable_is_on_the_page() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    read = set(re.findall(r"""environ(?:\.get\(|\[)["'](\w+)["']""", source))
    read |= set(re.findall(r"""^[A-Z]+_VARIABLE = "(\w+)"$""", source, re.MULTILINE))

    # The shell's own variable and Python's are no settings; nor is what Rota's processes tell each
    # other.
    read -= {"PWD", "PYTHONPATH", "ROTA_SESSION"}
    assert {
        names(row["variable"])[0] for row in tables("environment.md")["Environment variables"]
    } == read


@pytest.mark.parametrize(
    "row", tables("limits.md")["Fixed times and limits"], ids=lambda row: names(row["where"])[0]
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
        names(row["application_name"])[0]: row["how many"]
        for row in tables("workers.md")["Connections"]
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
