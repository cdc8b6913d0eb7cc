"""`Mailer`: a job type that sends mails from templates, and what is known of them afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack

import rota
from rota.kinds import MAIL, URGENT_MAIL
from rota.kinds.mail.message import (
    Attachment,
    Rendered,
    Templates,
    build_message,
    check_address,
    check_sender,
    unsubscribe_headers,
)
from rota.kinds.mail.transport import SMTP, MailRefused, NotSent, Transport

if TYPE_CHECKING:
    from email.message import EmailMessage

    from rota.records import EffectRecord, JobOptions, NewJob, UsingOptions

Content = Literal["as-sent", "latest"]
"""Of a mail that is sent once more: what a reader saw then, or what the template says now."""
Attach = tuple[str, dict[str, Any]]
"""The name of a function that makes an attachment, and its arguments."""


class Recipient(NamedTuple):
    """One recipient of `send_many`."""

    to: str
    """The address."""
    user_id: int | str
    """Who that is in your data: part of the key, so that a mail goes to each once."""
    data: Mapping[str, Any] = {}
    """Variables of the template for this recipient."""


class Sent(NamedTuple):
    """What is known of a mail: that of its effect."""

    status: Literal["sent", "being sent", "uncertain"]
    """`uncertain`: it may have been sent; `rota effects resolve KEY` says what you found out."""
    to: str | None
    """The address, in lower case; None: it was forgotten."""
    template: str | None
    version: str | None
    """Of the template's files: 12 hexadecimal digits."""
    hash: str | None
    """SHA-256 of subject, texts and attachments, as they were sent."""
    message_id: str | None
    job: int
    """Id of the job that sent it last."""
    key: str
    """Key of its effect, and of its job."""
    at: datetime
    """When it was sent, or tried last: an aware datetime."""
    answer: str | None
    """What the server answered."""


