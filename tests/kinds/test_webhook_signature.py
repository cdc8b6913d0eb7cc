"""Signatures: ours are those of the standard's package, and only they are accepted."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from standardwebhooks.webhooks import Webhook

import rota
from rota.kinds import webhook
from tests.support.rules import rule

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
OTHER = f"whsec_{base64.b64encode(bytes(range(1, 33))).decode()}"
BODY = b'{"type":"order.paid"}'
NOW = 1_760_000_000


@rule("M71")
@given(some.binary(min_size=24, max_size=64), some.text(), some.integers(1, 2**40))
def test_a_signature_is_that_of_the_standard(key: bytes, text: str, at: int) -> None:
    secret = f"whsec_{base64.b64encode(key).decode()}"
    body = json.dumps({"text": text}).encode()
    ours = webhook.sign([secret], "msg_1", body, at)["webhook-signature"]
    when = datetime.fromtimestamp(min(at, 2**33), UTC)
    ours_then = webhook.sign([secret], "msg_1", body, int(when.timestamp()))["webhook-signature"]
    assert ours_then == Webhook(secret).sign("msg_1", when, body.decode())
    assert ours.startswith("v1,")


@rule("M71")
def test_what_the_standard_s_package_accepts_is_accepted() -> None:
    headers = webhook.sign([OTHER, SECRET], "msg_1", BODY, int(time.time()))
    assert Webhook(SECRET).verify(BODY.decode(), headers) == {"type": "order.paid"}
    upper = {name.upper(): value for name, value in headers.items()}
    assert webhook.verify(upper, BODY.decode(), SECRET) == {"type": "order.paid"}
    assert webhook.verify(headers, BODY, ["whsec_" + "A" * 40, SECRET]) == {"type": "order.paid"}


@rule("M71")
@pytest.mark.parametrize(
    ("changed", "body", "text"),
    [
        ({"webhook-id": "msg_2"}, BODY, "no signature fits"),
        ({}, BODY + b" ", "no signature fits"),
        ({"webhook-timestamp": str(NOW + 1)}, BODY, "no signature fits"),
        ({"webhook-timestamp": str(NOW - 301)}, BODY, "five minutes"),
        ({"webhook-timestamp": str(NOW + 301)}, BODY, "five minutes"),
        ({"webhook-timestamp": "now"}, BODY, "no number"),
        ({"webhook-timestamp": "9" * 400}, BODY, "no number"),
        ({"webhook-timestamp": "\N{SUPERSCRIPT TWO}"}, BODY, "no number"),
        ({"webhook-timestamp": ""}, BODY, "missing"),
        ({"webhook-id": ""}, BODY, "missing"),
        ({"webhook-timestamp": "inf"}, BODY, "no number"),
        ({"webhook-signature": ""}, BODY, "missing"),
        ({"webhook-signature": "v1,"}, BODY, "no signature fits"),
        ({"webhook-signature": "v1,\N{SNOWMAN}\udcff"}, BODY, "no signature fits"),
        ({"webhook-signature": b"v1,"}, BODY, "no text"),
        ({"webhook-timestamp": NOW}, BODY, "no text"),
        ({"webhook-id": ["msg_1"]}, BODY, "no text"),
        ({"webhook-id": None}, BODY, "missing"),
        ({"webhook-id": "msg\udcff"}, BODY, "no signature fits"),
        ({"Webhook-Id": "msg_2"}, BODY, "twice"),
        ({"WEBHOOK-SIGNATURE": "v1,", b"x": "y"}, BODY, "twice"),
    ],
)
def test_anything_else_is_refused(changed: dict[Any, Any], body: bytes, text: str) -> None:
    headers = {**webhook.sign([SECRET], "msg_1", BODY, NOW), **changed}
    with pytest.raises(webhook.NotVerified, match=text):
        webhook.verify(headers, body, SECRET, now=NOW)


def test_a_signature_of_another_version_or_secret_is_refused_and_a_body_that_is_no_json() -> None:
    headers = webhook.sign([SECRET], "msg_1", BODY, NOW)
    with pytest.raises(webhook.NotVerified):
        webhook.verify(headers, BODY, OTHER, now=NOW)
    with pytest.raises(rota.UsageError, match="needs a secret"):
        webhook.verify(headers, BODY, [], now=NOW)
    with pytest.raises(webhook.NotVerified, match="five minutes"):
        webhook.verify(headers, BODY, SECRET, now=float("nan"))
    no_body: Any
    for no_body in (memoryview(BODY), json.loads(BODY), None):
        with pytest.raises(rota.UsageError, match="body is bytes or str, as it came, not a"):
            webhook.verify(headers, no_body, SECRET, now=NOW)
    headers["webhook-signature"] = headers["webhook-signature"].replace("v1,", "v1a,")
    with pytest.raises(webhook.NotVerified):
        webhook.verify(headers, BODY, SECRET, now=NOW)
    del headers["webhook-signature"]
    with pytest.raises(webhook.NotVerified, match="missing"):
        webhook.verify(headers, BODY, SECRET, now=NOW)
    for body in (b"no json", b"\xff", b"[" * 200_000):
        headers = webhook.sign([SECRET], "msg_1", body, NOW)
        with pytest.raises(webhook.NotVerified, match="no JSON"):
            webhook.verify(headers, body, SECRET, now=NOW)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_abc", "whsec_!!!!", "\N{SNOWMAN}", None, SECRET.encode(), 7]
)
def test_a_secret_that_can_be_none_is_refused_by_its_place_and_not_shown(secret: Any) -> None:
    headers = webhook.sign([SECRET], "1", BODY, NOW)
    with pytest.raises(rota.UsageError, match=r"secrets\[1\] is whsec_ and 24 to 64") as refused:
        webhook.verify(headers, BODY, [SECRET, secret], now=NOW)
    assert not secret or str(secret) == "whsec_" or str(secret) not in str(refused.value)
    with pytest.raises(rota.UsageError):
        webhook.verify(headers, BODY, secret, now=NOW)
