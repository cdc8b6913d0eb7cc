"""`rota import-table` moves the jobs of a table of one's own into Rota's tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rota.cli.flags import argument, flag, option
from rota.cli.output import print_json, print_text
from rota.cli.schedules import make_schedule
from rota.cli.target import Actor
from rota.client import import_table as tables
from rota.client.import_table import FIRST_PLACE, Found
from rota.client.session import Session
from rota.errors import RotaError, UsageError
from rota.model.units import plural, seconds

STAYS = {
    "running": "stay: a worker has them; run this again when they have ended",
    "old": "stay: finished before the first day that history keeps",
}


def import_table(
    table: str = argument("TABLE", "The table, as a query names it: jobs, work.job_runs."),
    definitions: str | None = option(
        "--definitions TABLE", "Table whose rows with a `schedule` (cron) become schedules."
    ),
    columns: list[str] | None = option(
        "--map OURS=THEIRS", "A column by another name: run_at=due. Can be given more than once."
    ),
    statuses: list[str] | None = option(
        "--status THEIRS=OURS", "What a status means: ok=succeeded. Can be given more than once."
    ),
    queue: str | None = option("--queue NAME", "Queue of all jobs. Default: the column's."),
    lease: str = option(
        "--lease DURATION", "How long `locked_at` holds, without locked_until.", default="1h"
    ),
    apply: bool = flag("--apply", "Move the rows. Without it nothing is changed."),
    leave_view: bool = flag(
        "--leave-view",
        "Afterwards put a view in the table's place: what old programs insert becomes a job.",
    ),
    *,
    actor: Actor,
) -> None:
    """Move the jobs of a table of your own: open ones to the queue, finished ones to history.

    Without --apply, says what it would do. Each 5,000 rows are one transaction with their DELETE:
    if the command is killed, run it again.
    """
    if leave_view and not apply:
        raise UsageError("--leave-view changes the table: give --apply, too")
    lease_s = seconds(lease, name="--lease")
    with actor.session() as opened:
        opened.connection.execute("set statement_timeout = 0")  # it reads the table whole
        whole, there = opened.run(tables.read_columns(table))
        read = tables.map_columns(there, _pairs(columns, "--map"))
        spec = tables.make_spec(read, _pairs(statuses, "--status"), queue, lease_s)
        found = opened.run(tables.preview(whole, spec))
        facts: dict[str, Any] = {"table": table, "columns": read, "found": found}
        lines = [f"{table} is read by {', '.join(_say_columns(read))}", *_say_found(found)]
        planned = opened.run(tables.read_planned(whole, spec)) if definitions else {}
        if apply:
            moved, held = _move(opened, whole, spec)
            facts |= {"moved": moved, "held": held}
            lines.append(f"moved {plural(moved, 'row')}")
            if held:
                lines.append(f"{plural(held, 'row')} stay: another job has their key")
        else:
            lines.append("nothing was changed: --apply moves the rows")
        if definitions:
            made = list(_make_schedules(opened, definitions, planned, actor, apply=apply))
            facts["schedules"] = made
            lines += [f"schedule {name}: {said}" for name, said in made]
        if leave_view:
            kept = opened.run(tables.leave_view(whole, spec), atomic=True)
            facts["kept"] = kept
            lines.append(f"{table} is a view now, whose rows become jobs; the table is {kept}")
    if actor.as_json:
        print_json(facts)
    else:
        for line in lines:
            print_text(line)


def _move(opened: Session, table: str, spec: str) -> tuple[int, int]:
    """Move all rows; return how many, and how many of them stay because of their keys."""
    place: str | None = FIRST_PLACE
    moved = held = 0
    while place is not None:
        batch = opened.run(tables.move(table, spec, place), atomic=True)
        place, moved, held = batch.last_place, moved + batch.moved, held + batch.held
    return moved, held


def _say_columns(read: dict[str, str]) -> Iterator[str]:
    for ours, theirs in read.items():
        yield ours if ours == theirs else f"{theirs} ({ours})"


def _say_found(found: list[Found]) -> Iterator[str]:
    for rows in found:
        count = plural(rows.jobs, "row")
        if rows.refusal is not None:
            yield f"{count} stay: {rows.refusal}"
        elif rows.target in STAYS:
            yield f"{count} {STAYS[rows.target]}"
        else:
            yield f"{count} → {rows.target}"


def _make_schedules(
    opened: Session, definitions: str, planned: dict[str, Any], actor: Actor, *, apply: bool
) -> Iterator[tuple[str, str]]:
    """Make a schedule of each definition; yield its name, and what became of it."""
    there = {schedule.name for schedule in opened.schedules.list()}
    whole, _ = opened.run(tables.read_columns(definitions))
    for name, row in tables.name_definitions(opened.run(tables.read_definitions(whole))):
        if name in there:
            yield name, "there is one already"
            continue
        try:
            schedule = make_schedule(
                actor, name, row["schedule"], row["job_type"], row.get("payload") or {},
                {"max_attempts": row.get("max_attempts")},
            )  # fmt: skip
            if apply:
                until = planned.get(row["job_type"])
                put = tables.put_definition(schedule.make_row(), until, by=actor.by, why=actor.why)
                opened.run(put, atomic=True)
            yield name, row["schedule"]
        except RotaError as error:
            yield name, f"NOT MADE: {error}"


def _pairs(given: list[str] | None, name: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given or ()]
    for before, sign, after in pairs:
        if not (before and sign and after):
            raise UsageError(f"{name} needs NAME=NAME, not {before}{sign}{after}")
    return {before: after for before, _, after in pairs}
