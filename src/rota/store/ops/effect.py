"""Effects: what handlers tell of them, and what people read and settle."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.model.effect import EffectAnswer, EffectCall
from rota.model.record import Record
from rota.store.driver import Operation, Query, Row


def call_effect(call: EffectCall) -> Operation[EffectAnswer]:
    """Write an intent or its end. The same call again answers the same."""
    claim: dict[str, Any] = {
        "id": call.job, "claims": call.claims, "entry": call.entry, "key": call.key
    }  # fmt: skip
    if call.verb == "intend":
        asked = {
            **claim,
            "place": call.place,
            "if_uncertain": call.if_uncertain,
            "about": call.about_json,
            "not_done": call.not_done,
        }
        [row] = yield Query("effect_intend", asked)
        state, result, earlier, holder, age_s, expected = row
        return EffectAnswer(state, result, earlier or 0, holder or 0, age_s or 0.0, expected)
    ended = {
        **claim,
        "is_step": call.place is not None,
        "done": call.verb == "finish",
        "result": call.result_json,
    }
    is_held = (yield Query("effect_end", ended))[0][0]
    return EffectAnswer("ended" if is_held else "lost")


class EffectRecord(Record, frozen=True):
    """An effect or a step: a row of the view `effects`."""

    key: str
    """The name of a step, or the key of an effect."""
    step_of: int | None
    """The origin of a step's jobs; None: an effect, which all jobs share."""
    place: int | None
    """How many steps were called with this step; None: an effect."""
    status: Literal["intended", "done", "uncertain"]
    """`intended`: its job is at it. `done`. `uncertain`: it may have happened."""
    job: int
    """The job that intended it last, or its requeue."""
    if_uncertain: str
    """What the next attempt does if it may have happened: `skip`, `repeat` or `dead`."""
    uncertain_before: int
    """Intents before the last intent that may have happened."""
    result: Any
    """What the handler kept of it, from JSON; None: nothing, or it is not done."""
    about: Any
    """What it is found by, from JSON; None: nothing, or it was forgotten."""
    intended_at: datetime
    """When the last intent was written, an aware datetime."""
    done_at: datetime | None
    """When it was recorded as done, an aware datetime; None: it is not done."""

    def __repr__(self) -> str:
        kind = "effect" if self.step_of is None else "step"
        return f"<{kind} {self.key!r} {self.status}, of job {self.job}>"


def effects(status: str | None, limit: int) -> Operation[list[EffectRecord]]:
    """List effects with a status, the latest first; None: all that are not done."""
    asked = {
        "done": status == "done", "status": status if status != "done" else None, "limit": limit
    }  # fmt: skip
    return [_record(row) for row in (yield Query("effects_list", asked))]


def effects_of(
    jobs: Sequence[int] | None, key: str | None, status: str | None, limit: int
) -> Operation[list[EffectRecord]]:
    """Read the latest effects and steps of jobs, with a key, or both, in order; None: of any."""
    asked = {
        "jobs": None if jobs is None else list(jobs), "key": key, "status": status, "limit": limit
    }  # fmt: skip
    return [_record(row) for row in (yield Query("effects_of", asked))]


def effects_about(about_json: str, status: str | None, limit: int) -> Operation[list[EffectRecord]]:
    asked = {"about": about_json, "status": status, "limit": limit}
    return [_record(row) for row in (yield Query("effects_about", asked))]


def forget_effects(about_json: str, why: str | None, by: str) -> Operation[int]:
    """Forget what effects are about and their results; return how many there were."""
    asked = {"about": about_json, "why": why, "by": by}
    return (yield Query("effect_forget", asked))[0][0]  # type: ignore[no-any-return]


def resolve_effect(
    key: str,
    *,
    done: bool,
    result_json: str | None,
    step_of: int | None,
    why: str | None,
    by: str,
    again: bool,
) -> Operation[Literal["done", "not_done", "held", "is_done", "unknown"]]:
    """Resolve an effect, or a step of a job, by hand; return the database's answer."""
    settled = {
        "key": key, "done": done, "result": result_json, "step_of": step_of, "why": why, "by": by,
        "again": again,
    }  # fmt: skip
    return (yield Query("effect_resolve", settled))[0][0]  # type: ignore[no-any-return]


def _record(row: Row) -> EffectRecord:
    facts = dict(zip(EffectRecord.__struct_fields__, row, strict=True))
    for name in ("result", "about"):
        facts[name] = None if facts[name] is None else msgspec.json.decode(facts[name])
    return EffectRecord(**facts)
