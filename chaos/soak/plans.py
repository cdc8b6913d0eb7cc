"""The plans of the hot statements, those within functions included, as a session that plans now
gets them. The server itself tells them: `debug_print_plan`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import Any

import psycopg
from psycopg.errors import LockNotAvailable as LockUnavailable
from psycopg.errors import QueryCanceled
from psycopg.types.json import Jsonb

from rota.store import ops
from rota.store.driver import Operation
from tests.store.work import BEGINNING, FAIL, SUCCEED, Hand

QUEUE = "soak probe"
TYPE = "quick"
SETTINGS = (
    "set debug_print_plan = on; set debug_pretty_print = off; set client_min_messages = log; "
    "set log_min_messages = panic; "  # they are not for the server's log
    "set statement_timeout = '20 s'; set lock_timeout = '2 s'"
)
NAMES = "select oid::bigint, relname from pg_class where relnamespace = 'rota'::regnamespace"
NODE = re.compile(
    r"\{(SEQSCAN|INDEXSCAN|INDEXONLYSCAN|BITMAPINDEXSCAN|MODIFYTABLE|NESTLOOP|HASHJOIN|MERGEJOIN"
    r"|SORT) "
)
RELATION = re.compile(r"\{RANGETBLENTRY .*?:rtekind (\d+)(?: :relid (\d+))?")
SCANNED = re.compile(r":scanrelid (\d+)")
INDEX = re.compile(r":indexid (\d+)")
DAY = re.compile(r"_\d{8}")
PLACE = re.compile(
    r"(?:PL/pgSQL function (?:rota\.)?|SQL function \")(\w+)"
    r"(?:\(.*?\) line (\d+)|\" statement (\d+))?"
)


class Plans:
    """What was seen of the plans, and each that changed."""

    def __init__(self, url: str) -> None:
        self.seen: dict[str, list[str]] = {}
        """By statement: each plan that it had, in the order in which they were first seen."""
        self.changes: list[dict[str, object]] = []
        self.looks = 0
        self.refused = 0
        """Looks that met a lock."""
        self._last: dict[str, str] = {}
        self._url = url

    def look(self, at_s: float) -> None:
        """Plan everything anew, in transactions that are undone."""
        told: list[tuple[str, str]] = []

        def hear(said: psycopg.errors.Diagnostic) -> None:
            told.append((_place(said.context or ""), said.message_detail or ""))

        with psycopg.connect(self._url, application_name="soak plans") as connection:
            names: dict[int, str] = dict(connection.execute(NAMES).fetchall())
            connection.execute(SETTINGS)
            connection.commit()
            connection.add_notice_handler(hear)
            try:
                for step in _steps(connection):
                    self._note(step, told, names, at_s)
                    told.clear()
                self.looks += 1
            except (LockUnavailable, QueryCanceled):
                self.refused += 1
            connection.rollback()

    def _note(
        self, step: str, told: list[tuple[str, str]], names: dict[int, str], at_s: float
    ) -> None:
        shapes: dict[str, list[str]] = {}
        for place, text in told:
            shape = _shape(text, names)
            if shape:
                shapes.setdefault(f"{step}: {place}" if place else step, []).append(shape)
        for statement, found in shapes.items():
            plan = " | ".join(dict.fromkeys(found))
            before = self._last.get(statement)
            self._last[statement] = plan
            if plan not in self.seen.setdefault(statement, []):
                self.seen[statement].append(plan)
            if before is not None and before != plan:
                self.changes.append(
                    {
                        "at_s": round(at_s, 1),
                        "statement": statement,
                        "before": before,
                        "after": plan,
                    }
                )


def _place(context: str) -> str:
    """Return the function that a statement stands in, and its line."""
    found = PLACE.search(context)
    if found is None:
        return ""
    name, line, statement = found.groups()
    return f"{name}, line {line}" if line else f"{name}, statement {statement or 1}"


def _steps(connection: psycopg.Connection) -> Iterator[str]:
    """Live through the life of two jobs, and do each task of maintenance once."""
    hand = Hand(connection, "soak:0:probe", types=[TYPE], queues=[QUEUE])
    for n in range(2):
        connection.execute(
            "select rota.enqueue(%s, %s, queue => %s)", [TYPE, Jsonb({"n": n}), QUEUE]
        )
    yield "enqueue"
    done, failed = hand.claim(2).jobs
    yield "claim"
    hand.start(done, failed)
    yield "start"
    hand.renew(done, failed)
    yield "renew"
    hand.settle((done, SUCCEED), (failed, FAIL))
    yield "finish"
    connection.rollback()
    for name, operation in _tasks().items():
        hand.run(operation)
        yield name
        connection.rollback()


def _tasks() -> dict[str, Operation[Any]]:
    return {
        "reap": ops.reap(BEGINNING, 1, None),
        "expire": ops.expire("soak:0:probe", BEGINNING, 0, 1),
        "schedules": ops.schedules_due(BEGINNING, 1),
        "groups and limits": ops.sweep_rooms("", 1, counts=True),
        "waits": ops.sweep_waits("", 1),
        "batches": ops.fold_batches(1),
        "batches, mend": ops.mend_batches(1),
        "statistics": ops.roll_up_stats(),
        "dead": ops.archive_dead(1),
        "keys, free": ops.free_keys(1),
        **{f"forget {what}": ops.forget_rows(what, 1) for what in ops.FORGOTTEN},
    }


def _shape(text: str, names: dict[int, str]) -> str:
    """Return the nodes of a plan that touch tables of Rota, in order; empty: none does."""
    relations = [
        names.get(int(relid or 0)) if kind == "0" else None
        for kind, relid in RELATION.findall(text[text.rfind(":rtable ") :])
    ]
    nodes: list[str] = []
    starts = list(NODE.finditer(text))
    for start, end in pairwise([*starts, None]):
        assert start is not None
        body = text[start.end() : None if end is None else end.start()]
        name = _name(start[1], body, relations, names)
        if name is not None:
            nodes.append(DAY.sub("", name))
    if not any("(" in node for node in nodes):
        return ""
    return " ".join(node for node, _ in groupby(nodes))  # partitions are one


def _name(kind: str, body: str, relations: list[str | None], names: dict[int, str]) -> str | None:
    if kind in ("INDEXSCAN", "INDEXONLYSCAN", "BITMAPINDEXSCAN"):
        found = INDEX.search(body)
        index = names.get(int(found[1])) if found else None
        return None if index is None else f"{kind}({index})"
    if kind == "SEQSCAN":
        found = SCANNED.search(body)
        place = int(found[1]) if found else 0
        table = relations[place - 1] if 0 < place <= len(relations) else None
        return None if table is None else f"{kind}({table})"
    return kind
