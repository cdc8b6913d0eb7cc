"""What is written by hand in the reference agrees with the code; the rest is generated."""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path

import psycopg
from psycopg.rows import TupleRow

import rota
from rota import records
from rota.declare.config import WorkerConfig
from rota.declare.options import JOB_DEFAULTS, JobOptions
from rota.declare.schedule import TIMING_DEFAULTS, Timing
from rota.model.outcome import Outcome
from tests.docs.reader import read_page
from tests.support.wait import eventually

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "docs/operate/troubleshooting.md"
PLACES = {
    page: page.read_text("utf-8") for page in (*(ROOT / "docs/reference").glob("*.md"), ERRORS)
}


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


def test_run_has_the_options_of_arun_except_signals_which_it_always_handles() -> None:
    options = dict(inspect.signature(rota.App.arun).parameters)
    del options["signals"]
    assert list(inspect.signature(rota.App.run).parameters) == list(options)


def test_each_option_that_is_unpacked_has_a_default() -> None:
    assert list(JobOptions.__annotations__) == list(JOB_DEFAULTS)
    assert list(Timing.__annotations__) == list(TIMING_DEFAULTS)


def test_each_outcome_is_on_the_page() -> None:
    written = {name for row in tables("outcomes.md")["Outcomes"] for name in names(row["outcome"])}
    assert written == {f"rota.{kind.__name__}" for kind in Outcome.__subclasses__()}


BLOCK = re.compile(r"^::: (\S+)", re.MULTILINE)


def test_each_block_names_what_there_is() -> None:
    named = [name for text in PLACES.values() for name in BLOCK.findall(text)]
    assert len(named) == len(set(named)) > 70
    for name in named:
        pkgutil.resolve_name(name)


def find_places() -> dict[str, list[str]]:
    """The pages that are about each name: by a block, or by a heading."""
    found: dict[str, list[str]] = {}
    for page, text in PLACES.items():
        of_rota = re.findall(r"^#### (\w+)$", text, re.MULTILINE) if page == ERRORS else []
        headings = re.findall(r"^#+ `(rota[\w.]+)`", text, re.MULTILINE)
        for name in (*BLOCK.findall(text), *headings, *(f"rota.{error}" for error in of_rota)):
            found.setdefault(name, []).append(page.name)
    return found


def test_each_public_name_is_on_exactly_one_page() -> None:
    public = [
        *(f"rota.{name}" for name in rota.__all__ if name != "__version__"),
        *(f"rota.records.{name}" for name in vars(records) if name[0].isupper()),
    ]
    places = find_places()
    assert {name: places.get(name) for name in public if len(places.get(name, [])) != 1} == {}


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


def test_each_fixed_time_and_limit_is_what_the_page_says() -> None:
    for row in tables("limits.md")["Fixed times and limits"]:
        where, _, constant = names(row["where"])[0].rpartition(".")
        found = pkgutil.resolve_name(where)
        # The fields of a class with slots are its objects'.
        holder = found() if found is WorkerConfig else found
        assert getattr(holder, constant) == float(row["value"].split()[0]), row


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
        "rota begin",
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
