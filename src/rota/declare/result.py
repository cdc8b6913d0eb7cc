"""What a handler's return or exception means, whether or not its result can be kept."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from rota.declare.jsonb import PAYLOAD_BYTES_MAX, fits
from rota.declare.payload import Codec
from rota.errors import PayloadError
from rota.model.job import Job
from rota.model.outcome import NOTHING, End, Errored, Outcome, Succeeded, find_outcome, is_stop
from rota.model.scrub import mask_secrets
from rota.model.units import plural

logger = logging.getLogger("rota")


def _returns(value: Any) -> None: ...


_CODEC = Codec.of(_returns, job_type="result", takes_context=False)
_BEFORE, _AFTER = len('{"value":'), len("}")


def encode_result(value: Any) -> tuple[str | None, str | None]:
    """As `encode_value`, with `***` for the secrets of the attempt."""
    text, problem = encode_value(value)
    return text if text is None else mask_secrets(text), problem


def encode_value(value: Any) -> tuple[str | None, str | None]:
    """Return the JSON text of a value and None; or None and why the value is not kept."""
    try:
        text = _CODEC.encode((), {"value": value})[_BEFORE:-_AFTER]
    except PayloadError as error:
        return None, error.reason
    except Exception as error:  # noqa: BLE001 - the value's own methods may fail
        return None, f"{type(error).__name__} during encoding"
    if not fits(text):
        return (
            None,
            f"larger than {PAYLOAD_BYTES_MAX:,} bytes; store it elsewhere and return a reference",
        )
    return text, None


def read_return(job: Job, result: Any) -> End:
    if result is None:
        return NOTHING
    if isinstance(result, Outcome):
        return read_error(result)
    if isinstance(result, type) and issubclass(result, Outcome):
        name = result.__name__
        why = f"return an instance, as in {name}(…)"
        return Errored(TypeError(f"the handler returned the class {name}; {why}"))
    encoded, problem = encode_result(result)
    if problem is not None:
        # A value with a JSON form is finished.
        parts = list(result.values()) if isinstance(result, dict) else result
        parts = parts if isinstance(parts, list | tuple) else [parts]
        unfinished = [type(part).__name__ for part in parts if _is_unfinished(part)]
        if unfinished:
            what = f"the handler returned a {unfinished[0]}, whose work nobody does"
            why = "declare the function itself, await it, or run it to its end inside"
            return Errored(TypeError(f"{what}: {why}"))
        logger.warning("job %s %s: its result is not kept: %s", job.id, job.job_type, problem)
    return Succeeded(encoded)


def _is_unfinished(value: Any) -> bool:
    """Whether a value without a JSON form still has to be awaited or iterated over."""
    if inspect.iscoroutine(value):
        value.close()  # Python would warn that it was never awaited
    module = type(value).__module__
    if callable(done := getattr(value, "done", None)) and not done():
        return True  # a future
    is_lazy = module in ("builtins", "itertools") and isinstance(value, Iterator | AsyncIterator)
    return is_lazy or inspect.isawaitable(value)


def read_list(job: Job, result: Any, stop: End | None) -> End:
    """Return the outcome of a handler that takes a list and was called with this job alone."""
    if result is None or isinstance(result, Outcome):
        return read_return(job, result)
    return count_answers(1, result) or read_answer(job, result[0], stop)


def read_answer(job: Job, answer: Any, stop: End | None) -> End:
    """Return the outcome of one job of a list by its answer; `stop` is a stopped call's."""
    if isinstance(answer, BaseException) and not isinstance(answer, Outcome):
        return stop if stop is not None and is_stop(answer) else Errored(answer)
    if isinstance(answer, type) and issubclass(answer, BaseException):
        what = f"the handler answered with the class {answer.__name__}; give an instance"
        return Errored(TypeError(what))
    return read_return(job, answer)


def count_answers(jobs: int, result: Any) -> Errored | None:
    """Return what is wrong with a handler's list of answers; None: nothing."""
    if not isinstance(result, list | tuple):
        if inspect.iscoroutine(result):
            result.close()
        what = f"a list with an answer for each of its {plural(jobs, 'job')}, or None"
        return Errored(TypeError(f"the handler must return {what}, not {type(result).__name__}"))
    if len(result) == jobs:
        return None
    return Errored(
        TypeError(f"the handler returned {len(result)} answers for {plural(jobs, 'job')}")
    )


def read_error(error: BaseException, stop: End | None = None) -> End:
    """Return the outcome of a handler that raised. `stop` is the outcome of a stop request."""
    if stop is not None and is_stop(error):
        return stop
    return find_outcome(error) or Errored(error)
