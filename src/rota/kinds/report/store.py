"""Stores the files of reports: a directory, or any object with these four methods."""

from __future__ import annotations

import contextlib
import io
import shutil
from datetime import timedelta
from glob import escape
from pathlib import Path
from typing import IO, Any, Protocol

import rota


class Store(Protocol):
    """Keeps files by name, such as `12/345-1/activity.csv`."""

    def put(self, name: str, file: IO[bytes]) -> None:
        """Keep the rest of `file` under a name, whole or not at all. An older file is replaced."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read it. Raises FileNotFoundError: the file is gone."""

    def delete(self, name: str) -> None:
        """Delete a file, and what a killed worker's `put` left. A missing file is no error."""

    def url(self, name: str, expires_s: float) -> str | None:
        """Return a download URL for everybody, valid for `expires_s`; None: only `open` gives
        it."""


class Directory:
    """A directory that all workers and the web processes share."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def __repr__(self) -> str:
        return f"<Directory {self._path}>"

    def put(self, name: str, file: IO[bytes]) -> None:
        """Write the file under a temporary name, and rename it."""
        target = self._find(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with rota.write_file(target) as written:
            shutil.copyfileobj(file, written)

    def open(self, name: str) -> IO[bytes]:
        """Open a file to read it. Raises FileNotFoundError: the file is gone."""
        return self._find(name).open("rb")

    def delete(self, name: str) -> None:
        """Delete a file, and its directories once they are empty."""
        target = self._find(name)
        try:
            target.unlink()
        except FileNotFoundError:  # the worker that put it may have been killed: see write_file
            for part in [*target.parent.glob(f".{escape(target.name[:40])}*.part")]:
                part.unlink(missing_ok=True)
        for folder in Path(name).parents[:-1]:
            with contextlib.suppress(OSError):  # another file is there
                (self._path / folder).rmdir()

    def url(self, name: str, expires_s: float) -> str | None:
        """Return None: a directory serves nothing."""
        return None

    def _find(self, name: str) -> Path:
        found = self._path / name
        if not found.resolve().is_relative_to(self._path.resolve()):
            raise rota.UsageError(f"{name!r} is no name within {self._path}")
        return found


class ObjectStore:
    """A bucket of S3, GCS or Azure: `ObjectStore(obstore.store.S3Store("bucket"))`, extra
    `objects`."""

    def __init__(self, store: Any) -> None:
        """Args:
            store: one of `obstore.store`; its `prefix` is where the files are.

        Raises:
            ConfigurationError: the extra is missing.
        """
        try:
            import obstore  # noqa: PLC0415 - optional
        except ModuleNotFoundError:
            raise rota.errors.ConfigurationError(
                "an object store needs a library: pip install 'rota[objects]'"
            ) from None
        self._objects: Any = obstore
        self._store = store

    def put(self, name: str, file: IO[bytes]) -> None:
        """Upload the file, a large file in parts. It appears once the last part is there."""
        self._objects.put(self._store, name, file)

    def open(self, name: str) -> IO[bytes]:
        """Read the file in pieces. Raises FileNotFoundError: the file is gone."""
        reader = self._objects.open_reader(self._store, name)
        return io.BufferedReader(_Reader(reader), buffer_size=1024 * 1024)

    def delete(self, name: str) -> None:
        """Delete the file; a missing file is no error."""
        with contextlib.suppress(FileNotFoundError):
            self._objects.delete(self._store, name)

    def url(self, name: str, expires_s: float) -> str | None:
        """Sign a URL of the store; None: this kind of store signs none."""
        try:
            signed: str = self._objects.sign(self._store, "GET", name, timedelta(seconds=expires_s))
        except (NotImplementedError, ValueError):
            return None
        return signed


class _Reader(io.RawIOBase):
    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        part = bytes(self._reader.read(len(into)))
        into[: len(part)] = part
        return len(part)
