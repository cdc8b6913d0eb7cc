"""Columns that many files of SQL list: each list is written once, here.

In the files of `schema/`, `{content}` is such a list, and `{j.content}` the same list of the table
`j`. A new column of a list needs no change in those files; nor does an option of a job type.
"""

from __future__ import annotations

import re
from textwrap import fill

from rota.declare.options import JOB_OPTIONS
from rota.model.job import Job

CONTENT = (
    "queue",
    "job_type",
    "payload",
    "payload_version",
    "priority",
    "timeout",
    "schedule",
    "scheduled_for",
    "group_key",
)
"""What a job is to do: the same in history, and in a job that is requeued or runs again."""
SCHEDULED = (
    "job_type",
    "payload",
    "payload_version",
    "queue",
    "priority",
    "max_attempts",
    "meta",
    "group_key",
)
"""What a schedule says of its jobs: columns of both."""
COMMON = (
    "queue",
    "job_type",
    "payload_version",
    "priority",
    "max_attempts",
    "timeout",
    "meta",
    "group_capacity",
    "batch",
)
"""What jobs of a bulk have in common, beside their times."""

_VALUES = {
    "origin_id": "coalesce(origin_id, id)",
    "payload_json": "payload::text",
    "losses": "coalesce(losses, 0)",
    "meta_json": "meta::text",
    "timeout_s": "extract(epoch from timeout)::float8",
    "progress_json": "progress::text",
    "result_json": "result::text",
    "resolution_json": "resolution::text",
    # Of all types first, once: nearly always no type hides anything.
    "hidden_fields": "case when (select :schema.hidden_fields(null)) is not null "
    "then :schema.hidden_fields(job_type) end",
    "suspected": "losses > 0 and error_type = 'LeaseExpired'",
    "refusal": "null",
    "start": "case when p_starts is not null then p_starts ->> j.id::text end",
}
"""How a field is made of the columns of `job` if it is no column itself."""
JOB = tuple(name for name in Job.__struct_fields__ if name != "wait")
"""The fields of a Job that are columns of the view `jobs`, as the client reads it."""
OF_THE_CLAIM = ("start_recorded", "suspected", "capped", "refusal", "start")
CLAIMED = (*OF_THE_CLAIM, *JOB[: JOB.index("locked_by")])
"""The columns of the type `claimed_job`: columns of the claim, and the first fields of a Job."""

_OPTIONS = [option for option in JOB_OPTIONS.values() if option.kind.sql_type]
JOB_TYPE = (
    "name",
    "aliases",
    *(option.name for option in _OPTIONS),
    "lease",
    "key_arguments",
    "group_arguments",
    "asks",
    "retry_after",
    "release",
    "declared_at",
)
"""What people see of a job type."""

_LISTS = {
    "content": CONTENT,
    "scheduled": SCHEDULED,
    "common": COMMON,
    "job": [f"{_VALUES[column]} as {column}" if column in _VALUES else column for column in JOB],
    "claimed": CLAIMED,
    "claimed_values": [_VALUES.get(column, column) for column in CLAIMED],
    "job_type": JOB_TYPE,
    "option_arguments": [option.argument for option in _OPTIONS],
    "option_pairs": [f"'{option.name}', {option.name}" for option in _OPTIONS],
}
_REFUSALS = "{option_refusals}"
_TOKEN = re.compile(r"\{(?:(\w+)\.)?(" + "|".join(_LISTS) + r")\}")
_WIDTH = 100


def name_columns(text: str) -> str:
    """Return SQL with its lists of columns written out, also in comments: if a type grows,
    functions that return its rows are replaced."""
    return "\n".join(_write_out(line) for line in text.split("\n"))


def _write_out(line: str) -> str:
    code = line.lstrip()
    indent = line[: len(line) - len(code)]
    if code == _REFUSALS:
        return "\n".join(indent + option.refusal for option in _OPTIONS)
    if not _TOKEN.search(code):
        return line
    is_comment = code.startswith("--")
    return fill(
        _TOKEN.sub(_list_names if is_comment else _list_columns, code),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}-- " if is_comment else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _list_names(found: re.Match[str]) -> str:
    return ", ".join(column.rpartition(" as ")[2] for column in _LISTS[found[2]])


def _list_columns(found: re.Match[str]) -> str:
    table = "" if found[1] is None else f"{found[1]}."
    return ", ".join(f"{table}{column}" for column in _LISTS[found[2]])
