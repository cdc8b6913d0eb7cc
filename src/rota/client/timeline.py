"""The timeline of a job: the events of its life, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, ClassVar

import msgspec

from rota.errors import JobNotFound
from rota.model.failure import one_line
from rota.model.job import Action, Job, Status
from rota.model.record import ReadJson, Record, describe
from rota.model.units import local_time, plural, words
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import ActionRecord, AttemptRecord, EffectRecord

OVERLAP = "Overlap"
"""The error type of a skipped tick."""
EXPIRED = "expired"
"""The verdict rule of an attempt that never began, because the job was expired."""
ACTIONS_MAX = 200
"""Most actions of one timeline: the latest."""
EFFECTS_MAX = 1_000
"""Most effects and steps of one timeline: the latest."""
EFFECTS_SHOWN = 6
"""Most done effects or steps in a row that are shown one by one."""


class Entry(Record, frozen=True):
    """One event of a timeline."""

    __json_names__: ClassVar[dict[str, str | None]] = {
        "attempt": None, "action": None, "effect": None,
    }  # fmt: skip

    at: datetime
    """An aware datetime."""
    job: int
    """Id of its job, one of the chain."""
    what: str
    """One word: enqueued, failed, dead, succeeded …, or the verb of an action."""
    text: str
    """The rest, on one line."""
    attempt: AttemptRecord | None = None
    """The record of a failed attempt."""
    action: ActionRecord | None = None
    """The record of an action: by whom, and why."""
    effect: EffectRecord | None = None
    """The record of an effect or a step."""


class Timeline(Record, frozen=True):
    """A job, the jobs that it was requeued from and as, and what happened to all, in order."""

    __json_names__: ClassVar[dict[str, str | None]] = {"entries": "timeline"}

    job: Job
    """The job that was asked for."""
    chain: list[Job]
    """The job, and the jobs that it was requeued from and as, by id."""
    attempts: list[AttemptRecord]
    """The job's own attempts without success."""
    entries: list[Entry]
    """What happened to the chain, the earliest first."""

    def facts(self, read_json: ReadJson) -> dict[str, Any]:
        """Return the values by their names in JSON, for the command line."""
        facts = super().facts(read_json)
        return {**facts, "chain": [job.id for job in self.chain]}

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        schema = super().json_schema()
        schema["properties"]["chain"] = describe(list[int])
        return schema


def read_timeline(id: int) -> Operation[Timeline]:
    """Read the timeline of a job. Raises JobNotFound."""
    ids = yield from ops.chain(id)
    found = yield from ops.find(ids=ids)
    chain = sorted((yield from ops.explain(found)), key=lambda job: job.id)
    if id not in [job.id for job in chain]:
        raise JobNotFound(id)
    attempts: dict[int, list[AttemptRecord]] = {}
    for job in chain:
        attempts[job.id] = yield from ops.attempts(job.id)
    ends = [job.finished_at for job in chain if job.finished_at is not None]
    until = max(ends) if len(ends) == len(chain) else None
    actions = yield from ops.actions(
        ids,
        [job.created_at for job in chain],
        sorted({job.queue for job in chain}),
        sorted({job.waits_for for job in chain if job.waits_for}),
        until,
        ACTIONS_MAX,
    )
    effects = yield from ops.effects_of(ids, None, None, EFFECTS_MAX)
    [job] = [job for job in chain if job.id == id]
    entries = collect_entries(chain, attempts, actions, effects, id)
    return Timeline(job=job, chain=chain, attempts=attempts[id], entries=entries)


def collect_entries(
    chain: Sequence[Job],
    attempts: dict[int, list[AttemptRecord]],
    actions: Sequence[ActionRecord],
    effects: Sequence[EffectRecord],
    id: int,
) -> list[Entry]:
    """Return the entries of a chain, in order. An action on no single job belongs to job `id`."""
    entries = [
        entry for job in chain for entry in _list_entries_of_job(job, attempts[job.id], actions)
    ]
    entries += [_make_effect_entry(effect) for effect in effects]
    entries += [_make_action_entry(action, {job.id for job in chain}, id) for action in actions]
    # The sort is stable: entries of one instant keep their order.
    return sorted(entries, key=lambda entry: (entry.at, _RANK.get(entry.what, 1)))


