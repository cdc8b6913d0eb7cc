"""`Webhooks`: the endpoints, and the job types that bring events to them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets as random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

import rota
from rota import records
from rota.kinds import WEBHOOK
from rota.kinds.steps import RunsSteps, Steps
from rota.kinds.webhook.address import AddressRefused
from rota.kinds.webhook.client import HttpClient, NotDelivered, Reply, WebhookClient
from rota.kinds.webhook.signature import decode_secret, new_secret, sign
from rota.records import awaitable, both

if TYPE_CHECKING:
    from rota.records import AsyncConnection, Connection, JobOptions, NewJob

logger = logging.getLogger("rota")

State = Literal["on", "paused", "disabled", "failing"]
KEPT = timedelta(days=90)
"""How long Rota knows that an endpoint has got an event."""
_REDIRECTS = tuple(range(300, 400))
_DEPLOYING = (401, 403, 404, 409, 423)
"""Responses of a receiver during its deployment. 400 and 422 are about the event."""
BODY_BYTES_MAX = 1024 * 1024
_EVENT = re.compile(r"(?=.{1,100}$)[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_EVENT_ID = re.compile(r"[A-Za-z0-9_:@+=-]{1,150}")
_ACCOUNT = re.compile(r"[^\x00]{1,100}")
_WAIT = "1m"
"""How long a delivery waits before it looks again whether its endpoint is paused."""


class Endpoint(NamedTuple):
    """A receiver of events."""

    name: str
    account: str | None
    """The endpoint gets only events with this account; None: events without an account."""
    url: str
    events: list[str]
    """`order.paid`; `order.*`, all that begin with `order.`; `*`, all."""
    state: State
    """`failing`: only failures since `failing_since`. `disabled`: the endpoint gets no events."""
    why: str | None
    """Why the endpoint is paused or disabled."""
    by: str | None
    """Who made, paused or disabled the endpoint; `rota`: disabled after failures."""
    failing_since: datetime | None
    failures: int
    in_order: bool
    allow_private: bool
    created_at: datetime


class Delivery(NamedTuple):
    """An event for one endpoint, and its status."""

    event: str
    event_id: str
    job: int
    """Id of the job that brought the event last."""
    status: str | None
    """A `rota.Status`; None: the job is no longer kept."""
    attempts: int | None
    code: int | None
    """Code of the last response; None: no response."""
    seconds: float | None
    """Seconds of the last attempt."""
    response: str | None
    """The beginning of the last response, or the last error."""
    at: datetime


class Webhooks(RunsSteps):
    """Events for endpoints that others run, each delivered at least once, and signed.

    `App(jobs=[jobs, hooks.jobs])` declares its job types; `rota migrate` makes its tables.
    """

    def __init__(
        self,
        *,
        load: Callable[[str, dict[str, Any]], Mapping[str, Any]] | None = None,
        client: WebhookClient | None = None,
        options: JobOptions | None = None,
    ) -> None:
        """Declare the job types.

        Args:
            load: called with event and data when a delivery is sent, in a thread; returns the data
                of the body, for what is too large, or too personal, for a payload. Defaults to the
                data.
            client: what sends a request. Defaults to an `HttpClient`.
            options: of its job types, on top of `rota.kinds.WEBHOOK`. An attempt has 15 s: 10 for
                the request, the others for `load`.
        """
        self.jobs = rota.Jobs(
            lifespan=self._lifespan,
            tables=records.Tables("webhook", files(__package__) / "sql"),
            commands={
                "webhook put": self.put,
                "webhook list": self.endpoints,
                "webhook pause": self.pause,
                "webhook disable": self.disable,
                "webhook enable": self.enable,
                "webhook remove": self.remove,
                "webhook rotate": self.rotate,
                "webhook test": self.test,
                "webhook deliveries": self.deliveries,
                "webhook replay": self.replay,
            },
        )
        """The job types, for `App(jobs=[…])`."""
        self._load = load
        self._client = client
        rules: Any = {
            **WEBHOOK,
            "timeout": "15s",
            "retry_on": _DEPLOYING,
            "fatal_on": _REDIRECTS,
            "breaker": rota.Breaker("webhook", key=lambda endpoint: endpoint),
        }
        for name, ordered in (
            ("webhook", rota.Ordered(_group, capacity=4, while_retrying="release")),
            ("webhook.ordered", rota.Ordered(_group)),
        ):
            made: Any = {**rules, "ordered": ordered, **(options or {})}
            self._type = self.jobs.job(name, takes_context=True, **made)(self._deliver)
            if self._type._declaration.asks.required:
                raise rota.UsageError(
                    "a key or a cost in the options of webhooks is an argument as it is, "
                    "as in key=lambda event: event"
                )
        queue = (options or {}).get("queue", "default")
        forget = self.jobs.job("webhook.forget", max_attempts=3, queue=queue)(self._forget)
        self.jobs.schedule("webhook.forget", "17 3 * * *")(forget)

    # Events

    def emit(
        self,
        event: str,
        data: Mapping[str, Any] | None = None,
        *,
        event_id: str,
        account: str | None = None,
        connection: Connection | UnsetType = UNSET,
    ) -> dict[str, int]:
        """Enqueue a delivery for each endpoint that asks for the event, in one statement. An
        endpoint gets an event once, however often it is emitted.

        Args:
            event: words of letters, digits and `_` with dots between, such as `order.paid`.
            data: small JSON.
            event_id: of this event, the same whenever it is emitted: 1 … 150 of A-Z, a-z, 0-9 and
                `_:@+=-`, such as `order:17:paid`. Receivers get it as `webhook-id`.
            account: whose endpoints. Defaults to endpoints without an account.
            connection: whose transaction it joins.

        Returns:
            The id of the new job of each endpoint.

        Raises:
            UsageError: the event or its id has a wrong form.
            PayloadError: the data has no JSON form.
        """
        new, given = self._make_event(event, data, event_id, account)
        found = self.jobs.call("webhook_emit", given, connection=connection, enqueues=new)
        return {row["endpoint"]: row["job"] for row in found}

    async def aemit(
        self,
        event: str,
        data: Mapping[str, Any] | None = None,
        *,
        event_id: str,
        account: str | None = None,
        connection: AsyncConnection | UnsetType = UNSET,
    ) -> dict[str, int]:
        """Enqueue a delivery for each endpoint, as `emit` does."""
        new, given = self._make_event(event, data, event_id, account)
        found = await self.jobs.acall("webhook_emit", given, connection=connection, enqueues=new)
        return {row["endpoint"]: row["job"] for row in found}

    @both
    def test(self, name: str) -> Steps[dict[str, int]]:
        """Enqueue an event `test` for one endpoint, whatever it asks for."""
        new, given = self._make_event("test", {}, f"test-{random.token_hex(8)}", None)
        found = yield partial(self.jobs.call, "webhook_emit", {**given, "only": name}, enqueues=new)
        if not found:
            raise rota.UsageError(f"there is no endpoint {name!r}, or it is disabled")
        return {row["endpoint"]: row["job"] for row in found}

    atest = awaitable(test)

    def _make_event(
        self, event: str, data: Mapping[str, Any] | None, event_id: str, account: str | None
    ) -> tuple[NewJob, dict[str, Any]]:
        """Check an event before the database does: a refusal there ends the caller's
        transaction."""
        _refuse_unfit(_EVENT, event, "event", "words of A-Z, a-z, 0-9 and _ with dots between")
        _refuse_unfit(_EVENT_ID, event_id, "event_id", "1 to 150 of A-Z, a-z, 0-9 and _:@+=-")
        if account is not None:
            _refuse_unfit(_ACCOUNT, account, "account", "1 to 100 characters")
        known: Any = {"event_id": event_id, "event": event, "data": dict(data or {})}
        # Endpoint values of the template job: the payload of each real job has its own.
        new = self._type.new(endpoint="*", endpoint_id=0, at="", **known)
        new = msgspec.structs.replace(new, asks_json=None)
        known["data"] = json.loads(new.payload_json)["data"]
        return new, {**known, "account": account}

    # Endpoints

    @both
    def put(
        self,
        name: str,
        url: str,
        *,
        events: list[str] | None = None,
        account: str | None = None,
        in_order: bool | None = None,
        allow_private: bool | None = None,
        secret: str | None = None,
        by: str | None = None,
        connection: records.AnyConnection | UnsetType = UNSET,
    ) -> Steps[str | None]:
        """Make an endpoint, or change its URL, events and `allow_private`.

        Args:
            name: 1 … 100 of A-Z, a-z, 0-9 and `_.:@+-`, such as `crm` or `customer:42`.
            url: `https://…`, or `http://…`, without user and password.
            events: such as `order.paid`, `order.*` or `*`. Defaults to all.
            account: only events that are emitted with it are for this endpoint. Defaults to
                events without an account.
            in_order: whether an event is sent only when the event before has arrived, or is dead.
                It cannot be changed. Defaults to False: up to four at once, in no certain order.
            allow_private: whether the host may be in a private network. Never for a URL of a
                stranger: he could reach what only you can. Defaults to what it is as long as the
                host stays, otherwise to False.
            secret: of a new endpoint: `whsec_` and 24 to 64 bytes in base64. Defaults to a random
                secret.
            by: who. Defaults to nobody.
            connection: whose transaction it joins.

        Returns:
            The secret of a new endpoint, for its owner; None: it was there.

        Raises:
            UsageError: the name, the URL, an event or the secret has a wrong form; or the endpoint
                is there, with another account or `in_order`, or with a secret of its own.
        """
        if isinstance(events, str):
            raise rota.UsageError(f"events is a list, as in [{events!r}]")
        given = {
            "name": name,
            "url": url,
            "events": None if events is None else list(events),
            "account": account,
            "in_order": in_order,
            "allow_private": allow_private,
            "secret": None if secret is None else _seal(secret),
            "fresh": _seal(new_secret()),
            "by": by,
        }
        joined: Any = connection
        rows = yield partial(self.jobs.call, "webhook_put", given, connection=joined)
        return _open_text(rows[0]["secret"]) if rows else None

    aput = awaitable(put)

    @both
    def endpoints(self, *, account: str | None = None) -> Steps[list[Endpoint]]:
        """List endpoints by name: all, or the endpoints of an account."""
        rows = yield partial(self.jobs.call, "webhook_endpoints", {"account": account})
        return [Endpoint(**row) for row in rows]

    aendpoints = awaitable(endpoints)

    @both
    def pause(self, name: str, *, why: str | None = None, by: str | None = None) -> Steps[None]:
        """Let the deliveries of an endpoint wait, until it is enabled.

        Raises:
            UsageError: there is no such endpoint.
        """
        return self._turn(name, "paused", why, by)

    apause = awaitable(pause)

    @both
    def disable(self, name: str, *, why: str | None = None, by: str | None = None) -> Steps[None]:
        """Send nothing more to an endpoint: no deliveries are made, and waiting deliveries are dead
        when they are due.

        Raises:
            UsageError: there is no such endpoint.
        """
        return self._turn(name, "disabled", why, by)

    adisable = awaitable(disable)

    @both
    def enable(self, name: str, *, why: str | None = None, by: str | None = None) -> Steps[None]:
        """Turn an endpoint on again; `replay` sends what is dead meanwhile.

        Raises:
            UsageError: there is no such endpoint.
        """
        return self._turn(name, "on", why, by)

    aenable = awaitable(enable)

    def _turn(self, name: str, to: str, why: str | None, by: str | None) -> Steps[None]:
        given = {"name": name, "to": to, "why": why, "by": by}
        [row] = yield partial(self.jobs.call, "webhook_turn", given)
        _refuse_unknown(name, row["webhook_turn"])

    @both
    def remove(self, name: str, *, why: str | None = None, by: str | None = None) -> Steps[None]:
        """Remove an endpoint, and the list of its deliveries. Waiting deliveries are cancelled when
        they are due.

        Raises:
            UsageError: there is no such endpoint.
        """
        [row] = yield partial(
            self.jobs.call, "webhook_remove", {"name": name, "why": why, "by": by}
        )
        _refuse_unknown(name, row["webhook_remove"])

    aremove = awaitable(remove)

    @both
    def rotate(
        self,
        name: str,
        *,
        keep: records.Duration = "1d",
        secret: str | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Steps[str]:
        """Give an endpoint a new secret, and return it. For `keep`, the secrets before sign too,
        also if this call is repeated because its answer was lost.

        Args:
            secret: `whsec_` and 24 to 64 bytes in base64. Defaults to a random secret.

        Raises:
            UsageError: there is no such endpoint, the secret has a wrong form, or ten secrets sign.
        """
        fresh = _seal(new_secret() if secret is None else secret)
        given = {"name": name, "secret": fresh, "for": _check_duration(keep), "why": why, "by": by}
        rows = yield partial(self.jobs.call, "webhook_rotate", given)
        _refuse_unknown(name, bool(rows))
        return _open_text(rows[0]["webhook_rotate"])

    arotate = awaitable(rotate)

    # Deliveries

    @both
    def deliveries(
        self, name: str, *, status: records.StatusName | None = None, limit: int = 100
    ) -> Steps[list[Delivery]]:
        """List the deliveries of an endpoint, the newest first.

        Args:
            status: a `rota.Status`, such as `dead`. Defaults to all.

        Raises:
            UsageError: there is no such endpoint or status.
        """
        if status is not None and status not in list(rota.Status):
            raise rota.UsageError(f"there is no status {status!r}: {', '.join(rota.Status)}")
        found = yield partial(self.jobs.call, "webhook_endpoints", {"name": name})
        _refuse_unknown(name, bool(found))
        given = {"endpoint": name, "status": status, "limit": limit}
        rows = yield partial(self.jobs.call, "webhook_deliveries", given)
        return [Delivery(**row) for row in rows]

    adeliveries = awaitable(deliveries)

    @both
    def replay(
        self,
        name: str,
        *,
        event_id: str | None = None,
        since: records.Duration | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Steps[int]:
        """Send deliveries of an endpoint once more, under the same `webhook-id`; return how many.

        Args:
            event_id: of one event, whatever became of it; or
            since: how long ago, such as "2d": all that have died since.

        Raises:
            UsageError: neither is given, or both; there is no such endpoint or event; or its job
                has left history, and its data with it.
        """
        if (event_id is None) == (since is None):
            raise rota.UsageError("give event_id or since, not both")
        given: dict[str, Any] = {"endpoint": name, "event_id": event_id, "why": why, "by": by}
        given["since"] = None if since is None else _check_duration(since)
        count = 0
        # Deliveries that die meanwhile are not among the rows.
        while rows := (yield partial(self.jobs.call, "webhook_replay", given)):
            count += rows[0]["sent"]
            if event_id is not None:
                break
            given |= {"after": rows[0]["last"], "until": rows[0]["until"]}
        return count

    areplay = awaitable(replay)

    # Work

    async def _forget(self) -> None:
        while (await self.jobs.acall("webhook_forget", {"keep": KEPT}))[0]["webhook_forget"]:
            pass

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        client = self._open_client()
        try:
            yield
        finally:
            await client.aclose()

    def _open_client(self) -> WebhookClient:
        """Return the client. A test's attempt has no lifespan that made the client."""
        self._client = self._client or HttpClient()
        return self._client

    async def _deliver(
        self,
        ctx: rota.Context,
        endpoint: str,
        endpoint_id: int,
        event_id: str,
        event: str,
        at: str,
        data: dict[str, Any],
    ) -> dict[str, Any]:
        asked = {"id": endpoint_id, "event_id": event_id, "job": ctx.job.id}
        rows = await self.jobs.acall("webhook_read", asked)
        if not rows:
            raise rota.Cancel(f"endpoint {endpoint} was removed")
        [known] = rows
        if known["disabled"]:
            raise rota.Dead(f"endpoint {endpoint} is disabled {known['disabled']}")
        if known["paused"]:
            raise rota.Snooze(_WAIT, f"endpoint {endpoint} is paused")
        try:
            secrets = [_open(secret) for secret in json.loads(known["secrets"])]
        except rota.errors.SecretKeyMissing as error:
            raise rota.Snooze(_WAIT, f"endpoint {endpoint}: {error}") from error
        body = await self._make_body(event, at, data)
        now = int(datetime.now(UTC).timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": f"rota/{rota.__version__}",
            **sign(secrets, event_id, body, now),
        }
        try:
            reply = await self._post(known, body, headers)
        except (NotDelivered, AddressRefused) as error:
            await self._note(endpoint, endpoint_id, known["url"], error)
            if isinstance(error, AddressRefused):
                raise rota.Dead(str(error)) from None
            raise
        if known["is_failing"]:
            await self._note(endpoint, endpoint_id, known["url"], None)
        return {"code": reply.code, "seconds": reply.seconds, "response": reply.excerpt}

    async def _post(self, known: dict[str, Any], body: bytes, headers: dict[str, str]) -> Reply:
        """Return the response that takes the event. Raises NotDelivered, AddressRefused."""
        reply = await self._open_client().post(
            known["url"], body, headers, allow_private=known["allow_private"]
        )
        if 200 <= reply.code < 300:
            return reply
        raise NotDelivered(*_describe(reply), reply)

    async def _make_body(self, event: str, at: str, data: dict[str, Any]) -> bytes:
        load = self._load
        loaded = data if load is None else await asyncio.to_thread(load, event, data)
        try:
            body = msgspec.json.encode({"type": event, "timestamp": at, "data": loaded})
        except (TypeError, ValueError) as error:
            raise rota.Dead(f"what load returned for {event} has no JSON form: {error}") from error
        if len(body) > BODY_BYTES_MAX:
            raise rota.Dead(f"the body of {event} has {len(body):,} bytes: load returned too much")
        return body

    async def _note(
        self, endpoint: str, endpoint_id: int, url: str, error: Exception | None
    ) -> None:
        """Note how an endpoint has responded. A failure to note does not change the delivery."""
        gone = getattr(error, "status_code", None) == 410
        noted = {"id": endpoint_id, "url": url, "ok": error is None, "gone": gone}
        brief = getattr(error, "endpoint_reason", str(error))
        try:
            rows = await self.jobs.acall("webhook_note", {**noted, "response": brief})
        except Exception as failure:  # noqa: BLE001 - of the database, or of its driver
            logger.warning("endpoint %s: its response is not noted: %s", endpoint, failure)
            return
        for row in rows:
            logger.warning("endpoint %s is disabled: %s", endpoint, row["webhook_note"])


