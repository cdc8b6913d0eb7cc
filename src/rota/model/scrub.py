"""Takes credentials and personal data out of texts that are stored, shown or logged: by their usual
forms, by the application's patterns, and by the values that running attempts got."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from urllib.parse import quote, quote_plus
from weakref import WeakValueDictionary

import msgspec

from rota.errors import UsageError

MASK = "***"
TEXT_MAX = 65536
"""Longer texts are cut to this many characters before the search."""
VALUE_MIN = 4
"""A shorter value is not searched for: nearly any text has it by chance."""
NESTED_MAX = 1000
"""A longer value is not searched for in texts that are quoted twice: the search would have many
long forms."""
KEPT_MIN = 8
"""A shorter secret is not searched for in values that are kept: other code uses these values, which
may have the secret by chance."""
LINE_MIN = 8
"""A shorter line of a value is not searched for by itself."""
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]+")
_BEFORE = r"(?:(?<!\w)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
"""What a word begins after: no letter, unless the letter is an escape in Python, JSON or a URL."""
_FEW_DIGITS = re.compile(r"[0-9.,-]{0,5}")
"""A personal value that is not searched for: a number may stand in a line by chance."""
_NAME = (
    r"(?:passw(?:or)?d|passphrase|pwd|(?<![a-z])pass|secret|token|signature|(?<=[?&])sig"
    r"|authorization|(?:api|access|private|secret|signing|encryption)[_-]?key(?:_base)?)[0-9]{0,3}"
)
"""Names of credentials, also at the end of a longer name. The SQL function `redact` has some."""
_QUOTED = r"[a-z]?(?P<quote>\\?[\"'])(?:(?!(?P=quote))(?:\\.|[^\\])){0,2000}(?P=quote)?"
_BARE = r"[^\s,;&)}\]\"']"
_REST = rf"(?:{_BARE}|[\"'](?=\w))"
"""A quote may stand within a value, as in `Secret(value='…')`."""
_SECRETLIKE = rf"(?={_REST}{{0,200}}[0-9+/=$!@#^~]){_BARE}{_REST}{{3,2000}}"
"""Has a digit or a sign, unlike prose and source: "password: short", "token = get_token(user)"."""
# Beginnings of keys: Stripe, GitHub, Slack, GitLab, Anthropic, OpenAI, PyPI, AWS, Google, npm,
# Hugging Face, SendGrid; and a JWT.
_PREFIXES = (
    *("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "xapp-", "glpat-"),
    *("sk-ant-", "sk-proj-", "pypi-", "AKIA", "ASIA", "AIza", "npm_", "hf_", "SG.", "eyJ"),
)
_PRIVATE_KEY = re.compile(r"(?s)(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?=-----END |\Z)")
_KEY_END = re.compile(r"(?:[A-Za-z0-9+/=]{16,}[\s\\nr]+)+(?=-----END [A-Z ]{0,30}PRIVATE KEY-)")
_URL_USER = re.compile(
    r"(://)(?:[^\s/?#]{0,2000}@|[^\s:/?#@]{0,200}:(?![0-9]+[/?#])[^\s@\"']{0,2000}@)"
)
_FORMS = (
    re.compile(
        r"\b((?:[Bb]earer|BEARER|[Bb]asic|BASIC) )"
        r"(?=\S{0,200}(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9._~+/=-]{8,2000}"
    ),
    # Rota's own keys, with their ids.
    re.compile(
        r"(?i)(secret_keys\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?)[\w.-]{1,50}=[^\s\"'\\)}\]]+"
    ),
    # A quoted value, also within JSON or a call; a value like a secret; a value after `name=`.
    re.compile(
        rf"(?is)({_NAME}\\?[\"']?\s{{0,3}}[:=]{{1,2}}\s{{0,3}}"
        r"(?:(?:basic|bearer|token|digest|negotiate|hmac|jwt|oauth|(?:api-?)?key) )?)"
        rf"(?:(?:\w{{1,50}}\()?{_QUOTED}|{_SECRETLIKE}"
        rf"|(?<=\w=)(?!(?:none|null|true|false)\b){_BARE}{_REST}{{0,2000}})"
    ),
    # curl, also as the list of its arguments.
    re.compile(
        r"(?<![\w-])((?:-u|--user)[\"']?,?[ =]{1,3}[\"']?[^\s:\"']{1,100}:)"
        r"(?![0-9]{1,9}(?:\s|$))[^\s\"']{1,2000}"
    ),
    re.compile(
        rf"\b({'|'.join(map(re.escape, _PREFIXES))})(?=[\w-]{{0,200}}[0-9])[\w.+/=-]{{12,2000}}"
    ),
)
_MARKS = (
    *("://", "bearer ", "basic ", "pass", "pwd", "secret", "token", "sig", "authorization", "key"),
    *("-u ", "-u'", '-u"', "--user"),
    *map(str.lower, _PREFIXES),
)
"""A text without any of these marks has none of the forms."""
_patterns: dict[re.Pattern[str], None] = {}
"""The application's own patterns."""
_hidden: WeakValueDictionary[int, Hidden] = WeakValueDictionary()
"""What running attempts hide, each for as long as its owner holds it."""
entered: ContextVar[Any] = ContextVar("rota_context", default=None)
"""The context that the code runs for, which knows what is `hidden`; None: unknown."""
_own: ContextVar[Hidden | None] = ContextVar("rota_hidden", default=None)
"""What is hidden in the block of a `hide`."""


