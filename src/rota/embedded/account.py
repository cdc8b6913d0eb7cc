"""The operating system's user that the private PostgreSQL runs as.

PostgreSQL refuses to run as root. If Rota runs as root, the server runs as the owner of the data,
at first the system user `nobody`. Otherwise it runs as the user that starts it.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from pathlib import Path
from typing import TypedDict

import msgspec

if sys.platform != "win32":
    import pwd

logger = logging.getLogger("rota")


class RunAs(TypedDict, total=False):
    """Arguments for `subprocess` to start a process as another user; empty: the current user."""

    user: int
    group: int
    extra_groups: list[int]


class Account(msgspec.Struct, frozen=True):
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
    nobody = pwd.getpwnam("nobody")
    account = Account(nobody.pw_uid, nobody.pw_gid)
    if data.exists() and (owner := data.stat()).st_uid != 0:
        account = Account(owner.st_uid, owner.st_gid)
    _let_read(binaries.parent)
    for path in (data, binaries):
        _let_pass(account, path)
    return account


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
