"""Renders mails from a template's files. Pure, but for reading the templates."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.header import Header
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, getaddresses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from email_validator import EmailNotValidError, validate_email

import rota

if TYPE_CHECKING:
    from datetime import datetime

_URL = re.compile(r"(https?://|mailto:)[^\s<>]+")
_LINE_MAX = 900
"""Most characters of a text that is not folded, such as a URL: a line of a mail has up to 998."""
_WORD = "=?"
"""Begins an encoded word (RFC 2047). A reader of headers decodes it, for example to a line
break."""
_FILENAME = re.compile(r"((?!=\?).)+")
_MEDIA_TYPE = re.compile(r"(?!multipart/|message/)[\w.+-]+/[\w.+-]+(;((?!=\?).)*)?", re.A | re.I)
"""What base64 can carry: a type with several parts, or a message, must not be in base64."""
_BLANKS = dict.fromkeys([*range(9), *range(11, 13), *range(14, 32), 127, 133, 0x2028, 0x2029], " ")
"""Control characters but line breaks, and other line ends of Python: each becomes a blank."""
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""What no mail can have: NUL, and half of a surrogate pair."""
PARTS = ("subject.txt", "text.txt", "html.html")
"""The files of a template: the first must exist, and one or both of the rest."""
_FAULTS = (
    jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip
"""Errors of a template: the same files and data always raise them, so a retry does not help."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file to send with a mail."""

    filename: str
    content: bytes
    media_type: str = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A mail as a template makes it."""

    template: str
    version: str
    """The first 12 digits of the SHA-256 of the template's files."""
    subject: str
    text: str | None
    html: str | None

    def hash(self, attachments: Sequence[Attachment]) -> str:
        """Return the SHA-256 of what a reader sees, in hexadecimal digits."""
        digest = hashlib.sha256()
        parts = [self.subject, self.text or "", self.html or ""]
        parts += [
            f"{file.filename} {hashlib.sha256(file.content).hexdigest()}" for file in attachments
        ]
        for part in parts:
            digest.update(f"{len(part)}:{part}".encode())
        return digest.hexdigest()


class Templates:
    """Templates in a folder, one folder each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Templates that are complete: an enqueue does not read their folders again."""
        text = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
        )
        html = text.overlay(autoescape=True)
        # The part's name decides the escaping, also of each file that the part includes or imports.
        self._jinja = dict(zip(PARTS, (text, text, html), strict=True))

    def check(self, name: str) -> None:
        """Raise UsageError: there is no such template, or it lacks a part."""
        if name in self._known:
            return
        known = self.list()
        if name not in known:
            listed = ", ".join(known) or "none"
            raise rota.UsageError(
                f"no mail template {name!r} in {self._folder}; there are {listed}"
            )
        parts = self._parts(name)
        if PARTS[0] not in parts or len(parts) < 2:
            raise rota.UsageError(
                f"mail template {name!r}: {self._folder / name} needs {PARTS[0]}, and "
                f"{PARTS[1]} or {PARTS[2]}"
            )
        self._known.add(name)

    def list(self) -> list[str]:
        """Return the names of the templates."""
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(folder.name for folder in folders if (folder / PARTS[0]).is_file())

    def render(self, name: str, variables: Mapping[str, Any]) -> Rendered:
        """Render a template.

        Raises:
            Dead: a variable is missing, or the template has a fault.
            UsageError: there is no such template.
        """
        self.check(name)
        texts: dict[str, str] = {}
        try:
            for part in self._parts(name):
                texts[part] = self._jinja[part].get_template(f"{name}/{part}").render(variables)
                if found := _NO_TEXT.search(texts[part]):
                    raise ValueError(f"{part} has {found[0]!r}")
        except jinja2.UndefinedError as error:
            raise rota.Dead(f"mail template {name!r}: {error.message}") from None
        except _FAULTS as error:
            why = f"{type(error).__name__}: {error}"
            raise rota.Dead(f"mail template {name!r} cannot be rendered: {why}") from None
        subject, version = texts[PARTS[0]].strip(), self._version(name)
        return Rendered(name, version, subject, texts.get(PARTS[1]), texts.get(PARTS[2]))

    def _parts(self, name: str) -> Sequence[str]:
        return [part for part in PARTS if (self._folder / name / part).is_file()]

    def _version(self, name: str) -> str:
        digest = hashlib.sha256()
        for part in self._parts(name):
            digest.update((self._folder / name / part).read_bytes() + b"\0")
        return digest.hexdigest()[:12]


def check_address(address: str) -> str:
    """Return an address as stored and compared: domain in lower case, Unicode normalized. No DNS.
    Raises UsageError: not an address."""
    try:
        checked = validate_email(address, check_deliverability=False).normalized
    except (EmailNotValidError, TypeError) as error:
        raise rota.UsageError(f"{address!r} is no mail address: {error}") from None
    if _WORD in checked:
        raise rota.UsageError(f"{address!r} is no mail address: mail programs decode {_WORD!r}")
    return checked


