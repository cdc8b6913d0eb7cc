"""What Rota's exceptions are beside their names."""

from __future__ import annotations

import pickle

import pytest

import rota
from rota import errors

BASES: list[tuple[Exception, type[Exception]]] = [
    (errors.UsageError("no"), ValueError),
    (errors.PayloadError("mail", "to", "is missing"), ValueError),
    (errors.DeclarationError("no"), ValueError),
    (errors.UnknownJobType("mail"), LookupError),
    (errors.JobNotFound(7), LookupError),
    (errors.BatchNotFound(7), LookupError),
    (errors.EffectNotFound("mail:7"), LookupError),
    (errors.KeyNotFound("order:7", None), LookupError),
    (errors.ScheduleNotFound("nightly"), LookupError),
    (errors.LimitNotFound("smtp"), LookupError),
    (errors.JoinTimeout(7, "running", 2.0), TimeoutError),
    (errors.AttemptTimeout(2.0), TimeoutError),
]


@pytest.mark.parametrize(("error", "base"), BASES, ids=lambda value: type(value).__name__)
def test_an_exception_is_one_of_pythons_too_and_can_be_pickled(
    error: Exception, base: type[Exception]
) -> None:
    assert isinstance(error, base)
    assert isinstance(error, rota.RotaError)
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
