"""`Mailer`: a job type that sends mails from templates, and what is known of sent mails."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, get_args

import rota
from rota.kinds import MAIL, URGENT_MAIL
from rota.kinds.mail.message import (
    Attachment,
    Rendered,
    Templates,
    build_message,
    check_address,
    check_sender,
    check_url,
    make_address,
    make_attachment,
    unsubscribe_headers,
)
from rota.kinds.mail.transport import ATTEMPT_S, SMTP, MailRefused, NotSent, Transport
from rota.kinds.steps import RunsSteps, Steps
from rota.records import IfUncertain, UsingOptions, awaitable, both

if TYPE_CHECKING:
    from email.headerregistry import Address
    from email.message import EmailMessage

    from rota.records import EffectRecord, JobOptions, NewJob

Content = Literal["as-sent", "latest"]
"""A repeated mail: what a reader saw then, or what the template says now."""
_KEY_MAX = 225
"""Most characters of a key: `resend` adds up to 30."""
Attach = tuple[str, dict[str, Any]]
"""The name of a function that makes an attachment, and its arguments."""


class MailOptions(UsingOptions, total=False):
    """What a mail may have besides the options of its job. Every key is optional."""

    data: Mapping[str, Any] | None
    """Variables of the template, small JSON. Defaults to none."""
    urgent: bool
    """Use `rota.kinds.URGENT_MAIL`: quick, and of no use after 15 minutes. Defaults to False."""
    attach: Sequence[Attach]
    """Names of `attachments=` with their arguments: `[("invoice", {"order": 17})]`."""
    unsubscribe: str | None
    """A URL for `List-Unsubscribe`. Defaults to none."""
    reply_to: str | None
    """Who gets the answers, such as `Ann <ann@shop.example>`. Defaults to the mailer's
    `reply_to`."""


class MailToMany(MailOptions):
    """The arguments of `send_many`."""

    event: str
    """Why the mail is sent, such as `signup` or `order:17`; part of the key."""


class NewMail(MailToMany):
    """The arguments of `send`."""

    to: str
    """The address. It is checked without DNS."""
    user_id: int | str
    """The user's id in your data, such as `42`; part of the key."""


class Recipient(NamedTuple):
    """One recipient of `send_many`."""

    to: str
    """The address."""
    user_id: int | str
    """The user's id in your data: part of the key, so that each user gets a mail once."""
    data: Mapping[str, Any] = {}
    """Variables of the template for this recipient."""


class Sent(NamedTuple):
    """What is known of a mail."""

    status: Literal["sent", "being sent", "uncertain"]
    """`uncertain`: it may have been sent; `rota effects resolve KEY` says what you found out."""
    to: str | None
    """The address, in lower case; None: the address was forgotten."""
    template: str | None
    version: str | None
    """Version of the template's files: 12 hexadecimal digits."""
    hash: str | None
    """SHA-256 of subject, texts and attachments, as sent."""
    message_id: str | None
    job: int
    """Id of the job that sent the mail last."""
    key: str
    """Key of the mail's effect, and of its job."""
    at: datetime
    """When the mail was sent, or tried last: an aware datetime."""
    answer: str | None
    """What the server answered."""


