"""Limits and breakers that several job types share: all must declare the same figures."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rota.declare.declaration import Declaration
from rota.declare.rate_limit import RateLimit
from rota.errors import DeclarationError
from rota.model.breaker import BreakerRules


def index_limits(types: Iterable[Declaration]) -> dict[str, RateLimit]:
    """Return the limits of job types by name.

    Raises:
        DeclarationError: two types declare one limit with other figures.
    """
    seen: dict[str, tuple[RateLimit, str]] = {}
    for job_type in types:
        limit = job_type.options.rate_limit
        if limit is None:
            continue
        first, place = seen.setdefault(limit.name, (limit, str(job_type.place)))
        if first.figures != limit.figures:
            raise DeclarationError(
                f"rate limit {limit.name!r} is declared twice with different figures: "
                f"{first.in_words()} at {place}, and {limit.in_words()} at {job_type.place}; "
                "types that share a limit must agree, or give names of their own"
            )
    return {name: limit for name, (limit, _) in seen.items()}


def encode_limits(types: Iterable[Declaration]) -> str:
    """Return the limits of job types as `limits_declare` takes them, in JSON."""
    return msgspec.json.encode([one.figures for one in index_limits(types).values()]).decode()


def refuse_other_figures(types: Iterable[Declaration]) -> None:
    """Raise DeclarationError if two types declare one breaker with different figures."""
    seen: dict[str, tuple[BreakerRules, bool, str]] = {}
    for job_type in types:
        rules = job_type.breaker
        if rules is None:
            continue
        has_keys = job_type.breaker_key is not None
        first, first_has_keys, place = seen.setdefault(
            rules.name, (rules, has_keys, str(job_type.place))
        )
        if (first, first_has_keys) != (rules, has_keys):
            raise DeclarationError(
                f"the breaker {rules.name!r} is declared twice with different figures: "
                f"{_describe_breaker(first, first_has_keys)} at {place}, and "
                f"{_describe_breaker(rules, has_keys)} at {job_type.place}; "
                "types that share a breaker must agree, or give names of their own"
            )


def _describe_breaker(rules: BreakerRules, has_keys: bool) -> str:
    return f"{rules.in_words()}, {'with' if has_keys else 'without'} a key"
