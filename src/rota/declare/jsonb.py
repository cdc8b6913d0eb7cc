"""How large a JSON text is in PostgreSQL, as `octet_length(payload::text)` counts it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NoReturn

PAYLOAD_BYTES_LEAST = 1_024
"""The smallest limit that can be set."""
PAYLOAD_BYTES_MAX = 65536
"""The limit of `octet_length(payload::text)` unless `rota migrate --payload-bytes-max` sets it."""


def fits(encoded: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> bool:
    """Whether PostgreSQL will count at most `bytes_max` for this JSON text."""
    return all_fit([encoded], bytes_max) or text_bytes(encoded) <= bytes_max


def all_fit(encoded: Sequence[str], bytes_max: int) -> bool:
    """Whether all of these JSON texts fit, by their lengths alone; False: they may fit."""
    # Without exponents a character takes at most 4 bytes: UTF-8, an escape, a sign and its space.
    longest = max(map(len, encoded), default=0)
    return 4 * longest <= bytes_max and not _EXPONENT.search(" ".join(encoded))


def text_bytes(encoded: str) -> int:
    """Return what `octet_length(payload::text)` will be for this JSON text.

    jsonb writes numbers without exponents, a space after each comma and colon, and a key once. Of a
    key that comes twice with numbers, both numbers are counted.
    """
    numbers: list[int] = []

    def take_number(text: str) -> str:
        # A float would lose digits that PostgreSQL keeps. Two bytes are the quotes.
        numbers.append(_number_bytes(text) - 2)
        return ""

    value = json.loads(
        encoded, parse_float=take_number, parse_int=take_number, parse_constant=_no_constant
    )
    text = json.dumps(value, ensure_ascii=False)
    return sum(numbers) + len(text.encode(errors="surrogatepass"))


def _number_bytes(text: str) -> int:
    mantissa, _, exponent = text.lower().lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    shift = int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    scale = max(0, len(fraction) - shift)
    before = max(1, len(digits) - len(fraction) + shift) if digits else 1
    return (text.startswith("-") and bool(digits)) + before + (1 + scale if scale else 0)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_EXPONENT = re.compile("[0-9][eE][+-]?[0-9]")
