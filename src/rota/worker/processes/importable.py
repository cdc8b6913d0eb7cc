"""How another process imports a handler. A worker refuses to start if that is impossible."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from multiprocessing.spawn import prepare
from pathlib import Path
from typing import Any

from rota import logs
from rota.declare.around import Around, name_of
from rota.declare.declaration import Declaration
from rota.declare.groups import CLUSTERS
from rota.declare.job_type import JobType, SenderOfJobs
from rota.errors import ConfigurationError, DeclarationError, UsageError
from rota.store.db import Database
from rota.worker.processes.messages import Setup
from rota.worker.spec import WorkerSpec

_is_importing = False
"""Whether this process is one of `process=True` that imports its handler."""


def check_importable(
    types: Iterable[Declaration], lease_s: float, arounds: Iterable[Around] = ()
) -> None:
    """Refuse to start a worker when a handler is to run in a process and cannot.

    `lease_s` is the lease of types without one of their own.

    Raises:
        DeclarationError: another process cannot import the handler, a class of its `retry_on`
            or `fatal_on`, or what the App puts around its attempts.
        ConfigurationError: this is not Linux; the cluster has no address, or its handlers may
            outlive a killed worker's lease.
        UsageError: this is such a process itself, importing the main module.
    """
    if _is_importing:
        raise UsageError(
            "a process of process=True imports the main module, which starts a worker when "
            'it is imported; start it under `if __name__ == "__main__":`'
        )
    for job_type in types:
        if job_type.options.process is not None:
            if sys.platform != "linux":
                raise ConfigurationError(
                    f"job type {job_type.name!r}: process=True works on Linux only"
                )
            if job_type.options.process.cluster is not None:
                cluster = import_module(CLUSTERS[job_type.options.process.cluster])
                cluster.find_address()
                cluster.check_lease(job_type.name, job_type.options.lease_s or lease_s)
            _check(job_type)
            _check_arounds(job_type, arounds)


def describe_handler(job_type: Declaration, spec: WorkerSpec, database: Database) -> Setup:
    """Return what a process must know to run a handler."""
    handlers, app = job_type.func.__module__, spec.module
    places = [(around.__module__, around.__qualname__) for around in spec.arounds]
    modules = {handlers, app, *(place for place, _ in places)}
    return Setup(
        worker=spec.name,
        release=spec.release,
        url=database.url,
        schema=database.schema,
        notify=database.notify,
        argv=sys.argv,
        log_level=logging.getLogger().getEffectiveLevel(),
        log_format=logs.form(),
        main=_describe_main() if "__main__" in modules else {},
        app_module=app if app != "__main__" else None,
        module=handlers,
        qualname=job_type.func.__qualname__,
        takes_context=job_type.takes_context,
        is_async=job_type.is_async,
        arounds=places,
        errors=_pickle_errors(job_type),
    )


def import_handler(setup: Setup) -> tuple[Callable[..., Any], SenderOfJobs | None, list[Any]]:
    """Return the handler, in the process that is to run it, its Jobs if it is a job type, and what
    is around each attempt."""
    global _is_importing
    _is_importing = True
    sys.argv = setup.argv
    prepare(setup.main)
    if setup.app_module is not None:
        importlib.import_module(setup.app_module)
    found = _find_declared(setup.module, setup.qualname)
    _is_importing = False
    arounds = [_find(module, qualname) for module, qualname in setup.arounds]
    if isinstance(found, JobType):
        return found.func, found._declaration.jobs, arounds
    return found, None, arounds


def _check(job_type: Declaration) -> None:
    func, needs = job_type.func, f"job type {job_type.name!r}: process=True needs"
    if not _is_importable(func) or (func.__module__ == "__main__" and not _describe_main()):
        raise DeclarationError(
            f"{needs} a handler that another process can import, and "
            f"{func.__module__}.{func.__qualname__} is none: define it at the top level of a module"
        )
    try:
        _pickle_errors(job_type)
    except (pickle.PicklingError, AttributeError) as error:
        raise DeclarationError(
            f"{needs} error classes that another process can import: {error}"
        ) from None


def _check_arounds(job_type: Declaration, arounds: Iterable[Around]) -> None:
    for around in arounds:
        if not _is_importable(around):
            raise DeclarationError(
                f"job type {job_type.name!r}: process=True needs middleware that another "
                f"process can import, and {name_of(around)} is none: define it with `def` at the "
                "top level of a module"
            )


def _is_importable(func: Any) -> bool:
    try:
        return _find(func.__module__, func.__qualname__) is func
    except (ImportError, AttributeError):
        return False


def _pickle_errors(job_type: Declaration) -> bytes:
    return pickle.dumps((job_type.options.retry_on, job_type.options.fatal_on))


def _find(module: str, qualname: str) -> Callable[..., Any]:
    """Import the function of that name, or that job type's; or raise Import- or AttributeError."""
    found = _find_declared(module, qualname)
    return found.func if isinstance(found, JobType) else found


def _find_declared(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _describe_main() -> dict[str, str]:
    """Return the main module for `multiprocessing.spawn.prepare`; empty: it cannot be imported."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {} if name.rpartition(".")[2] == "__main__" else {"init_main_from_name": name}
    path = getattr(main, "__file__", None)
    return {} if path is None else {"init_main_from_path": str(Path(path).absolute())}
