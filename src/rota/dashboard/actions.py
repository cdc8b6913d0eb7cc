"""What the forms do. Each form asks for the reason, and records who acts."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from rota.cli.jobs import JOBS
from rota.client.base import ID_MAX
from rota.client.requests import ActionRequest, act_on_portion, make_request, make_retry
from rota.client.selection import ActionFilters, find_jobs
from rota.dashboard import filters
from rota.dashboard.html import render
from rota.dashboard.look import Act, Look
from rota.dashboard.request import Response
from rota.errors import UsageError
from rota.model.job import Action
from rota.model.units import plural, words
from rota.records import ActionResult

CHOSEN_MAX = 1_000
SAMPLE = 10
REASONS = 20
CANCEL_MAX = 10_000
"""Most live members of a batch that one request cancels, in about four seconds."""


def act_on_jobs(act: Act, verb: str) -> Response:
    who = act.begin(verb)
    chosen = act.request.form.get("job", [])[:CHOSEN_MAX]
    ids = [int(text) for text in chosen if re.fullmatch("[0-9]{1,18}", text)]
    if not ids:
        raise UsageError("choose at least one job")
    result: ActionResult = getattr(act.app.jobs, f"{verb}_many")(ids=ids, **who)
    new = result.new_ids.get(ids[0])
    if new is not None and act.request.back[0] == f"/jobs/{ids[0]}":
        return act.go(f"/jobs/{new}", f"{verb}: as a new job")
    refused = next(iter(result.refused.values()), "")
    more = f"; {len(result.refused)} not: {refused}" if refused else ""
    return act.back(f"{verb}: {len(result.done)} of {len(ids)} done{more}")


def run_again(act: Act, id: str) -> Response:
    """Run a finished job once more, as a new job without its key."""
    made = act.app.retry(int(id), again=True, **act.begin("retry"))
    return act.go(f"/jobs/{made.id}", "run again, as a new job")


def preview(look: Look, verb: str) -> Response:
    """Say what an action on the jobs of a filter would be done to."""
    picked = filters.pick(look.request.query)
    request = _request(verb, look.request.access.who, "a preview")
    _, ids = look.opened.run(find_jobs(request, _parse(picked)))
    if not ids:
        raise UsageError(f"no job that one can {verb} matches: {filters.say(picked)}")
    sample = [look.opened.get(id_) for id_ in ids[:SAMPLE]]
    state = Tally(after=0, until=ids[-1], total=len(ids), done=0, refused=0)
    return look.show(
        "many.html", f"{verb.capitalize()} {plural(len(ids), 'job')}?",
        {"count": len(ids), "jobs": sample}, is_live=False,
        verb=verb, picked=picked, said=filters.say(picked), state=state, why="",
        reasons={}, is_over=False, JOBS=JOBS,
    )  # fmt: skip


def act_on_many(act: Act, verb: str) -> Response:
    """Do a portion of an action on the jobs of a filter, and say how far it is. A person goes on by
    sending the form again, and stops by not sending it."""
    who = act.begin(verb)
    picked = filters.pick(act.request.query)
    before = Tally(*(act.read_number(part.name, 0, ID_MAX) for part in fields(Tally)))
    portion = act_on_portion(
        _request(verb, who["by"], who["why"]), _parse(picked), before.after, before.until
    )
    result, after = act.app._run(portion)
    state = replace(
        before,
        after=after or 0,
        done=before.done + len(result.done),
        refused=before.refused + len(result.refused),
    )
    title = f"{verb.capitalize()}: {state.done:,} of {state.total:,} jobs done"
    return render(
        act.request, "many.html", title=title,
        verb=verb, picked=picked, said=filters.say(picked), state=state, why=who["why"],
        jobs=[], is_over=after is None,
        reasons=dict(list(result.refused.items())[:REASONS]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tally:
    """How far an action on many is. It stands in the form, not on the server."""

    after: int
    """The last id that it has come to."""
    until: int
    """The last id that it is for."""
    total: int
    done: int
    refused: int


def _request(verb: str, by: str, why: str) -> ActionRequest:
    if verb == "retry":
        return make_retry(by, why, again=False, fresh=False)
    return make_request(Action(verb), by, why)


def _parse(picked: dict[str, str]) -> ActionFilters:
    return cast("ActionFilters", filters.parse(picked))


def turn_queue(act: Act, verb: str) -> Response:
    who = act.begin(verb)
    name = act.need("queue")
    if verb == "pause":
        lasts = act.read("for")
        given: dict[str, Any] = {"duration": lasts} if lasts else {}
        given["force"] = act.read("force") is not None
        act.app.queues.pause(name, **given, **who)
    else:
        act.app.queues.resume(name, **who)
    return act.back(f"queue {name}: {verb}d")


def limit_queue(act: Act) -> Response:
    """Set how many jobs of a queue run at once; without a number there is no limit."""
    who = act.begin("limit")
    name = act.need("queue")
    most = act.read_number("max_running", 1, ID_MAX) if act.read("max_running") else None
    act.app.queues.set_max_running(name, most, force=act.read("force") is not None, **who)
    return act.back(f"queue {name}: {'no limit' if most is None else f'at most {most:,} at once'}")


def change_limit(act: Act) -> Response:
    who = act.begin("limit")
    name = act.need("limit")
    starts, burst = (
        act.read_number(number, 1, ID_MAX) if act.read(number) else None
        for number in ("starts", "burst")
    )
    changed = act.app.limits.set(name, starts, per=act.read("per"), burst=burst, **who)
    return act.back(
        f"rate limit {name}: {changed.starts:,} starts in {words(changed.per_s)}, "
        f"{changed.burst:,} at once"
    )


def turn_schedule(act: Act, verb: str) -> Response:
    who = act.begin(verb)
    name = act.need("schedule")
    getattr(act.app.schedules, verb)(name, **who)
    return act.back(f"schedule {name}: {verb.removesuffix('e')}ed")


def cancel_batch(act: Act, id: str) -> Response:
    """Cancel what has not ended of a batch, and of the batches in it."""
    who = act.begin("cancel")
    if act.app.batches.get(int(id)).live > CANCEL_MAX:
        raise UsageError(f"more than {CANCEL_MAX:,} members: in a shell, rota batches cancel {id}")
    result = act.app.batches.cancel(int(id), **who)
    return act.back(f"batch {id}: cancelled, or asked to stop: {plural(len(result.done), 'job')}")


def resolve_effect(act: Act) -> Response:
    who = act.begin("resolve")
    key = act.need("key")
    is_done = act.need("done") == "yes"
    act.app.effects.resolve(key, done=is_done, **who)
    return act.back(f"effect {key}: {'done' if is_done else 'not done'}")


def reset_breaker(act: Act) -> Response:
    who = act.begin("reset")
    name = act.need("breaker")
    act.app.breakers.reset(name, act.read("key"), **who)
    return act.back(f"breaker {name}: reset")
