"""Secret and personal values, without a database: the sealed form, the keys, what is refused at a
declaration and at an enqueue, and the masks."""

from __future__ import annotations

import copy
import html
import json
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Annotated, Any, Literal, cast

import msgspec
import pydantic
import pytest

import rota
from rota import logs
from rota.declare.payload import encode_untyped
from rota.declare.result import encode_result
from rota.declare.secret import VARIABLE, is_sealed, make_key
from rota.errors import ConfigurationError, SecretKeyMissing
from rota.model import scrub
from rota.model.scrub import Hidden, mask_fields
from tests.support.rules import rule

KEY = make_key("k1")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    monkeypatch.setattr(scrub, "_patterns", {})


@rule("M45")
@pytest.mark.parametrize(
    "value", ["tok", "", "é\0\n", 42, None, ["a", {"b": 1.5}], date(2026, 1, 1)]
)
def test_a_sealed_value_is_opened_with_its_key_and_with_no_other(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = rota.Secret(value).seal()
    assert is_sealed(stored) and stored["key"] == "k1"
    assert rota.Secret.open(stored, type(value)).reveal() == value
    assert json.loads(json.dumps(stored)) == stored
    changed = {**stored, "sealed": "AAAA" + stored["sealed"][4:]}
    with pytest.raises(ConfigurationError, match="it was changed, or ROTA_SECRET_KEYS has another"):
        rota.Secret.open(changed)
    monkeypatch.setenv(VARIABLE, make_key("k2"))
    with pytest.raises(SecretKeyMissing, match="under key 'k1', which ROTA_SECRET_KEYS does not"):
        rota.Secret.open(stored)
    monkeypatch.setenv(VARIABLE, f"{make_key('k2')},{KEY}")
    assert rota.Secret.open(stored, type(value)).reveal() == value
    assert rota.Secret(value).seal()["key"] == "k2"


@rule("M45")
@pytest.mark.parametrize(
    "stored",
    [
        *({"sealed": "AAAA", **more} for more in ({}, {"key": "k1"}, {"key": ["k1"]})),
        {"sealed": "A" * 60, "key": "k 1"},
        *(None, "text", [["sealed"]]),
    ],
)
def test_what_is_no_sealed_value_is_not_opened(stored: Any) -> None:
    with pytest.raises(ConfigurationError, match="this is no sealed value"):
        rota.Secret.open(stored)


@rule("M45")
def test_a_value_is_bound_to_the_id_of_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = rota.Secret("tok").seal()
    monkeypatch.setenv(VARIABLE, f"{KEY},k2={KEY.removeprefix('k1=')}")
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        rota.Secret.open({**stored, "key": "k2"})


@rule("M45")
def test_a_secret_shows_its_value_only_when_it_is_revealed() -> None:
    secret = rota.Secret("tok-1")
    assert {str(secret), repr(secret), f"{secret}", "%s" % secret} == {"Secret(***)"}  # noqa: UP031
    assert f"{[secret]} { ({'a': secret}) }" == "[Secret(***)] {'a': Secret(***)}"
    pickled = pickle.dumps(secret)
    assert b"tok-1" not in pickled
    assert pickle.loads(pickled) == secret == copy.deepcopy(secret)
    assert secret != rota.Secret("tok-2") and secret != "tok-1"
    with pytest.raises(TypeError):
        hash(secret)


@rule("M45")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("k1", "part 1 is not id=key"),
        (f"{KEY},=c2VjcmV0LWtleS1tYXRlcmlhbA", "part 2 is not id=key"),
        ("k1=c2VjcmV0LWtleS1tYXRlcmlhbA==", "key 'k1' has 19 bytes, not 32"),
        ("k1=secret-key-material!", "key 'k1' is no base64"),
        (f"{KEY},{KEY}", "it has key 'k1' twice"),
    ],
    ids=str.split("alone nameless short no-base64 twice"),
)
def test_an_error_in_the_keys_names_the_place_and_shows_no_key(
    text: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigurationError) as wrong:
        rota.Secret("x").seal()
    assert why in str(wrong.value) and "rota secrets new-key" in str(wrong.value)
    for part in (KEY.removeprefix("k1="), "c2VjcmV0LWtle", "secret-key-material"):
        assert part not in str(wrong.value)
    assert wrong.value.__cause__ is None and wrong.value.__suppress_context__