def scrub(text: str) -> str:
    """Return a text with `***` for credentials, for matches of `App(scrub=…)`, and for the values
    of secret and personal arguments: in a handler its job's values, elsewhere the values of all
    jobs that run in this process. The middle of a text beyond 65,536 characters is left out."""
    return scrub_forms(_mask(text, _find_forms()))


def mask_secrets(encoded: str) -> str:
    """Return the JSON text of a value with `***` for secret values of at least KEPT_MIN
    characters."""
    forms = [form for form in _find_forms() if not form[1] and len(form[0]) >= KEPT_MIN]
    if not forms:
        return encoded
    value = msgspec.json.decode(encoded)
    masked = mask_texts(value, lambda text: _mask(text, forms))
    return encoded if masked == value else msgspec.json.encode(masked).decode()


def mask_texts(value: Any, mask: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts masked. Numbers stay whole."""
    match value:
        case str():
            return mask(value)
        case dict():
            return {mask(name): mask_texts(item, mask) for name, item in value.items()}
        case list():
            return [mask_texts(item, mask) for item in value]
        case _:
            return MASK if mask(str(value)) == MASK else value


def scrub_own(text: str) -> str:
    """As `scrub`, but outside of an attempt no values are searched for: Rota's own texts may have
    them by chance."""
    own = _find_own()
    return scrub_forms(text if own is None else own.mask(text))


def scrub_forms(text: str) -> str:
    """As `scrub`, but no values are searched for."""
    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(r"\1***", text)  # the cut may take away where one begins
        text = _KEY_END.sub(MASK, text)  # it has been cut off before
    if len(text) > TEXT_MAX:
        text = f"{text[: TEXT_MAX // 4]}…{text[-TEXT_MAX * 3 // 4 :]}"
    for pattern in list(_patterns):
        text = pattern.sub(MASK, text)
    small = text.lower()
    if [1 for mark in _MARKS if mark in small]:
        text = _URL_USER.sub(r"\1***@", text)
        for pattern in _FORMS:
            text = pattern.sub(r"\1***", text)
    return text


def is_sealed(value: object) -> bool:
    """Whether a JSON value was made by `Secret.seal`. The SQL function `is_sealed` has the same
    rule."""
    return (
        isinstance(value, dict)
        and value.keys() == {"sealed", "key"}
        and all(isinstance(part, str) for part in value.values())
        and re.fullmatch(r"[A-Za-z0-9+/]{38,}={0,2}", value["sealed"]) is not None
    )


def mask_fields(payload: str, hidden: Collection[str] | None) -> str:
    """Return the JSON text of a payload with `***` for these fields and for sealed values.
    Everything else keeps its exact text, numbers too."""
    if not hidden and '"sealed"' not in payload:
        return payload
    fields = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    shown: dict[str, Any] = {
        name: MASK
        if (name in (hidden or ()) and bytes(value) != b"null")
        or is_sealed(msgspec.json.decode(value))
        else value
        for name, value in fields.items()
    }
    return msgspec.json.encode(shown).decode()


def add_patterns(patterns: Iterable[str | re.Pattern[str]]) -> None:
    """Mask matches of these patterns in all texts from now on. Raises UsageError: not a pattern."""
    if isinstance(patterns, str | re.Pattern):
        patterns = [patterns]
    for given in patterns:
        try:
            pattern = re.compile(given)
            if not all(found[0] for found in pattern.finditer("a text of 2 words, or none")):
                raise UsageError(f"scrub: {given!r} matches the empty text, which is everywhere")
            _patterns[pattern] = None
        except (re.error, TypeError) as error:
            raise UsageError(f"scrub takes regular expressions, not {given!r}: {error}") from None


def is_hiding() -> bool:
    """Whether a value of any running attempt is hidden."""
    return bool(_hidden)


class Hidden:
    """Values of a running attempt. While this object exists, they are masked in the attempt's
    texts, and in texts without a known attempt. Personal values are masked only as whole words,
    because they may be as short as a name."""

    __slots__ = ("__weakref__", "_forms", "values")

    def __init__(self, secrets: Iterable[str], personal: Iterable[str]) -> None:
        self.values = tuple(secrets), tuple(personal)
        """The secret and the personal values, as another process can hide them too."""
        forms = [
            (form.lower(), True)
            for value in self.values[1]
            if not _FEW_DIGITS.fullmatch(value)
            for form in _list_forms(value)
        ]
        forms += [(form, False) for value in self.values[0] for form in _list_forms(value)]
        self._forms = tuple(forms)
        if forms:
            _hidden[id(self)] = self

    @classmethod
    def merge(cls, parts: Iterable[Hidden | None]) -> Hidden:
        """Return an object that hides the values of all parts."""
        values = [hidden.values for hidden in parts if hidden is not None]
        return cls(*([text for pair in values for text in pair[kind]] for kind in (0, 1)))

    def mask(self, text: str) -> str:
        return _mask(text, self._forms)


NOTHING_HIDDEN = Hidden((), ())


def _find_own() -> Hidden | None:
    """Return what the current attempt hides; None: the attempt is unknown."""
    own, run = _own.get(), entered.get()
    if own is not None or run is None:
        return own
    return getattr(run, "hidden", None) or NOTHING_HIDDEN


def _find_forms() -> Collection[tuple[str, bool]]:
    """Return the forms of all values that may stand in the current texts."""
    own = _find_own()
    if own is not None:
        return own._forms
    every = [hidden for reference in _hidden.valuerefs() if (hidden := reference()) is not None]
    return [form for hidden in every for form in hidden._forms]


@contextmanager
def hide(hidden: Hidden | None) -> Iterator[None]:
    """Treat the texts of a block as an attempt's texts."""
    token = _own.set(hidden or NOTHING_HIDDEN)
    try:
        yield
    finally:
        _own.reset(token)


def _mask(text: str, forms: Iterable[tuple[str, bool]]) -> str:
    """Mask these forms, the longest first, as a form may contain another. A form with True is
    masked in any case, and as whole words."""
    small = text.lower()
    found = [form for form in forms if form[0] in (small if form[1] else text)]
    for form, is_word in sorted(found, key=lambda form: len(form[0]), reverse=True):
        if is_word:
            text = re.sub(rf"(?i){_BEFORE}{re.escape(form)}(?!\w)", MASK, text)
        else:
            text = text.replace(form, MASK)
    return text


def _list_forms(value: str) -> set[str]:
    """Return the forms of a value, and of its long lines, in texts: plain, and quoted for a URL,
    Python, JSON or HTML; a value up to NESTED_MAX also quoted twice."""
    value = value.strip()
    if len(value) < VALUE_MIN:
        return set()
    if _PLAIN.fullmatch(value):
        return {value}
    forms = {value, *_quote(value)}
    if len(value) <= NESTED_MAX:
        forms |= {twice for once in forms for twice in _quote(once)}
    for safe in ("", "/"):
        forms |= {make(value, safe, errors="replace") for make in (quote, quote_plus)}
    lines = [line for line in value.splitlines() if len(line) >= LINE_MIN and line != value]
    # The first line of a PEM key is no secret.
    return forms.union(*(_list_forms(line) for line in lines if not line.startswith("-----")))


def _quote(text: str) -> set[str]:
    """Return a text as Python, JSON and HTML quote it. Python escapes an apostrophe only in a text
    with a double quote."""
    of_bytes = text.encode(errors="replace")
    return {
        *(form(text)[1:-1] for form in (repr, ascii, json.dumps)),
        *(form(f'"{text}')[2:-1] for form in (repr, ascii)),
        json.dumps(text, ensure_ascii=False)[1:-1],
        repr(of_bytes)[2:-1],
        repr(b'"' + of_bytes)[3:-1],
        html.escape(text),
        html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        html.escape(text, quote=False),
    }
