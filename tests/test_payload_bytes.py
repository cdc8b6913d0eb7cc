"""`text_bytes` against the server's own answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow

from rota.declare.jsonb import text_bytes
from rota.declare.payload import Codec
from tests.support.rules import rule

pytestmark = pytest.mark.nightly

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
digits = st.integers(0, 10**25).map(str)
# As other producers may write them: exponents, trailing zeros, negative zero.
numbers = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-"]),
    digits,
    st.just("")
    | st.text("0123456789", min_size=1, max_size=20).map(lambda fraction: "." + fraction),
    st.just("")
    | st.builds(
        "{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 320)
    ),
)
scalars = (
    numbers
    | st.sampled_from(["null", "true", "false"])
    | texts.map(json.dumps)
    | texts.map(lambda text: msgspec.json.encode(text).decode())
)
keys = (st.sampled_from(["a", "b"]) | texts).map(json.dumps)
documents = st.recursive(
    scalars,
    lambda inside: st.one_of(
        st.lists(inside, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(keys, inside, max_size=5).map(
            lambda items: f"{{{', '.join(f'{key} :{value}' for key, value in items.items())}}}"
        ),
    ),
    max_leaves=15,
)


def anything(value: Any, shares: list[float]) -> None: ...


CODEC = Codec.of(anything, job_type="t", takes_context=False)
# jsonb writes 1e16 and more without an exponent, so where no type says float they come back as
# integers.
floats = st.floats(-9e15, 9e15)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(texts, inside, max_size=4),
    max_leaves=15,
)
with_one_database = settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def stored(connection: psycopg.Connection[TupleRow], encoded: str) -> tuple[int, str]:
    row = connection.execute(
        "SELECT octet_length(%(t)s::jsonb::text), %(t)s::jsonb::text", {"t": encoded}
    ).fetchone()
    assert row is not None
    return row[0], row[1]


@rule("M12")
@with_one_database
@given(encoded=documents)
def test_the_size_is_what_postgresql_counts_in_json_of_any_writer(
    connection: psycopg.Connection[TupleRow], encoded: str
) -> None:
    assert text_bytes(encoded) == stored(connection, encoded)[0]


@rule("M12")
@with_one_database
@given(
    value=json_values, shares=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3)
)
def test_what_is_enqueued_comes_back_from_jsonb_at_the_predicted_size(
    connection: psycopg.Connection[TupleRow], value: Any, shares: list[float]
) -> None:
    encoded = CODEC.encode((value, shares), {})
    size, text = stored(connection, encoded)
    assert text_bytes(encoded) == size
    assert CODEC.decode(text) == ({"value": value, "shares": shares}, frozenset())
