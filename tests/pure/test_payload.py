from __future__ import annotations

import math
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from rota.declare.context import Context
from rota.declare.jsonb import PAYLOAD_BYTES_MAX, fits, text_bytes
from rota.declare.payload import Codec
from rota.declare.secret import Secret
from rota.errors import DeclarationError, PayloadError
from tests.pure.payload_types import (
    Address,
    Colour,
    Home,
    Household,
    Leaf,
    Line,
    Login,
    Node,
    OpenLogin,
    Period,
    Share,
    Term,
    User,
    Vault,
    Widening,
)
from tests.support.rules import rule

if TYPE_CHECKING:
    from somewhere import OnlyForTypeCheckers  # type: ignore[import-not-found]

NOW = datetime(2026, 1, 14, 8, 30, tzinfo=timezone(timedelta(hours=2)))
NAIVE = datetime(2026, 1, 14, 8, 30)  # noqa: DTZ001 - that is the point
ID = UUID("00000000-0000-0000-0000-000000000005")


def codec(func: Callable[..., Any], takes_context: bool = False) -> Codec:
    return Codec.of(func, job_type="t", takes_context=takes_context)


def refusal(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str | None, str]:
    with pytest.raises(PayloadError) as refused:
        codec(func).encode(args, kwargs, 7)
    assert refused.value.job_type == "t"
    assert refused.value.index == 7
    return refused.value.argument, refused.value.reason


