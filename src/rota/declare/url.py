"""Where the database is: the forms of a URL.

No part of a URL is ever shown: it may be the password.
"""

from __future__ import annotations

import inspect
import os
import re
import traceback
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote, urlencode

from rota.errors import ConfigurationError

_DRIVER = re.compile(r"(postgres(?:ql)?)\+(\w+)://")
_SSL = re.compile(r"(?<=[?&])ssl=(?=(?:disable|allow|prefer|require|verify-ca|verify-full)(?:&|$))")
_HIDDEN = re.compile(r"\w+(?:\+\w+)?://[^/?]*:\*\*\*@")
_PLACE = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
_ROLE = "assume_role"
_OF_DJANGO = {
    "autocommit", "client_encoding", "connection_factory", "context", "cursor_factory",
    "isolation_level", "pool", "prepare_threshold", "row_factory", "server_side_binding",
}  # fmt: skip
"""Database options of Django's that do not say where the database is or who connects."""


class SettingsUrl(str):
    """A URL made of settings: the names of its parameters are no secret."""

    __slots__ = ()


class RendersUrl(Protocol):
    """SQLAlchemy's `URL`, whose `str` hides the password."""

    def render_as_string(self, hide_password: bool = ...) -> str: ...


class HasSettings(Protocol):
    """A connection of Django's."""

    @property
    def vendor(self) -> str: ...
    @property
    def settings_dict(self) -> dict[str, Any]: ...


AnyUrl: TypeAlias = "str | RendersUrl | HasSettings"
DatabaseUrl: TypeAlias = "AnyUrl | Callable[[], AnyUrl | None]"
"""What `App(url=…)` takes."""


def find_url(given: DatabaseUrl | None) -> str | None:
    """Return the libpq URL from code or the environment; None: the embedded server. Raises
    ConfigurationError: a function gave no URL, a password is masked, or only DATABASE_URL is
    set."""
    found = _render(_call(given) if _is_function(given) else given)
    found = found or os.environ.get("ROTA_DATABASE_URL")
    if found:
        return make_plain(found)
    if _is_function(given):
        raise ConfigurationError(
            "App(url=…): the function returned no URL, and ROTA_DATABASE_URL is not set"
        )
    if os.environ.get("DATABASE_URL"):
        raise ConfigurationError(
            "DATABASE_URL is set, but ROTA_DATABASE_URL is not; Rota does not use DATABASE_URL, "
            "which may belong to another application: "
            'set ROTA_DATABASE_URL="$DATABASE_URL", or pass the URL to rota.App'
        )
    return None


def _is_function(given: object) -> bool:
    return callable(given) and not hasattr(given, "render_as_string")


def _call(function: object) -> object:
    assert callable(function)
    try:
        found = function()
    except Exception as error:  # noqa: BLE001 - it is the application's function
        # The error and its traceback stay hidden: their text may hold a secret.
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ConfigurationError(
            f"App(url=…): the function failed with {type(error).__name__} at "
            f"{last.filename}:{last.lineno}; the text of the error may hold a secret and is not "
            "shown"
        ) from None
    if inspect.iscoroutine(found):
        found.close()
        raise ConfigurationError("App(url=…): the function must be a plain one, not async")
    return found


def _render(found: object) -> str | None:
    if found is None or isinstance(found, str):
        return found
    if hasattr(found, "settings_dict"):
        return _read_django(found)
    render = getattr(found, "render_as_string", None)
    if render is None:
        raise ConfigurationError(
            f"App(url=…): the URL must be a text, not {type(found).__module__}."
            f"{type(found).__qualname__}"
        )
    return str(render(hide_password=False))


def _read_django(connection: Any) -> str:
    """Return the URL of a connection of Django's, in a test of the test's database."""
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"App(url=…): the database {connection.alias!r} of Django is {connection.vendor}; Rota "
            "needs PostgreSQL"
        )
    settings = connection.settings_dict
    options = {name: value for name, value in settings["OPTIONS"].items() if name not in _OF_DJANGO}
    if role := options.pop(_ROLE, None):
        escaped = re.sub(r"([\\\s])", r"\\\1", str(role))
        options["options"] = f"{options.get('options') or ''} -c role={escaped}".strip()
    place = {name: settings[key] for key, name in _PLACE.items() if settings.get(key)}
    found = {"dbname": settings.get("NAME"), **options, **place}  # the order is Django's
    given = {name: value for name, value in sorted(found.items()) if value not in (None, "")}
    return SettingsUrl(f"postgresql:///?{urlencode(given, quote_via=quote)}")


def make_plain(url: str) -> str:
    """Return a URL as libpq reads it, without SQLAlchemy's name of the driver. Raises
    ConfigurationError for *** in place of the password."""
    if _HIDDEN.match(url):
        raise ConfigurationError(
            "the database URL has *** in place of its password, as SQLAlchemy prints it: pass the "
            "URL object itself, or url.render_as_string(hide_password=False)"
        )
    match = _DRIVER.match(url)
    if match is None:
        return url
    plain = f"{match[1]}://{url[match.end() :]}"
    # asyncpg has the same words under another name.
    return _SSL.sub("sslmode=", plain) if match[2] == "asyncpg" else plain
