"""The state machine of a job, as data: every way a job can move. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from rota.model.job import Action, Status

MEANING: Mapping[Status, str] = {
    Status.QUEUED: "waits; a worker claims it when run_at has come",
    Status.WAITING: (
        "other jobs must end first: those of its ordered group or concurrency limit, "
        "or those that it waits for"
    ),
    Status.RUNNING: "a worker holds it under a lease",
    Status.FAILED: "an attempt failed; the job is retried at run_at",
    Status.DEAD: "Rota does not try it again: retry, discard or archive it",
    Status.SUCCEEDED: "over: its handler returned",
    Status.CANCELLED: "over: its handler or a person cancelled it, or it was dropped at its expiry",
}

TRANSITIONS: Mapping[tuple[Status | None, str], Status] = {
    (None, "enqueue"): Status.QUEUED,
    (Status.QUEUED, "claim"): Status.RUNNING,
    (Status.FAILED, "claim"): Status.RUNNING,
    (Status.QUEUED, "park"): Status.WAITING,
    (Status.FAILED, "park"): Status.WAITING,
    (Status.WAITING, "release"): Status.QUEUED,
    (Status.QUEUED, "cancel"): Status.CANCELLED,
    (Status.WAITING, "cancel"): Status.CANCELLED,
    (Status.FAILED, "cancel"): Status.CANCELLED,
    (Status.RUNNING, "succeed"): Status.SUCCEEDED,
    (Status.RUNNING, "fail"): Status.FAILED,
    (Status.RUNNING, "give_up"): Status.DEAD,
    (Status.RUNNING, "cancel"): Status.CANCELLED,
    (Status.RUNNING, "snooze"): Status.QUEUED,
    (Status.RUNNING, "wait"): Status.WAITING,
    (Status.RUNNING, "hand_back"): Status.QUEUED,
    (Status.RUNNING, "interrupt"): Status.QUEUED,
    (Status.RUNNING, "recover_uncharged"): Status.QUEUED,
    (Status.RUNNING, "recover"): Status.FAILED,
    (Status.RUNNING, "recover_finally"): Status.DEAD,
    (Status.QUEUED, "expire"): Status.DEAD,
    (Status.WAITING, "expire"): Status.DEAD,
    (Status.FAILED, "expire"): Status.DEAD,
    (Status.QUEUED, "drop"): Status.CANCELLED,
    (Status.WAITING, "drop"): Status.CANCELLED,
    (Status.FAILED, "drop"): Status.CANCELLED,
    (Status.RUNNING, "drop"): Status.CANCELLED,
    (Status.QUEUED, "retry"): Status.QUEUED,
    (Status.FAILED, "retry"): Status.QUEUED,
    (Status.RUNNING, "retry"): Status.QUEUED,
    (Status.QUEUED, "reschedule"): Status.QUEUED,
    (Status.FAILED, "reschedule"): Status.FAILED,
    (Status.WAITING, "reschedule"): Status.QUEUED,
    (Status.QUEUED, "discard"): Status.DEAD,
    (Status.WAITING, "discard"): Status.DEAD,
    (Status.FAILED, "discard"): Status.DEAD,
    (Status.RUNNING, "discard"): Status.DEAD,
    (Status.DEAD, "retry"): Status.DEAD,
    (Status.DEAD, "requeue"): Status.DEAD,
    (Status.DEAD, "archive"): Status.DEAD,
    (Status.DEAD, "run_again"): Status.DEAD,
    (Status.SUCCEEDED, "run_again"): Status.SUCCEEDED,
    (Status.CANCELLED, "run_again"): Status.CANCELLED,
}
"""Every way a job can move. Tests compare the CHECKs of the tables and the page with it.

An action that a status does not have here is refused. A running job that is cancelled becomes
`cancelled` when its attempt ends without success, or at a `retry`. An archived dead job allows only
`run_again`.

A `retry` of a dead job is a `requeue`. A `requeue`, `archive` and `run_again` do not change the
status: they archive the dead job or make a new job. Nor does `reschedule`, except that a waiting
job joins the ready jobs again.
"""


def takes(action: Action) -> tuple[Status, ...]:
    """Return the statuses of the jobs to which an action can be done."""
    return tuple(status for status in Status if (status, action.value) in TRANSITIONS)