def there_and_back(func: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    own = codec(func)
    arguments, unknown = own.decode(own.encode(args, kwargs))
    assert unknown == frozenset()
    return arguments


def send(user_id: int, template: str = "welcome", *, urgent: bool = False) -> None: ...
def rich(
    day: date | None = None,
    at: datetime | None = None,
    for_s: timedelta | None = None,
    clock: time | None = None,
) -> None: ...
def exact(
    key: UUID | None = None,
    price: Decimal | None = None,
    colour: Colour | None = None,
    share: float | None = None,
) -> None: ...
def nested(
    period: Period | None = None,
    node: Node | None = None,
    address: Address | None = None,
    data: bytes = b"",
) -> None: ...
def anything(value: Any = None, *, other=None) -> None: ...  # type: ignore[no-untyped-def]
def whatever(value: object, values: list[object] | None = None) -> None: ...
def lists(
    numbers: list[float], tags: set[str], pair: tuple[int, str], by_day: dict[date, Decimal]
) -> None: ...
def instants(ats: dict[str, list[datetime]]) -> None: ...
def classes(
    shares: dict[str, list[float]] | None = None,
    distinct: set[float] | None = None,
    household: Household | None = None,
    term: Period | None = None,
    secret: Secret[float] | None = None,
    lines: dict[str, list[Line]] | None = None,
    by_share: dict[float, int] | None = None,
) -> None: ...


def send_from(
    from_: str, to: str = "x", *, class_: int = 0, match_: int = 0, in__: int = 0
) -> None: ...


@rule("M12")
def test_a_field_named_like_a_keyword_fills_the_parameter_with_an_underscore() -> None:
    own = codec(send_from)
    text = own.encode(("a",), {"class_": 1, "match_": 2, "in__": 3})
    assert text == '{"from":"a","class":1,"match_":2,"in__":3}'
    assert own.decode(text)[0] == {"from_": "a", "class_": 1, "match_": 2, "in__": 3}
    assert own.encode((), {"from": "a"}) == own.encode((), {"from_": "a"}) == '{"from":"a"}'
    assert own.decode('{"from": "a", "from_": "b"}') == ({"from_": "a"}, frozenset({"from_"}))
    assert own.decode(own.write({"from": "a"}))[0] == {"from_": "a"}
    with pytest.raises(PayloadError, match="'from': missing"):
        own.decode('{"from_": "b"}')


def test_only_what_was_given_is_stored() -> None:
    assert codec(send).encode((42,), {}) == '{"user_id":42}'
    assert (
        codec(send).encode((42, "other"), {"urgent": True})
        == '{"user_id":42,"template":"other","urgent":true}'
    )
    assert codec(anything).encode((), {}) == "{}"


def test_values_come_back_as_their_types() -> None:
    times: dict[str, Any] = {"day": date(2026, 1, 14), "at": NOW, "for_s": timedelta(minutes=1)}
    kinds: dict[str, Any] = {
        "key": ID,
        "price": Decimal("1.50"),
        "colour": Colour.RED,
        "share": 0.1,
    }
    parts: dict[str, Any] = {
        "period": Period(date(2026, 1, 1), at=[NOW]),
        "node": Node("a", [Node("b")]),
        "address": Address(street="Main", houseNumber=3, since=NOW),
        "data": b"\0x",
    }
    many: dict[str, Any] = {
        "numbers": [1.5],
        "tags": {"a"},
        "pair": (1, "b"),
        "by_day": {date(2026, 1, 1): Decimal(2)},
    }
    cases: list[tuple[Any, dict[str, Any]]] = [
        (send, {"user_id": 2**80, "template": "é", "urgent": True}),
        (rich, {**times, "clock": time(1, 2)}),
        (exact, kinds),
        (nested, parts),
        (lists, many),
    ]
    for func, given_arguments in cases:
        assert there_and_back(func, **given_arguments) == given_arguments


@pytest.mark.parametrize(
    ("func", "given_as", "meant"),
    [
        (rich, {"at": "2026-01-14T08:30:00+02:00"}, {"at": NOW}),
        (exact, {"price": "1.50"}, {"price": Decimal("1.50")}),
        (exact, {"price": Decimal("1e400")}, {"price": Decimal("1e400")}),
        (exact, {"share": 1}, {"share": 1.0}),
        (nested, {"period": {"start": "2026-01-14"}}, {"period": Period(date(2026, 1, 14))}),
        (
            nested,
            {"address": {"street": "Main", "houseNumber": 3}},
            {"address": Address(street="Main", houseNumber=3)},
        ),
        (
            lists,
            {"numbers": (1,), "tags": ["a"], "pair": [1, "b"], "by_day": {"2026-01-01": 2}},
            None,
        ),
        (anything, {"value": types.MappingProxyType({"a": 1})}, {"value": {"a": 1}}),
        (anything, {"value": OrderedDict(a={1})}, {"value": {"a": [1]}}),
        (
            whatever,
            {"value": {"a": [1]}, "values": [1, "b"]},
            {"value": {"a": [1]}, "values": [1, "b"]},
        ),
    ],
)
def test_what_the_json_form_of_a_type_accepts_is_accepted(
    func: Any, given_as: dict[str, Any], meant: dict[str, Any] | None
) -> None:
    arguments = there_and_back(func, **given_as)
    assert meant is None or arguments == meant


@pytest.mark.parametrize(
    ("func", "args", "kwargs", "argument", "reason"),
    [
        (send, (), {}, "user_id", "missing"),
        (send, ("42",), {}, "user_id", "expected int, got str"),
        (send, (1, None), {}, "template", "expected str, got null"),
        (send, (1, "a", True), {}, None, "the handler takes at most 2 positional arguments, not 3"),
        (send, (1,), {"user_id": 2}, "user_id", "given twice, by position and by name"),
        (send_from, ("a",), {"from_": "b"}, "from", "given twice, by position and by name"),
        (send_from, (), {"from_": 3}, "from", "expected str, got int"),
        (
            send,
            (1,),
            {"templat": "a"},
            "templat",
            "the handler takes no such argument; did you mean 'template'?",
        ),
        (
            send,
            (User(3),),
            {},
            "user_id",
            "a User cannot be stored as JSON; pass its id, or the values that the job needs",
        ),
        (
            send,
            (Period(date(2026, 1, 1)),),
            {},
            "user_id",
            "expected int, got object, a Period; pass its id",
        ),
        (rich, (date(2026, 1, 1), date(2026, 1, 1)), {}, "at", "invalid RFC3339 encoded datetime"),
        (nested, (), {"node": {"name": "a", "children": [{}]}}, "node.children[0].name", "missing"),
        (
            nested,
            (),
            {"address": {"street": "Main", "houseNumber": 0}},
            "address",
            "houseNumber: Input should be greater than or equal to 1",
        ),
        (anything, ({(1, 2): 3},), {}, "value", "a tuple cannot be a key of a JSON object"),
        *(
            (anything, (value,), {}, path, "another key is the same text, which a key is in JSON")
            for value, path in (
                ({1: 2, "1": 3}, "value.1"),
                ([{"a": {2: 2, "2": 3}}], "value[0].a.2"),
            )
        ),
        (anything, (msgspec.Raw(b"{bad"),), {}, "value", "raw JSON is not checked; pass the value"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name_and_reason(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], argument: str | None, reason: str
) -> None:
    assert refusal(func, *args, **kwargs) == (argument, reason)


def test_nan_and_infinity_are_refused_however_deep() -> None:
    for number in (math.nan, math.inf, -math.inf, Decimal("NaN"), Decimal("-Infinity")):
        for value in (number, [1, number], {"a": {"b": (number,)}}):
            argument, reason = refusal(anything, value)
            assert argument is not None and argument.startswith("value")
            assert reason == f"{number} cannot be stored"
    assert refusal(exact, share=math.nan) == ("share", "nan cannot be stored")
    assert refusal(exact, price="NaN") == ("price", "NaN cannot be stored")
    assert refusal(anything, Share(share=math.nan)) == ("value", "share: nan cannot be stored")


def test_a_secret_that_would_be_stored_as_asterisks_is_refused() -> None:
    def opens(
        vault: Vault | None = None, login: Login | None = None, opened: OpenLogin | None = None
    ) -> None: ...

    hidden = Login(user="ann", password=SecretStr("hunter2"))
    why = "a SecretStr is stored as asterisks; pass a reference to the secret"
    assert refusal(opens, login=hidden) == ("login", why)
    assert refusal(opens, vault=Vault(logins=[hidden])) == ("vault", why)
    assert refusal(anything, {"a": [hidden]}) == ("value", why)
    # But not where none is lost: the model writes it out, or none was given, or the payload came by
    # SQL.
    for kept in (
        {"opened": OpenLogin(user="ann", password=SecretStr("hunter2"))},
        {"login": Login(user="ann")},
    ):
        assert there_and_back(opens, **kept) == kept
    assert codec(opens).decode('{"login": {"user": "ann", "password": "hunter2"}}')[0] == {
        "login": hidden
    }


@pytest.mark.parametrize(
    ("func", "value", "argument"),
    [
        (rich, {"at": NAIVE}, "at"),
        (rich, {"at": "2026-01-14T08:30:00"}, "at"),
        (anything, {"value": NAIVE}, "value"),
        (anything, {"value": {"a": [NAIVE]}}, "value.a[0]"),
        (instants, {"ats": {"x": [NOW, NAIVE]}}, "ats.x[1]"),
        (instants, {"ats": {"x": ["2026-01-14T08:30:00"]}}, "ats.x[0]"),
        (nested, {"period": Period(date(2026, 1, 1), at=[NAIVE])}, "period.at[0]"),
        (
            nested,
            {"period": {"start": "2026-01-01", "at": ["2026-01-14T08:30:00"]}},
            "period.at[0]",
        ),
    ],
)
def test_a_datetime_without_a_zone_is_refused_however_it_is_given(
    func: Any, value: dict[str, Any], argument: str
) -> None:
    assert refusal(func, **value) == (argument, "a datetime without a time zone; add one")


MAIN = Address(street="Main", houseNumber=3)
BEFORE_MINUTES = datetime(1925, 6, 1, 12, tzinfo=ZoneInfo("Europe/Amsterdam"))
SECONDS = "its offset from UTC has seconds; pass it in UTC"
ZONED = time(8, 30, tzinfo=ZoneInfo("Europe/Berlin"))
CHANGED = "it would arrive as another value"


@rule("M12")
@pytest.mark.parametrize(
    ("func", "value", "argument", "reason"),
    [
        (rich, {"at": BEFORE_MINUTES}, "at", SECONDS),
        (rich, {"clock": time(8, tzinfo=timezone(timedelta(seconds=1)))}, "clock", SECONDS),
        (anything, {"value": [{"a": BEFORE_MINUTES}]}, "value[0].a", SECONDS),
        (nested, {"period": Period(date.min, at=[BEFORE_MINUTES])}, "period.at[0]", SECONDS),
        (rich, {"clock": ZONED}, "clock", "a time in a zone; pass the zone's name beside it"),
        (exact, {"share": 2**53 + 1}, "share", CHANGED),
        (classes, {"shares": {"a": [2**53 + 1]}}, "shares.a[0]", CHANGED),
        (classes, {"secret": Secret(2**53 + 1)}, "secret", CHANGED),
        (classes, {"lines": {"a": [{"sku": "b", "n": 2}]}}, "lines.a[0].n", "it would be lost"),
        (nested, {"period": Term(date.min)}, "period.pupils", "Period has no such field"),
        (nested, {"node": Node("a", [Leaf("b")])}, "node.children[0].colour", "Node has no"),
        (nested, {"address": Home(street="M", houseNumber=3)}, "address.owner", "Address has no"),
    ],
)
def test_what_a_worker_would_read_as_another_value_is_refused(
    func: Any, value: dict[str, Any], argument: str | None, reason: str
) -> None:
    refused, why = refusal(func, **value)
    assert reason in why
    assert argument in (None, refused)


def test_what_only_looks_like_another_value_is_stored() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))  # this hour is twice
    for kept in (
        {"household": Household(homes=[MAIN], key=math.nan, counted_at=BEFORE_MINUTES)},
        {"shares": {"a": (1, 2.5)}, "distinct": [1, 1.0], "by_share": {1: 1, "2.5": 2}},
        {"lines": {"a": [{"sku": "b"}]}},
        {"term": Period(date.min, at=[twice])},
    ):
        there_and_back(classes, **kept)


def test_subclasses_of_simple_types_are_stored_as_these() -> None:
    text, number, share = (type(f"My{kind}", (kind,), {}) for kind in (str, int, float))
    day, instant = type("Day", (date,), {}), type("Instant", (datetime,), {})
    values = [text("a"), number(3), share(0.5), day(2026, 1, 14), instant(2026, 1, 14, tzinfo=UTC)]
    assert there_and_back(anything, value=values) == {
        "value": ["a", 3, 0.5, "2026-01-14", "2026-01-14T00:00:00Z"]
    }


def test_a_stored_datetime_without_a_zone_does_not_fit() -> None:
    with pytest.raises(PayloadError, match="'at': a datetime without a time zone"):
        codec(rich).decode('{"at": "2026-01-14T08:30:00"}')


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0", "NUL character"),
        ({"k\0": 1}, "NUL character"),
        (["\\\0"], "NUL character"),
        ("a\udfff", "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
    ],
)
def test_a_text_that_postgresql_cannot_store_is_refused(value: Any, reason: str) -> None:
    assert refusal(anything, value) == ("value", f"text with a {reason} cannot be stored")