_RANK = {
    Action.DISCARD: -2,
    Status.DEAD: -1, Action.REQUEUE: -1, Action.RUN_AGAIN: -1,
    Action.RETRY: 0, "enqueued": 0,
    Status.SUCCEEDED: 2, Status.CANCELLED: 2,
    "waits": 3, "halts": 3,
}  # fmt: skip
"""The order within one transaction: an action before its effect, the end of the job last."""


def _list_entries_of_job(
    job: Job, attempts: Sequence[AttemptRecord], actions: Sequence[ActionRecord]
) -> Iterator[Entry]:
    yield Entry(job.created_at, job.id, "enqueued", _describe_enqueue(job))
    for attempt in attempts:
        yield Entry(
            attempt.finished_at,
            job.id,
            _OUTCOME.get(attempt.outcome, attempt.outcome),
            _describe_attempt(attempt),
            attempt=attempt,
        )
    if job.cancel_requested_at is not None and not any(
        action.job == job.id and action.verb == "cancel" for action in actions
    ):
        yield Entry(
            job.cancel_requested_at,
            job.id,
            "cancel",
            _append_reason("requested", job.cancel_reason),
        )
    if job.wait is not None:
        yield Entry(job.wait.since, job.id, job.wait.what, one_line(job.wait.text))
    archiving = (Action.REQUEUE, Action.ARCHIVE)
    if not any(action.job == job.id and action.verb in archiving for action in actions):
        yield from _list_end(job)


_MOVED = ("run_at", "expires_at", "priority", "queue")
"""What a reschedule may change, in the order of its entry."""
_OUTCOME = {"queued": "returned to the queue"}
"""The word for an uncharged attempt whose job was queued again."""


def _describe_enqueue(job: Job) -> str:
    parts = [f"{job.job_type} in queue {job.queue}, priority {job.priority}"]
    if job.schedule is not None:
        parts.append(
            f"by schedule {job.schedule}"
            + (f" for {local_time(job.scheduled_for)}" if job.scheduled_for else ", triggered")
        )
    if job.origin_id != job.id:
        parts.append(f"as job {job.origin_id} again")
    if job.group_key is not None:
        parts.append(f"in ordered group {job.group_key}")
    if job.idempotency_key is not None:
        parts.append(f"with key {job.idempotency_key}")
    return one_line("; ".join(parts))


def _describe_attempt(attempt: AttemptRecord) -> str:
    ran = ""
    if attempt.started_at is not None:
        ran_s = (attempt.finished_at - attempt.started_at).total_seconds()
        ran = f"after {words(max(0.0, ran_s))} "
    release = "" if attempt.release is None else f", release {attempt.release}"
    came = (
        f"never began, found by {attempt.worker}"
        if attempt.verdict_rule == EXPIRED
        else f"{ran}by {attempt.worker}{release}"
    )
    parts = [f"{attempt.error_type}: {attempt.message}"]
    if attempt.next_run_at is not None:
        next_at = local_time(attempt.next_run_at)
        waits = attempt.verdict_rule == "payload mismatch"
        parts.append(f"for another release from {next_at} on" if waits else f"retries at {next_at}")
    if attempt.verdict is not None:
        parts.append(f"{attempt.verdict} ({attempt.verdict_rule})")
    return one_line("; ".join((*parts, f"attempt {attempt.attempt} {came}")))


def _list_end(job: Job) -> Iterator[Entry]:
    if job.finished_at is not None:
        yield Entry(job.finished_at, job.id, job.status, _describe_end(job))
    elif job.status is Status.RUNNING and job.started_at is not None:
        yield Entry(
            job.started_at,
            job.id,
            "running",
            one_line(f"attempt {job.attempts} by {job.locked_by}, since then"),
        )


def _describe_end(job: Job) -> str:
    if (
        job.status is Status.SUCCEEDED
        and job.started_at is not None
        and job.finished_at is not None
    ):
        ran = words(max(0.0, (job.finished_at - job.started_at).total_seconds()))
        return one_line(
            f"attempt {job.attempts} by {job.locked_by}, release {job.release}, after {ran}"
        )
    if (resolution := describe_resolution(job)) is not None:
        return f"archived {resolution}"
    if job.error_type == OVERLAP:
        return one_line(_append_reason("skipped", job.last_error))
    return one_line(_append_reason("cancelled", job.cancel_reason))


