"""A rule that many queries share costs them nothing: the planner puts its body in their place."""

from __future__ import annotations

import psycopg
from psycopg.rows import TupleRow

CALLS = {
    "is_in_force": ("queue", "is_in_force(paused_at, paused_until)"),
    "is_alive": ("worker", "is_alive(heartbeat_at, stopped_at)"),
    "alive_until": ("worker", "alive_until(heartbeat_at, stopped_at) > clock()"),
    "lease_default": ("job_type", "lease > lease_default()"),
    "job_refusal": ("job", "job_refusal(row(job.*)::job) is not null"),
    "job_row_is_plain": ("job", "job_row_is_plain(row(job.*)::job)"),
    "must_record_start": ("job", "must_record_start(losses, max_attempts, null)"),
    "liveness_of": ("worker", "liveness_of(heartbeat_at, stopped_at) = 'gone'"),
    "last_seen": ("worker", "last_seen(heartbeat_at, stopped_at) > clock()"),
    "channel_of": ("worker", "channel_of(name) = host"),
    "caller": ("worker", "caller() = host"),
    "asks_key": ("job", "asks_key(payload) = job_type"),
    "asks_value": ("job", "asks_value('limit', payload, meta, payload) is null"),
    "is_no_rows_fault": ("worker", "is_no_rows_fault(host)"),
    "moment": ("worker", "started_at < moment()"),
    "room_name": ("worker", "room_name('limit', name, host) = host"),
    "types_asking": ("job", "exists (select from types_asking() t(name) where name = job_type)"),
    "utc_text": ("worker", "utc_text(started_at) = host"),
    "was_drain": ("worker", "was_drain(started_at, stopped_at)"),
}
"""Each with a table and a condition on its columns."""


def test_a_shared_rule_is_inlined(shared: psycopg.Connection[TupleRow]) -> None:
    shared.execute("set search_path = rota")
    for name, (table, condition) in CALLS.items():
        plan = shared.execute(
            f"explain (verbose, costs off) select from {table} where {condition}".encode()
        ).fetchall()
        text = "\n".join(row[0] for row in plan)
        assert "Filter: " in text and f"{name}(" not in text, name


def test_each_function_whose_body_is_sql_is_one_of_these(
    shared: psycopg.Connection[TupleRow],
) -> None:
    parsed = shared.execute(
        "select proname from pg_proc where pronamespace = 'rota'::regnamespace "
        "and prosqlbody is not null"
    ).fetchall()
    assert {row[0] for row in parsed} <= set(CALLS)