def test_a_backslash_before_u0000_is_only_text() -> None:
    assert there_and_back(anything, value="\\u0000", other=["\\\\u0000"]) == {
        "value": "\\u0000",
        "other": ["\\\\u0000"],
    }


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert refusal(anything, loop) == ("value", "nested too deeply, or it contains itself")


def nest(depth: int) -> Any:
    value: Any = "x" * 60_000
    for _ in range(depth):
        value = [{"a": value}]
    return value


@pytest.mark.parametrize("depth", [1, 100, 200, 400, 800, 20_000])
def test_a_deep_value_is_stored_and_measured_or_refused(depth: int) -> None:
    try:
        encoded = codec(anything).encode((nest(depth),), {})
    except PayloadError as error:
        assert depth >= 200
        assert "nested too deeply" in error.reason  # noqa: PT017
    else:
        assert fits(encoded)
        assert text_bytes(encoded) == len('{"value": ""}') + 60_000 + depth * len('[{"a": }]')


# Decoding


@rule("M12")
def test_unknown_fields_are_ignored_and_named() -> None:
    own = codec(send)
    assert own.decode('{"user_id": 1, "gone": {"a": 1}, "template": "x: y"}') == (
        {"user_id": 1, "template": "x: y"},
        frozenset({"gone"}),
    )
    assert own.decode(b'{"user_id": 1, "template": "a:b:c"}') == (
        {"user_id": 1, "template": "a:b:c"},
        frozenset(),
    )
    assert own.decode('{"user_id": 1}')[1] == frozenset()


