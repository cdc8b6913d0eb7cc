"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, nullcontext
from glob import escape
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal

from rota.declare.context import context, find_context
from rota.declare.effect import Effect, EffectBlock
from rota.errors import UsageError
from rota.model.bounds import KEY_MAX, check_text

PREFIX = "file_generated:"
"""The start of the key of the effect that records a file."""
PART = ".part"
"""The end of a temporary name. A killed process leaves such a file behind."""
STEM_MAX = 52
"""Most characters of a file's name in its temporary name: of 255 bytes a character takes up to
four, and the numbers of a job and its claim up to 29."""


class OutputFile:
    """A file that is being written; it has the methods of an open file, too."""

    def __init__(self, path: Path, stream: IO[Any], effect: Effect) -> None:
        self.path = path
        self.done = effect.done
        """Whether an earlier attempt, or another job with the key, has written the file: then this
        write is dropped."""
        self.result = effect.result
        """The record of a file that is done: its path, and its size in bytes."""
        self._stream = stream

    def write(self, data: Any) -> int:
        return self._stream.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def write_file(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    mode: Literal["wb", "w"] = "wb",
    encoding: str = "utf-8",
) -> FileBlock:
    """Write a file that is there whole or not at all: `with rota.write_file("a.csv") as file:`, or
    `async with`.

    The block writes under a temporary name in the same directory. Then the file is flushed to disk
    and renamed, so a reader sees the old or the new file. If the block raises, nothing is left.
    What a killed worker leaves is deleted when its job writes the file again.

    Args:
        path: the file; its directory must exist. An existing file is replaced.
        key: names the file among all jobs, by the business event ("sales_report:2026-01-14"). The
            write is recorded as the effect `file_generated:KEY`; a later attempt, or another job,
            finds `file.done` true. Needs a running handler.
        mode: "wb" for bytes, "w" for text.
        encoding: of text.

    Raises:
        UsageError: an argument is invalid; with a key, no handler runs here. Nothing was written.
        OSError: the file cannot be written.
    """
    if mode not in ("wb", "w"):
        raise UsageError(f'mode must be "wb" or "w", not {mode!r}')
    if not Path(path).name:
        raise UsageError(f"path must name a file, not {str(path)!r}")
    try:
        "".encode(encoding)
    except LookupError as error:
        raise UsageError(str(error)) from None
    guard = None
    if key is not None:
        check_text(key, "key", KEY_MAX - len(PREFIX))
        # Every error proves that the file is not there; a killed process leaves it open.
        guard = context().effect(PREFIX + key, if_uncertain="repeat", safe=(BaseException,))
    return FileBlock(Path(path), guard, mode, encoding)


class FileBlock:
    """The block of `write_file`."""

    def __init__(self, path: Path, guard: EffectBlock | None, mode: str, encoding: str) -> None:
        self._path = path
        self._guard = guard or nullcontext()
        self._mode = mode
        self._encoding = encoding if mode == "w" else None
        self._effect = Effect("") if guard is None else guard.effect
        self._job = None if (found := find_context()) is None else found.job
        claim = "" if self._job is None else f"{self._job.id}-{self._job.claims}."
        self._stem = f".{path.name[:STEM_MAX]}."
        self._part = path.with_name(f"{self._stem}{claim}{secrets.token_hex(4)}{PART}")

    def __enter__(self) -> OutputFile:
        with ExitStack() as stack:
            stack.enter_context(self._guard)
            file = stack.enter_context(self._open())
            self._end = stack.pop_all()
        return file

    def __exit__(self, *raised: Any) -> None:
        self._end.__exit__(*raised)

    async def __aenter__(self) -> OutputFile:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._guard)
            file = stack.enter_context(self._open())
            self._aend = stack.pop_all()
        return file

    async def __aexit__(self, *raised: Any) -> None:
        await self._aend.__aexit__(*raised)

    @contextmanager
    def _open(self) -> Iterator[OutputFile]:
        self._delete_earlier()
        if self._effect.done:
            # This write is dropped. The directory may be gone since.
            with TemporaryFile(self._mode, encoding=self._encoding) as dropped:
                yield OutputFile(self._path, dropped, self._effect)
            return
        # Not by tempfile: only its owner could read the file.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._part, flags, 0o666)
        try:
            with os.fdopen(descriptor, self._mode, encoding=self._encoding) as stream:
                yield OutputFile(self._path, stream, self._effect)
            size = self._part.stat().st_size
            _sync(self._part)
            self._part.replace(self._path)
            _sync(self._path.parent)
            self._effect.result = {"path": str(self._path), "bytes": size}
        finally:
            self._part.unlink(missing_ok=True)

    def _delete_earlier(self) -> None:
        """Delete the parts that earlier claims of the job left, when their workers were killed."""
        if self._job is not None:
            begin = f"{self._stem}{self._job.id}-"
            for part in [*self._path.parent.glob(f"{escape(begin)}*{PART}")]:
                claim = part.name.removeprefix(begin).partition(".")[0]
                if claim.isdecimal() and int(claim) < self._job.claims:
                    part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Write a file, or the names in a directory, to disk: they survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
