"""Makes the generated parts of pages for users, each from its one declaration.

A page has them between `<!-- made: NAME -->` and `<!-- end -->`; scripts/docs.py fills them in.
"""

from __future__ import annotations

import ast
import enum
import inspect
import logging
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

import rota
from rota import errors, events
from rota.cli import make_cli
from rota.cli.flags import find_flags
from rota.cli.grammar import PAGE
from rota.client.base import JobFilters
from rota.client.find import Search
from rota.client.selection import ActionFilters
from rota.declare.options import JOB_DEFAULTS, JOB_OPTIONS, JobOptions, UsingOptions
from rota.declare.schedule import TIMING_DEFAULTS, Timing
from rota.model.retry import RetryPolicy

DOCS = Path(__file__).resolve().parent.parent / "docs"
REFERENCE = DOCS / "reference"
ERRORS = DOCS / "operate/troubleshooting.md"
MADE = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMED = re.compile(r"^(?:::: |#+ `)(rota(?:\.\w+)+)", re.MULTILINE)
"""What a page is the place of: a block of mkdocstrings, or a heading of its own."""
MODULES = ("rota.integrations.asgi", "rota.integrations.wsgi", "rota.logs")
"""The public modules that `import rota` leaves to whoever needs them."""
ERROR = re.compile(r"^#### (\w+)$", re.MULTILINE)
"""A heading of an exception, on the page ERRORS."""


def fill(text: str, *, is_whole: bool = False) -> str:
    """Return a page with what is generated written anew, all of it or what docs/ has."""

    def make(found: re.Match[str]) -> str:
        part = (WHOLE if is_whole else PARTS).get(found[2], PARTS[found[2]])
        made = re.sub(r"\n{3,}", "\n\n", part().strip())
        return f"{found[1]}\n{made}\n\n{found[3]}"

    return MADE.sub(make, text)


def list_pages() -> Iterator[Path]:
    """Yield the pages that have generated parts."""
    for page in list_places():
        if MADE.search(page.read_text("utf-8")):
            yield page


def list_places() -> list[Path]:
    """Return the pages that are about public names."""
    return [*sorted(REFERENCE.glob("*.md")), ERRORS]


# Options


MORE = {
    "expires": "../understand/expiry-and-cancelling.md",
    "unique": "../understand/idempotency-keys.md",
    "ordered": "../understand/ordered-groups.md",
    "max_running": "../understand/concurrency-limits.md",
    "transactional": "../understand/transactions.md#require-a-transaction",
    "history": "../operate/retention.md#types-that-keep-failures-only",
    "breaker": "../understand/breakers.md",
    "rate_limit": "../understand/rate-limits.md",
    "process": "../how-to/cpu-work.md",
}
"""Where a reader of an option goes on, to the part that explains."""
GROUPS = {
    "unique": "function, or [`rota.Unique`](#rotaunique)",
    "ordered": "function, or [`rota.Ordered`](#rotaordered)",
    "process": "yes or no, or [`rota.Process`](#rotaprocess)",
}
"""What options take that are groups of others."""
OF_DECORATOR = {
    "name": "| `name` | text: 1 … 200 printable characters | `None` | Name of the job type, "
    "stored in every job. None: the function's name; `@jobs.job` alone will do. |",
    "takes_context": "| `takes_context` | yes or no | `False` | Whether the "
    "handler's first parameter is its `Context`. It is not an argument of the job. |",
    "chunk": "| `chunk` | jobs: 1 … 10,000, or [`rota.Chunk`](#rotachunk) | `None` | Most "
    "jobs that [one call of the handler](../how-to/chunks.md) takes; its "
    "parameter is a list then. Not with `process`. None: a call takes one job. |",
}
"""Parameters of `job` that are no fields of JobOptions."""


def job_table() -> str:
    """Return the table of a job type's options."""
    rows = [*OF_DECORATOR.values(), *(option_row(name) for name in JOB_DEFAULTS)]
    return make_table(("option", "takes", "default", "meaning"), rows)