@pytest.mark.parametrize(
    ("stored", "argument", "reason"),
    [
        ("{}", "user_id", "missing"),
        (
            '{"id": 1, "x": 2}',
            "user_id",
            "missing, and the payload has 2 other fields: was the argument renamed?",
        ),
        ('{"user_id": "1"}', "user_id", "expected int, got str"),
        ("[]", None, "expected object, got array"),
        ("null", None, "expected object, got null"),
        ('{"user_id": 1', None, "not valid JSON: Input data was truncated"),
        ("", None, "not valid JSON: Input data was truncated"),
        ('{"user_id": ' + "[" * 100_000, None, None),
        ('{"\ud800": 1}', None, None),
        (b'{"user_id": 1, "template": "\xff"}', None, None),
    ],
)
def test_a_stored_payload_that_does_not_fit_says_where(
    stored: str | bytes, argument: str | None, reason: str | None
) -> None:
    with pytest.raises(PayloadError) as refused:
        codec(send).decode(stored)
    assert refused.value.index is None
    if reason is not None:
        assert (refused.value.argument, refused.value.reason) == (argument, reason)


def test_an_upgraded_payload_is_checked_like_a_stored_one() -> None:
    own = codec(rich)
    assert own.decode(own.write({"day": "2026-01-14", "gone": 1})) == (
        {"day": date(2026, 1, 14)},
        frozenset({"gone"}),
    )
    assert own.decode(own.write({"day": date(2026, 1, 14), "at": NOW})) == (
        {"day": date(2026, 1, 14), "at": NOW},
        frozenset(),
    )
    for wrong in ({"day": 3}, {"gone": math.nan}, {"gone": "\0"}, {"gone": User(1)}, {"at": NAIVE}):
        with pytest.raises(PayloadError):
            own.decode(own.write(wrong))


