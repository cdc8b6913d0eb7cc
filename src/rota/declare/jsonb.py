"""How large a JSON text is in PostgreSQL, as `octet_length(payload::text)` counts it. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NoReturn

PAYLOAD_BYTES_LEAST = 1_024
"""The smallest limit that can be set."""
PAYLOAD_BYTES_MAX = 65536
"""The limit of `octet_length(payload::text)`, unless `rota migrate --payload-bytes-max` sets
another."""


def fits(encoded: str, bytes_max: int = PAYLOAD_BYTES_MAX) -> bool:
    """Whether PostgreSQL will count at most `bytes_max` for this JSON text. Short texts are not
    parsed."""
    return all_fit([encoded], bytes_max) or text_bytes(encoded) <= bytes_max


def all_fit(encoded: Sequence[str], bytes_max: int) -> bool:
    """Whether all of these JSON texts fit, for which they need not be parsed: mostly so."""
    # Without exponents a character takes at most 4 bytes: UTF-8, an escape, or a comma or colon and
    # its space.
    longest = max(map(len, encoded), default=0)
    return 4 * longest <= bytes_max and not _EXPONENT.search(" ".join(encoded))


def text_bytes(encoded: str) -> int:
    """Return what `octet_length(payload::text)` will be for this JSON text.

    jsonb has each key once, numbers without exponents, and a space after each comma and colon.
    """
    size, waiting = 0, [_reader.decode(encoded)]
    while waiting:  # a loop, because payloads may nest deeper than Python calls
        match waiting.pop():
            case dict() as members:
                size += (
                    2
                    + 2 * max(0, len(members) - 1)
                    + sum(_string_bytes(key) + 2 for key in members)
                )
                waiting.extend(members.values())
            case list() as items:
                size += 2 + 2 * max(0, len(items) - 1)
                waiting.extend(items)
            case str() as text:
                size += _string_bytes(text)
            case bytes() as digits:
                size += _number_bytes(digits.decode())
            case word:
                size += 5 if word is False else 4  # false, true, null
    return size


def _string_bytes(text: str) -> int:
    size = len(text.encode(errors="surrogatepass")) + 2
    for escaped in _ESCAPED.findall(text):
        size += 1 if escaped in '"\\\b\f\n\r\t' else 5
    return size


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
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
# Numbers come as bytes, so that they differ from strings: PostgreSQL keeps all their digits, which
# a float would not.
_reader = json.JSONDecoder(
    parse_float=str.encode, parse_int=str.encode, parse_constant=_no_constant
)
