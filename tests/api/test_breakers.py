"""Breakers as code declares them."""

from __future__ import annotations

import pytest

import rota
from rota.errors import DeclarationError, UsageError
from tests.support.rules import rule


@rule("M63")
def test_the_name_of_a_breaker_has_no_blanks_because_a_key_follows_it() -> None:
    with pytest.raises(UsageError, match="a breaker's name has no blanks, unlike 'the shop'"):
        rota.Breaker("the shop")


@rule("M63")
def test_a_job_type_with_blanks_names_its_breaker() -> None:
    jobs = rota.Jobs()
    with pytest.raises(DeclarationError, match=r"as in rota.Breaker\('call_the_shop'\)"):
        jobs.job("call the shop", breaker=rota.Breaker())(lambda: None)
    jobs.job("call the shop", breaker=rota.Breaker("shop"))(lambda: None)


@rule("M63")
def test_types_that_share_a_breaker_all_have_keys_or_none() -> None:
    jobs = rota.Jobs()
    jobs.job("a", breaker=rota.Breaker("shop"))(lambda host: None)
    jobs.job("b", breaker=rota.Breaker("shop", key=lambda host: host))(lambda host: None)
    with pytest.raises(DeclarationError, match=r"without a key at .*, and .* with a key at "):
        rota.App(jobs=[jobs])
