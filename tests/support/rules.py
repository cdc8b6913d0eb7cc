"""The rules of Rota, and the marker that names the rules a test holds."""

from __future__ import annotations

import pytest

RULES = {
    "M1": "A request returns at once: slow work and network calls become jobs.",
    "M2": (
        "No job runs on two servers at once, is lost, fails silently, stops half-way or leaves "
        "no trace."
    ),
    "M3": "It stays small to operate, and says when a team has outgrown it.",
    "M10": "Jobs and schedules are rows that contain everything about them.",
    "M11": "A job's statuses are explicit, and there is a fixed number of them.",
    "M12": (
        "The job type routes, the payload is a small JSON object, and payloads evolve without "
        "migrations."
    ),
    "M13": "Every job leaves history, and old history is deleted cheaply.",
    "M14": "The search for the next job, and for expired leases, stays fast at any table size.",
    "M15": "Any program that can run SQL can take part.",
    "M20": "A job enqueued in the caller's transaction is committed or rolled back with it.",
    "M21": (
        "A job can have a delay, a priority, a key, a named queue and an expiry, alone or in bulk."
    ),
    "M22": "All times come from the database's clock.",
    "M30": (
        "A claim is one atomic statement; workers do not wait for each other, and no two get "
        "the same job."
    ),
    "M31": "A claim is a lease.",
    "M32": "Only the worker that holds a job can renew its lease, finish it or write for it.",
    "M33": (
        "A dead or frozen worker blocks a job for at most its lease and five seconds, and the "
        "lost attempt counts."
    ),
    "M34": "No transaction is open while a handler works, unless the handler opens it.",
    "M35": "Every attempt has a maximum run time.",
    "M36": "A job is not started after its expiry: it becomes dead and says why.",
    "M40": "A retry has a delay, from a policy that can be described in words.",
    "M41": (
        "Errors are transient or fatal, by rules that can be extended; the verdict and its "
        "rule are stored."
    ),
    "M42": "After the last attempt the job is dead.",
    "M43": "A failure is stored with everything that a person needs to judge it.",
    "M44": "A dead job can be requeued, fixed or ignored, and never disappears by itself.",
    "M45": (
        "Secrets and personal data are redacted or encrypted wherever they are stored, shown "
        "or logged."
    ),
    "M50": "A job may run twice without harm.",
    "M51": "The database refuses a second job with the same type and key, and names the first one.",
    "M52": "A side effect is recorded before and after it happens; uncertain ones are visible.",
    "M53": "A file appears completely or not at all.",
    "M54": "A handler can commit its own writes together with the completion of its job.",
    "M60": "Jobs with the same key run one at a time, in the order in which they become due.",
    "M61": "Urgent work never waits behind slow work.",
    "M62": "All workers share a rate limit.",
    "M63": "All workers share a circuit breaker.",
    "M70": "A mail is sent once per user, template and event, and a record shows what was sent.",
    "M71": (
        "A webhook is signed, delivered once per event, and retried according to its HTTP status."
    ),
    "M72": "A report consists of many page jobs, with visible progress and a stored result.",
    "M73": "Each kind of job has its own rules built in.",
    "M80": "Started by cron, a worker runs the due jobs and exits; runs may overlap.",
    "M81": "As a daemon, a worker starts a new job in less than a second.",
    "M82": "A schedule fires once per tick, for any number of workers.",
    "M83": (
        "When a worker stops, it finishes what it can, hands back the rest and records every "
        "result."
    ),
    "M84": "Every step of a job is one log line.",
    "M85": "Statistics of queues are available, and jobs can be found.",
    "M86": "A problem that needs a person raises an alert.",
    "M87": "People can act on jobs, queues and schedules, and each action records who and why.",
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
