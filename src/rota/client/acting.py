"""What people do to jobs: call off, try now, give up, requeue, archive, run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from rota.client.base import ID_MAX, Asking, check_id, reason, refuse_unknown, who
from rota.client.deeds import Acted, chosen, corrected, refused, sort_answers
from rota.declare.job_type import Enqueued, JobType
from rota.errors import UsageError
from rota.model.bounds import check_integer
from rota.model.job import Action, Status
from rota.model.units import Duration
from rota.store import ops
from rota.store.ops import Act, Answer

if TYPE_CHECKING:
    from rota.store.driver import Operation


class Filters(TypedDict, total=False):
    """Which jobs a `…_many` acts on. At least one besides `limit`."""

    ids: Iterable[int] | None
    status: str | None
    job_type: str | None
    queue: str | None
    error_type: str | None
    release: str | None
    since: datetime | Duration | None
    limit: int


class Acting(Asking):
    """Acts on jobs. Every action takes `why`, one line of at most 500 characters, and `by`, at most 200: left out, the user and host of this process.

    `connection` is whose transaction an action joins. Until that ends, workers wait with what they have to write of the job.
    """

    def _type_of(self, name: str) -> JobType[..., ..., Any] | None:
        """The declared type of that name or alias, against which a corrected payload is checked; None where nobody here knows it."""
        return None

    # One job

    def cancel(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Call a job off; return where it stands now. `cancelled`: it waited, and is over. `running`: its worker is told to stop it; it will be
        `cancelled` if its handler stops for that, `succeeded` if it finishes all the same. Asked again, the first reason stays.

        Raises:
            WrongStatus: the job is dead or over by now.
            JobNotFound: there is no such job.
        """
        return self._run(_moved(Action.CANCEL, id, by, why), connection)

    async def acancel(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Call a job off; return where it stands now. Raises as `cancel`."""
        return await self._arun(_moved(Action.CANCEL, id, by, why), connection)

    def retry_now(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make a queued or failed job due now, or take a running one from its worker; return where it stands: `queued`, or `cancelled` if it ran and had
        been called off. A worker that loses the job so is told, and can write nothing of it any more; its handler may go on until it hears.

        Raises:
            WrongStatus: the job is waiting for another, dead or over.
            JobNotFound: there is no such job.
        """
        return self._run(_moved(Action.RETRY_NOW, id, by, why), connection)

    async def aretry_now(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Make a job due now; return where it stands. Raises as `retry_now`."""
        return await self._arun(_moved(Action.RETRY_NOW, id, by, why), connection)

    def bury(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Give a job up: it is `dead`, which is returned, keeps its idempotency key and waits for a person. A running one is taken from its worker.

        Raises:
            WrongStatus: the job is dead or over already.
            JobNotFound: there is no such job.
        """
        return self._run(_moved(Action.BURY, id, by, why), connection)

    async def abury(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Status:
        """Give a job up. Raises as `bury`."""
        return await self._arun(_moved(Action.BURY, id, by, why), connection)

    def requeue(
        self,
        id: int,
        *,
        payload: Mapping[str, Any] | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Enqueued:
        """Try a dead job again as a new one, which is returned. It has the same origin and takes the idempotency key along; attempts and expiry count
        anew. The dead one goes to history with its content and says who, when, why and as what.

        Args:
            payload: a corrected one, as the handler's arguments by name. Checked against the type where this App declares it. Both are kept.

        Raises:
            PayloadError: the payload does not fit the type, or cannot be stored. Nothing was changed.
            WrongStatus: the job is not dead, or was requeued or ignored already.
            JobNotFound: there is no such job.
        """
        return self._run(self._requeued(id, payload, by, why), connection)

    async def arequeue(
        self,
        id: int,
        *,
        payload: Mapping[str, Any] | None = None,
        why: str | None = None,
        by: str | None = None,
        connection: Any = None,
    ) -> Enqueued:
        """Try a dead job again as a new one, which is returned. Raises as `requeue`."""
        return await self._arun(self._requeued(id, payload, by, why), connection)

    def ignore(self, id: int, *, why: str, by: str | None = None, connection: Any = None) -> None:
        """Put a dead job away with a reason, which must be given. It goes to history and frees its idempotency key.

        Raises:
            WrongStatus: the job is not dead, or was requeued or ignored already.
            JobNotFound: there is no such job.
        """
        self._run(_moved(Action.IGNORE, id, by, why), connection)

    async def aignore(
        self, id: int, *, why: str, by: str | None = None, connection: Any = None
    ) -> None:
        """Put a dead job away with a reason. Raises as `ignore`."""
        await self._arun(_moved(Action.IGNORE, id, by, why), connection)

    def run_again(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Enqueued:
        """Run a job once more that is over or dead, as a new one with the same content, which is returned. It is a run of its own: its own origin, so that
        every step is done again, and no idempotency key. The old job is left as it is.

        Raises:
            WrongStatus: the job is not over.
            JobNotFound: there is no such job.
        """
        return self._run(_repeated(_act(Action.RUN_AGAIN, by, why), id), connection)

    async def arun_again(
        self, id: int, *, why: str | None = None, by: str | None = None, connection: Any = None
    ) -> Enqueued:
        """Run a job once more that is over or dead, as a new one. Raises as `run_again`."""
        return await self._arun(_repeated(_act(Action.RUN_AGAIN, by, why), id), connection)

    def _requeued(
        self, id: int, payload: Mapping[str, Any] | None, by: str | None, why: str | None
    ) -> Operation[Enqueued]:
        act = _act(Action.REQUEUE, by, why)
        check_id(id)
        if payload is not None:
            act = yield from corrected(act, id, payload, self._type_of)
        return (yield from _repeated(act, id))

    # Many jobs

    def cancel_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Call jobs off, in batches of 1,000 in the order of their ids, each its own transaction; return what came of it. By default those that wait and
        those that run.

        Args:
            ids: these jobs; else
            status, job_type, queue, error_type, release: jobs that stand so, of this type, in this queue, whose last error was of this class, whose last
                attempt was made by this release.
            since: that failed or ended from then on; of those that have not failed, that were made from then on: an aware datetime, or how long
                ago, such as "2h".
            limit: so many at most, 1 … 1,000,000, the oldest first. Defaults to 100,000.

        Raises:
            UsageError: no filter is given, or one that fits no job to which this can be done. Nothing was changed.
        """
        return self._run(_many(_act(Action.CANCEL, by, why), which))

    async def acancel_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Call jobs off, as `cancel_many`."""
        return await self._arun(_many(_act(Action.CANCEL, by, why), which))

    def retry_now_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Make jobs due now. By default failed ones; with `status="running"` they are taken from their workers. Filters and batches as `cancel_many`."""
        return self._run(_many(_act(Action.RETRY_NOW, by, why), which))

    async def aretry_now_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Make jobs due now, as `retry_now_many`."""
        return await self._arun(_many(_act(Action.RETRY_NOW, by, why), which))

    def bury_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Give jobs up. By default those that wait. Filters and batches as `cancel_many`."""
        return self._run(_many(_act(Action.BURY, by, why), which))

    async def abury_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Give jobs up, as `bury_many`."""
        return await self._arun(_many(_act(Action.BURY, by, why), which))

    def requeue_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Requeue dead jobs. Filters and batches as `cancel_many`."""
        return self._run(_many(_act(Action.REQUEUE, by, why), which))

    async def arequeue_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Requeue dead jobs, as `requeue_many`."""
        return await self._arun(_many(_act(Action.REQUEUE, by, why), which))

    def ignore_many(self, *, why: str, by: str | None = None, **which: Unpack[Filters]) -> Acted:
        """Put dead jobs away with a reason. Filters and batches as `cancel_many`."""
        return self._run(_many(_act(Action.IGNORE, by, why), which))

    async def aignore_many(
        self, *, why: str, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Put dead jobs away with a reason, as `ignore_many`."""
        return await self._arun(_many(_act(Action.IGNORE, by, why), which))

    def run_again_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Run jobs once more that are over or dead: `status` must be given, and `since` for those that are over. Else as `cancel_many`."""
        return self._run(_many(_act(Action.RUN_AGAIN, by, why), which))

    async def arun_again_many(
        self, *, why: str | None = None, by: str | None = None, **which: Unpack[Filters]
    ) -> Acted:
        """Run jobs once more that are over or dead, as `run_again_many`."""
        return await self._arun(_many(_act(Action.RUN_AGAIN, by, why), which))


def _act(action: Action, by: object, why: object) -> Act:
    said = reason(why)
    if action is Action.IGNORE and said is None:
        raise UsageError("say why: the reason is what stays of the decision to ignore a dead job")
    return Act(action, who(by), said)


def _moved(action: Action, id: int, by: str | None, why: str | None) -> Operation[Status]:
    answer = yield from _one(_act(action, by, why), id)
    return Status(answer.status or Status.DEAD)


def _repeated(act: Act, id: int) -> Operation[Enqueued]:
    answer = yield from _one(act, id)
    assert answer.new_id is not None
    return Enqueued(answer.new_id, True, Status.QUEUED.value)


def _one(act: Act, id: int) -> Operation[Answer]:
    check_id(id)
    [answer] = yield from ops.act(act, [id])
    refusal = refused(act.action, answer)
    if refusal is not None:
        raise refusal
    return answer


def _many(act: Act, which: Filters) -> Operation[Acted]:
    given: dict[str, Any] = {
        name: value for name, value in refuse_unknown(which, Filters).items() if value is not None
    }
    if "ids" in given:
        if len(given) > 1:
            raise UsageError("give ids or filters, not both")
        if not isinstance(given["ids"], Iterable):
            raise UsageError(f"ids must be the ids of jobs, as in [1, 2], not {given['ids']!r}")
        ids = [check_integer(one, "a job's id", 1, ID_MAX) for one in given["ids"]]
    else:
        ids = yield from ops.choose(chosen(act.action, **given))
    answers, refusals = yield from ops.act_on_many(act, ids)
    return sort_answers(act.action, answers, refusals)