class Mailer(RunsSteps):
    """Mails from templates, each sent once for its user, template and event.

    `App(jobs=[jobs, mailer.jobs])` declares its two job types. An enqueue commits with your
    transaction; the mail is rendered when it is sent.
    """

    def __init__(
        self,
        smtp: str | Transport,
        *,
        sender: str,
        templates: str | Path,
        reply_to: str | None = None,
        envelope_sender: str | None = None,
        name: str = "mail",
        load: Callable[[str, dict[str, Any]], Mapping[str, Any]] | None = None,
        attachments: Mapping[str, Callable[..., Attachment]] | None = None,
        rate_limit: rota.RateLimit | None = None,
        if_uncertain: IfUncertain = "dead",
        options: JobOptions | None = None,
    ) -> None:
        """Args:
            smtp: the URL of a server, as `SMTP` takes it; or a `Transport`.
            sender: such as `Shop <hello@shop.example>`.
            templates: a folder with a folder for each template: `subject.txt`, and `text.txt` or
                `html.html` or both, in Jinja2. HTML is escaped, and a variable that is missing is
                an error.
            reply_to: who gets the answers. Defaults to the sender.
            envelope_sender: the address that gets the bounces. Defaults to that of the sender.
            name: of the job types: `mail`, and `mail.urgent` for mails with `urgent`; also part of
                the keys, so that two mailers send beside each other.
            load: called with template and data when the mail is rendered, in a thread; returns the
                variables, for what is too large, or too personal, for a payload. Defaults to the
                data.
            attachments: functions that make an attachment when the mail is sent, by name.
            rate_limit: what the provider allows; both types share it.
            if_uncertain: what happens to a mail that may have been sent: see `Context.effect`.
            options: of the type `mail`, on top of `rota.kinds.MAIL`. `mail.urgent` has them too,
                such as a queue, a breaker or a timeout, except for what `rota.kinds.URGENT_MAIL`
                sets.

        Raises:
            UsageError: an argument cannot be what it is for.
        """
        self.transport: Transport = SMTP(smtp) if isinstance(smtp, str) else smtp
        if if_uncertain not in get_args(IfUncertain):
            raise rota.UsageError(f"if_uncertain is dead, skip or repeat, not {if_uncertain!r}")
        self.jobs = rota.Jobs(
            lifespan=self._lifespan,
            commands={
                f"{name} find": self.find,
                f"{name} forget": self.forget,
                f"{name} resend": self.resend,
            },
        )
        """The job types, for `App(jobs=[…])`."""
        self._sender = check_sender(sender)
        self._reply_to = None if reply_to is None else check_sender(reply_to)
        bounces_to = sender if envelope_sender is None else envelope_sender
        self._envelope_sender = check_sender(bounces_to).addr_spec
        self._templates = Templates(Path(templates))
        self._load = load
        self._attachments = dict(attachments or {})
        self._if_uncertain: Any = if_uncertain
        self._name = name
        shared: JobOptions = {
            "unique": self._key_of,
            "breaker": rota.Breaker(f"{name}.provider"),
            "timeout": timedelta(seconds=ATTEMPT_S),
        }
        if rate_limit is not None:
            shared["rate_limit"] = rate_limit
        shared.update(options or {})
        former = [f"{alias}.urgent" for alias in shared.get("aliases", ())]
        ordinary: Any = {**MAIL, **shared}
        urgent: Any = {**shared, **URGENT_MAIL, "timeout": shared["timeout"], "aliases": former}
        self._types = {
            False: self.jobs.job(name, takes_context=True, **ordinary)(self._handle),
            True: self.jobs.job(f"{name}.urgent", takes_context=True, **urgent)(self._handle),
        }

    def new(self, template: str, **mail: Unpack[NewMail]) -> NewJob:
        """Return a mail for `app.enqueue_many`. Takes the arguments of `send`, with its errors."""
        return self._new("new", template, mail)

    @both
    def send(self, template: str, **mail: Unpack[NewMail]) -> Steps[rota.Enqueued]:
        """Enqueue a mail. A second mail for the same user, template and event is not enqueued.

        Args:
            template: the name of its folder.
            mail: `to`, `user_id`, `event`, and more of `NewMail`, each documented there; with the
                options of `using`, of which `connection` names whose transaction it joins.

        Raises:
            UsageError: an argument is missing or unknown; there is no such template or attachment,
                or its function does not take its arguments; the address is none.
            PayloadError: the data has no JSON form, or is too large.
        """
        sent: rota.Enqueued = yield partial(self._app.enqueue, self._new("send", template, mail))
        return sent

    asend = awaitable(send)

    @both
    def send_many(
        self, template: str, recipients: Iterable[Recipient], **mail: Unpack[MailToMany]
    ) -> Steps[list[rota.Enqueued]]:
        """Enqueue a mail for each recipient, in one statement per 1,000. It takes the arguments of
        `send`; a recipient's `data` overrides the common `data`."""
        jobs = []
        for to, user_id, own in (Recipient(*given) for given in recipients):
            data = {**(mail.get("data") or {}), **own}
            whole: NewMail = {**mail, "to": to, "user_id": user_id, "data": data}
            jobs.append(self._new("send_many", template, whole))
        made: list[rota.Enqueued] = yield partial(self._app.enqueue_many, jobs)
        return made

    asend_many = awaitable(send_many)

    def _new(self, verb: str, template: str, mail: NewMail) -> NewJob:
        _check_call(verb, mail)
        try:
            attach = [(name, dict(arguments)) for name, arguments in mail.get("attach", ())]
        except (TypeError, ValueError):
            raise rota.UsageError(
                'attach must be a list of pairs, as in [("invoice", {"order": 17})]'
            ) from None
        to = self._check(template, mail["to"], attach, mail.get("reply_to"))
        user = str(mail["user_id"])
        key = self._key_of(template, user, mail["event"])
        if len(key) > _KEY_MAX:
            longest = "user_id" if len(user) > len(mail["event"]) else "event"
            raise rota.UsageError(
                f"{longest} is too long: it makes a key of {len(key)} characters, at most "
                f"{_KEY_MAX} fit"
            )
        options = UsingOptions.__annotations__.keys()
        using: Any = {name: value for name, value in mail.items() if name in options}
        asked = self._types[bool(mail.get("urgent"))].using(**using)
        made: NewJob = asked.new(
            template=template,
            to=to,
            user=user,
            event=mail["event"],
            data=dict(mail.get("data") or {}),
            attach=attach,
            unsubscribe=check_url(mail.get("unsubscribe")),
            **({"reply_to": mail["reply_to"]} if mail.get("reply_to") else {}),
        )
        return made

    def _check(self, template: str, to: str, attach: Sequence[Attach], reply_to: str | None) -> str:
        """Return the address, checked. Raises UsageError: this mail cannot be made."""
        self._templates.check(template)
        if reply_to is not None:
            check_sender(reply_to)
        for name, arguments in attach:
            self._check_attachment(name, arguments)
        return check_address(to)

    def _check_attachment(self, name: str, arguments: Mapping[str, Any]) -> None:
        function = self._attachments.get(name)
        if function is None:
            listed = ", ".join(self._attachments) or "none"
            raise rota.UsageError(f"no attachment {name!r} is declared; there are {listed}")
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            called = getattr(function, "__name__", repr(function))
            raise rota.UsageError(f"attachment {name!r}, {called}(…): {error}") from None

    def preview(
        self, template: str, *, to: str = "someone@example.org", data: Mapping[str, Any]
    ) -> EmailMessage:
        """Return the message that would be sent. Nothing is stored or sent.

        Raises:
            Dead: a variable is missing, or the template has a fault.
            UsageError: there is no such template.
        """
        rendered = self._render(template, dict(data))
        sent_to = make_address(check_address(to))
        return self._build(rendered, sent_to, "<preview@localhost>", (), {})

    @both
    def find(self, who: str) -> Steps[list[Sent]]:
        """Find the latest 10,000 mails by address or Message-ID, the latest first. Kept for 90
        days."""
        about = _about(who)
        return [
            _read(effect)
            for effect in (yield partial(self._app.effects.find, about=about, limit=10_000))
        ]

    afind = awaitable(find)

    @both
    def forget(self, address: str, *, why: str | None = None, by: str | None = None) -> Steps[int]:
        """Forget the mails to an address, so that none is sent again; return how many there
        were."""
        about = _about(address)
        count: int = yield partial(self._app.effects.forget, about, why=why, by=by)
        return count

    aforget = awaitable(forget)

    @both
    def resend(
        self, id: int, *, content: Content, why: str | None = None, by: str | None = None
    ) -> Steps[rota.Enqueued]:
        """Send the mail of a finished job once more, on purpose: as-sent or latest.

        A mail that was sent is sent as a new mail, once for each content: to send it a third time,
        send the job again that this call has made. A mail that was not sent keeps its key and its
        Message-ID. By this call you say that an uncertain mail was not sent: the mail stays
        uncertain until the new job begins to send. If the new job is uncertain too, the mail is not
        sent again.

        Args:
            id: of the job.
            content: "latest": as the template is now. "as-sent": only if what a reader would see is
                what was sent, or tried; otherwise the job is dead, and says which version that was.
            why: recorded with the action, as for `app.retry`.
            by: as for `app.retry`.

        Raises:
            JobNotFound: there is no such job.
            WrongStatus: its mail is still to be sent.
            rota.errors.EffectHeld: a job is sending it.
            UsageError: it is no mail of this mailer, what it sent is not known, or it was sent
                again as another job, which is named.
        """
        if content not in ("as-sent", "latest"):
            raise rota.UsageError(f'content must be "as-sent" or "latest", not {content!r}')
        job: rota.Job = yield partial(self._app.get, id)
        if job.job_type not in {job_type.name for job_type in self._types.values()}:
            raise rota.UsageError(f"job {id} is {job.job_type}, no mail of this mailer")
        if not job.status.is_settled:
            settled = ("dead", "succeeded", "cancelled")
            raise rota.WrongStatus(id, settled, job.status, "; its mail is still to be sent")
        payload = dict(job.payload)
        if "template" not in payload:
            raise rota.UsageError(f"job {id} was erased: what it sent is not known")
        if (later := (job.resolution or {}).get("requeued_as")) is not None:
            raise rota.UsageError(f"job {id} was sent again as job {later}: send that again")
        before = payload.get("again") or {}
        key = self._key_of(payload["template"], payload["user"], payload["event"])
        found: list[EffectRecord] = yield partial(self._app.effects.find, _name_effect(key, before))
        effect = next((effect for effect in found if effect.step_of is None), None)
        is_sent = job.status == "succeeded" or (effect is not None and effect.status == "done")
        if is_sent and job.status != "succeeded" and effect is not None and effect.job != id:
            raise rota.UsageError(f"job {effect.job} has sent the mail of job {id}: resend that")
        number = f"{id}-{content}" if is_sent else before.get("number")
        payload["again"] = _expect(id, content, effect, number)
        # Each call is one statement that looks at the job or the key again, and the sender looks
        # again at the effect: this function may stop anywhere, and may run twice at once.
        why = f"mail resend, {content}{f': {why}' if why else ''}"
        asked: dict[str, Any] = {"payload": payload, "by": by, "why": why}
        if job.status != "dead" or job.resolution is not None or is_sent:
            asked |= {"again": True, "key": _name_effect(key, payload["again"])}
        sent: rota.Enqueued = yield partial(self._app.retry, id, **asked)
        return sent

    aresend = awaitable(resend)

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.transport.aclose()

    @property
    def _app(self) -> rota.App:
        app: rota.App = self._types[False].app
        return app

    async def _handle(
        self,
        ctx: rota.Context,
        template: str,
        to: rota.Personal[str],
        user: str,
        event: str,
        data: rota.Personal[dict[str, Any]],
        attach: list[tuple[str, dict[str, Any]]],
        unsubscribe: str | None,
        again: dict[str, str] | None = None,
        reply_to: rota.Personal[str] | None = None,
    ) -> str | None:
        again = again or {}
        policy: Any = {"if_uncertain": self._if_uncertain, "safe": (NotSent,)}
        try:  # a row need not come from `send`
            sent_to = make_address(self._check(template, to, attach, reply_to))
            headers: dict[str, Any] = unsubscribe_headers(check_url(unsubscribe))
            if "not_done" in again:
                policy["not_done"] = datetime.fromisoformat(again["not_done"]).astimezone(UTC)
        except ValueError as error:
            raise rota.Dead(str(error)) from None
        # In a thread: templates, `load` and attachments read files and databases.
        rendered, made = await asyncio.to_thread(self._make, template, data, attach)
        digest = rendered.hash(made)
        if again.get("hash", digest) != digest:
            raise rota.Dead(
                f"mail template {template!r} was sent as version {again.get('version')}, and is "
                f"{rendered.version} now, or its data has changed: deploy that, or send the latest"
            )
        key = _name_effect(self._key_of(template, user, event), again)
        # The same in every attempt, without a word about the recipient.
        message_id = f"<{hashlib.sha256(key.encode()).hexdigest()[:32]}@{self._sender.domain}>"
        if reply_to is not None:
            headers["Reply-To"] = check_sender(reply_to)
        message = self._build(rendered, sent_to, message_id, made, headers)
        about = {
            "mail": template,
            "to": to.lower(),
            "version": rendered.version,
            "hash": digest,
            "message_id": message_id,
        }
        effect = ctx.effect(key, about=about, **policy)
        try:
            sent = (message, self._envelope_sender, sent_to.addr_spec)
            answer: str | None = await effect.call(self.transport.send, *sent)
        except MailRefused as error:
            raise rota.Dead("the server refuses this mail") from error
        return answer

    def _key_of(self, template: str, user: str, event: str) -> str:
        # Only the event, the last part, keeps its colons.
        return f"{self._name}:{_escape(user)}:{_escape(template)}:{event}"

    def _make(
        self, template: str, data: dict[str, Any], attach: Sequence[Attach]
    ) -> tuple[Rendered, list[Attachment]]:
        made = [make_attachment(name, self._attachments[name], given) for name, given in attach]
        return self._render(template, data), made

    def _render(self, template: str, data: dict[str, Any]) -> Rendered:
        variables = data if self._load is None else self._load(template, data)
        return self._templates.render(template, variables)

    def _build(
        self,
        rendered: Rendered,
        to: Address,
        message_id: str,
        attachments: Sequence[Attachment],
        headers: Mapping[str, Any],
    ) -> EmailMessage:
        return build_message(
            rendered,
            sender=self._sender,
            to=to,
            message_id=message_id,
            date=datetime.now(UTC),
            attachments=attachments,
            headers={**({"Reply-To": self._reply_to} if self._reply_to else {}), **headers},
        )


