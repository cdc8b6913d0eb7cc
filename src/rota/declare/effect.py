"""Effects and steps, as a handler uses them: `ctx.effect(…)` and `ctx.step(…)`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from shlex import quote
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from rota.declare.journal import CANCELLED_S, Journal
from rota.declare.options import check_errors
from rota.declare.parameter import find_unreadable, from_json
from rota.declare.result import encode_result, encode_value
from rota.errors import RotaError, UsageError
from rota.model.bounds import KEY_MAX, check_aware, check_text
from rota.model.effect import (
    EffectAnswer,
    EffectCall,
    IfUncertain,
    find_obstacle,
    proves_not_done,
)
from rota.model.outcome import Dead, Outcome
from rota.model.retry import Errors
from rota.model.scrub import mask_secrets, scrub

logger = logging.getLogger("rota")

P = ParamSpec("P")
T = TypeVar("T")

ABOUT_BYTES_MAX = 4096
"""The limit of `about`, which is indexed."""
POLICIES = typing.get_args(IfUncertain)


class NotDone(Exception):
    """Raised by a handler in the block of an effect: nothing happened."""


class Effect:
    """The effect, as the block of `ctx.effect` sees it."""

    __slots__ = ("_done", "_is_asked", "_proof", "key", "result", "uncertain")

    def __init__(self, key: str) -> None:
        self.key = key
        """For the provider, as its `Idempotency-Key`: it is the same in every attempt."""
        self._done = False
        self._is_asked = False
        """Whether the block has read `done`."""
        self.uncertain = False
        """Whether the effect may have happened in an earlier attempt."""
        self.result: Any = None
        """The result to keep, in JSON, such as the provider's id; the kept result if it is done."""
        self._proof: BaseException | None = None

    def __repr__(self) -> str:
        return f"<effect {self.key!r}{' done' if self._done else ''}>"

    @property
    def done(self) -> bool:
        """Whether the effect has happened, or may have and must not be repeated."""
        self._is_asked = True
        return self._done

    def not_done(self, cause: BaseException | str = "") -> BaseException:
        """Return an error to raise in the block, which says that nothing happened: the next attempt
        acts as if this attempt had not tried.

        Args:
            cause: the error to raise, such as the error that proves it or an outcome; or a text.
        """
        self._proof = (
            cause if isinstance(cause, BaseException) else NotDone(cause or "it was not done")
        )
        return self._proof