@rule("M45")
def test_without_a_key_or_the_package_an_enqueue_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = rota.Jobs()

    @jobs.job
    def charge(token: rota.Secret[str]) -> None: ...

    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'rota\[secrets\]'"):
            charge.new(rota.Secret("tok"))
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(ConfigurationError, match="ROTA_SECRET_KEYS is not set; `rota secrets new"):
        charge.new(rota.Secret("tok"))


@dataclass
class Card:
    """Has a secret, which is seen only as the item of a call for many."""

    token: rota.Secret[str]
    name: rota.Personal[str] = ""


class Model(pydantic.BaseModel):
    """Has something personal."""

    id: int
    name: rota.Personal[str]


@dataclass
class Tree:
    left: Tree | None = None
    right: Annotated[Tree | None, {}] = None  # each look makes another one


@dataclass
class SecretTree(Tree):
    token: rota.Secret[str] | None = None


def _plain_tree(tree: list[Tree]) -> None: ...
def _tree(token: SecretTree | None) -> None: ...
def _list(token: list[rota.Secret[str]]) -> None: ...
def _dict(token: dict[str, rota.Personal[str]]) -> None: ...
def _class(token: Card) -> None: ...
def _model(token: Model | None = None) -> None: ...
def _twice(token: rota.Secret[rota.Secret[str]]) -> None: ...
def _personal_list(token: rota.Personal[list[rota.Personal[str]]]) -> None: ...


@rule("M45")
@pytest.mark.parametrize("handler", [_tree, _list, _dict, _class, _model, _twice, _personal_list])
def test_a_secret_within_another_type_is_refused_at_the_declaration(handler: Any) -> None:
    with pytest.raises(rota.UsageError, match=r"argument 'token': .*argument of its own"):
        rota.Jobs().job(handler)
    rota.Jobs().job("plain")(_plain_tree)


@rule("M45")
@pytest.mark.parametrize(
    "options",
    [
        {"unique": lambda token: token.reveal()},
        {"ordered": lambda token: token.reveal()},
        {"rate_limit": rota.RateLimit("smtp", 5, "1s", key=lambda token: token.reveal())},
        {"breaker": rota.Breaker(key=lambda token: token.reveal())},
    ],
)
def test_no_key_is_made_of_a_secret(options: dict[str, Any]) -> None:
    def charge(token: rota.Secret[str]) -> None: ...
    def greet(token: rota.Personal[str]) -> None: ...

    with pytest.raises(
        rota.UsageError, match="'token', which is a Secret: what it makes is stored"
    ):
        rota.Jobs().job("charge", **options)(charge)
    rota.Jobs().job("greet", **options)(greet)


@rule("M45")
def test_arguments_are_checked_in_clear_and_no_error_has_their_value() -> None:
    jobs = rota.Jobs()

    @jobs.job
    def charge(
        user: int,
        token: rota.Secret[str],
        kind: rota.Personal[Literal["a", "b"]] = "a",
        name: rota.Personal[str] = "",
        pin: rota.Secret[int] | None = None,
    ) -> None: ...

    given: dict[str, Any]
    for given, why in (
        ({"user": 1, "token": 4711}, "argument 'token': expected str, got int"),
        ({"user": 1, "token": rota.Secret(4711)}, "argument 'token': expected str, got int"),
        ({"user": 1, "token": "x", "pin": "4711"}, "argument 'pin': expected int, got str"),
        ({"user": 1, "token": "x", "kind": "4711"}, "argument 'kind': invalid enum value ***"),
        ({"user": 1, "token": "***"}, "argument 'token': *** is what is shown instead"),
        ({"user": 1, "token": "x", "name": "***"}, "argument 'name': *** is what is shown"),
        (
            {"user": rota.Secret(4711), "token": "x"},
            "argument 'user': a Secret is stored only as an argument",
        ),
        ({"token": "4711", "user": None}, "argument 'user': expected int, got null"),
    ):
        with pytest.raises(rota.PayloadError) as refused:
            charge.new(**given)
        assert why in str(refused.value) and "4711" not in str(refused.value)
    with pytest.raises(rota.UsageError, match="job 0 of the list is <class 'tuple'>; enq"):
        charge._make_many([(1, "4711")])  # type: ignore[list-item]
    new = charge.new(1, rota.Secret("x"), pin=rota.Secret(7))
    again = charge.new(**msgspec.json.decode(new.payload_json))  # a payload that was read
    arguments, _ = charge._declaration.codec.decode(again.payload_json)
    assert (arguments["token"], arguments["pin"]) == (rota.Secret("x"), rota.Secret(7))
    none = charge.new(1, token="x", pin=None)  # type: ignore[arg-type]
    assert charge._declaration.codec.decode(none.payload_json)[0]["pin"] is None


