"""`Secret` arguments, which are stored sealed, and `Personal` ones, stored plain and shown masked.

A value is sealed with AES-256-GCM, under the first key of ROTA_SECRET_KEYS. Nothing here prints a
key or a value.
"""

from __future__ import annotations

import os
import re
import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Generic, NoReturn, TypeGuard, TypeVar

import msgspec

from rota.errors import ConfigurationError, SecretKeyMissing
from rota.model.scrub import MASK
from rota.model.scrub import is_sealed as _looks_sealed

T = TypeVar("T")

VARIABLE = "ROTA_SECRET_KEYS"
_NONCE_BYTES = 12
_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,49}")
_HOW = f"`rota secrets new-key ID` prints a new one for {VARIABLE}"


class Secret(Generic[T]):
    """A secret value, stored sealed under a key of ROTA_SECRET_KEYS. It annotates a handler's
    argument, `token: rota.Secret[str]`, and the handler calls `token.reveal()`.

    An enqueue takes the value or its Secret. A type checker wants the Secret.
    """

    __slots__ = ("_kind", "_stored", "_value")

    def __init__(self, value: T) -> None:
        """Take the value that `reveal` returns."""
        self._value: Any = value
        self._stored: Mapping[str, str] | None = None
        self._kind: Any = Any

    @classmethod
    def open(cls, stored: Mapping[str, str], kind: Any = Any) -> Secret[Any]:
        """Return the secret of a sealed value. `kind` is its type; defaults to any.

        Raises:
            SecretKeyMissing: the value is sealed under a key that this process lacks, or was
                changed.
            ConfigurationError: the value is not sealed, the keys cannot be read, or the package
                cryptography is missing.
        """
        given: Any = stored
        if not isinstance(given, Mapping) or not is_sealed(dict(given)):
            raise ConfigurationError("this is no sealed value, such as `Secret.seal` returns")
        secret: Secret[Any] = cls._take(stored, kind)
        secret.reveal()
        return secret

    @classmethod
    def _take(cls, stored: Mapping[str, str], kind: Any) -> Secret[Any]:
        """Return the secret of a sealed value, which `reveal` opens."""
        secret: Secret[Any] = object.__new__(cls)
        secret._stored, secret._kind = dict(stored), kind
        return secret

    def reveal(self) -> T:
        """Return the value. Raises as `open` if the value is still sealed."""
        try:
            return self._value  # type: ignore[no-any-return]
        except AttributeError:
            assert self._stored is not None
            text = _open(self._stored)
        self._value = msgspec.json.decode(text, type=self._kind)
        return self._value  # type: ignore[no-any-return]

    def seal(self) -> dict[str, str]:
        """Return the value sealed under the first key, as it is stored: an object with `sealed` and
        `key`, the id of the key.

        Raises:
            ConfigurationError: there is no key, the keys cannot be read, or the package
                cryptography is missing.
        """
        return _seal(msgspec.json.encode(self.reveal()))

    def __eq__(self, other: object) -> bool:
        return self.reveal() == other.reveal() if isinstance(other, Secret) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: Any) -> Secret[T]:
        return self

    def __reduce__(self) -> Any:
        """Pickle the sealed value, never the clear value."""
        return _unpickle, (self._stored or self.seal(), self._kind)


def _unpickle(stored: dict[str, str], kind: Any) -> Secret[Any]:
    return Secret._take(stored, kind)


class _Mark:
    def __repr__(self) -> str:
        return "rota.Personal"


_PERSONAL = _Mark()

Personal = Annotated[T, _PERSONAL]
"""Personal data, as in `name: rota.Personal[str]`: stored plain, and shown as `***`."""


# Sealed values


def is_sealed(value: object) -> TypeGuard[dict[str, str]]:
    """Whether `Secret.seal` made a value of JSON, as the SQL function `is_sealed` says."""
    return (
        isinstance(value, dict)
        and _looks_sealed(value)
        and _KEY_ID.fullmatch(value["key"]) is not None
    )


def _seal(text: bytes) -> dict[str, str]:
    keys = read_keys()
    if not keys:
        raise ConfigurationError(
            f"a Secret cannot be sealed without a key, and {VARIABLE} is not set; {_HOW}"
        )
    id_ = next(iter(keys))
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + _cipher(keys[id_]).encrypt(nonce, text, id_.encode())
    return {"sealed": b64encode(sealed).decode(), "key": id_}


def seal_anew(stored: Mapping[str, str]) -> dict[str, str]:
    """Return a sealed value sealed again under the first key. Raises as `Secret.open`."""
    return _seal(_open(stored))


