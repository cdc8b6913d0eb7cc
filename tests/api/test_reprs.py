"""What a notebook shows of an object: one short line that names it, and nothing of a payload."""

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
            if not effect.done:
                effect.result = to
        shown.append(ctx.step("look", repr, effect))
        return to

    made = app.batch([mail.new("secret")])
    shown += [mail, mail.new("secret"), made.jobs[0], made]
    app.drain()
    shown += [app.get(1), app.batches.get(made.id), *app.effects.find(job=1)]
    assert [one if isinstance(one, str) else repr(one) for one in shown] == [
        f"<App of module {__name__.replace('test_reprs', 'conftest')}, schema rota>",
        "<Jobs with 0 job types>",
        "<job type 'mail'>",
        "<new job of type 'mail'>",
        "Enqueued(id=1, created=True, status='queued', change=None)",
        f"<batch {made.id} of 1 job>",
        "<context of job 1 mail, attempt 1>",
        "<effect 'mail:7' of job 1>",
        "<effect 'mail:7' done>",
        "<effect 'mail:7' done>",
        "<job 1 mail succeeded>",
        f"<batch {made.id}, 1 of 1 ended>",
        "<effect 'mail:7' done, of job 1>",
        "<step 'look' done, of job 1>",
    ]
