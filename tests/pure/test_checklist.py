"""What is easily forgotten of a job type is found in its options and in the code of its handler."""

from __future__ import annotations

import smtplib
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.declare.checklist import find_hints
from rota.kinds import mail, report, webhook
from tests.support.rules import rule

opener = urllib.request.build_opener()


def hints(handler: Callable[..., Any], name: str = "t", **options: Any) -> list[str]:
    jobs = rota.Jobs()
    context: Any = handler.__code__.co_varnames[:1] == ("ctx",)
    jobs.job(name, takes_context=context, **options)(handler)
    return [
        hint.about for hint in find_hints(job_type._declaration for job_type in jobs.types.values())
    ]


def call() -> Any:
    return urllib.request.urlopen("http://x.example")


def in_another_function() -> None:
    call()


def imported_here() -> None:
    import httpx

    httpx.get("http://x.example")


def with_a_client() -> None:
    opener.open("http://x.example")


def parses() -> str:
    return urllib.parse.quote("a b")


@rule("M73")
@pytest.mark.parametrize("handler", [call, in_another_function, imported_here, with_a_client])
def test_a_call_to_the_network_with_the_default_timeout_is_found(handler: Any) -> None:
    assert hints(handler, max_attempts=1) == ["timeout"]
    assert hints(handler, max_attempts=1, timeout="15s") == []
    assert hints(parses, max_attempts=1) == [], "urllib.parse calls nobody"


def nothing(n: int) -> None: ...


def sweep() -> None: ...


def with_effect(ctx: rota.Context) -> None:
    with ctx.effect("key"):
        pass


def with_step_further_down(ctx: rota.Context) -> None:
    take_step(ctx)


def take_step(ctx: rota.Context) -> None:
    ctx.step("first", parses)


def with_file() -> None:
    rota.write_file(Path("x"))


@rule("M73", "M52")
def test_a_type_that_is_retried_without_key_or_effect_is_found() -> None:
    assert hints(nothing) == ["repeated"]
    assert hints(nothing, max_attempts=1) == []
    assert hints(sweep) == [], "a schedule's job without arguments has no key to give"
    assert hints(call) == ["repeated", "timeout"]
    assert hints(nothing, unique=lambda n: f"n:{n}") == []
    for guarded in (with_effect, with_step_further_down, with_file):
        assert hints(guarded) == []


def send(address: str) -> None:
    smtplib.SMTP(address)


def send_mail(address: str) -> None: ...


@rule("M73")
def test_a_mail_without_an_expiry_is_found() -> None:
    assert hints(send, max_attempts=1, timeout="15s") == ["expires"]
    assert hints(send_mail, max_attempts=1) == ["expires"]
    assert hints(nothing, "E-Mail", max_attempts=1) == ["expires"]
    assert hints(send, max_attempts=1, timeout="15s", expires="24h") == []


@rule("M73")
def test_the_kinds_of_rota_have_no_hints(tmp_path: Path) -> None:
    mailer = mail.Mailer("smtp://127.0.0.1", sender="a@shop.example", templates=tmp_path)
    hooks = webhook.Webhooks()
    reports = report.Reports(tmp_path)
    all_jobs = (mailer.jobs, hooks.jobs, reports.jobs)
    types = [job_type for jobs in all_jobs for job_type in jobs.types.values()]
    assert len(types) == 10
    assert find_hints(job_type._declaration for job_type in types) == []


@rule("M73")
def test_a_lazy_object_of_the_handler_is_not_asked_what_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Lazy:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise RuntimeError("no settings are configured")

    monkeypatch.setitem(globals(), "opener", Lazy())
    assert hints(with_a_client, max_attempts=1) == []
