"""Alerts: problems that Rota has reported."""

from __future__ import annotations

import builtins

from rota.client.base import Namespace
from rota.client.both import awaitable, both
from rota.store import ops
from rota.store.driver import Operation
from rota.store.ops import AlertRecord


class Alerts(Namespace):
    """`app.alerts`: reads alerts. Their rules are rows of the table `alert_rule`."""

    @both
    def list(self) -> Operation[builtins.list[AlertRecord]]:
        """List the active alerts, the newest first, then the alerts of the last 24 h that ended."""
        return ops.ask_rows(AlertRecord, "alerts")

    alist = awaitable(list)
