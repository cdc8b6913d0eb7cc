"""`rota erase` erases a person's data."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from shlex import quote
from typing import Any

import typer

from rota.cli.flags import flag, option
from rota.cli.jobs import PART, PART_HELP, read_part
from rota.cli.target import Actor
from rota.client.base import ID_MAX
from rota.client.erase import Erased, find_to_erase
from rota.errors import RotaError
from rota.model.failure import list_names
from rota.model.units import plural


def erase(
    payload: list[str] | None = option(
        f"--payload {PART}", f"Jobs with this argument. {PART_HELP}"
    ),
    job: int | None = option("--job ID", "This job, instead of --payload.", min=1, max=ID_MAX),
    yes: bool = flag("--yes", "Do not ask for confirmation."),
    *,
    actor: Actor,
) -> None:
    """Erase what jobs were given and what they said, with a reason (--why).

    A job that waits is cancelled, a dead job archived. A job that runs is erased within an hour of
    its end. Keys become hashes, and stay taken. If it stops, run it again.
    """
    sought = read_part(payload, "--payload")
    with actor.session() as opened:
        found, _ = opened.run(find_to_erase(sought, job, actor.why))
        ids = f": {list_names(map(str, found))}" if found and not yes else ""
        typer.echo(f"{plural(len(found), 'job')} to be erased{ids}", err=True)
        if not found and (other := _swap_types(sought or {})) != sought:
            others, _ = opened.run(find_to_erase(other, None, actor.why))
            if others:
                had = " ".join(f"--payload {quote(_assign(*part))}" for part in other.items())
                typer.echo(f"{plural(len(others), 'job')} found for {had}", err=True)
        if not (yes or sys.stdin.isatty()):
            raise RotaError("nothing is erased: stdin is not a terminal to confirm it; add --yes")
        if not yes:
            typer.confirm("Continue?", abort=True, err=True)
        erased = opened.jobs.erase(sought, job=job, why=actor.why or "", by=actor.by)
    actor.say(erased, "\n".join(_say(erased)))
    if erased.refused:
        raise RotaError(f"the database refuses to erase {plural(len(erased.refused), 'job')}")


def _say(erased: Erased) -> Iterator[str]:
    yield f"{plural(erased.jobs, 'job')} erased"
    if erased.running:
        runs = plural(len(erased.running), "job")
        ids = list_names([str(job) for job in erased.running])
        yield f"{runs} still running, erased within an hour of the end: {ids}"
    if erased.corrected:
        ids = list_names([str(job) for job in erased.corrected])
        yield f"not erased, because they had another payload before they were retried: {ids}"
    for job, why in erased.refused.items():
        yield f"job {job} is not erased: {why}"
    for batch in erased.batches:
        yield f"batch {batch}: the job that was to follow it is erased, and is not enqueued"
    for schedule in erased.schedules:
        yield f"schedule {schedule} is not erased: change or delete it, and run this again"
    for name in erased.secrets:
        yield f"{name} is a secret argument: it is stored sealed, and cannot be searched"
    for partition, statement in erased.partitions.items():
        yield f"{partition} is detached and not erased; in psql: {statement}"


def _swap_types(part: dict[str, Any]) -> dict[str, Any]:
    """Return the alternative of a payload: numbers as texts, and number texts as numbers."""
    return {name: _swap(value) for name, value in part.items()}


def _swap(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value) else value


def _assign(name: str, value: Any) -> str:
    return f"{name}={json.dumps(value, ensure_ascii=False)}"
