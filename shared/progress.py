"""Progress of long work: a bar in a terminal, plain lines elsewhere, nothing in a built page.

A notebook that the ``book`` command executes runs in a process of its own, whose output becomes the
page. It therefore writes its progress, one JSON line a step, to the file named in ``BOOK_PROGRESS``;
the command reads the file and shows it.
"""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def notify(message: str) -> None:
    """Tell the person who started the work something that is no part of its result."""
    if os.environ.get("BOOK_PROGRESS"):
        _write({"message": message})
    else:
        warnings.warn(message, stacklevel=3)


def _write(step: dict[str, object]) -> None:
    with Path(os.environ["BOOK_PROGRESS"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(step) + "\n")


@contextlib.contextmanager
def progress(label: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """Show the progress of ``total`` steps, ``done`` of them already made; yields the next step."""
    show = _to_file if os.environ.get("BOOK_PROGRESS") else _to_terminal
    if done == total:
        yield lambda: None
        return
    with show(label, total, done) as advance:
        yield advance


@contextlib.contextmanager
def _to_file(label: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    count = done

    def advance() -> None:
        nonlocal count
        count += 1
        _write({"label": label, "done": count, "total": total})

    _write({"label": label, "done": count, "total": total})
    yield advance


@contextlib.contextmanager
def _to_terminal(label: str, total: int, done: int) -> Iterator[Callable[[], None]]:
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        count = done

        def advance() -> None:
            nonlocal count
            count += 1
            console.print(f"{label}: {count} of {total}", highlight=False)

        yield advance
        return
    with bar(console) as shown:
        task = shown.add_task(label, total=total, completed=done)
        yield lambda: shown.advance(task)


def bar(console: Console) -> Progress:
    """The progress bar of the project."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        console=console, transient=True,
    )  # fmt: skip