def option_row(name: str) -> str:
    """Return the row of an option: what its kind takes, its default, and its docstring."""
    kinds = [
        (option.kind.unit, option.kind.range)
        for option in JOB_OPTIONS.values()
        if option.name == name
    ]
    unit, values = (GROUPS[name], "") if name in GROUPS else kinds[0]
    meaning = cut_default(option_meanings(JobOptions)[name], JOB_DEFAULTS[name])
    for said in (f": {values}", f", {values}", f"{values}; "):  # the column has it
        meaning = meaning.replace(said, "") if values else meaning
    meaning = meaning[0].upper() + meaning[1:]
    more = f" [More]({MORE[name]})" if name in MORE else ""
    is_said = not values or unit == "yes or no"
    is_plain = values.startswith(('`"', "["))
    takes = values if is_plain else unit if is_said else f"{unit}: {values}"
    return f"| `{name}` | {takes} | `{show(JOB_DEFAULTS[name])}` | {meaning}{more} |"


def cut_default(meaning: str, default: object) -> str:
    """Return a meaning without the default, which another column shows."""
    if default is not None:
        meaning = re.sub(r" Defaults to (?!.*\w: ).*", "", meaning)
    return meaning.removesuffix(" Defaults to none.")


def show(default: object) -> str:
    """Return a default as a program writes it."""
    if isinstance(default, RetryPolicy):
        return 'rota.Exponential("10s", cap="1h")'
    if isinstance(default, str):
        return f'"{default}"'
    return f"{default:_}" if type(default) is int else repr(default)


def meanings_table(*kinds: type, of: str = "option") -> str:
    """Return the table of the fields of a TypedDict, or of several, with their docstrings."""
    rows = [f"| `{name}` | {said} |" for name, said in option_meanings(*kinds).items()]
    return make_table((of, "meaning"), rows)


def timing_table() -> str:
    """Return the table of a schedule's options."""
    defaults = dict(TIMING_DEFAULTS)
    rows = [
        f"| `{name}` | `{show(defaults[name])}` | {cut_default(said, defaults[name])} |"
        for name, said in option_meanings(Timing).items()
    ]
    return make_table(("option", "default", "meaning"), rows)


def classes_of(*kinds: type, but: Iterable[str] = ()) -> str:
    """Return a section for each class whose fields are options; the page says what is left out."""
    return "\n\n".join(class_section(kind, but) for kind in kinds)


def class_section(kind: type, but: Iterable[str]) -> str:
    """Return a class whose fields are options: its docstring, and a table."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not parameter.VAR_POSITIONAL
    }
    rows = []
    for name, said in option_meanings(kind).items():
        if name in but:
            continue
        default = defaults.get(name, inspect.Parameter.empty)
        is_required = default is inspect.Parameter.empty
        shown = "required" if is_required else f"`{show(default)}`"
        meaning = said if is_required else cut_default(said, default)
        rows.append(f"| `{name}` | {shown} | {meaning} |")
    table = make_table(("option", "default", "meaning"), rows)
    return f"## `rota.{kind.__name__}`\n\n{write_doc(kind)}\n\n{table}"


def option_meanings(*kinds: Any) -> dict[str, str]:
    """Return the docstring of each field of a class, or of several, as one line; those of a
    dataclass with those of the classes above it."""
    above = [base for base in kinds[0].__mro__[1:] if base.__module__.startswith("rota.")]
    found: dict[str, str] = {}
    for kind in (*kinds, *above):
        found |= own_meanings(kind)
    return found


def own_meanings(kind: Any) -> dict[str, str]:
    """Return the docstring of each field that a class adds, as one line."""
    [declaration] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(declaration, ast.ClassDef)
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in pairwise(declaration.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def write_doc(thing: object) -> str:
    """Return a docstring as paragraphs, without the sections for arguments and errors."""
    text = inspect.getdoc(thing) or ""
    text = re.split(r"\n\n(?:Args|Raises|Returns):\n", text)[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def make_table(columns: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table of rows that are written out."""
    names = list(columns)
    return "\n".join([f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *rows])


