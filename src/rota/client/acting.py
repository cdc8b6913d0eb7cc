"""What people do to jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.base import Asking, check_id, reason
from rota.errors import JobNotFound, RotaError, WrongStatus
from rota.job import CANCELLABLE, Status
from rota.store import ops
from rota.store.ops import CancelAnswer

if TYPE_CHECKING:
    from rota.store.db import Operation


class Acting(Asking):
    """Acts on jobs."""

    def cancel(self, id: int, *, why: str | None = None, connection: Any = None) -> Status:
        """Call a job off; return where it stands now. `cancelled`: it waited, and is over. `running`: its worker is told to stop it; it will be
        `cancelled` if its handler stops for that, `succeeded` if it finishes all the same. Asked again, the first reason stays.

        Args:
            why: kept with the job, on one line of at most 500 characters.
            connection: whose transaction this joins. Until it ends, the worker of a running job waits with what it has to write.

        Raises:
            WrongStatus: the job is dead or over by now.
            JobNotFound: there is no such job.
        """
        return self._run("cancel", _cancel(id, why), connection)

    async def acancel(self, id: int, *, why: str | None = None, connection: Any = None) -> Status:
        """Call a job off; return where it stands now. Raises as `cancel`."""
        return await self._arun(_cancel(id, why), connection)


def _cancel(id: int, why: str | None) -> Operation[Status]:
    check_id(id)
    [answer] = yield from ops.cancel([id], reason(why))
    refusal = refused(answer)
    if refusal is not None:
        raise refusal
    return Status.CANCELLED if answer.answer == "cancelled" else Status.RUNNING


def refused(answer: CancelAnswer) -> RotaError | None:
    """Why a job was not called off; None when it was, or will be."""
    if answer.status is None:
        return JobNotFound(answer.job)
    if answer.answer != "refused":
        return None
    advice = "; a dead job stays for a person to look at" if answer.status == Status.DEAD else ""
    return WrongStatus(answer.job, answer.status, CANCELLABLE, advice)
