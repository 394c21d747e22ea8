"""How a result came about: when, for how long, on what machine, with what code and libraries."""

import contextlib
import datetime
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import paths

PACKAGES = ("numpy", "torch", "torchvision", "scipy")


@contextlib.contextmanager
def timed() -> Iterator[dict[str, Any]]:
    """Yield a dictionary that holds start, finish (UTC) and seconds once the block has ended."""
    timing = {"started": now()}
    start = time.perf_counter()
    yield timing
    timing |= {"finished": now(), "seconds": round(time.perf_counter() - start, 3)}


def now() -> str:
    """The time now, UTC, to the microsecond; later times sort after earlier ones."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def environment(device: str) -> dict[str, Any]:
    """The machine, device, threads, execution mode, versions and commit of this process."""
    import torch

    from shared.devices import device_name, resolve_device

    resolved = resolve_device(device)
    return {
        "device": resolved.type,
        "device_name": device_name(resolved),
        "threads": torch.get_num_threads(),
        "mode": os.environ.get("BOOK_EXECUTION_MODE", "one process"),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | package_versions(),
        "commit": commit(),
    }


@functools.cache
def package_versions() -> dict[str, str]:
    """Versions of the libraries that a number can depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


@functools.cache
def processor() -> str:
    """The processor's name as its maker writes it, or the architecture where it is not to be had."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    return platform.processor() or platform.machine()


@functools.cache
def commit() -> str | None:
    """The commit of the project's checkout, with ``+`` where tracked files differ from it."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    call = ["git", "-C", str(paths.ROOT), *arguments]
    return subprocess.run(call, check=True, capture_output=True, text=True).stdout.strip()
