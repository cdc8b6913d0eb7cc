"""What the job types of one App must agree on: their names, shared limits and shared breakers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from rota.declare.declaration import Declaration
from rota.declare.rate_limit import RateLimit
from rota.errors import DeclarationError


def refuse_disagreement(types: Iterable[Declaration]) -> None:
    """Raise DeclarationError if two types share a name, or disagree on a limit or a breaker."""
    types = list(types)
    refuse_twins(
        "job type", ((name, job_type.place) for job_type in types for name in job_type.names)
    )
    seen: dict[tuple[str, str], tuple[object, str]] = {}
    for job_type in types:
        for kind, name, figures, words in _list_shared(job_type):
            said = f"{words} at {job_type.place}"
            first, first_said = seen.setdefault((kind, name), (figures, said))
            if first != figures:
                raise DeclarationError(
                    f"{kind} {name!r} is declared twice with different figures: {first_said}, and "
                    f"{said}; types that share a {kind} must agree, or give names of their own"
                )


def refuse_twins(kind: str, places: Iterable[tuple[str, object]]) -> None:
    """Raise DeclarationError if a name is declared at two of these places."""
    seen: dict[str, object] = {}
    for name, place in places:
        if name in seen:
            raise DeclarationError(
                f"{kind} {name!r} is declared twice: at {seen[name]} and at {place}"
            )
        seen[name] = place


def _list_shared(job_type: Declaration) -> Iterator[tuple[str, str, object, str]]:
    """Iterate over what a job type may share: kind, name, figures, and the figures in words."""
    limit, breaker = job_type.options.rate_limit, job_type.breaker
    if limit is not None:
        yield "rate limit", limit.name, limit.figures, limit.in_words()
    if breaker is not None:
        key = "without a key" if job_type.breaker_key is None else "with a key"
        yield "breaker", breaker.name, (breaker, key), f"{breaker.in_words()}, {key}"


def index_limits(types: Iterable[Declaration]) -> dict[str, RateLimit]:
    """Return the limits of job types by name."""
    limits = [
        job_type.options.rate_limit for job_type in types if job_type.options.rate_limit is not None
    ]
    return {limit.name: limit for limit in limits}


def encode_limits(types: Iterable[Declaration]) -> str:
    """Return the limits of job types as `limits_declare` takes them, in JSON."""
    return msgspec.json.encode([limit.figures for limit in index_limits(types).values()]).decode()
