"""Webhooks: signed events for endpoints (extra `webhook`), and `verify` for their receivers."""

from __future__ import annotations

from rota.kinds.webhook.address import AddressRefused
from rota.kinds.webhook.client import (
    HttpClient,
    NoConnection,
    NoResponse,
    NotDelivered,
    Reply,
    WebhookClient,
)
from rota.kinds.webhook.signature import NotVerified, sign, verify
from rota.kinds.webhook.webhooks import Delivery, Endpoint, Webhooks

__all__ = [
    "AddressRefused",
    "Delivery",
    "Endpoint",
    "HttpClient",
    "NoConnection",
    "NoResponse",
    "NotDelivered",
    "NotVerified",
    "Reply",
    "WebhookClient",
    "Webhooks",
    "sign",
    "verify",
]