def _open(stored: Mapping[str, str]) -> bytes:
    id_, keys = stored["key"], read_keys()
    if id_ not in keys:
        raise SecretKeyMissing(id_)
    cipher = _cipher(keys[id_])
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - optional

    try:
        sealed = b64decode(stored["sealed"], validate=True)
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        return cipher.decrypt(nonce, rest, id_.encode())  # type: ignore[no-any-return]
    except (InvalidTag, ValueError):
        raise SecretKeyMissing(id_, is_other=True) from None


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - optional
    except ImportError:
        raise ConfigurationError(
            "a Secret needs the package cryptography: pip install 'rota[secrets]'"
        ) from None
    return AESGCM(key)


# Keys

_last: tuple[str, dict[str, bytes]] = ("", {})
"""The last text of the variable, and its keys."""


def read_keys() -> dict[str, bytes]:
    """Return the keys by id, the sealing key first; none if the variable is not set. Raises
    ConfigurationError if it is not `id=base64 of 32 bytes,…`."""
    global _last
    text = os.environ.get("ROTA_SECRET_KEYS", "")
    if _last[0] != text:
        _last = (text, _parse_keys(text))
    return _last[1]


def _parse_keys(text: str) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for place, part in enumerate(filter(None, map(str.strip, text.split(","))), 1):
        id_, _, encoded = part.partition("=")
        if not _KEY_ID.fullmatch(id_) or not encoded:
            _refuse_keys(f"part {place} is not id=key")
        if id_ in keys:
            _refuse_keys(f"it has key {id_!r} twice")
        try:
            keys[id_] = b64decode(encoded, validate=True)
        except ValueError:
            _refuse_keys(f"key {id_!r} is no base64")
        if len(keys[id_]) != _KEY_BYTES:
            _refuse_keys(f"key {id_!r} has {len(keys[id_])} bytes, not {_KEY_BYTES}")
    return keys


def _refuse_keys(why: str) -> NoReturn:
    raise ConfigurationError(
        f"{VARIABLE} must be id=key,id=key with keys of {_KEY_BYTES} bytes in base64: {why}; {_HOW}"
    ) from None


def find_keys_problem() -> str | None:
    """Return why this process can open no sealed value; None: it can."""
    try:
        if not read_keys():
            return f"{VARIABLE} is not set"
        _cipher(bytes(_KEY_BYTES))
    except ConfigurationError as error:
        return str(error)
    return None


def make_key(id_: str) -> str:
    """Return a new key in the variable's form. Raises ConfigurationError for an unfit id."""
    if not _KEY_ID.fullmatch(id_):
        _refuse_keys(f"{id_!r} is no id: it has letters, digits and _.- only")
    return f"{id_}={b64encode(os.urandom(_KEY_BYTES)).decode()}"


# Annotations


def inner_of(hint: Any) -> Any:
    """Return T of Secret[T], also with None; None: the type is no Secret."""
    hint = _bare(hint)
    if hint is Secret:
        return Any
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Secret else None


def is_personal(hint: Any, marks: Iterable[Any] = ()) -> bool:
    """Whether a type with these annotations is Personal[T], also with None."""
    of_types = (getattr(part, "__metadata__", ()) for part in (hint, *_options(hint)))
    return any(_PERSONAL in some for some in (marks, *of_types))


def hides_within(hint: Any) -> bool:
    """Whether a Secret or a Personal is in this type below its top."""
    inner = inner_of(hint)
    if inner is not None:
        return _hides(inner, set())
    seen: set[type] = set()
    return any(_hides(part, seen) for part in _parts(_bare(hint), seen))


def _hides(hint: Any, seen: set[type]) -> bool:
    if inner_of(hint) is not None or is_personal(hint):
        return True
    return any(_hides(part, seen) for part in (*_options(hint), *_parts(_bare(hint), seen)))


def _options(hint: Any) -> list[Any]:
    """Return the types of a union but None."""
    if typing.get_origin(hint) not in (types.UnionType, typing.Union):
        return []
    return [member for member in typing.get_args(hint) if member is not types.NoneType]


def _bare(hint: Any) -> Any:
    """Return a type without its annotations, and without None."""
    if typing.get_origin(hint) is Annotated:
        return _bare(typing.get_args(hint)[0])
    options = _options(hint)
    return _bare(options[0]) if len(options) == 1 else hint


def _parts(hint: Any, seen: set[type]) -> Iterator[Any]:
    """Iterate over the parts of a type; a class in `seen` is left out, as it may contain itself."""
    yield from typing.get_args(hint)
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type) and kind not in seen:
        seen.add(kind)
        with suppress(NameError, TypeError):  # msgspec says so in its own words
            yield from typing.get_type_hints(kind, include_extras=True).values()
