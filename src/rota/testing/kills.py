"""Where a handler can be killed between two of its commits, and the rows to begin again from.

Whatever library a handler uses, the server says after each line of its code whether something was
committed. So each such place is found by one run, and another run is killed there.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

import rota
from rota.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType

    from rota.declare.context import Context
    from rota.store.db import Database

ROWS_MAX = 100_000
"""Most rows of a table that are compared."""
KILLS_MAX = 10
"""Most places at which a handler is killed: of more, so many are chosen evenly."""
_NOT_THEIRS = (
    "<",
    str(Path(rota.__file__).parent),
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
"""Where code is that is not the application's."""


class Row(NamedTuple):
    """A row of a table."""

    text: str
    values: dict[str, Any]


Tables = Mapping[str, Sequence[Row]]
Place = tuple[str, int, int]
"""A file, a line, and how many times it was reached."""


class Killed(BaseException):
    """Ends a handler where a kill would."""


class Watcher:
    """Stands around an attempt: finds the places after which something was committed, or kills the
    handler at one of them. Of the code in the handler's own thread."""

    def __init__(self, connection: Any, state_query: str, at: Place | None = None) -> None:
        self._connection = connection
        self._state_query = state_query
        self._at = at
        self._visits: Counter[tuple[str, int]] = Counter()
        self._last: Any = None
        self._seen: Hashable = None
        """What was committed when somebody had committed last."""
        self._state: Hashable = None
        """The same, before the line that runs now."""
        self._found: list[tuple[Place, Hashable]] = []

    @contextmanager
    def around(self, context: Context) -> Iterator[None]:
        """Watch the handler that is called in the block."""
        self._state = None if self._at is not None else self._look()
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def list_places(self) -> list[Place]:
        """Return where a kill leaves another state than one after the handler; `KILLS_MAX` at
        most."""
        end = self._look()
        places = [place for place, state in self._found if state != end]
        return (
            [places[at * len(places) // KILLS_MAX] for at in range(KILLS_MAX)]
            if (len(places) > KILLS_MAX)
            else places
        )

    def _trace(self, frame: FrameType, event: str, arg: object) -> Any:
        return None if frame.f_code.co_filename.startswith(_NOT_THEIRS) else self._trace_line

    def _trace_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            line = frame.f_code.co_filename, frame.f_lineno
            self._visits[line] += 1
            place = (*line, self._visits[line])
            if place == self._at:
                raise Killed
            if self._at is None and (state := self._look()) != self._state:
                self._state = state
                self._found.append((place, state))
        return self._trace_line

    def _look(self) -> Hashable:
        """Return what is committed by now; nothing is read if nobody has committed since."""
        [last] = self._connection.execute("select pg_current_snapshot()::text").fetchone()
        if last != self._last:
            self._last = last
            self._seen = self._connection.execute(self._state_query).fetchone()
        return self._seen


def find_other_workers(database: Database) -> str | None:
    """Return a worker of another process that has used this database within the hour; None: there
    is none, as in a database of a test."""
    with database.open_connection("testing") as connection:
        found = connection.execute(
            f"select name from {database.schema}.worker where (host, pid) <> (%s, %s) "
            f"and heartbeat_at > {database.schema}.clock() - interval '1 hour' limit 1",
            [socket.gethostname(), os.getpid()],
        ).fetchone()
        return None if found is None else f"worker {found[0]}"


def make_state_query(schema: str, job: int, tables: Sequence[str]) -> str:
    """Return a query for what a handler may have committed: in these tables, of jobs and of
    effects."""
    facts = [f"(select count(*) from {schema}.{one} where id > {job})" for one in ("job", "jobs")]
    facts.append(f"(select count(done_at) from {schema}.effect where job >= {job})")
    facts += [f"(select (count(*), sum(hashtext(t::text)))::text from {one} t)" for one in tables]
    return f"select {', '.join(facts)}"


def read_tables(database: Database, names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of tables. Raises UsageError: there is no such table, or it is too large."""
    with database.open_connection("testing") as connection:
        return {name: _read_rows(connection, name) for name in names}


def _read_rows(connection: Any, table: str) -> list[Row]:
    [(name,)] = connection.execute("select to_regclass(%s)::text", [table]).fetchall()
    if name is None:
        raise UsageError(f"run_twice: there is no table {table!r} in the database of the App")
    rows = connection.execute(
        f"select t::text, to_jsonb(t)::text from {name} t limit {ROWS_MAX + 1}"
    ).fetchall()
    if len(rows) > ROWS_MAX:
        raise UsageError(f"run_twice: {table} has more than {ROWS_MAX:,} rows, too many to compare")
    return [Row(text, msgspec.json.decode(values)) for text, values in rows]


def begin_again(database: Database, job: int, tables: Tables) -> None:
    """Let the tables be as they were, and forget the job with all that came of it. Raises
    StoreError: the database refuses it."""
    schema = database.schema
    with database.open_connection("testing") as connection, connection.transaction():
        # Otherwise foreign keys and triggers see rows go and come.
        connection.execute(
            "select set_config('session_replication_role', 'replica', true) "
            "from pg_roles where rolname = current_user and rolsuper"
        )
        for name, rows in tables.items():
            [(columns,)] = connection.execute(
                "select string_agg(quote_ident(attname), ', ') from pg_attribute "
                "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped "
                "and attgenerated = ''",
                [name],
            ).fetchall()
            connection.execute(f"delete from {name}")
            connection.execute(
                f"insert into {name} ({columns}) overriding system value "
                f"select {columns} from jsonb_populate_recordset(null::{name}, %s::jsonb)",
                [msgspec.json.encode([row.values for row in rows]).decode()],
            )
        for table, column in (
            ("idempotency", "job"), ("effect", "job"), ("attempt", "job"),
            ("job_history", "id"), ("job", "id"),
        ):  # fmt: skip
            connection.execute(f"delete from {schema}.{table} where {column} >= %s", [job])


def find_stable(start: Tables, first: Tables, again: Tables) -> dict[str, list[str]] | None:
    """Return the columns of each table that two runs from the same rows leave the same: not the
    number of a sequence, or a time. None: they leave other rows, or the second one did not write
    what the first one did, so that nothing can be compared."""
    stable: dict[str, list[str]] = {}
    for table, rows in first.items():
        stable[table] = []
        for column in rows[0].values if rows else ():
            came = _count(again[table], [column])
            if came == _count(rows, [column]):
                stable[table].append(column)
            elif came == _count(start[table], [column]):
                return None
        if _count(rows, stable[table]) != _count(again[table], stable[table]):
            return None
    return stable


def count_rows(rows: Sequence[Row], columns: Sequence[str] | None) -> Counter[str]:
    """Count rows by their text, of these columns only; None: of all."""
    return Counter(row.text for row in rows) if columns is None else _count(rows, columns)


def _count(rows: Sequence[Row], columns: Sequence[str]) -> Counter[str]:
    return Counter(f"({','.join(str(row.values[one]) for one in columns)})" for row in rows)