def _seal(secret: Any) -> str | dict[str, str]:
    """Return a secret as stored: sealed where there are keys. Raises UsageError."""
    decode_secret(secret if isinstance(secret, str) and secret.startswith("whsec_") else "")
    return rota.Secret(secret).seal() if os.environ.get("ROTA_SECRET_KEYS") else secret


def _open(stored: str | dict[str, str]) -> str:
    opened: str = stored if isinstance(stored, str) else rota.Secret.open(stored, str).reveal()
    return opened


def _open_text(stored: str) -> str:
    return stored if stored.startswith("whsec_") else _open(json.loads(stored))


def _group(endpoint: str) -> str:
    return f"webhook:{endpoint}"


def _refuse_unfit(pattern: re.Pattern[str], value: object, name: str, has: str) -> None:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise rota.UsageError(f"{name} has {has}, not {value!r:.200}")


def _check_duration(value: records.Duration) -> records.Duration:
    if not isinstance(value, str | timedelta):
        raise rota.UsageError(f'a duration is such as "2d", or a timedelta, not {value!r}')
    return value


def _refuse_unknown(name: str, is_there: bool) -> None:
    if not is_there:
        raise rota.UsageError(f"there is no endpoint {name!r}")


def _describe(reply: Reply) -> tuple[str, str]:
    """Return the name of a response, and its excerpt."""
    what = f"responded with {reply.code} after {reply.seconds} s"
    if reply.code in _REDIRECTS:
        what += ", a redirect, which is not followed: change the URL of the endpoint"
        return what, f"; it leads to {reply.headers.get('location', 'nowhere')[:100]}"
    return what, f": {reply.excerpt}" if reply.excerpt else ""
