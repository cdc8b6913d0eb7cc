"""Alerts: problems that Rota has reported."""

from __future__ import annotations

import builtins

from rota.client.base import Namespace
from rota.store import ops
from rota.store.ops import AlertRecord


class Alerts(Namespace):
    """`app.alerts`: reads alerts. Their rules are rows of the table `alert_rule`."""

    def list(self) -> builtins.list[AlertRecord]:
        """List the active alerts, the newest first, then those that ended in the last 24 h."""
        return self._run(ops.read_alerts())

    async def alist(self) -> builtins.list[AlertRecord]:
        """List alerts, as `list`."""
        return await self._arun(ops.read_alerts())