@rule("M45")
def test_an_item_of_a_call_for_many_is_sealed_however_it_is_given() -> None:
    jobs = rota.Jobs()

    @jobs.job(chunk=5)
    def charge(cards: list[Card]) -> None: ...

    @jobs.job(chunk=5)
    def greet(people: list[Model]) -> None: ...

    many: Any = charge
    clear: Any = "tok-1"
    for new in (
        many.new(Card(rota.Secret("tok-1"))),
        many.new(Card(clear)),
        many.new(token="tok-1"),
        many.new(token=rota.Secret("tok-1"), name="Ada"),
    ):
        assert "tok-1" not in new.payload_json
        found = charge._declaration.codec.decode(new.payload_json)[0]
        assert found["token"].reveal() == "tok-1"
    assert greet._declaration.codec.personal == {"name"}
    people: Any = greet
    assert people.new(Model(id=1, name="Ada ***")).payload_json == '{"id":1,"name":"Ada ***"}'
    with pytest.raises(rota.PayloadError, match=r"argument 'name': \*\*\* is what is shown"):
        people.new(Model(id=1, name="***"))


@rule("M45")
def test_a_secret_is_stored_nowhere_but_as_an_argument_that_is_annotated_so() -> None:
    jobs, secret = rota.Jobs(), rota.Secret("tok-1")

    @jobs.job
    def store(what: dict[str, Any]) -> None: ...

    @jobs.job(chunk=5)
    def charge(cards: list[Card]) -> None: ...

    many, wrong = cast("Any", charge), cast("Any", secret)
    for enqueue in (
        lambda: store.new({"x": [secret]}),
        lambda: store.using(meta={"t": secret}),
        lambda: encode_untyped("unknown", {"x": {"t": secret}}),
        lambda: many.new(token="tok", name=secret),
        lambda: many.new(Card(secret, wrong)),
    ):
        with pytest.raises(rota.UsageError, match="a Secret is stored only as an argument that"):
            enqueue()
    text, problem = encode_result({"t": secret})
    assert text is None and problem == "a Secret is stored only as an argument that is annotated so"
    sealed = json.loads(encode_untyped("unknown", {"t": secret}))["t"]
    assert rota.Secret.open(sealed) == secret


@rule("M45")
def test_hidden_values_are_masked_in_every_form_for_as_long_as_they_are_hidden() -> None:
    token = 'a"b\nc/é'
    hidden = Hidden([token, "abc"], ["Anna", "Anna Maria", "Ann"])
    text = f"{token} {token!r} {json.dumps(token)} a%22b%0Ac%2F%C3%A9 abc Anna Maria, Annabel, Ann"
    # "Ann" and "abc" are too short: nearly any text has them by chance.
    assert logs.scrub(text) == "*** '***' \"***\" *** abc ***, Annabel, Ann"
    del hidden
    assert logs.scrub(text) == text


@rule("M45")
@pytest.mark.parametrize(
    ("secret", "personal", "text", "shown"),
    [
        ("a b/c", "Ada Lovelace", "?t=a+b%2Fc&n=Ada+Lovelace", "?t=***&n=***"),
        ("a b/c", "Ada Lovelace", "/a%20b/c /n%20Ada%20Lovelace", "/*** /n%20***"),
        ("tok-1", "Ada@Example.org", "550 <ada@example.org>: ADA@EXAMPLE.ORG", "550 <***>: ***"),
        ("tok-1", "Ada@Example.org", "TOK-1 is another", "TOK-1 is another"),
        ("  hunter2\n", " Ada ", "hunter2 hunter2\n", "*** ***\n"),
        ("one line\nsecond line\nlast", "-", "bad second line: last", "bad ***: last"),
        ("-----BEGIN X-----\nMIIEvQIB", "-", "-----BEGIN X----- MIIEvQIB", "-----BEGIN X----- ***"),
        ("tok-1", "Anna", r"'Dear\nAnna\n' and Annabel", r"'Dear\n***\n' and Annabel"),
    ],
    ids=str.split("plus quoted case case-of-a-secret blanks lines pem escape"),
)
def test_a_value_is_masked_in_its_ordinary_forms(
    secret: str, personal: str, text: str, shown: str
) -> None:
    hidden = Hidden([secret], [personal])
    assert logs.scrub(text) == shown
    del hidden