# Declarations


def star(*args: int) -> None: ...
def stars(**kwargs: int) -> None: ...
def positional_only(a: int, /, b: int) -> None: ...
def two_texts(a: date | str) -> None: ...
def orm(user: User) -> None: ...
def orms(users: list[dict[str, User]]) -> None: ...
def raw(a: msgspec.Raw) -> None: ...
def widening(a: Widening[int]) -> None: ...
def callback(a: Callable[[], None]) -> None: ...
def context_as_argument(ctx: Context) -> None: ...
def unresolved(a: int, b: OnlyForTypeCheckers) -> None: ...


@pytest.mark.parametrize(
    ("func", "text"),
    [
        (star, "parameter 'args': a handler cannot take"),
        (stars, "parameter 'kwargs': a handler cannot take"),
        (positional_only, "parameter 'a': a handler is called with named arguments"),
        (two_texts, "parameter 'a': its type cannot be read from JSON"),
        (orm, "parameter 'user': its type User cannot be read from JSON; take its id"),
        (orms, "parameter 'users': its type User cannot be read from JSON; take its id"),
        (raw, "parameter 'a': its type Raw cannot be read"),
        (widening, "parameter 'a': its type cannot be read from JSON: maximum recursion depth"),
        (callback, "parameter 'a': its type Callable cannot be read"),
        (context_as_argument, "declare the job type with takes_context=True"),
        (unresolved, "parameter 'b': its annotation 'OnlyForTypeCheckers' cannot be resolved"),
    ],
)
def test_a_handler_that_no_payload_can_call_is_refused_when_it_is_declared(
    func: Any, text: str
) -> None:
    with pytest.raises(DeclarationError, match=rf"job type 't'.*{text}"):
        codec(func)


