"""The rules that Rota keeps, and the marker by which a test says which of them it holds."""

from __future__ import annotations

import pytest

RULES = {
    "M1": "A request answers at once; what is slower, or calls a network, becomes a job.",
    "M2": (
        "No job runs on two servers at once, is lost, fails silently, stops half-way or leaves no "
        "trace."
    ),
    "M3": "It stays small to operate, and says when a team outgrows it.",
    "M10": "A job and a schedule are rows that hold all there is to know about them.",
    "M11": "Statuses are explicit and finite.",
    "M12": (
        "The job type routes, the payload is a small JSON object, and payloads evolve without "
        "migrations."
    ),
    "M13": "History is kept for every job, and dropped cheaply when it is old.",
    "M14": "Finding the next job and an expired lease stays fast however large the tables get.",
    "M15": "Whatever can run SQL can take part.",
    "M20": "A job enqueued in the caller's transaction commits or vanishes with it.",
    "M21": (
        "A job can be put off, ranked, keyed, queued by name and given an expiry, alone or in bulk."
    ),
    "M22": "The database's clock is the only clock.",
    "M30": (
        "A claim is one atomic statement; workers do not wait for each other and no job is handed "
        "to two."
    ),
    "M31": "A claim is a lease.",
    "M32": "Only the worker that still holds a job can renew its lease, finish it or write for it.",
    "M33": (
        "A dead or frozen worker blocks a job no longer than its lease and five seconds, and a "
        "lost attempt counts."
    ),
    "M34": "No transaction is open while a handler works, unless the handler opens it.",
    "M35": "Every attempt has a maximum run time.",
    "M36": "A job past its expiry is never started; it is dead and says why.",
    "M40": "A retry lies in the future, by a plan that can be told in words.",
    "M41": (
        "Errors are transient or fatal, by rules that can be extended; the verdict and its rule "
        "are stored."
    ),
    "M42": "After the last attempt the job is dead.",
    "M43": "An error leaves what a person needs to judge it.",
    "M44": "A dead job can be requeued, fixed or ignored, and never just disappears.",
    "M45": (
        "Secrets and personal data are redacted or encrypted wherever they would be stored, shown "
        "or logged."
    ),
    "M50": "A job may run twice, and that is harmless.",
    "M51": "The database refuses a second job with the same type and key, and names the first.",
    "M52": "A side effect is recorded before and after; what is uncertain is visible.",
    "M53": "Files appear whole or not at all.",
    "M54": "A handler can commit its own writes and its job's completion together.",
    "M60": "Order is per key: one in flight, in the order of becoming due.",
    "M61": "Urgent work is never stuck behind slow work.",
    "M62": "A rate limit is shared by all workers.",
    "M63": "A circuit breaker is shared by all workers.",
    "M70": "A mail is sent once per user, template and event, and what was sent is known.",
    "M71": "A webhook is signed, delivered once per event, and retried as HTTP means it.",
    "M72": "A report is many page jobs with visible progress and a stored result.",
    "M73": "Each kind of job ships its own rules.",
    "M80": "Woken by cron, a worker does what is due and exits; runs may overlap.",
    "M81": "As a daemon it picks a job up in less than a second.",
    "M82": "A schedule fires once per tick over the whole fleet.",
    "M83": (
        "On shutdown a worker finishes what it can, hands back the rest and records every result."
    ),
    "M84": "Every step of a job is one log line.",
    "M85": "The figures of a queue can be asked for, and jobs found.",
    "M86": "What needs a person raises an alert.",
    "M87": "People can act on jobs, queues and schedules, and each action says who and why.",
    "M88": "Very many jobs due in the same minute do not slow claims down.",
}


def rule(*numbers: str) -> pytest.MarkDecorator:
    """Mark a test as one that would fail without these rules: `@rule("M30", "M32")`."""
    unknown = [number for number in numbers if number not in RULES]
    if unknown or not numbers:
        raise ValueError(
            f"not a rule: {', '.join(unknown) or 'nothing given'}; RULES in {__name__} lists them"
        )
    return pytest.mark.rule(*numbers)