def describe_resolution(job: Job) -> str | None:
    """Return who archived a dead job, why, and its new job; None: not archived."""
    resolution: Any = job.resolution
    if not isinstance(resolution, dict):
        return None
    became = (
        f", {resolution.get('as', 'requeued')} as job {resolution['requeued_as']}"
        if resolution.get("requeued_as")
        else ""
    )
    return one_line(_append_reason(f"by {resolution.get('by')}{became}", resolution.get("why")))


def fold(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries with one entry for the middle of many done effects or steps in a row."""
    folded: list[Entry] = []
    for (job, what, is_done), run in groupby(entries, _read_effect):
        many = list(run)
        if is_done and len(many) > EFFECTS_SHOWN:
            many[1:-1] = [Entry(many[-2].at, job, what, f"{len(many) - 2} more, all done")]
        folded += many
    return folded


def _read_effect(entry: Entry) -> tuple[int, str, bool]:
    effect = entry.effect
    is_done = effect is not None and effect.status == "done" and not effect.uncertain_before
    return entry.job, entry.what, is_done


def _make_effect_entry(effect: EffectRecord) -> Entry:
    what = "effect" if effect.step_of is None else "step"
    text = f"{effect.key}: {effect.status}"
    if effect.result is not None:
        text += f", {msgspec.json.encode(effect.result).decode()}"
    if effect.uncertain_before:
        text += f"; may have happened before ({plural(effect.uncertain_before, 'time')})"
    if effect.status == "uncertain":
        text += f", it may have happened; if_uncertain={effect.if_uncertain!r}"
    at = effect.done_at or effect.intended_at
    return Entry(at, effect.job, what, one_line(text), effect=effect)


def _make_action_entry(action: ActionRecord, chain: Collection[int], id: int) -> Entry:
    detail: Any = action.detail or {}
    job, to, became = action.job, "", ""
    if job is None:
        job, to = id, f"{_name_target(action, detail)} "
    elif job not in chain:  # one of these jobs is a run of it
        job, to = detail.get("run_again_as", id), f"of job {job} "
    elif "requeued_as" in detail:
        became = f", {detail.get('as', 'requeued')} as job {detail['requeued_as']}"
    elif "run_again_as" in detail:
        became = f", as job {detail['run_again_as']}"
    elif action.verb == Action.RESCHEDULE:
        to = _describe_move(detail)
    if "effect" in detail:
        to = f"{detail['effect']} as {str(detail.get('as')).replace('_', ' ')} "
    if "fresh" in detail:
        became += ", from the first step"
    return Entry(
        action.at,
        job,
        action.verb,
        one_line(_append_reason(f"{to}by {action.by}{became}", action.why)),
        action=action,
    )


def _name_target(action: ActionRecord, detail: dict[str, Any]) -> str:
    """Name the target of an action on no single job, and its new state."""
    match action.verb:
        case "set_max_running":
            return f"queue {action.queue} to {detail.get('to') or 'no limit'}"
        case "limit_set":
            figures = f"{detail.get('starts')} in {words(detail.get('per_s') or 0)}"
            return f"limit {detail.get('limit')} to {figures}, {detail.get('burst')} at once,"
        case "breaker_trip" | "breaker_reset":
            return " ".join(filter(None, ("breaker", detail.get("breaker"), detail.get("key"))))
    if "copy" in detail:
        return "a restored copy"
    return "everything" if action.queue is None else f"queue {action.queue}"


def _describe_move(detail: dict[str, Any]) -> str:
    before, after = detail["from"], detail["to"]
    parts = [
        f"{name} {_format_value(before.get(name))} → {_format_value(after[name])}"
        for name in _MOVED
        if name in after
    ]
    return f"{', '.join(parts) or 'nothing changed'}, "


def _format_value(value: object) -> str:
    try:
        return local_time(datetime.fromisoformat(str(value)))
    except ValueError:
        return str(value)


def _append_reason(text: str, why: object) -> str:
    return f"{text}: {why}" if why else text
