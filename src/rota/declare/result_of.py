"""What stands for the result of other jobs among the arguments of a new job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ResultOf:
    """The result of one job, or a list of the results of several jobs, which the database will put
    into the payload. JSON cannot write it: so only an argument that could not be encoded is one."""

    __slots__ = ("is_list", "jobs")

    def __init__(self, jobs: Sequence[Any], *, is_list: bool) -> None:
        self.jobs = jobs
        """The jobs, each a `NewJob`."""
        self.is_list = is_list