# The command line


SHARED_BY = 15
"""Options of at least so many commands stand at the top of the page, once."""
USUAL = ("`--app`", "`--url`", "`--schema`", "`--json`")
"""Those that a command names only if it does not have them."""
ALIKE = 5
"""So many options of a command that another one has as well are listed there only."""
FILTERED = "retry, cancel, reschedule, discard, archive"
"""The commands that take jobs by a filter."""
HELP_GROUP = re.compile(r"(?m)^(\w.*)\n((?:  .+\n)+)")
"""A group of commands on the page of `rota --help`: its title and its lines."""


def commands() -> dict[str, tuple[Any, str]]:
    """Return each command by its words: the function that typer calls, and its help."""
    return dict(_walk(make_cli(), "rota"))


def _walk(app: typer.Typer, path: str) -> Iterator[tuple[str, tuple[Any, str]]]:
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "")
        yield (
            f"{path} {name}",
            (command.callback, command.help or inspect.getdoc(command.callback) or ""),
        )
    for group in app.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        first = inner.registered_callback
        if first is not None and first.invoke_without_command:
            yield f"{path} {group.name}", (first.callback, str(first.help))
        yield from _walk(inner, f"{path} {group.name}")


Row = tuple[str, str, str, str]
"""An option: its flag or argument, what it takes, its default, and its meaning."""


def command_rows(callback: Any) -> list[Row]:
    """Return the arguments and options of a command."""
    parameters = inspect.signature(callback, eval_str=True).parameters
    flags = find_flags(parameters.values())
    rows = []
    for name, parameter in parameters.items():
        kind, *infos = typing.get_args(parameter.annotation) or (parameter.annotation,)
        info = next((each for each in infos if isinstance(each, ArgumentInfo | OptionInfo)), None)
        if info is None or info.hidden:
            continue
        label = flags.get(name) or (info.metavar or name).upper()
        default = (
            parameter.default.value
            if isinstance(parameter.default, enum.Enum)
            else parameter.default
        )
        is_said = default in (None, False) or default == []
        shown = "" if is_said or default is inspect.Parameter.empty else f"`{default}`"
        meaning = (info.help or "").replace("\\[", "[")
        rows.append((f"`{label}`", _takes(kind, info), shown, " ".join(meaning.split())))
    return rows


def _takes(kind: Any, info: ArgumentInfo | OptionInfo) -> str:
    """Return what an option takes: the name of its value, choices, or a range."""
    inner = [
        taken
        for taken in (typing.get_args(kind) if not isinstance(kind, type) else [kind])
        if taken is not types.NoneType
    ]
    while typing.get_origin(inner[0]) is list:
        inner = list(typing.get_args(inner[0]))
    [plain] = inner
    if isinstance(plain, type) and issubclass(plain, enum.Enum):
        return ", ".join(f"`{choice.value}`" for choice in plain)
    if info.min is not None or info.max is not None:
        most = "" if info.max is None else f"{info.max:,}"
        if info.max == 2**63 - 1:  # an id
            return f"{(info.metavar or 'id').upper()}" if isinstance(info, OptionInfo) else "id"
        return f"{info.min:,} … {most}".strip()
    if isinstance(info, OptionInfo) and info.metavar:
        return info.metavar
    return {bool: "", int: "number", float: "number"}.get(plain, "text")


