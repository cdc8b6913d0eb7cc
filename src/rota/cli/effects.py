"""`rota effects` lists effects and steps; `rota effects resolve` says whether one happened."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.cli.flags import argument, flag, option
from rota.cli.grammar import make_noun
from rota.cli.jobs import PART, PART_HELP, read_part
from rota.cli.listing import Field, Listing, label, spare
from rota.cli.table import Kind
from rota.cli.target import Actor, Viewer
from rota.client.base import ID_MAX, LIST_MAX
from rota.client.effects import STATUSES
from rota.errors import UsageError


def effects(
    key: str | None = option("--key KEY", "Only the effect with this key, or steps of this name."),
    job: int | None = option(
        "--job ID", "Only those of this job and of its chain.", min=1, max=ID_MAX
    ),
    about: list[str] | None = option(
        f"--about {PART}", f"Only those that are about this. {PART_HELP}"
    ),
    status: str | None = option(
        "--status STATUS", f"Only with this status: {', '.join(STATUSES)}."
    ),
    limit: int = option("--limit", "Maximum number.", default=100, min=1, max=LIST_MAX),
    *,
    viewer: Viewer,
) -> None:
    """List effects and steps; done effects and steps only with --key or --job.

    An uncertain effect may have happened: ask the provider, then use `rota effects resolve`.
    """
    wanted: Any = {
        "job": job,
        "about": read_part(about, "--about"),
        "status": status,
        "limit": limit,
    }
    EFFECTS.show(viewer, lambda opened: opened.effects.find(key, **wanted))


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


EFFECTS = Listing(
    "effects",
    (
        label("key"),
        "step of",
        "status",
        "job",
        spare("if uncertain"),
        spare(Field("intended", "intended_at")),
        Field("done", "done_at"),
        Field("about", lambda effect, _: _json(effect.about), Kind.ERROR),
        Field("result", lambda effect, _: _json(effect.result), Kind.ERROR),
    ),
    empty="no effects found",
)


def resolve(
    key: str = argument("KEY", "The effect's key; with --job, a step's name."),
    done: bool | None = option(
        "--done/--not-done",
        "It has happened: no job does it again. Or it has not: the next attempt does it.",
    ),
    result: str | None = option(
        "--result JSON", "With --done: the result, such as the provider's id."
    ),
    job: int | None = option("--job ID", "Of a step: any job of its chain.", min=1, max=ID_MAX),
    again: bool = flag("--again", "With --not-done: also what is done happens once more."),
    *,
    actor: Actor,
) -> None:
    """Say whether an uncertain effect has happened, after you have asked the provider.

    This does not run a dead job again: use `rota retry`.
    """
    if done is None:
        raise UsageError("say --done or --not-done")
    with actor.session() as opened:
        opened.effects.resolve(
            key,
            done=done,
            result=_decode(result),
            job=job,
            again=again,
            why=actor.why,
            by=actor.by,
        )
    text = f"{key}: {'done' if done else 'not done'}"
    actor.say({"key": key, "job": job, "done": done}, text)


def _decode(result: str | None) -> Any:
    try:
        return None if result is None else msgspec.json.decode(result)
    except msgspec.DecodeError as error:
        raise UsageError(f"--result is not JSON: {error}") from None


app = make_noun(effects, resolve=resolve)
