"""How another process finds a handler: by importing what declares it. What cannot be found is refused when the worker starts."""

from __future__ import annotations

import logging
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.errors import ConfigurationError, DeclarationError
from rota.runtime import logs
from rota.worker.child import find, refuse_worker
from rota.worker.messages import Setup

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rota.declare.job_type import JobType


def refuse_unreachable(types: Iterable[JobType[..., ..., Any]]) -> None:
    """Refuse to start a worker when a handler is to run in a process of its own and cannot.

    Raises:
        DeclarationError: another process cannot import the handler, or a class of its `retry_on` or `fatal_on`.
        ConfigurationError: this is not Linux.
        UsageError: this is such a process itself, importing the main module.
    """
    refuse_worker()
    for job_type in types:
        if job_type.settings.process is not None:
            if sys.platform != "linux":
                raise ConfigurationError(
                    f'job type {job_type.name!r}: executor="process" works on Linux only'
                )
            _refuse_unreachable(job_type)


def setup_of(job_type: JobType[..., ..., Any], worker: str, module: str | None) -> Setup:
    """Return what a process must know to run a job type's handler; `module` is where the App is, None when that is not known."""
    handlers = job_type.func.__module__
    return Setup(
        worker=worker,
        argv=sys.argv,
        log_level=logging.getLogger().getEffectiveLevel(),
        log_format=logs.form(),
        main=_main() if "__main__" in (handlers, module) else {},
        app_module=module if module != "__main__" else None,
        module=handlers,
        qualname=job_type.func.__qualname__,
        takes_context=job_type.takes_context,
        is_async=job_type.is_async,
        errors=_errors(job_type),
    )


def _refuse_unreachable(job_type: JobType[..., ..., Any]) -> None:
    func = job_type.func
    place = f"{func.__module__}.{func.__qualname__}"
    try:
        reached = find(func.__module__, func.__qualname__) is func and (
            func.__module__ != "__main__" or bool(_main())
        )
    except (ImportError, AttributeError):
        reached = False
    if not reached:
        raise DeclarationError(
            f'job type {job_type.name!r}: executor="process" needs a handler that another process can import, and {place} is none: '
            "define it at the top level of a module"
        )
    try:
        _errors(job_type)
    except (pickle.PicklingError, AttributeError) as error:
        raise DeclarationError(
            f'job type {job_type.name!r}: executor="process" needs error classes that another process can import: {error}'
        ) from None


def _errors(job_type: JobType[..., ..., Any]) -> bytes:
    return pickle.dumps((job_type.settings.retry_on, job_type.settings.fatal_on))


def _main() -> dict[str, str]:
    """How another process imports the main module, in the words of `multiprocessing.spawn.prepare`; empty when it cannot."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {} if name.rpartition(".")[2] == "__main__" else {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return {} if path is None else {"init_main_from_path": str(Path(path).absolute())}
