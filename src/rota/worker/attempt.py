"""What a handler's return or exception means for its attempt."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from rota.declare.result import encode_result
from rota.errors import AttemptCancelled
from rota.model.outcome import End, Errored, Outcome, Succeeded

if TYPE_CHECKING:
    from rota.model.job import Job
    from rota.worker.held import Held

logger = logging.getLogger("rota")

_NOTHING = Succeeded(None)


def end_of(job: Job, result: Any) -> End:
    """What a handler that returned came to."""
    if result is None:
        return _NOTHING
    if isinstance(result, Outcome):
        return result
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        return Errored(
            TypeError(
                "the handler returned an awaitable that nobody awaits: declare the async function itself, or await inside"
            )
        )
    if isinstance(result, type) and issubclass(result, Outcome):
        return Errored(
            TypeError(
                f"the handler returned the class {result.__name__}; return an instance, as in {result.__name__}(…)"
            )
        )
    encoded, problem = encode_result(result)
    if problem is not None:
        logger.warning("job %s %s: its result is not kept: %s", job.id, job.job_type, problem)
    return Succeeded(encoded)


def end_of_error(held: Held, error: BaseException) -> End:
    """What a handler that raised came to: if it stopped because it was told to, what it was told."""
    if isinstance(error, Outcome):
        return error
    if held.told is not None and is_stop(error):
        return held.told
    return Errored(error)


def is_stop(error: BaseException) -> bool:
    """Whether it only says that the handler stopped because it was told to; a task group wraps it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_stop, error.exceptions))
    return isinstance(error, asyncio.CancelledError | AttemptCancelled)
