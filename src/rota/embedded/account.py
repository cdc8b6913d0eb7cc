"""The operating system's user that the private PostgreSQL runs as.

PostgreSQL refuses to run as root. If Rota runs as root, the server runs as the owner of the data:
at first the system user `pgserver` (the wheel's name), which is created if needed. Otherwise it
runs as the user that starts it.
"""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rota.errors import EmbeddedError

if sys.platform != "win32":
    import pwd

logger = logging.getLogger("rota")

_NAME = "pgserver"
_CREATE_S = 5.0
"""Seconds to retry: useradd refuses while another process holds the lock on the user database."""


class RunAs(TypedDict, total=False):
    """Arguments for `subprocess` to start a process as another user; empty: the current user."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """A user and their group; None: the current user and group."""

    user: int | None = None
    group: int | None = None

    @property
    def run_as(self) -> RunAs:
        if self.user is None or self.group is None:
            return {}
        return {"user": self.user, "group": self.group, "extra_groups": []}

    def own(self, path: Path) -> None:
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def may_pass(self, directory: os.stat_result) -> bool:
        """Whether this account may pass through a directory with that mode and owner."""
        if directory.st_uid == self.user:
            return bool(directory.st_mode & stat.S_IXUSR)
        if directory.st_gid == self.group:
            return bool(directory.st_mode & stat.S_IXGRP)
        return bool(directory.st_mode & stat.S_IXOTH)


def server_account(data: Path, binaries: Path) -> Account:
    """Return the account to run the server as, able to reach the data and the binaries."""
    if os.geteuid() != 0:
        return Account()
    owner = data.stat() if data.exists() else None
    account = Account(owner.st_uid, owner.st_gid) if owner and owner.st_uid != 0 else _pgserver()
    _let_read(binaries.parent)
    for path in (data, binaries):
        _let_pass(account, path)
    return account


def _pgserver() -> Account:
    deadline = time.monotonic() + _CREATE_S
    while True:
        try:
            found = pwd.getpwnam(_NAME)
            return Account(found.pw_uid, found.pw_gid)
        except KeyError:
            refused = _create_pgserver()
        if refused and time.monotonic() > deadline:
            raise EmbeddedError(
                f"PostgreSQL does not run as root, and the user {_NAME!r} to run it as cannot be "
                "created: "
                f"{refused}"
            )
        if refused:
            time.sleep(0.1)


def _create_pgserver() -> str | None:
    """Create the user. Return what went wrong; another process may have created it first."""
    command = [
        "useradd",
        "--system",
        "--user-group",
        "--no-create-home",
        "--shell",
        "/usr/sbin/nologin",
        _NAME,
    ]
    try:
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return "there is no `useradd`"
    return (
        made.stdout.strip() or f"useradd exits with {made.returncode}" if made.returncode else None
    )


def _let_pass(account: Account, path: Path) -> None:
    """Let the account pass through the directories above `path`, without listing them."""
    for above in path.parents:
        now = above.stat()
        if not account.may_pass(now):
            above.chmod(stat.S_IMODE(now.st_mode) | stat.S_IXOTH)
            logger.warning(
                "made %s passable (chmod o+x) for the private PostgreSQL, which cannot run as root",
                above,
            )


def _let_read(installation: Path) -> None:
    """Make the wheel's files readable for all users, if a strict umask of root has hidden them."""
    postgres = installation / "bin" / "postgres"
    if postgres.stat().st_mode & stat.S_IXOTH:
        return
    libraries = installation.parent.with_name(f"{installation.parent.name}.libs")
    for top in (installation, libraries):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0))
