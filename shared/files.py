"""Writing files so that a reader sees the old one or the new one, never a part."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from shared import paths


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write ``content`` under a temporary name beside ``path``, sync it, rename it to ``path``."""
    content = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would keep other users from reading the cache
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock called ``name``, across processes; wait for whoever holds it."""
    paths.LOCKS.mkdir(parents=True, exist_ok=True)
    with FileLock(paths.LOCKS / f"{name}.lock"):
        yield


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be used, so that it is neither read again nor lost."""
    aside = path.with_name(path.name + ".damaged")
    return path.replace(aside)