SAID = 'Zoë O\'Brïen "s" <b&c>/\\d'
FORMS: dict[str, Callable[[str], str]] = {
    "json": json.dumps,
    "json not ascii": lambda text: json.dumps(text, ensure_ascii=False),
    "repr": repr,
    "ascii": ascii,
    "bytes": lambda text: repr(text.encode()),
    "html": html.escape,
    "html text": lambda text: html.escape(text, quote=False),
    "jinja": lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    "both quotes": lambda text: repr(f"{{'name': \"{text}\"}}"),
}


@rule("M45")
@pytest.mark.parametrize("value", [SAID, "Zoë O'Brïen", 'Zoë "O" Brïen'])
def test_a_value_is_masked_in_what_is_quoted_once_and_twice(value: str) -> None:
    for hidden in (Hidden([value], []), Hidden([], [value])):
        for inner, outer in product(FORMS, repeat=2):
            for text in (FORMS[inner](value), FORMS[outer](FORMS[inner](f"of {value}, {value}"))):
                masked = hidden.mask(text)
                assert "***" in masked and "Br" not in masked and "Zo" not in masked, (inner, outer)
        del hidden


@rule("M45")
def test_the_default_of_an_argument_is_hidden_too() -> None:
    jobs = rota.Jobs()

    @jobs.job
    def charge(
        token: rota.Secret[dict[str, str]] = rota.Secret({"a": "tok-default"}),  # noqa: B008
        from_: rota.Personal[str] = "Ada Lovelace",
    ) -> None: ...

    hidden = charge._declaration.codec.hide({})
    assert logs.scrub("tok-default of Ada Lovelace") == "*** of ***"
    hidden = charge._declaration.codec.hide({"token": None, "from": "Anna"})
    assert logs.scrub("tok-default of Anna") == "tok-default of ***"
    del hidden


@rule("M45")
def test_values_that_others_begin_with_are_masked_after_those() -> None:
    hidden = [Hidden(["S3CR-pre"], ["Anna"]), Hidden(["S3CR-prefix-rest"], ["Anna Svensson"])]
    for _ in range(2):
        assert logs.scrub("S3CR-prefix-rest of Anna Svensson and Anna") == "*** of *** and ***"
        hidden = [Hidden.merge(hidden)]
    with scrub.hide(Hidden([], ["Anna"])):
        assert logs.scrub("Anna Svensson") == "*** Svensson"


@rule("M45")
def test_short_numbers_are_not_looked_for_where_they_are_personal() -> None:
    hidden = Hidden(["2027"], ["26677", "2026", "1.5", "123456"])
    text = "job 26677 up 1.5 of 2026, 2027, 123456"
    assert logs.scrub(text) == "job 26677 up 1.5 of 2026, ***, ***"
    del hidden


@rule("M45")
def test_the_application_adds_patterns_of_its_own() -> None:
    rota.App(scrub=r"\bcus_\w+")
    rota.App(scrub=[r"\d{16}"])
    assert logs.scrub("cus_12ab paid with 4242424242424242") == "*** paid with ***"
    with pytest.raises(rota.UsageError, match=r"scrub takes regular expressions, not '\['"):
        rota.App(scrub=["["])
    for empty in ("", "x*", r"\b", "(?=a)"):
        with pytest.raises(rota.UsageError, match="matches the empty text, which is everywhere"):
            rota.App(scrub=[empty])
    assert logs.scrub("a text") == "a text"


@rule("M45")
def test_nothing_of_a_private_key_is_left_where_a_text_is_cut() -> None:
    key = "MIIE" + "M" * 60_000
    pem = f"-----BEGIN RSA PRIVATE KEY-----\n{key}\n-----END RSA PRIVATE KEY-----"
    masked = "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----"
    assert logs.scrub("a, " * 30_000 + pem).endswith(f", {masked}")
    assert logs.scrub(f"{pem} twice {pem}") == f"{masked} twice {masked}"


@rule("M45")
def test_only_hidden_fields_of_a_payload_are_masked_and_all_numbers_stay() -> None:
    sealed = json.dumps(rota.Secret("x").seal())
    payload = f'{{"n": 12345678901234567890.123456789, "a": {sealed}, "b": "Ada", "c": null}}'
    assert mask_fields(payload, ["b", "c"]) == (
        '{"n":12345678901234567890.123456789,"a":"***","b":"***","c":null}'
    )
    plain = '{"a": {"sealed": "by me", "key": "k1"}, "b": 1}'
    assert json.loads(mask_fields(plain, None)) == json.loads(plain)