def command_page(*, is_whole: bool = False) -> str:
    """Return all commands in the order of the help, after the shared options: each with what it
    does, and all of it with its options."""
    found = commands()
    rows = {name: command_rows(callback) for name, (callback, _) in found.items()}
    users: dict[Row, list[str]] = {}
    for name, own in rows.items():
        for row in own:
            users.setdefault(row, []).append(name)
    filtered = [f"rota {command}" for command in FILTERED.split(", ")]
    shared = [row for row, names in users.items() if len(names) >= SHARED_BY]
    filters = [
        row for row, names in users.items() if names == filtered and row[0].startswith("`--")
    ]
    parts = [
        f"## Shared options\n\nNearly every command takes {', '.join(USUAL)}. These options mean "
        "the same in each command that takes them:\n",
        list_options(shared),
        f"\n## Filters\n\n`{'`, `'.join(filtered)}` take ids, or these filters. A job must match "
        "all that are given.\n",
        list_options((*row[:3], _begin(row[3].removeprefix("Filter: "))) for row in filters),
    ]
    for title, lines in HELP_GROUP.findall(PAGE):
        parts.append(f"\n## {title.partition(':')[0]}")
        for noun in ", ".join(re.findall(r"(?m)^  (.+?)  ", lines)).split(", "):
            parts += [
                _command_section(name, found[name][1], rows, shared, filters, is_whole)
                for name in found
                if f"{name} ".startswith(f"rota {noun} ")
            ]
    return "\n".join(parts)


def _command_section(
    name: str,
    said: str,
    rows: dict[str, list[Row]],
    shared: list[Row],
    filters: list[Row],
    is_whole: bool,
) -> str:
    lines = [f"\n### `{name}`"]
    for paragraph in said.split("\n\n"):
        lines += ["", _escape(" ".join(paragraph.split()))]
    if is_whole:
        lines += _option_lines(name, rows, shared, filters)
    return "\n".join(lines)


def _option_lines(
    name: str, rows: dict[str, list[Row]], shared: list[Row], filters: list[Row]
) -> Iterator[str]:
    """Yield the options of a command, each as a paragraph after an empty line."""
    own = [row for row in rows[name] if row not in shared and row not in filters]
    alike = (other for other in rows if len([row for row in rows[other] if row in own]) >= ALIKE)
    first = next(alike, name)
    known = [row[0] for row in own if first != name and row in rows[first]]
    if left := [row for row in own if row[0] not in known]:
        yield f"\n{list_options(left)}"
    if known:
        of = f"[`{first}`](#{first.replace(' ', '-')})"
        yield f"\nIt takes these options of {of} too: {', '.join(known)}."
    more = [row[0] for row in rows[name] if row in shared and row[0] not in USUAL]
    if any(row in filters for row in rows[name]):
        more.insert(0, "[filters](#filters)")
    labels = {row[0] for row in rows[name]}
    less = [label for label in USUAL if label not in labels]
    taken = [f"It takes {', '.join(more)}."] if more else []
    taken += [f"It does not take {', '.join(less)}."] if less else []
    if taken:
        yield f"\n{' '.join(taken)}"


def _begin(meaning: str) -> str:
    """Return a meaning with a capital letter at its beginning."""
    return meaning[0].upper() + meaning[1:]


def _escape(text: str) -> str:
    """Return help as Markdown: what is typed stands in backticks."""
    text = text.replace("\\[", "[")
    return re.sub(r"(?<![`\w-])(--[a-z][a-z0-9-]*)", r"`\1`", text) if "`" not in text else text


def list_options(rows: Iterable[Row]) -> str:
    """Return the options of a command as a list: each with what it takes, meaning and default."""
    lines = []
    for label, takes, default, meaning in rows:
        is_plain = not label.startswith("`--") and takes in ("text", "id", "number")
        value = f" {takes}" if takes and not is_plain else ""
        unless = f" Default: {default}." if default else ""
        lines.append(f"- {label}{value}: {meaning}{unless}")
    return "\n".join(lines)


# Events and errors


def event_page(*, is_whole: bool = False) -> str:
    """Return all events, each with its level, and all of it with its own fields."""
    lines: list[str] = []
    for kind in list_classes(events):
        if isinstance(kind, str):
            lines += [f"\n## {kind}\n"]
        elif kind is events.JobEvent:
            shared = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
            lines += [f"All of them have {shared}, as `JobEvent` has. Its subclasses:\n"]
        elif not kind.__subclasses__():
            lines += [*_event_section(kind, is_whole)]
    return "\n".join(lines)


def list_classes(module: ModuleType) -> Iterator[Any]:
    """Yield the headings of a file, as texts, and the subclasses below each, in its order."""
    source = inspect.getsource(module)
    for found in re.finditer(r"^(?:# (?P<title>.+)|class (?P<name>\w+)\()", source, re.MULTILINE):
        yield found["title"] or getattr(module, found["name"])