class Mailer:
    """Mails from templates, each sent once for its user, template and event.

    `App(jobs=[jobs, mailer.jobs])` declares its two job types. An enqueue commits with your
    transaction, as any does; the mail is rendered when it is sent.
    """

    def __init__(
        self,
        smtp: str | Transport,
        *,
        sender: str,
        templates: str | Path,
        name: str = "mail",
        load: Callable[[str, dict[str, Any]], Mapping[str, Any]] | None = None,
        attachments: Mapping[str, Callable[..., Attachment]] | None = None,
        rate_limit: rota.RateLimit | None = None,
        if_uncertain: Literal["dead", "skip", "repeat"] = "dead",
        options: JobOptions | None = None,
    ) -> None:
        """Args:
            smtp: the URL of a server, as `SMTP` takes it; or a `Transport`.
            sender: such as `Shop <hello@shop.example>`.
            templates: a folder with a folder for each template: `subject.txt`, and `text.txt` or
                `html.html` or both, in Jinja2. HTML is escaped, and a variable that is missing is
                an error.
            name: of the job types: `mail`, and `mail.urgent` for those with `urgent`.
            load: called with template and data when the mail is rendered, in a thread, as those of
                `attachments`; returns the variables, for what is too large, or too personal, for a
                payload. Defaults to the data.
            attachments: functions that make an attachment when the mail is sent, by name.
            rate_limit: what the provider allows; both types share it.
            if_uncertain: what happens to a mail that may have been sent: see `Context.effect`.
            options: of the type `mail`, on top of `rota.kinds.MAIL`.

        Raises:
            UsageError: the URL or the sender cannot be one.
        """
        self.transport: Transport = SMTP(smtp) if isinstance(smtp, str) else smtp
        self.jobs = rota.Jobs(
            lifespan=self._lifespan,
            commands={
                f"{name} find": self.find,
                f"{name} forget": self.forget,
                f"{name} resend": self._resend,
            },
        )
        """The job types, for `App(jobs=[…])`."""
        self._sender = check_sender(sender)
        self._templates = Templates(Path(templates))
        self._load = load
        self._attachments = dict(attachments or {})
        self._if_uncertain: Any = if_uncertain
        shared: JobOptions = {"unique": _key_of, "breaker": rota.Breaker(f"{name}.provider")}
        if rate_limit is not None:
            shared["rate_limit"] = rate_limit
        ordinary: Any = {**MAIL, **shared, **(options or {})}
        urgent: Any = {**URGENT_MAIL, **shared}
        self._types = {
            False: self.jobs.job(name, takes_context=True, **ordinary)(self._handle),
            True: self.jobs.job(f"{name}.urgent", takes_context=True, **urgent)(self._handle),
        }

    def new(
        self,
        template: str,
        *,
        to: str,
        user_id: int | str,
        event: str,
        data: Mapping[str, Any] | None = None,
        urgent: bool = False,
        attach: Sequence[Attach] = (),
        unsubscribe: str | None = None,
        **options: Unpack[UsingOptions],
    ) -> NewJob:
        """Return a mail that is not enqueued yet, for `app.enqueue_many`. Arguments and errors are
        those of `send`."""
        self._templates.check(template)
        for name, _ in attach:
            if name not in self._attachments:
                listed = ", ".join(self._attachments) or "none"
                raise rota.UsageError(f"no attachment {name!r} is declared; there are {listed}")
        asked = self._types[urgent].using(**options)
        made: NewJob = asked.new(
            template=template,
            to=check_address(to),
            user=str(user_id),
            event=event,
            data=dict(data or {}),
            attach=[(name, dict(arguments)) for name, arguments in attach],
            unsubscribe=unsubscribe,
        )
        return made

    def send(self, template: str, **mail: Any) -> rota.Enqueued:
        """Enqueue a mail. A second one for the same user, template and event enqueues nothing.

        Args:
            template: the name of its folder.
            to: the address. It is checked without a look into DNS.
            user_id: who that is in your data, such as `42`; part of the key.
            event: what it is sent for, such as `signup` or `order:17`; part of the key.
            data: variables of the template, small JSON. Defaults to none.
            urgent: of `rota.kinds.URGENT_MAIL`: quick, and of no use after 15 minutes.
            attach: names of `attachments=` with their arguments: `[("invoice", {"order": 17})]`.
            unsubscribe: a URL for `List-Unsubscribe`.
            options: those of `UsingOptions`: `connection` names whose transaction it joins.

        Raises:
            UsageError: there is no such template or attachment; the address is none.
            PayloadError: the data has no JSON form, or is too large.
        """
        return self._app.enqueue(self.new(template, **mail))

    async def asend(self, template: str, **mail: Any) -> rota.Enqueued:
        """Enqueue a mail. Arguments and errors are those of `send`."""
        return await self._app.aenqueue(self.new(template, **mail))

    def send_many(
        self, template: str, recipients: Iterable[Recipient], **mail: Any
    ) -> list[rota.Enqueued]:
        """Enqueue a mail for each recipient, in one statement per 1,000. The other arguments are
        those of `send`."""
        shared = dict(mail.pop("data", None) or {})
        jobs = [
            self.new(template, to=one.to, user_id=one.user_id, data={**shared, **one.data}, **mail)
            for one in recipients
        ]
        return self._app.enqueue_many(jobs)

    def preview(
        self, template: str, *, to: str = "someone@example.org", data: Mapping[str, Any]
    ) -> EmailMessage:
        """Return the message that would be sent. Nothing is stored or sent.

        Raises:
            Dead: a variable is missing, or the template has a fault.
            UsageError: there is no such template.
        """
        rendered = self._render(template, dict(data))
        return self._build(rendered, check_address(to), "<preview@localhost>", (), None)

    def find(self, who: str) -> list[Sent]:
        """Find mails by address or Message-ID, the latest first. They are kept for 90 days."""
        return [_read(one) for one in self._app.effects.find(about=_about(who))]

    def forget(self, address: str, *, why: str | None = None, by: str | None = None) -> int:
        """Forget what is known of the mails to an address; return how many there were. None of
        them is sent again."""
        return self._app.effects.forget(_about(address), why=why, by=by)

    def resend(self, id: int, *, content: Content, connection: Any = None) -> rota.Enqueued:
        """Send the mail of a job once more, on purpose: as a mail of its own.

        Args:
            id: of the job that sent it.
            content: "latest": as the template is now. "as-sent": only if what a reader would see is
                what was sent; otherwise the new job is dead, and says which version that was.
            connection: whose transaction the enqueue joins.

        Raises:
            JobNotFound: there is no such job.
            UsageError: it is no mail of this mailer.
        """
        return self._app.enqueue(self._make_resend(self._app.get(id), content, connection))

    def _resend(self, id: int, *, content: Content) -> rota.Enqueued:
        """Send the mail of a job once more: as-sent or latest."""
        return self.resend(id, content=content)

    def _make_resend(self, job: rota.Job, content: Content, connection: Any) -> NewJob:
        types = {one.name: one for one in self._types.values()}
        if job.job_type not in types:
            raise rota.UsageError(f"job {job.id} is {job.job_type}, no mail of this mailer")
        if content not in ("as-sent", "latest"):
            raise rota.UsageError(f'content must be "as-sent" or "latest", not {content!r}')
        number = secrets.token_hex(4)
        payload = dict(job.payload)
        key = _key_of(payload["template"], payload["user"], payload["event"])
        meta = {"resend": {"content": content, "number": number, "of": job.id}}
        asked = types[job.job_type].using(connection, key=f"{key}#{number}", meta=meta)
        made: NewJob = asked.new(**payload)
        return made

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.transport.aclose()

    @property
    def _app(self) -> rota.App:
        found = self._types[False].app
        if not isinstance(found, rota.App):
            raise rota.UsageError("give mailer.jobs to an App: rota.App(jobs=[mailer.jobs])")
        return found

    async def _handle(
        self,
        ctx: rota.Context,
        template: str,
        to: str,
        user: str,
        event: str,
        data: dict[str, Any],
        attach: list[tuple[str, dict[str, Any]]],
        unsubscribe: str | None,
    ) -> str | None:
        key = _key_of(template, user, event)
        # In a thread: templates, `load` and attachments read files and databases.
        rendered, made = await asyncio.to_thread(self._make, template, data, attach)
        digest = rendered.hash(made)
        if (again := (ctx.job.meta or {}).get("resend")) is not None:
            if again["content"] == "as-sent":
                await _refuse_other_content(ctx, key, rendered, digest)
            key = f"{key}#{again['number']}"
        message_id = _make_message_id(key, self._sender.domain)
        message = self._build(rendered, to, message_id, made, unsubscribe)
        about = {
            "mail": template,
            "to": to.lower(),
            "version": rendered.version,
            "hash": digest,
            "message_id": message_id,
        }
        effect = ctx.effect(key, about=about, if_uncertain=self._if_uncertain, safe=(NotSent,))
        try:
            answer: str | None = await effect.call(self._send, message, to)
        except MailRefused as error:
            raise rota.Dead("the server refuses this mail") from error
        return answer

    async def _send(self, message: EmailMessage, to: str) -> str:
        return await self.transport.send(message, self._sender.addr_spec, to)

    def _make(
        self, template: str, data: dict[str, Any], attach: Sequence[Attach]
    ) -> tuple[Rendered, list[Attachment]]:
        made = [self._attachments[name](**arguments) for name, arguments in attach]
        return self._render(template, data), made

    def _render(self, template: str, data: dict[str, Any]) -> Rendered:
        variables = data if self._load is None else self._load(template, data)
        return self._templates.render(template, variables)

    def _build(
        self,
        rendered: Rendered,
        to: str,
        message_id: str,
        attachments: Sequence[Attachment],
        unsubscribe: str | None,
    ) -> EmailMessage:
        return build_message(
            rendered,
            sender=self._sender,
            to=to,
            message_id=message_id,
            date=datetime.now(UTC),
            attachments=attachments,
            headers=unsubscribe_headers(unsubscribe),
        )


