"""Rows to insert, each with as little as can be."""

from __future__ import annotations

from typing import Any

from rota.store import ops


def row(
    job_type: str = "t",
    *,
    payload: str = "{}",
    idempotency_key: str | None = None,
    group_key: str | None = None,
    **given: Any,
) -> ops.NewRow:
    """A job to insert; `given` are columns that jobs have in common."""
    absent: dict[str, Any] = dict.fromkeys(ops.CommonColumns.__struct_fields__)
    columns = {**absent, "job_type": job_type, "on_duplicate": "keep", **given}
    return ops.NewRow(ops.CommonColumns(**columns), payload, idempotency_key, group_key)