def _check_call(verb: str, given: Mapping[str, Any]) -> None:
    known = NewMail.__annotations__
    if unknown := sorted(given.keys() - known):
        near = get_close_matches(unknown[0], known, 1)
        meant = f" (did you mean {near[0]}?)" if near else f"; there are {', '.join(known)}"
        raise rota.UsageError(f"Mailer.{verb}() takes no {unknown[0]!r}{meant}")
    if missing := sorted(NewMail.__required_keys__ - given.keys()):
        raise rota.UsageError(f"Mailer.{verb}() needs {', '.join(missing)}")
    # None, or an empty text, would be the same user for everybody: only one mail would go out.
    user, event = given["user_id"], given["event"]
    if isinstance(user, bool) or not isinstance(user, int | str) or user == "":
        raise rota.UsageError(f"user_id must be an integer or a text, not {user!r}")
    if not isinstance(event, str) or event == "":
        raise rota.UsageError(f"event must be a text such as 'signup', not {event!r}")
    if not isinstance(given.get("data"), Mapping | None):
        raise rota.UsageError(f"data must be a dict, not {given['data']!r}")


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def _name_effect(key: str, again: Mapping[str, str]) -> str:
    """Return the key of a mail's effect; a mail that is sent again as a new mail has a number."""
    return f"{key}#{again['number']}" if "number" in again else key


def _expect(
    id: int, content: Content, effect: EffectRecord | None, number: str | None
) -> dict[str, str]:
    """Return what a repeated mail has in its payload. Raises UsageError."""
    again = {} if number is None else {"number": number}
    if effect is not None and effect.status != "done":
        if effect.status == "intended":
            raise rota.errors.EffectHeld(effect.key)
        again["not_done"] = effect.intended_at.isoformat()
    if content == "latest":
        return again
    if effect is None:
        raise rota.UsageError(f"job {id} sent nothing: content must be latest")
    if effect.about is None:
        raise rota.UsageError(f"what job {id} sent was forgotten: content must be latest")
    return {**again, "hash": effect.about["hash"], "version": effect.about["version"]}


def _about(who: Any) -> dict[str, str]:
    if isinstance(who, str) and who.startswith("<"):
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