class EffectBlock:
    """An effect to call or to enter once; see `Context.effect`."""

    def __init__(
        self,
        journal: Journal,
        key: str,
        if_uncertain: IfUncertain,
        safe: Errors,
        place: int | None = None,
        about: Mapping[str, Any] | None = None,
        not_done: datetime | None = None,
    ) -> None:
        check_text(key, "an effect's key" if place is None else "a step's name", KEY_MAX)
        if if_uncertain not in POLICIES:
            raise UsageError(
                f"if_uncertain must be one of {', '.join(POLICIES)}, not {if_uncertain!r}"
            )
        self._journal = journal
        self._safe = check_errors(safe, "safe")
        self._intent = EffectCall(
            "intend",
            journal.job,
            journal.claims,
            next(journal.entries),
            key,
            place,
            if_uncertain,
            about_json=_encode_about(about),
            not_done=None if not_done is None else check_aware(not_done, "not_done"),
        )
        self.effect = Effect(key)
        self._type: Any = Any
        """The type that `call` returns."""
        self._kept: str | None = None
        """The kept result, in JSON."""

    @overload
    def call(
        self, fn: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...

    @overload
    def call(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function unless the effect is done, and keep its result. In an async handler,
        await it.

        Args:
            fn: a function; in an async handler an async function, or `asyncio.to_thread` with a
                plain function as its first argument.

        Returns:
            The result of `fn`, now or then, after a way through JSON: in its annotated type, if it
            fits. None if no result is kept: it has no JSON form or is over 64 KiB, you resolved the
            effect without a result, or `if_uncertain` is "skip" and the effect is uncertain.

        Raises:
            UsageError, Dead, Snooze, AttemptCancelled: as `Context.effect`.
        """
        self._type = _find_return_type(fn, args)
        return run_call(self, fn, args, kwargs)

    @property
    def name(self) -> str:
        """The effect in messages."""
        return self._intent.name

    def __repr__(self) -> str:
        return f"<{self.name} of job {self._journal.job}>"

    @property
    def value(self) -> Any:
        """The value that `call` returns."""
        if self._kept is None:
            return None
        try:
            return self._decode(self._kept)
        except ValueError:
            return msgspec.json.decode(self._kept)

    def _decode(self, encoded: str) -> Any:
        return msgspec.json.decode(encoded, type=self._type, dec_hook=from_json)

    def __enter__(self) -> Effect:
        if _is_on_loop():
            # A plain block would stop the event loop while it waits for the database.
            raise UsageError(
                f"effect {self.effect.key!r}: in an async handler write `async with`, not `with`"
            )
        self._journal.open(self._intent)
        try:
            return self._begin(self._journal.call(self._intent))
        except BaseException:
            self._journal.close(self._intent)
            raise

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        try:
            end = self._find_end(error)
            if end is not None:
                self._check(self._journal.call(end), error)
        except RotaError as failure:
            self._raise_unless(error, failure)
        finally:
            self._journal.close(self._intent)

    async def __aenter__(self) -> Effect:
        self._journal.open(self._intent)
        try:
            try:
                return self._begin(await self._journal.acall(self._intent))
            except asyncio.CancelledError:
                # The block does not begin: a committed intent must not look uncertain.
                with suppress(TimeoutError, RotaError):
                    async with asyncio.timeout(CANCELLED_S):
                        await self._journal.acall(self._make_end("withdraw"))
                raise
        except BaseException:
            self._journal.close(self._intent)
            raise

    async def __aexit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        try:
            end = self._find_end(error)
            if end is not None:
                self._check(await self._journal.acall(end), error)
        except RotaError as failure:
            self._raise_unless(error, failure)
        finally:
            self._journal.close(self._intent)

    def _begin(self, answer: EffectAnswer) -> Effect:
        self._raise_obstacle(answer)
        effect = self.effect
        effect._done = answer.state != "begun"
        effect.uncertain = answer.state == "skip" or (answer.earlier > 0 and not effect._done)
        self._kept = answer.result_json
        if answer.result_json is not None:
            effect.result = msgspec.json.decode(answer.result_json)
        return effect

    def _find_end(self, error: BaseException | None) -> EffectCall | None:
        """Return what to write at the end of the block; None: nothing."""
        if self.effect._done:
            if not self.effect._is_asked:
                what = (
                    "effect %r of job %d was done before, and its block did not ask effect.done: "
                    "it may have done it again"
                )
                logger.warning(what, scrub(self.effect.key), self._journal.job)
                self._journal.unasked.append(self.effect.key)
            return None
        if error is None:
            return self._make_end("finish", self._encode(self.effect.result))
        if error is self.effect._proof or proves_not_done(error, self._safe):
            return self._make_end("withdraw")
        return None

    def _encode(self, result: Any) -> str | None:
        if result is None:
            return None
        encoded, problem = encode_result(result)
        if problem is not None:
            what = "the result of effect %r of job %d is not kept: %s"
            # Rota's own log lines are not scrubbed, and a key is the handler's text.
            logger.warning(what, scrub(self.effect.key), self._journal.job, problem)
        self._kept = encoded
        return encoded

    def _make_end(self, verb: Any, result_json: str | None = None) -> EffectCall:
        return msgspec.structs.replace(self._intent, verb=verb, result_json=result_json)

    def _check(self, answer: EffectAnswer, error: BaseException | None) -> None:
        self._raise_obstacle(answer)
        self.effect._done = error is None

    def _raise_obstacle(self, answer: EffectAnswer) -> None:
        obstacle = find_obstacle(self._intent, answer)
        if obstacle is None:
            return
        if isinstance(obstacle, Outcome):
            obstacle._of_job = self._journal.job
        raise obstacle

    def _raise_unless(self, error: BaseException | None, failure: RotaError) -> None:
        """Raise why the end was not written, unless the block raised: its error says more."""
        if error is None:
            raise failure
        what = "effect %r of job %d stays uncertain: %s"
        logger.warning(what, scrub(self.effect.key), self._journal.job, failure)


class StepBlock(EffectBlock):
    """The block of a step. Its result passes through JSON, so it is the same in every attempt."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        if_uncertain: IfUncertain,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        super().__init__(journal, name, if_uncertain, (), journal.next_place(name))
        self._type = _find_return_type(fn, args)

    def _begin(self, answer: EffectAnswer) -> Effect:
        effect = super()._begin(answer)
        if answer.result_json is not None:
            try:
                self._decode(answer.result_json)
            except ValueError as error:
                raise Dead(
                    f"what is kept of step {self.effect.key!r} is not what its function says that "
                    f"it returns: {error}; retry with the release that began, or resolve the step"
                ) from None
        return effect

    def _encode(self, result: Any) -> str:
        encoded, problem = encode_value(result)
        if encoded is None:
            raise self._refuse(problem)
        if encoded != mask_secrets(encoded):  # what follows would go on with the mask
            raise self._refuse("a secret of the job is in it")
        try:
            self._decode(encoded)
        except ValueError as error:
            raise self._refuse(f"its function does not return what it says: {error}") from None
        self._kept = encoded
        return encoded

    def _refuse(self, problem: object) -> Dead:
        name, job = self.effect.key, self._journal.job
        return Dead(
            f"the result of step {name!r} cannot be kept: {problem}. The step has run: before you "
            f"retry, `rota effects resolve {quote(name)} --job {job} --done --result …`, or it may "
            "run again"
        )


def _encode_about(about: Mapping[str, Any] | None) -> str | None:
    if about is None:
        return None
    if not isinstance(about, Mapping):
        raise UsageError(f"about must be a mapping, as in {{'to': address}}, not {about!r}")
    encoded, problem = encode_result(dict(about))
    if encoded is None or len(encoded.encode()) > ABOUT_BYTES_MAX:
        raise UsageError(f"about: {problem or f'it is over {ABOUT_BYTES_MAX:,} bytes'}")
    return encoded


def _find_return_type(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the type of a function's result, awaited if it is async; Any: JSON cannot give it."""
    if fn is asyncio.to_thread and args:
        fn = args[0]
    said = _find_said(fn)
    if _is_awaitable(said):
        said = (Any, *typing.get_args(said))[-1]  # a bare Awaitable has none
    with suppress(NameError, TypeError, AttributeError, ValueError, RecursionError):
        return Any if find_unreadable(said) else said
    return Any  # JSON has no reader for it, such as a union of two classes


def _find_said(fn: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(inspect.unwrap(fn)).get("return", Any)
    except (NameError, TypeError, AttributeError, ValueError):
        return Any


def _is_awaitable(said: Any) -> bool:
    origin = typing.get_origin(said)
    return isinstance(origin, type) and issubclass(origin, Awaitable)


def _is_async(fn: Callable[..., Any]) -> bool:
    """Whether the result is awaited: the function is async, calls an async function, or says so."""
    inner = inspect.unwrap(fn)
    return (
        inspect.iscoroutinefunction(inner)
        or inspect.iscoroutinefunction(type(inner).__call__)
        or _is_awaitable(_find_said(inner))
    )


def run_call(block: EffectBlock, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function of an effect or a step unless it is done. On a loop, await the answer."""
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise UsageError(f"{block.name}: a generator function does nothing when it is called")
    if not _is_on_loop():
        return _run_plain(block, fn, args, kwargs)
    if not _is_async(fn):  # it would block the loop, and nobody would await the answer
        raise UsageError(
            f"{block.name}: in an async handler give an async function and await it; a plain one "
            "runs in a thread: give asyncio.to_thread, and the function as its first argument"
        )
    return _run_async(block, fn, args, kwargs)


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_plain(block: EffectBlock, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    why = f"{block.name}: an async function needs an async handler, which awaits the call"
    if inspect.iscoroutinefunction(fn):
        raise UsageError(why)
    with block as effect:
        if not effect.done:
            value = fn(*args, **kwargs)
            if inspect.iscoroutine(value):
                value.close()
                raise effect.not_done(UsageError(why))
            effect.result = value
    return block.value


async def _run_async(block: EffectBlock, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    async with block as effect:
        if not effect.done:
            value = fn(*args, **kwargs)
            effect.result = await value if inspect.isawaitable(value) else value
    return block.value
