"""Encodes a handler's return value as JSON. One that cannot be stored is not kept, and never
changes the outcome of the job."""

from __future__ import annotations

from typing import Any

from rota.declare.jsonb import PAYLOAD_BYTES_MAX, fits
from rota.declare.payload import Codec
from rota.errors import PayloadError


def _returns(value: Any) -> None: ...


_CODEC = Codec.of(_returns, job_type="result", takes_context=False)
_BEFORE, _AFTER = len('{"value":'), len("}")


def encode_result(value: Any) -> tuple[str | None, str | None]:
    """Return the JSON text of a result and None; or None and why it is not kept: it has no JSON
    form, or is over 64 KiB."""
    try:
        text = _CODEC.encode((), {"value": value})[_BEFORE:-_AFTER]
    except PayloadError as error:
        return None, error.reason
    except Exception as error:  # noqa: BLE001 - the value's own methods may fail
        return None, f"{type(error).__name__} during encoding"
    if not fits(text):
        return (
            None,
            f"larger than {PAYLOAD_BYTES_MAX:,} bytes; store it elsewhere and return a reference",
        )
    return text, None