def test_the_context_is_no_argument_and_its_annotation_does_not_matter() -> None:
    def with_context(ctx: OnlyForTypeCheckers, /, day: date) -> OnlyForTypeCheckers: ...

    assert (
        codec(with_context, takes_context=True).encode((date(2026, 1, 14),), {})
        == '{"day":"2026-01-14"}'
    )
    for without in (lambda: None, lambda *, ctx: None):
        with pytest.raises(
            DeclarationError, match="takes_context=True needs a first, positional parameter"
        ):
            codec(without, takes_context=True)


# Properties

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(texts, inside, max_size=4),
    max_leaves=20,
)


@given(values, values)
def test_any_json_value_comes_back(value: Any, other: Any) -> None:
    assert there_and_back(anything, value, other=other) == {"value": value, "other": other}


@settings(max_examples=60)
@given(st.dictionaries(texts, values, max_size=5))
def test_a_stored_payload_loses_no_field_unnoticed(payload: dict[str, Any]) -> None:
    arguments, unknown = codec(anything).decode(msgspec.json.encode(payload))
    assert arguments.keys() | unknown == payload.keys()
    assert arguments.keys() == payload.keys() & {"value", "other"}


@given(
    st.dates(),
    st.datetimes(timezones=st.just(UTC)) | st.datetimes(timezones=st.timezones()),
    st.timedeltas(timedelta(days=-10000), timedelta(days=10000)),
    st.times(),
)
def test_dates_and_times_come_back(day: date, at: datetime, for_s: timedelta, clock: time) -> None:
    offset = at.utcoffset()
    assume(offset is not None and not offset % timedelta(minutes=1))
    arguments = there_and_back(rich, day, at, for_s, clock)
    assert arguments.pop("at") - at == timedelta(0)
    assert arguments == {"day": day, "for_s": for_s, "clock": clock}


@given(st.binary(max_size=60) | st.text(st.characters(codec=None), max_size=60))
def test_any_bytes_are_a_payload_or_a_payload_error(stored: str | bytes) -> None:
    try:
        codec(anything).decode(stored)
    except PayloadError as error:
        assert error.job_type == "t"  # noqa: PT017 - either is right


@given(
    st.recursive(
        st.from_type(object).filter(lambda value: not isinstance(value, type)),
        lambda inside: st.lists(inside, max_size=3),
    )
)
def test_any_object_is_stored_or_a_payload_error(value: Any) -> None:
    own = codec(anything)
    try:
        own.decode(own.encode((value,), {}))
    except PayloadError as error:
        assert error.argument is not None  # noqa: PT017 - either is right


# Size; test_payload_bytes.py asks PostgreSQL


@given(st.dictionaries(texts, values, max_size=5), st.integers(0, 400))
def test_a_payload_fits_exactly_when_its_size_does(
    payload: Mapping[str, Any], bytes_max: int
) -> None:
    encoded = msgspec.json.encode(payload).decode()
    assert fits(encoded, bytes_max) is (text_bytes(encoded) <= bytes_max)


@rule("M12")
def test_the_limit_is_64_kib_to_the_byte() -> None:
    most = PAYLOAD_BYTES_MAX - len('{"a": ""}')
    assert fits('{"a":"' + "x" * most + '"}')
    assert not fits('{"a":"' + "x" * (most + 1) + '"}')
    assert not fits('{"a":[' + ",".join(["1e308"] * 250) + "]}")


@rule("M12")
def test_the_size_is_that_of_the_text_postgresql_makes() -> None:
    for encoded, stored_as in (
        ("{}", "{}"),
        (' {"a":[1,2,{}],"b":null} ', '{"a": [1, 2, {}], "b": null}'),
        ('{"a":null,"a":22}', '{"a": 22}'),
        (r'["\u00e9\/\u0001\n\"\\"]', r'["é/\u0001\n\"\\"]'),
        (
            "[1e3,1.50,1.5e1,-0,-0.0,0e9,0e-2,0.001e2,1E-3,true]",
            "[1000, 1.50, 15, 0, 0.0, 0, 0.00, 0.1, 0.001, true]",
        ),
        ("[1e22,5e-324]", f"[1{'0' * 22}, 0.{'0' * 323}5]"),
    ):
        assert text_bytes(encoded) == len(stored_as.encode()), encoded
