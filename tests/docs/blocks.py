"""The blocks of code of the pages, and which test runs each.

Who knows is the run itself: while a test runs, `Watch` notes the Python that is executed, the SQL
that is sent, the processes that start and the files that they find. `tried.json` names for each
part of a block a test that has run it. `python -m tests.docs.tried` writes that file; the test that
it names fails once it does not run that part any more (tests/conftest.py), and `test_blocks.py`
fails when a part of a page has no test. So a block that nobody runs has a comment with the reason
before it: `<!-- not run: why -->`.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Self
from unittest.mock import patch

import psycopg
import typer.core
import yaml
from psycopg import sql

from tests.docs.reader import Reader

ROOT = Path(__file__).parents[2]
TRIED = Path(__file__).with_name("tried.json")
PROGRAM = {"sh": "sh", "bash": "sh", "console": "sh", "py": "python"}
"""Languages with a name of their own for what is run as another one."""
LANGUAGES = {"python", "sh", "sql", "toml", "yaml"}
GENERATED = re.compile(r"docs/project/(rules\.md|decisions/)")
"""The list of rules is written by a program; decisions tell what was true on their day."""
BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>.*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SHELLS = ("sh", "/bin/sh")
MODULE = re.compile(r"^(\S*python\S* )?-m ")
"""How a test starts a program of Python."""
INSTALLS = re.compile(r"(pip install|python3 -m venv) ")
"""What needs a package index: the tests run where all of it is installed."""
SOURCES = ("py", "sql", "toml", "sh", "yaml")
SAME_LINES_MIN = 0.7
"""A test gives names of its own to what a page names: so much of a block stays as it is."""
ALIKE_MIN = 0.75
"""And so much of a line, of a statement or of a command."""


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None
    """Why no test runs it."""

    @property
    def is_shell(self) -> bool:
        """Whether it is commands; a script is run as a whole."""
        return self.language == "sh" and not self.text.startswith("#!")

    @property
    def parts(self) -> list[str]:
        """What is run at once: a command, a statement, or the whole block."""
        if self.is_shell:
            return list(_commands(self.text))
        if self.language == "sql":
            return [one for one in map(_plain_sql, _statements(self.text)) if one]
        return ["\n".join(_lines(self.text))]


def name_part(part: str) -> str:
    """What a part of a block is called in tried.json."""
    return hashlib.sha256(part.encode()).hexdigest()[:10]


def list_pages() -> list[Path]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")]
    return [page for page in sorted(pages) if not GENERATED.match(_place(page))]


@functools.cache
def list_blocks() -> tuple[Block, ...]:
    """The blocks of all pages, in the languages that can be run."""
    return tuple(block for page in list_pages() for block in _blocks(page))


def read_tried() -> dict[str, dict[str, list[str]]]:
    """For each page the tests that run a part of it, with these parts."""
    tried: dict[str, dict[str, list[str]]] = json.loads(TRIED.read_text())
    return tried


@functools.cache
def list_promised() -> dict[str, list[tuple[Block, str]]]:
    """For each test what tried.json says that it runs, as far as a page still has it."""
    there = {(block.page, name_part(part)): (block, part) for block, part in list_parts()}
    promised: dict[str, list[tuple[Block, str]]] = {}
    for page, tests in read_tried().items():
        for test, names in tests.items():
            promised.setdefault(test, []).extend(
                there[page, name] for name in names if (page, name) in there
            )
    return promised


def list_parts() -> Iterator[tuple[Block, str]]:
    """Each part of a block that a test has to run."""
    for block in list_blocks():
        if block.reason is None:
            yield from ((block, part) for part in block.parts)


@functools.cache
def list_read(file: Path) -> list[tuple[Block, str]]:
    """The parts of the pages that a file of tests names: it runs no others, however like they
    are."""
    text = file.read_text()
    return [(block, part) for block, part in list_parts() if _names(text, block.page)]


def _names(text: str, page: str) -> bool:
    path = Path(page)
    if path.name != "README.md":
        return path.name in text or f'"{path.stem.replace("-", "_")}"' in text
    if path.parent == Path():
        return '"README.md"' in text or "import README" in text or "tests.docs.shop" in text
    return '"README.md"' in text and f'"{path.parent.name}"' in text


class Watch:
    """Notes what runs, from `begin` to `end`."""

    _now: Watch | None = None
    _hears = False

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._compiled: dict[str, list[str]] = {}
        self._written: list[str] = []
        self._places: set[Path] = set()
        """Where processes were started, but for this repository."""
        self.code: list[str] = []
        """Python that was executed, and files that were there when a process started."""
        self.statements: list[str] = []
        self.commands: list[str] = []
        self.settings: list[str] = []
        """Texts in YAML and TOML that were read."""

    def begin(self) -> Self:
        if not Watch._hears:
            sys.addaudithook(_hear)
            Watch._hears = True
        Watch._now = self
        for owner, name, note in (
            (psycopg.Cursor, "execute", self._note_query),
            (psycopg.AsyncCursor, "execute", self._note_query),
            (subprocess.Popen, "__init__", self._note_process),
            (subprocess.Popen, "communicate", self._note_input),
            (typer.core.TyperGroup, "main", self._note_command),
            (Reader, "type", self._note_typed),
            (Path, "write_text", self._note_file),
            (yaml, "safe_load", self._note_settings),
            (yaml, "safe_load_all", self._note_settings),
            (tomllib, "loads", self._note_settings),
        ):
            self._stack.enter_context(patch.object(owner, name, _noting(owner, name, note)))
        return self

    def end(self) -> None:
        Watch._now = None
        self._stack.close()
        for place in self._places:
            for file in place.rglob("*"):
                if file.suffix[1:] in SOURCES and file.is_file() and ".venv" not in file.parts:
                    self.code.append(file.read_text(errors="replace"))
        self._places.clear()

    def has_run(self, block: Block, part: str) -> bool:
        """Whether a part was run, or one that a test has made of it by names of its own."""
        if block.is_shell:
            return _is_among(part, (_plain_command(one) for one in self.commands))
        if block.language == "sql":
            return _is_among(part, self._plain_statements)
        if block.language in ("python", "sh"):
            return _is_within(part, self._lines)
        return _is_within(part, frozenset(_lines("\n".join([*self.settings, *self.code]))))

    @functools.cached_property
    def _lines(self) -> frozenset[str]:
        return frozenset(_lines("\n".join(self.code)))

    @functools.cached_property
    def _plain_statements(self) -> list[str]:
        """Those that were sent, and those of files."""
        files = [text for text in self.code if ";" in text]
        return [
            _plain_sql(one)
            for text in [*self.statements, *files]
            for one in [text, *_statements(text)]
        ]

    def note_code(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an audit event of Python. `ast.parse` compiles, too: what counts is executed."""
        if event == "compile":
            source, file = arguments
            if isinstance(source, bytes):
                source = source.decode(errors="replace")
            if isinstance(source, str):
                self._compiled.setdefault(str(file), []).append(source)
            return
        [code] = arguments
        if not isinstance(code, CodeType):
            return
        self.code += self._compiled.pop(code.co_filename, [])
        if code.co_name == "<module>" and "site-packages" not in code.co_filename:
            with suppress(OSError, ValueError):
                self.code.append(Path(code.co_filename).read_text())

    def _note_query(self, cursor: Any, query: Any, *_: Any, **__: Any) -> None:
        if isinstance(query, sql.Composable):
            query = query.as_string(cursor)
        self.statements.append(query.decode() if isinstance(query, bytes) else str(query))
        self.code += self._written
        self._written.clear()

    def _note_process(self, _: Any, arguments: Any, *__: Any, **options: Any) -> None:
        words = [arguments] if isinstance(arguments, str) else [*map(str, arguments)]
        command = words[-1] if len(words) in (1, 3) and words[0] in SHELLS else shlex.join(words)
        if isinstance(arguments, str):
            command = arguments
        self.commands.append(MODULE.sub("", command))
        self.statements += words[1:]
        self.code += [*self._written, *words[1:]]
        if options.get("cwd") is not None and ROOT not in (
            place := Path(options["cwd"]),
            *place.parents,
        ):
            self._places.add(place)

    def _note_input(self, _: Any, input: Any = None, *__: Any, **___: Any) -> None:
        text = input.decode() if isinstance(input, bytes) else input or ""
        self.statements.append(text)
        self.code.append(text)

    def _note_command(self, _: Any, arguments: Any = None, *__: Any, **___: Any) -> None:
        self.commands.append(shlex.join(["rota", *(arguments or sys.argv[1:])]))

    def _note_typed(self, _: Any, line: str, **__: Any) -> None:
        self.commands.append(line)

    def _note_file(self, _: Any, text: str, *__: Any, **___: Any) -> None:
        self._written.append(text)

    def _note_settings(self, text: Any, *_: Any, **__: Any) -> None:
        self.settings.append(text if isinstance(text, str) else "")


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if Watch._now is not None and event in ("compile", "exec"):
        Watch._now.note_code(event, arguments)


