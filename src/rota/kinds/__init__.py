"""Ready job types, and the options that each kind of job needs: they fit any `@app.job`.

`@app.job("crm", **rota.kinds.WEBHOOK)`. docs/how-to/kinds.md has the table. A lease is how long a
killed worker keeps a place of its endpoint. Uses only what `rota` exports.
"""

from __future__ import annotations

from typing import TypedDict

import rota
from rota.records import Duration, RetryPolicy


class KindOptions(TypedDict, total=False):
    """Options that a kind sets, so that a checker takes others beside them: `**WEBHOOK`."""

    timeout: Duration
    lease: Duration
    retry: RetryPolicy
    max_attempts: int


class TimelyOptions(KindOptions, total=False):
    """Options of a kind whose jobs must not be late."""

    expires: Duration
    priority: int


URGENT_MAIL: TimelyOptions = {
    "timeout": "10s",
    "lease": "30s",
    "retry": rota.Fixed("15s"),
    "max_attempts": 5,
    "expires": "15m",
    "priority": 50,
}
"""A reset link or a code: of no use after 15 minutes."""
MAIL: TimelyOptions = {
    "timeout": "15s",
    "lease": "30s",
    "retry": rota.Delays("1m", "5m", "30m", "2h"),
    "max_attempts": 6,
    "expires": "24h",
}
"""A welcome or a receipt: tried for about five hours, and not sent a day late."""
WEBHOOK: KindOptions = {
    "timeout": "10s",
    "lease": "30s",
    "retry": rota.Delays("5s", "5m", "30m", "2h", "5h", "10h", "10h"),
    "max_attempts": 8,
}
"""A call to another service: tried for about 27 hours, over a night and a working day."""
REPORT_PAGE: KindOptions = {"timeout": "5m", "lease": "30s", "max_attempts": 3}
"""A page of a report: long, and seldom worth many tries."""
REPORT: TimelyOptions = {"expires": "6h", "max_attempts": 3}
"""A report: nobody waits in the evening for the morning's report."""

__all__ = ["MAIL", "REPORT", "REPORT_PAGE", "URGENT_MAIL", "WEBHOOK"]