def _event_section(kind: type[events.Event], is_whole: bool) -> Iterator[str]:
    yield f"### {kind.__name__}\n"
    yield f"Level {logging.getLevelName(kind.level).lower()}. {write_doc(kind)}\n"
    said = option_meanings(kind)
    shared = events.JobEvent.__struct_fields__ if issubclass(kind, events.JobEvent) else ()
    for name in kind.__struct_fields__:
        if is_whole and name not in shared:
            yield f"- `{name}`: {said[name]}"
    yield ""


def error_page(*, is_whole: bool = False) -> str:
    """Return all exceptions under the headings of their file, and all of it with their fields."""
    lines: list[str] = []
    for kind in list_classes(errors):
        lines += [f"\n### {kind}\n"] if isinstance(kind, str) else [*_error_section(kind, is_whole)]
    return "\n".join(lines)


def _error_section(kind: type[errors.RotaError], is_whole: bool) -> Iterator[str]:
    bases = [base.__name__ for base in kind.__bases__]
    yield f"#### {kind.__name__}\n"
    above = ", ".join(f"`{name}`" for name in bases if name not in ("Exception", "RotaError"))
    is_said = kind.exit_code == getattr(kind.__bases__[0], "exit_code", None)
    status = "" if is_said else f"Exit status {kind.exit_code}. "
    kinds = f"Also a {above}. " if above else ""
    yield f"{status}{kinds}{write_doc(kind)}\n"
    for name, said in own_meanings(kind).items() if is_whole else ():
        yield f"- `{name}`: {said}"
    yield ""


# The names


def names_list() -> str:
    """Return the pages that are about public names, each with its names."""
    places = find_places()
    named: dict[Path, list[str]] = {}
    for name in sorted(public_names(), key=lambda name: (name.lower(), name)):
        for page in places.get(name, []):
            named.setdefault(page, []).append(f"`{name}`")
    return "\n".join(
        f"- [{page.name}]({os.path.relpath(page, REFERENCE)}): {', '.join(names)}"
        for page, names in sorted(named.items(), key=lambda item: item[0].name)
    )


def public_names() -> Iterator[str]:
    """Yield each public name with its module; an error as of `rota`."""
    yield from (f"rota.{name}" for name in rota.__all__ if name != "__version__")
    yield from (f"rota.records.{name}" for name in vars(rota.records) if name[0].isupper())
    yield from MODULES


def find_places() -> dict[str, list[Path]]:
    """Return the pages that are about each name."""
    found: dict[str, list[Path]] = {}
    for page in list_places():
        text = page.read_text("utf-8")
        of_rota = [f"rota.{name}" for name in ERROR.findall(text) if page == ERRORS]
        for name in (*NAMED.findall(text), *of_rota):
            found.setdefault(name, []).append(page)
    return found


PARTS: dict[str, Callable[[], str]] = {
    "job": job_table,
    "groups": lambda: classes_of(rota.Unique, rota.Ordered, rota.Process, rota.Chunk),
    "limits": lambda: classes_of(rota.RateLimit, rota.Breaker),
    "using": lambda: meanings_table(UsingOptions),
    "timing": timing_table,
    "policies": lambda: classes_of(
        rota.Fixed, rota.Linear, rota.Quadratic, rota.Exponential, rota.Delays, but=["jitter"]
    ),
    "search": lambda: meanings_table(JobFilters, Search, of="filter"),
    "many": lambda: meanings_table(JobFilters, ActionFilters, of="filter"),
    "commands": command_page,
    "events": event_page,
    "errors": error_page,
    "names": names_list,
}
"""What is generated, by the names in the pages."""
WHOLE: dict[str, Callable[[], str]] = {
    "commands": partial(command_page, is_whole=True),
    "events": partial(event_page, is_whole=True),
    "errors": partial(error_page, is_whole=True),
}
"""What the site has in their place."""