def check_sender(sender: Any) -> Address:
    """Return a sender such as `Shop <hello@shop.example>`. Raises UsageError."""
    found = getaddresses([sender]) if isinstance(sender, str) and sender.isprintable() else []
    if len(found) != 1 or found[0][1] not in sender:  # a blank within it would be lost
        raise rota.UsageError(f"{sender!r} is not one address such as Shop <hello@shop.example>")
    [(name, address)] = found
    if _WORD in name:
        raise rota.UsageError(f"{sender!r} is no sender: mail programs decode {_WORD!r}")
    return make_address(check_address(address), name)


def make_address(checked: str, name: str = "") -> Address:
    """Return a checked address as sent: its domain in ASCII (punycode) if the local part is ASCII.
    Any server takes such a domain."""
    sent = validate_email(checked, check_deliverability=False).ascii_email or checked
    user, _, domain = sent.rpartition("@")
    return Address(name, user, domain)


def build_message(
    rendered: Rendered,
    *,
    sender: Address,
    to: Address,
    message_id: str,
    date: datetime,
    attachments: Sequence[Attachment] = (),
    headers: Mapping[str, str | Address] | None = None,
) -> EmailMessage:
    """Build the message. No value can add a header: a value with a line break, also an encoded line
    break, is refused.

    Raises:
            Dead: a value cannot stand in a header.
    """
    fields: dict[str, Any] = {
        "From": sender,
        "To": to,
        "Subject": rendered.subject.translate(_BLANKS),
        "Date": format_datetime(date),
        "Message-ID": message_id,
        "Auto-Submitted": "auto-generated",
        **(headers or {}),
    }
    addresses = [value.addr_spec for value in fields.values() if isinstance(value, Address)]
    policy = SMTP if "".join(addresses).isascii() else SMTPUTF8
    message = EmailMessage(policy=policy.clone(refold_source="none"))
    try:
        for name, value in fields.items():
            _set_header(message, name, value)
    except (ValueError, TypeError) as error:
        raise rota.Dead(f"mail template {rendered.template!r}: a header: {error}") from None
    if rendered.text is not None:
        message.set_content(rendered.text)
        if rendered.html is not None:
            message.add_alternative(rendered.html, subtype="html")
    else:
        message.set_content(rendered.html or "", subtype="html")
    for file in attachments:
        main, _, sub = file.media_type.partition("/")
        message.add_attachment(file.content, maintype=main, subtype=sub, filename=file.filename)
    for part in message.walk():
        for name, value in part.items():
            if set("\r\n") & set(str(value)):
                raise rota.Dead(f"mail template {rendered.template!r}: {name} has a line break")
    return message


def _set_header(message: EmailMessage, name: str, value: Any) -> None:
    """Set a header. Raises ValueError: it has a line break."""
    message[name] = value
    if name.startswith("List-"):  # folded, a long URL would become encoded words
        raw = value
    elif isinstance(value, Address):  # folded, a long name would lose its quotes: several addresses
        who, raw = value.display_name, str(value)
        if not who.isascii() or len(raw) > _LINE_MAX:
            raw = f"{Header(who, 'utf-8', header_name=name).encode()} <{value.addr_spec}>"
    elif name == "Subject" and _WORD in value:  # is text, and stays text
        raw = Header(value, "utf-8", header_name=name).encode()
    else:
        return
    del message[name]
    message.set_raw(name, raw)


def make_attachment(
    name: str, make: Callable[..., Attachment], given: Mapping[str, Any]
) -> Attachment:
    """Call the function that makes an attachment. Raises Dead: the file is missing, or its name or
    type cannot stand in a header. Any other error is worth another attempt."""
    try:
        made = make(**given)
    except FileNotFoundError as error:
        raise rota.Dead(f"attachment {name!r}: {error}") from error
    for text, form in ((made.filename, _FILENAME), (made.media_type, _MEDIA_TYPE)):
        if not text.isprintable() or not form.fullmatch(text):
            raise rota.Dead(
                f"attachment {name!r}: its name and type are such as a.pdf and application/pdf, "
                f"without a line break or {_WORD!r}, not {text!r}"
            )
    return made


def check_url(url: str | None) -> str | None:
    """Return the URL of `unsubscribe`, if any. Raises UsageError: not a URL."""
    if url is None:
        return None
    is_line = url.isascii() and url.isprintable() and len(url) <= _LINE_MAX and _WORD not in url
    if not is_line or not _URL.fullmatch(url):
        raise rota.UsageError(
            f"unsubscribe must be a URL such as https://… in ASCII of up to {_LINE_MAX} "
            f"characters, without {_WORD!r} (write %3F for the ?), not {url!r}"
        )
    return url


def unsubscribe_headers(url: str | None) -> dict[str, str]:
    """Return the headers with which a mail client offers to unsubscribe (RFC 2369, RFC 8058)."""
    if url is None:
        return {}
    headers = {"List-Unsubscribe": f"<{url}>"}
    if url.startswith("https://"):
        headers["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    return headers
