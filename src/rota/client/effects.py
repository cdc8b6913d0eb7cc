"""Calls on effects and steps: find them, and resolve uncertain effects."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Literal

from rota.client.base import LIST_MAX, Namespace, check_by, check_id, check_why, encode_part
from rota.client.both import awaitable, both
from rota.declare.result import encode_value
from rota.errors import EffectHeld, EffectNotFound, UsageError
from rota.model.bounds import KEY_MAX, check_bool, check_integer, check_text
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import EffectRecord

STATUSES = ("intended", "done", "uncertain")
EffectStatus = Literal["intended", "done", "uncertain"]


class Effects(Namespace):
    """`app.effects`: what handlers guard with `ctx.effect` and `ctx.step`.

    `why` and `by` are as in `app.cancel`.
    """

    @both
    def find(
        self,
        key: str | None = None,
        *,
        job: int | None = None,
        about: Mapping[str, Any] | None = None,
        status: EffectStatus | None = None,
        limit: int = 100,
    ) -> Operation[builtins.list[EffectRecord]]:
        """Find effects: with a key, or of a job (with the steps of its chain), or the
        latest that are about something, or with a status.

        Args:
            key: the effect's key, or a step's name.
            job: a job's id.
            about: what their `about` contains, as in `{"to": "ada@example.org"}`; alone.
            status: `intended`, `done` or `uncertain`. Defaults to all but `done`; with a key or a
                job, to all.
            limit: most to return, 1 … 10,000.
        """
        if status is not None and status not in STATUSES:
            raise UsageError(f"status must be one of {', '.join(STATUSES)}, not {status!r}")
        check_integer(limit, "limit", 1, LIST_MAX)
        if key is not None:
            check_text(key, "key", KEY_MAX)
        if job is not None:
            check_id(job)
        sought = encode_part(about, "about")
        if sought is not None:
            if key is not None or job is not None:
                raise UsageError("give about, or a key or a job")
            return (yield from ops.effects_about(sought, status, limit))
        if key is None and job is None:
            return (yield from ops.effects(status, limit))
        chain = None if job is None else (yield from ops.chain(job)) or [job]
        return (yield from ops.effects_of(chain, key, status, limit))

    afind = awaitable(find)

    @both
    def resolve(
        self,
        key: str,
        *,
        done: bool,
        result: Any = None,
        job: int | None = None,
        again: bool = False,
        why: str | None = None,
        by: str | None = None,
    ) -> Operation[None]:
        """Say whether an effect has happened, after you asked the provider.

        Done: no attempt repeats the effect. Not done: the effect is forgotten, and the next attempt
        acts again. A dead job must still be requeued.

        Args:
            key: the effect's key; with `job`, a step's name.
            result: with `done=True`, what `effect.result` is from then on.
            job: of a step, any job of its chain.
            again: with `done=False`, forget a done effect too, so that it happens once more.

        Raises:
            EffectNotFound: there is no such effect.
            EffectHeld: a running job is at it. Nothing changed.
            UsageError: an argument cannot be stored; or the effect is done, and `again` is not
                given. Nothing changed.
        """
        check_text(key, "key", KEY_MAX)
        check_bool(done, "done")
        if check_bool(again, "again") and done:
            raise UsageError("again is for what is not done")
        encoded, problem = (None, None) if result is None else encode_value(result)
        if problem is not None:
            raise UsageError(f"the result cannot be stored: {problem}")
        if encoded is not None and not done:
            raise UsageError("a result is for an effect that is done")
        answer = yield from ops.resolve_effect(
            key,
            done=done,
            result_json=encoded,
            step_of=None if job is None else check_id(job),
            why=check_why(why),
            by=check_by(by),
            again=again,
        )
        if answer == "is_done":
            raise UsageError(
                f"{'effect' if job is None else 'step'} {key!r} is done: nothing was changed; if "
                "it is to happen once more, say again (`--again`)"
            )
        if answer == "unknown":
            raise EffectNotFound(key, job)
        if answer == "held":
            raise EffectHeld(key)

    aresolve = awaitable(resolve)

    @both
    def forget(
        self, about: Mapping[str, Any], *, why: str | None = None, by: str | None = None
    ) -> Operation[int]:
        """Forget the `about` and the result of all effects about this; return their number. They
        stay done: no attempt repeats them.

        Raises:
            UsageError: `about` is empty, or has no JSON form.
        """
        sought = encode_part(about, "about")
        if sought is None:
            raise UsageError("forget: say what the effects are about")
        return ops.forget_effects(sought, check_why(why), check_by(by))

    aforget = awaitable(forget)