def _noting(owner: Any, name: str, note: Callable[..., None]) -> Callable[..., Any]:
    whole = getattr(owner, name)

    @functools.wraps(whole)
    def noted(*arguments: Any, **named: Any) -> Any:
        note(*arguments, **named)
        return whole(*arguments, **named)

    return noted


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        language = PROGRAM.get(found["language"], found["language"])
        if language in LANGUAGES:
            line = text.count("\n", 0, found.start("language")) + 1
            given = textwrap.dedent(found["text"])
            yield Block(_place(page), line, language, given, found["reason"])


def _place(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _lines(text: str) -> Iterator[str]:
    """The lines of a text that say something, without their remarks."""
    for line in text.splitlines():
        said = re.sub(r"(^|  )(#|--).*", "", line).strip()
        if re.search(r"\w", said):
            yield said


def _commands(text: str) -> Iterator[str]:
    """The commands of a shell, without their remarks, the prompt, and what they print."""
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        command = _plain_command(line)
        if command and not INSTALLS.match(command):
            yield command


def _plain_command(line: str) -> str:
    """A command as its words; of a setting only the name, because a test has its own value."""
    try:
        words = " ".join(shlex.split(line.replace("\\\n", " "), comments=True))
    except ValueError:  # a quote of more lines
        words = " ".join(line.split())
    return re.sub(r"^(export \w+)=.*", r"\1", words)


def _statements(text: str) -> list[str]:
    return re.sub(r"--.*", "", text).split(";")


def _plain_sql(text: str) -> str:
    return " ".join(re.sub(r"--.*", "", text).rstrip("; \n").split()).lower()


def _is_among(part: str, run: Any) -> bool:
    """Whether it was run, or one that is like it."""
    return any(part == one or (len(part) > 3 and part in one) or _is_like(part, one) for one in run)


def _is_like(part: str, one: str) -> bool:
    matcher = difflib.SequenceMatcher(None, one, part, autojunk=False)
    return (
        matcher.real_quick_ratio() >= ALIKE_MIN
        and matcher.quick_ratio() >= ALIKE_MIN
        and matcher.ratio() >= ALIKE_MIN
    )


def _is_within(part: str, lines: frozenset[str]) -> bool:
    """Whether its lines were run, or almost all."""
    own = part.splitlines()
    same = sum(line in lines or any(_is_like(line, one) for one in lines) for line in own)
    return same >= SAME_LINES_MIN * len(own) > 0
