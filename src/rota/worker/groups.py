"""What Linux tells of groups of processes under /proc: whether they live, and how much memory they hold."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

FRESH_S = 0.25
"""One look at all processes serves everybody who asks within so long."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATE, _GROUP, _RESIDENT = 0, 2, 21
"""Which fields of a stat line, counted from behind the name: proc_pid_stat(5)."""


def is_living(group: int) -> bool:
    """Whether a process of the group runs. One that is dead and that nobody has reaped does not."""
    return any(
        int(fields[_GROUP]) == group and fields[_STATE] not in (b"Z", b"X")
        for fields in _processes()
    )


class Memory:
    """Resident memory by process group. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resident: dict[int, int] = {}
        self._seen_at = float("-inf")

    def resident_bytes(self, group: int) -> int:
        """Return what the processes of a group hold together; pages that they share count for each."""
        with self._lock:
            if monotonic() - self._seen_at >= FRESH_S:
                resident: defaultdict[int, int] = defaultdict(int)
                for fields in _processes():
                    resident[int(fields[_GROUP])] += int(fields[_RESIDENT]) * _PAGE_BYTES
                self._resident, self._seen_at = resident, monotonic()
            return self._resident.get(group, 0)


def _processes() -> Iterator[list[bytes]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for each would cost more than the rest
        if name.isdigit():
            with suppress(OSError):  # it has just ended
                yield Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
