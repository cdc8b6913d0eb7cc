"""Makes and verifies signatures of Standard Webhooks 1.0 (https://www.standardwebhooks.com).

This file needs no package beside Python: a receiver may use it without the extra.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets as random
import time
from collections.abc import Iterable
from typing import Any, Protocol

import rota

TOLERANCE_S = 300.0
"""Most seconds between the time of a request and now: an older request may be a copy."""
_PREFIX = "whsec_"
_KEY_BYTES = (24, 64)


class Headers(Protocol):
    """The headers of a request: a mapping, or what a web framework has in its place."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return names and values."""


class NotVerified(Exception):
    """The sender of the request does not have the secret, or the request is a copy of an old
    request."""


def decode_secret(secret: str, name: str = "the secret of a webhook") -> bytes:
    """Return the key of a secret: `whsec_` and 24 to 64 bytes in base64.

    Raises:
            UsageError: not a secret. The message has the name, and does not repeat the secret.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (AttributeError, TypeError, ValueError):
        key = b""
    if not _KEY_BYTES[0] <= len(key) <= _KEY_BYTES[1]:
        raise rota.UsageError(f"{name} is whsec_ and 24 to 64 bytes in base64")
    return key


def new_secret() -> str:
    """Return a new secret, of 32 bytes."""
    return f"{_PREFIX}{base64.b64encode(random.token_bytes(32)).decode()}"


def sign(secrets: Iterable[str], id: str, body: bytes, at: int) -> dict[str, str]:
    """Return the headers of a request, with a signature for each secret.

    Args:
        at: the time of this attempt, in seconds since 1970.
    """
    signatures = [f"v1,{_make(key, id, str(at), body)}" for key in _decode(secrets)]
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signatures),
    }


def verify(
    headers: Headers,
    body: bytes | str,
    secrets: str | Iterable[str],
    *,
    now: float | None = None,
) -> Any:
    """Return the event of a request, once it is certain who sent it, and that it is no copy of a
    request that is older than five minutes.

    Give the same event only one effect: an event has the same `webhook-id` at every attempt.

    Args:
        headers: of the request, in any case.
        body: as it came, not parsed and made again.
        secrets: the secret, or several: one of the secrets must have signed.
        now: seconds since 1970. Defaults to this machine's clock.

    Raises:
        NotVerified: answer 400.
        UsageError: a secret has a wrong form, or is missing; the body is neither bytes nor str.
    """
    keys = _decode([secrets] if isinstance(secrets, str) else secrets)
    raw = _encode(body) if isinstance(body, str) else body
    if not isinstance(raw, bytes | bytearray):
        raise rota.UsageError(f"body is bytes or str, as it came, not a {type(raw).__name__}")
    name, at, signatures = (
        _get(headers, f"webhook-{part}") for part in ("id", "timestamp", "signature")
    )
    if not (at.isascii() and at.isdigit() and len(at) <= 12):
        raise NotVerified("webhook-timestamp is no number of seconds")
    if not abs((time.time() if now is None else now) - int(at)) <= TOLERANCE_S:  # nan is refused
        raise NotVerified("webhook-timestamp is more than five minutes from now")
    wanted = [_make(key, name, at, raw).encode() for key in keys]
    signed = [signature.partition(",") for signature in signatures.split()]
    found = [_encode(text) for version, _, text in signed if version == "v1"]
    if not any(hmac.compare_digest(ours, other) for ours in wanted for other in found):
        raise NotVerified("no signature fits")
    try:
        return json.loads(raw)
    except (RecursionError, ValueError):
        raise NotVerified("the body is no JSON") from None


def _decode(secrets: Iterable[str]) -> list[bytes]:
    try:
        given = list(secrets)
    except TypeError:
        given = []
    if not given:
        raise rota.UsageError("a webhook needs a secret, or a list of some")
    return [decode_secret(secret, f"secrets[{place}]") for place, secret in enumerate(given)]


def _get(headers: Any, name: str) -> str:
    """Return a header. Raises NotVerified also if a header is there twice: the check for a copy may
    read the other value."""
    found = [
        value
        for given, value in headers.items()
        if isinstance(given, str) and given.lower() == name
    ]
    if not found or not found[0]:
        raise NotVerified(f"a header is missing: {name}")
    if len(found) > 1 or not isinstance(found[0], str):
        raise NotVerified(f"{name} is no text, or is there twice")
    return found[0]


def _make(key: bytes, id: str, at: str, body: bytes) -> str:
    digest = hmac.new(key, _encode(f"{id}.{at}.") + body, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _encode(text: str) -> bytes:
    """Return the bytes of a text, also of surrogates, which stand for bytes that are no UTF-8."""
    return text.encode(errors="surrogatepass")
