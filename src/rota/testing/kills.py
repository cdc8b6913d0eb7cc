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
from types import FrameType
from typing import Any, NamedTuple

import rota
from rota.declare.context import Context
from rota.errors import UsageError
from rota.store.db import Database

ROWS_MAX = 100_000
"""Most rows of a table that are compared."""
KILLS_MAX = 10
"""Most places at which a handler is killed: of more, so many are chosen evenly."""
NOT_THEIRS = (
    "<",
    str(Path(rota.__file__).parent) + os.sep,
    *{sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
"""Where code is that is not the application's, unless its handler is there."""
_ACTS_ON_OTHERS = """
with recursive part(id) as (
  select to_regclass(name)::oid from unnest(%s::text[]) name
  union
  select inhrelid from part join pg_inherits on inhparent = id
)
select id::regclass::text, coalesce(conname, tgname, 'a rule or another table')
from part
join pg_class on pg_class.oid = id
join pg_roles on rolname = current_user
left join pg_trigger
  on tgrelid = id and tgtype & 12 <> 0 -- of an insert or a delete
  and tgenabled in ('A', case when rolsuper then 'R' else 'O' end)
left join pg_constraint on pg_constraint.oid = tgconstraint
  and confrelid = id and confdeltype in ('c', 'n', 'd')
where not tgisinternal or conname is not null or relhasrules or relkind not in ('r', 'p')
  or relkind = 'r' and exists (select from pg_inherits where inhparent = id)
limit 1
"""
"""A table whose rows cannot go and come without a change of others, as `begin_again` does it."""


class Row(NamedTuple):
    """A row of a table."""

    text: str
    values: dict[str, str | None]
    """By quoted name of the column, without those that are generated."""


Tables = Mapping[str, Sequence[Row]]
Place = tuple[str, int, int]
"""A file, a line, and how many times it was reached."""


class Killed(BaseException):
    """Ends a handler where a kill would."""


class Watcher:
    """Stands around an attempt: finds the places after which something was committed, or kills the
    handler at one of them. Of the code in the handler's own thread."""

    def __init__(
        self, handler: Any, connection: Any, state_query: str, at: Place | None = None
    ) -> None:
        self._package = _read_package(handler.__module__)
        self._connection = connection
        self._state_query = state_query
        self._at = at
        self.visits: Counter[tuple[str, int]] = Counter()
        """How often each line was reached."""
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
        is_own = _read_package(frame.f_globals.get("__name__")) == self._package
        is_skipped = frame.f_code.co_filename.startswith("<" if is_own else NOT_THEIRS)
        return None if is_skipped else self._trace_line

    def _trace_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            line = frame.f_code.co_filename, frame.f_lineno
            self.visits[line] += 1
            place = (*line, self.visits[line])
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


def _read_package(module: object) -> str:
    return str(module).partition(".")[0]


def find_obstacle(database: Database, tables: Sequence[str]) -> str | None:
    """Return why rows of these tables cannot be put back, if they cannot: a worker of another
    process has used this database within the hour, or rows of other tables would change."""
    with database.open_connection("testing") as connection:
        found = connection.execute(
            f"select name from {database.schema}.worker where (host, pid) <> (%s, %s) "
            f"and heartbeat_at > {database.schema}.clock() - interval '1 hour' limit 1",
            [socket.gethostname(), os.getpid()],
        ).fetchone()
        if found is not None:
            return f"worker {found[0]} has worked here within the hour: no database of a test"
        bound = connection.execute(_ACTS_ON_OTHERS, [tables]).fetchone()
    return (bound and "rows of {} cannot be put back alone, because of {}".format(*bound)) or None


def make_state_query(schema: str, job: int, tables: Sequence[str]) -> str:
    """Return a query for what a handler may have committed: in these tables, of jobs and of
    effects."""
    facts = [f"(select count(*) from {schema}.{one} where id > {job})" for one in ("job", "jobs")]
    facts.append(f"(select count(done_at) from {schema}.effect where job >= {job})")
    rows = "(select (count(*), sum(hashtext((t.*)::text)))::text from {} t)"
    facts += [rows.format(one) for one in tables]
    return f"select {', '.join(facts)}"


def read_tables(database: Database, names: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of tables. Raises UsageError: there is no such table, or it is too large."""
    with database.open_connection("testing") as connection:
        return {name: _read_rows(connection, name) for name in names}


def _read_rows(connection: Any, table: str) -> list[Row]:
    [(name,)] = connection.execute("select to_regclass(%s)::text", [table]).fetchall()
    if name is None:
        raise UsageError(f"run_twice: there is no table {table!r} in the database of the App")
    [(columns,)] = connection.execute(
        "select array_agg(quote_ident(attname)) from pg_attribute where attrelid = %s::regclass "
        "and attnum > 0 and not attisdropped and attgenerated = ''",
        [name],
    ).fetchall()
    values = ", ".join(f"t.{column}::text" for column in columns or ())
    rows = connection.execute(
        f"select (t.*)::text, array[{values}]::text[] from {name} t limit {ROWS_MAX + 1}"
    ).fetchall()
    if len(rows) > ROWS_MAX:
        raise UsageError(f"run_twice: {table} has more than {ROWS_MAX:,} rows, too many to compare")
    return [Row(text, dict(zip(columns or (), values, strict=True))) for text, values in rows]


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
            connection.execute(f"delete from {name}")
            if rows:
                columns = ", ".join(rows[0].values)
                connection.execute(
                    f"insert into {name} ({columns}) overriding system value "
                    f"select {columns} from unnest(%s::text[]::{name}[])",
                    [[row.text for row in rows]],
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
