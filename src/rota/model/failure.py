"""What is stored of an error: class, message safe for an admin screen, limited stack. Pure."""

from __future__ import annotations

import codecs
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from rota.model.scrub import scrub, scrub_own

_OUR_FRAMES = str(Path(__file__).parent.parent / "worker")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Loaded at import: the codec is a file, and must work when no descriptors are left.
_escape = codecs.getencoder("unicode_escape")
_SURROGATE = re.compile("[\ud800-\udfff]")


def error_type(error: BaseException) -> str:
    """Return the class of an error, to group by: `ValueError`, `httpx.ConnectTimeout`."""
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    return _cut(_on_one_line(name), 200)


def message(error: BaseException, limit: int = 500) -> str:
    """Return an error's text on one line of at most `limit` characters, without control characters
    and credentials; never empty."""
    try:
        text = str(error)
    except (Exception, SystemExit):  # noqa: BLE001 - foreign __str__
        text = "(the error's text cannot be shown: its __str__ raised)"
    return one_line(scrub(text), limit) or _cut(type(error).__name__, limit)


def one_line(text: str, limit: int = 500) -> str:
    """Return a text on one line of at most `limit` characters, fit to be stored and shown: without
    control characters and credentials."""
    return _cut(_on_one_line(scrub_own(text)), limit)


def list_names(names: Iterable[str], most: int = 20) -> str:
    """Return names on one line, in order: `most` of up to 50 characters, and how many more."""
    listed = sorted(names)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(one_line(name, 50) for name in listed[:most]) + more


def stack(error: BaseException, limit_bytes: int = 16384) -> str:
    """Return the traceback without the worker's own frames and without credentials. If it is longer
    than `limit_bytes` of UTF-8, its middle is left out."""
    top = frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OUR_FRAMES):
        frames = frames.tb_next
    try:
        text = "".join(
            traceback.TracebackException(type(error), error, frames or top, compact=True).format()
        )
    except (Exception, SystemExit):  # noqa: BLE001 - formatting runs foreign code
        text = f"{error_type(error)}: {message(error)}\n(its traceback cannot be shown)"
    return _middle_cut(_clean(scrub(text)), limit_bytes)


def escape(text: str) -> str:
    """Return a text on one line: Python escapes replace signs that break it or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() else _escape(sign, "surrogatepass")[0].decode() for sign in text
    )


def _clean(text: str) -> str:
    return _SURROGATE.sub("\ufffd", _CONTROL.sub("\ufffd", text))


def _on_one_line(text: str) -> str:
    return _SURROGATE.sub("\ufffd", " ".join(_CONTROL.sub(" ", text).split()))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def _middle_cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    mark = b"\n\xe2\x80\xa6\n"
    head_bytes = max(0, limit_bytes - len(mark)) // 4
    tail_bytes = max(0, limit_bytes - len(mark) - head_bytes)
    return (encoded[:head_bytes] + mark + encoded[len(encoded) - tail_bytes :]).decode(
        errors="ignore"
    )