def _key_of(template: str, user: str, event: str) -> str:
    return f"mail:{user}:{template}:{event}"


def _make_message_id(key: str, domain: str) -> str:
    """Return the Message-ID of a mail: the same in every attempt, and without a word of whom it is
    for."""
    return f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain}>"


async def _refuse_other_content(
    ctx: rota.Context, key: str, rendered: Rendered, digest: str
) -> None:
    found = await ctx.app.effects.afind(key)
    about = found[0].about if found else None
    if about is None:
        raise rota.Dead(f"what was sent under {key!r} is not known any more: send the latest")
    if about["hash"] != digest:
        raise rota.Dead(
            f"mail template {rendered.template!r} was sent as version {about['version']}, and is "
            f"{rendered.version} now, or its data has changed: deploy that, or send the latest"
        )


def _about(who: str) -> dict[str, str]:
    if who.startswith("<"):
        return {"message_id": who}
    return {"to": check_address(who).lower()}


def _read(effect: EffectRecord) -> Sent:
    about = effect.about or {}
    statuses: dict[str, Any] = {"done": "sent", "intended": "being sent", "uncertain": "uncertain"}
    return Sent(
        status=statuses[effect.status],
        to=about.get("to"),
        template=about.get("mail"),
        version=about.get("version"),
        hash=about.get("hash"),
        message_id=about.get("message_id"),
        job=effect.job,
        key=effect.key,
        at=effect.done_at or effect.intended_at,
        answer=effect.result,
    )
