"""What is left out of an error's text, and what stays readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.failure import one_line
from tests.support.rules import rule

URLS_AND_NAMES = [
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
    ("Authorization: Basic dXNlcjpwYXNz1", "Authorization: Basic ***"),
    ("password=hunter2 host=db", "password=*** host=db"),
    ("password = 'hun ter2' host=db", "password = *** host=db"),
    (
        "PGPASSWORD=hunter2 AWS_SECRET_ACCESS_KEY=abcdef psql",
        "PGPASSWORD=*** AWS_SECRET_ACCESS_KEY=*** psql",
    ),
    ("password: too short", "password: too short"),
    ("argument 'token': missing", "argument 'token': missing"),
]
"""Also of the SQL function `rota.redact`: tests/store/test_sql_worker.py."""
LINES = [
    *URLS_AND_NAMES,
    (
        r'body: "{\"password\": \"hun ter2\", \"user\": \"bob\"}"',
        r'body: "{\"password\": ***, \"user\": \"bob\"}"',
    ),
    ("{'passwd': b'hun ter2', 'user': 'bob'}", "{'passwd': ***, 'user': 'bob'}"),
    ("{'password': 123456, 'secret': None}", "{'password': ***, 'secret': None}"),
    ("Config(password=SecretStr('abc def'), port=1)", "Config(password=***), port=1)"),
    ("{'X-Api-Key': 'abcdef', 'Accept': '*/*'}", "{'X-Api-Key': ***, 'Accept': '*/*'}"),
    (
        "{'Authorization': 'Bearer eyJhbGciOi.J9.x-y', 'Accept': '*/*'}",
        "{'Authorization': ***, 'Accept': '*/*'}",
    ),
    ("Authorization: Token abcdef123456, then", "Authorization: Token ***, then"),
    ("Authorization: ApiKey abcdef123456, then", "Authorization: ApiKey ***, then"),
    ("password=ab'cd9 {'token': Token(value='abc1')}", "password=*** {'token': ***')}"),
    ("run ['curl', '-u', 'admin:hunter2']", "run ['curl', '-u', 'admin:***']"),
    ("A" * 64 + "\n-----END PRIVATE KEY-----", "***-----END PRIVATE KEY-----"),
    (
        'client_secret=abc&secret_key="a b", region=eu',
        "client_secret=***&secret_key=***, region=eu",
    ),
    ("if token == 'abc':", "if token == ***:"),
    ("api-key: abc/def, user: bob", "api-key: ***, user: bob"),
    (
        "could not read the secret: api_key: abcdef123456, then",
        "could not read the secret: api_key: ***, then",
    ),
    ("BASIC dXNlcjpwYXNz and bearer 3f9a0c1d2e", "BASIC *** and bearer ***"),
    ("it said sk_live_4eC39HqLyjWDarjt and rk_test_51", "it said sk_live_*** and rk_test_51"),
    (
        "ghp_16C7e42F292c6912E7710c83, github_pat_11ABCDEFG0abcdefgh, whsec_MfKQ9r8GKYqrTwjUPD8I",
        "ghp_***, github_pat_***, whsec_***",
    ),
    (
        "xoxb-2345678901-abc, glpat-Kj3h4kj5h6abcdefghij, AKIAIOSFODNN7EXAMPLE",
        "xox***, glpat-***, AKIA***",
    ),
    ("AIzaSyA-1234567890abcdefghij (npm_3xT7pQ9rL2mK8vB5wZ1c)", "AIza*** (npm_***)"),
    (
        "read -----BEGIN RSA PRIVATE KEY-----\\nMIIE-x=\\n-----END RSA PRIVATE KEY----- and died",
        "read -----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY----- and died",
    ),
    ("-----BEGIN PRIVATE KEY-----MIIEvQIBADANBg", "-----BEGIN PRIVATE KEY-----***"),
    (
        "ROTA_SECRET_KEYS=k1=q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=,k2=AAECAwQF"
        "BgcICQoLDA0ODw== HOME=/root",
        "ROTA_SECRET_KEYS=*** HOME=/root",
    ),
    (
        "{'ROTA_SECRET_KEYS': 'k1=q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=', 'HOME': '/'}",
        "{'ROTA_SECRET_KEYS': '***', 'HOME': '/'}",
    ),
    ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w-N", "got eyJ***"),
    (
        "sk-ant-api03-Ab_cdEFgh1, sk-proj-Ab-cdEFgh1234 SG.ngeVfQFYQlKU0u.TwL2iGABf9DHoTf",
        "sk-ant-***, sk-proj-*** SG.***",
    ),
    (
        "hf_AbCdEfGhIjKlMnOpQrStUvW1 xapp-1-A0123-456-abc pypi-AgEIcHlwaS5vcmcCJ",
        "hf_*** xapp-*** pypi-***",
    ),
    ("DB_PASS=hunter2 pass=hunter2 {'pass': 'x y'}", "DB_PASS=*** pass=*** {'pass': ***}"),
    (
        "signing_key=abc encryption_key: abc123, secret_key_base: 0a1b2c",
        "signing_key=*** encryption_key: ***, secret_key_base: ***",
    ),
    (
        "https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=fe5f80&y=1",
        "https://b.s3.amazonaws.com/x?X-Amz-Date=1&X-Amz-Signature=***&y=1",
    ),
    (
        "https://a.blob.core.windows.net/c?sv=1&sig=Ab%2Bc",
        "https://a.blob.core.windows.net/c?sv=1&sig=***",
    ),
    ("password = SecretStr('a b'), token = abc.def1", "password = ***), token = ***"),
    ("password = Tr0ub(4dor token = a.b$c", "password = *** token = ***"),
    ("token=get_token", "token=***"),
    ("Bearer AbcdefGhijkl, Basic DB_PASSWORD=abc", "Bearer ***, Basic ***"),
    # Source and prose about such things is no secret.
    ("token = get_token(user)", "token = get_token(user)"),
    ("self.password = config.password", "self.password = config.password"),
    ("if token == self._token:", "if token == self._token:"),
    (
        "set token = %(token)s, secret = $1 where pwd = :pwd and token = %s",
        "set token = %(token)s, secret = $1 where pwd = :pwd and token = %s",
    ),
    ("basic connectivity restored.", "basic connectivity restored."),
    ("Basic Authentication, bearer something", "Basic Authentication, bearer something"),
    ("ROTA_SECRET_KEYS: part 1 is not id=key", "ROTA_SECRET_KEYS: part 1 is not id=key"),
    ("bypass=1, compass: 12, pass: 3, fail: 0", "bypass=1, compass: 12, pass: 3, fail: 0"),
    ("npm_config_registry and sk_live_ are names", "npm_config_registry and sk_live_ are names"),
    ("the task_live_migration of AKIA in ASIA", "the task_live_migration of AKIA in ASIA"),
    (
        "argument 'passwd': the handler takes no such argument",
        "argument 'passwd': the handler takes no such argument",
    ),
    ("invalid secret: must be 32 characters", "invalid secret: must be 32 characters"),
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
