"""What a notebook shows of an object: one short line, and nothing of a payload."""

from __future__ import annotations

import rota
from tests.support.rules import rule


@rule("M45")
def test_what_users_hold_is_shown_in_one_line_without_what_is_in_a_payload(app: rota.App) -> None:
    shown: list[object] = [app, rota.Jobs()]

    @app.job("mail", takes_context=True)
    def mail(ctx: rota.Context, to: str) -> str:
        block = ctx.effect("mail:7")
        shown.extend([ctx, block])
        with block as effect:
            shown.append(effect)
            effect.result = to
        return to

    made = app.batch([mail.new("secret")])
    shown += [mail, mail.new("secret"), made.jobs[0], made]
    assert app.drain().succeeded == 1
    shown += [app.get(1), app.batches.get(made.id), *app.effects.find(job=1)]
    for one in map(repr, shown):
        assert len(one) < 80 and "\n" not in one and "secret" not in one, one
    assert {"<job type 'mail'>", "<job 1 mail succeeded>"} <= set(map(repr, shown))
