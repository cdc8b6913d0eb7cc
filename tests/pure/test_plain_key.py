"""What the key function of a rate limit or a breaker may return."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

import rota
from rota.declare.key import check_plain_key
from tests.support.rules import rule

ID = UUID("8f14e45f-ceea-467f-a8b1-0c7f5c0e2d11")


@rule("M62", "M63")
@pytest.mark.parametrize(("made", "key"), [("anna", "anna"), (7, "7"), (ID, str(ID))])
def test_a_text_an_integer_and_a_uuid_are_keys(made: Any, key: str) -> None:
    assert check_plain_key(made) == key


@rule("M62", "M63")
@pytest.mark.parametrize("made", [None, True, 1.5, "", "x" * 256, "two\nlines", object()])
def test_nothing_else_is_a_key(made: Any) -> None:
    with pytest.raises(rota.UsageError, match="what it returns"):
        check_plain_key(made)
