"""What Linux reports under /proc: whether a process group is alive, and its resident memory."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

FRESH_S = 0.25
"""Seconds for which one reading of all processes serves every caller."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATE, _GROUP, _RESIDENT = 0, 2, 21
"""Fields of a stat line, counted after the name: proc_pid_stat(5)."""


def is_alive(group: int) -> bool:
    """Whether a process of the group runs. A zombie does not."""
    return any(
        int(fields[_GROUP]) == group and fields[_STATE] not in (b"Z", b"X")
        for fields in _read_processes()
    )


class GroupMemory:
    """Resident memory by process group. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resident: dict[int, int] = {}
        self._read_at = float("-inf")

    def resident_bytes(self, group: int) -> int:
        """Return the resident memory of a group; a shared page counts once per process."""
        with self._lock:
            if monotonic() - self._read_at >= FRESH_S:
                resident: defaultdict[int, int] = defaultdict(int)
                for fields in _read_processes():
                    resident[int(fields[_GROUP])] += int(fields[_RESIDENT]) * _PAGE_BYTES
                self._resident, self._read_at = resident, monotonic()
            return self._resident.get(group, 0)


def _read_processes() -> Iterator[list[bytes]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for each would cost more than the rest
        if name.isdigit():
            with suppress(OSError):  # the process has just ended
                yield Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
