"""What is left out of an error's text, and what stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.failure import one_line
from tests.support.rules import rule

LINES = [
    (
        "cannot reach postgresql://bob:hunter2@db:5432/x?sslmode=require",
        "cannot reach postgresql://***@db:5432/x?sslmode=require",
    ),
    ("redis://default:p@ss@word@cache:6379/0", "redis://***@cache:6379/0"),
    (
        "https://example.com/cb?access_token=abc123&page=2",
        "https://example.com/cb?access_token=***&page=2",
    ),
    (
        "{'user': 'bob', 'password': 'hun, ter2', 'port': 5432}",
        "{'user': 'bob', 'password': ***, 'port': 5432}",
    ),
    ('{"password":"hun\\"ter2","user":"bob"}', '{"password":***,"user":"bob"}'),
    (
        r'body: "{\"password\": \"hun ter2\", \"user\": \"bob\"}"',
        r'body: "{\"password\": ***, \"user\": \"bob\"}"',
    ),
    ("{'passwd': b'hun ter2', 'user': 'bob'}", "{'passwd': ***, 'user': 'bob'}"),
    ("{'password': 123456, 'secret': None}", "{'password': ***, 'secret': None}"),
    ("User(name='bob', password='hunter2', id=7)", "User(name='bob', password=***, id=7)"),
    ("Config(password=SecretStr('abc def'), port=1)", "Config(password=***, port=1)"),
    ("{'X-Api-Key': 'abcdef', 'Accept': '*/*'}", "{'X-Api-Key': ***, 'Accept': '*/*'}"),
    (
        "{'Authorization': 'Bearer eyJhbGciOi.J9.x-y', 'Accept': '*/*'}",
        "{'Authorization': 'Bearer ***', 'Accept': '*/*'}",
    ),
    ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
    ("Authorization: Token abcdef123456, then", "Authorization: Token ***, then"),
    ("authorization=abcdef123456 host=db", "authorization=*** host=db"),
    ("password=hunter2 host=db", "password=*** host=db"),
    ("password = 'hun ter2' host=db", "password = *** host=db"),
    (
        "PGPASSWORD=hunter2 AWS_SECRET_ACCESS_KEY=abcdef psql",
        "PGPASSWORD=*** AWS_SECRET_ACCESS_KEY=*** psql",
    ),
    (
        'client_secret=abc&secret_key="a b", region=eu',
        "client_secret=***&secret_key=***, region=eu",
    ),
    ("if token == 'abc':", "if token == ***:"),
    ("token: abcdef123456", "token: ***"),
    ('db_password: "hun ter"', "db_password: ***"),
    ("api-key: abc/def, user: bob", "api-key: ***, user: bob"),
    (
        "could not read the secret: api_key: abcdef123456, then",
        "could not read the secret: api_key: ***, then",
    ),
    ("bad token: db_password = hunter2", "bad token: db_password = ***"),
    ("Bearer Authorization: Token abcdef123456", "Bearer Authorization: Token ***"),
    ("Basic password: hunter2, then", "Basic password: ***, then"),
    ("BASIC dXNlcjpwYXNz and bearer 3f9a0c1d2e", "BASIC *** and bearer ***"),
    # Prose about such things is no secret.
    (
        "Basic authentication is required, no bearer credentials.",
        "Basic authentication is required, no bearer credentials.",
    ),
    (
        "argument 'passwd': the handler takes no such argument",
        "argument 'passwd': the handler takes no such argument",
    ),
    ("argument 'token': missing", "argument 'token': missing"),
    ("password: too short", "password: too short"),
    ("invalid secret: must be 32 characters", "invalid secret: must be 32 characters"),
    ("Unexpected token: '}' at line 3", "Unexpected token: '}' at line 3"),
    ("invalid token: <eof>", "invalid token: <eof>"),
    (
        'FATAL: password authentication failed for user "bob"',
        'FATAL: password authentication failed for user "bob"',
    ),
    ("KeyError: 'password'", "KeyError: 'password'"),
    (
        "token_count=17, max_tokens: 4096, password=None",
        "token_count=17, max_tokens: 4096, password=None",
    ),
    ("the authorization: is missing", "the authorization: is missing"),
]
"""Also of the SQL function `rota.redact`: tests/store/test_sql_worker.py."""


@rule("M45")
@pytest.mark.parametrize(("text", "shown"), LINES)
def test_secrets_go_and_the_rest_stays_readable(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert one_line(shown) == shown


NAMES = st.sampled_from(
    [
        "password",
        "PASSWD",
        "db_password",
        "api_key",
        "X-Api-Key",
        "client_secret",
        "access_token",
        "secret_key",
        "private-key",
    ]
)
FORMS = [
    "{name}={value}", "{name} = {value}, next", "{name}='{value}'", '{name}="{value}"',
    "{name}: {value}", "{{'{name}': '{value}', 'port': 5432}}",
    '{{"{name}": "{value}", "port": 5432}}', r"{{\"{name}\": \"{value}\"}}",
    "?{name}={value}&page=2", "scheme://bob:{value}@host/path",
    "Authorization: Bearer {value}", "Authorization: Token {value}", "('{name}': b'{value}')",
    "F({name}=SecretStr('{value}'))",
]  # fmt: skip


@rule("M45")
@given(
    NAMES,
    st.sampled_from(FORMS),
    st.from_regex(r"\A[A-Za-z0-9+/_.~-]{7,40}[0-9]\Z"),
    st.sampled_from(["the job ", "{'a': 1} ", ""]),
)
def test_a_secret_is_not_in_the_text_whatever_the_form_and_what_is_around_it_is(
    name: str, form: str, value: str, before: str
) -> None:
    text = before + form.format(name=name, value=value)
    shown = one_line(text)
    assert value not in shown and "***" in shown
    assert shown.startswith(before.rstrip() or shown[:1])
    assert one_line(shown) == shown
    for around in ("next", "'port': 5432}", '"port": 5432}', "&page=2", "@host/path"):
        assert (around in shown) == (around in text)
