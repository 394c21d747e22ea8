"""Running figures: requests checked before anything runs, then executed one after another."""

import base64
import contextlib
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from shared import paths, results
from shared.errors import WrongRequest, nearest
from shared.execution import Executed, Request, execute
from shared.figures import RECORD, Figure, all_figures, find
from shared.files import write_atomically
from shared.parameters import parse_assignments, resolve
from shared.progress import bar
from shared.report import duration
from shared.store import EXECUTION_ARGUMENTS
from shared.values import canonical_json

CHANGED = "changed parameters"


def plan(
    names: list[str],
    *,
    everything: bool,
    preset: str,
    assignments: list[str],
    fresh: bool,
    jobs: int | None,
    output: Path | None,
) -> list[Request]:
    """Check a request and say what is to be executed.

    Raises:
        WrongRequest: a figure, preset, parameter, value or output is refused; nothing has been run.
    """
    if bool(names) == everything:
        raise WrongRequest("name the figures to run, or give --all")
    figures = all_figures() if everything else [find(name) for name in names]
    if output and len(figures) != 1:
        raise WrongRequest(f"--output {output} takes one figure, not {len(figures)}")
    planned = []
    for figure in figures:
        if preset not in figure.presets:
            raise WrongRequest(f"{figure.name} has no preset {preset!r}; {nearest(preset, figure.presets)}")
        cell, settings = figure.parameter_cell, figure.presets[preset]
        values = resolve(cell, settings, parse_assignments(cell, assignments))
        _check_device(values)
        label = preset if _telling(values) == _telling(resolve(cell, settings)) else CHANGED
        target = _checked_output(output) if output else _default_output(figure, label, values)
        planned.append(Request(figure, values, label, target, fresh, jobs))
    return planned


def _telling(values: dict[str, Any]) -> dict[str, Any]:
    """The values that say what is computed; the others say on what."""
    return {name: value for name, value in values.items() if name not in EXECUTION_ARGUMENTS}


def _default_output(figure: Figure, label: str, values: dict[str, Any]) -> Path:
    if label == RECORD:
        return figure.page
    if label != CHANGED:
        return paths.RUNS / label / f"{figure.name}.ipynb"
    digest = hashlib.sha256(canonical_json(values).encode()).hexdigest()[:8]
    return paths.RUNS / "changed" / f"{figure.name}-{digest}.ipynb"


def _checked_output(output: Path) -> Path:
    output = output.absolute()
    folder = next(parent for parent in output.parents if parent.exists())
    if output.suffix != ".ipynb":
        raise WrongRequest(f"--output {output} is not the name of a notebook; it must end in .ipynb")
    if output.resolve().is_relative_to(paths.NOTEBOOKS):
        raise WrongRequest(f"--output {output} lies among the source notebooks, which a run never overwrites")
    if output.resolve().is_relative_to(paths.BOOK):
        raise WrongRequest(f"--output {output} lies in the book, whose pages show the record alone")
    if output.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise WrongRequest(f"--output {output} cannot be written: it is a folder, or {folder} is closed")
    return output


def _check_device(values: dict[str, Any]) -> None:
    """Refuse a device that this machine has not; only a device by name is worth the import of torch."""
    if values.get("device", "auto") not in ("auto", "cpu"):
        from shared.devices import UnknownDevice, resolve_device

        try:
            resolve_device(values["device"])
        except UnknownDevice as error:
            raise WrongRequest(str(error)) from None


def run(requests: list[Request], console: Console) -> None:
    """Execute requests in order and print, for each, where its executed copy lies.

    Figures of a run that is not the book's page are written beside the copy as images, too.

    Raises:
        FailedRun: a notebook failed; those before it are finished and kept.
    """
    for request in requests:
        start = time.perf_counter()
        with _shown_progress(request.figure.name, console) as progress_file:
            executed = execute(request, progress_file)
        if request.output == request.figure.page and request.label == RECORD:
            results.save(request.figure, executed)
        elif (
            request.fresh
            and request.label in request.figure.presets
            and request.output == _default_output(request.figure, request.label, {})
        ):
            results.save_time(request.figure, request.label, time.perf_counter() - start)
        if request.output != request.figure.page:
            save_images(executed.path)
        how = "unchanged" if executed.was_current else f"executed in {duration(time.perf_counter() - start)}"
        console.print(f"{request.figure.name} ({request.label}): {how}, {_shown(executed)}", markup=False)


def save_images(notebook: Path) -> list[Path]:
    """Write the figures of an executed notebook beside it, as NAME.1.png, NAME.2.png and so on."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    written = []
    for data in outputs:
        if "image/png" in data:
            written.append(notebook.with_suffix(f".{len(written) + 1}.png"))
            write_atomically(written[-1], base64.b64decode(data["image/png"]))
    return written


def _shown(executed: Executed) -> str:
    path = executed.path
    return str(path.relative_to(paths.ROOT) if path.is_relative_to(paths.ROOT) else path)


@contextlib.contextmanager
def _shown_progress(name: str, console: Console) -> Iterator[Path]:
    """Show what a notebook's sweeps report: as a bar in a terminal, as plain lines elsewhere."""
    with tempfile.TemporaryDirectory(prefix="relu-book-") as folder:
        file = Path(folder) / "progress"
        file.touch()
        ended = threading.Event()
        watch = threading.Thread(target=_watch, args=(file, name, console, ended))
        watch.start()
        try:
            yield file
        finally:
            ended.set()
            watch.join()


def _watch(file: Path, name: str, console: Console, ended: threading.Event) -> None:
    with file.open(encoding="utf-8") as lines:
        shown = bar(console) if console.is_terminal else None
        with shown or contextlib.nullcontext():
            tasks: dict[str, Any] = {}
            while True:
                last = ended.is_set()
                for line in lines:
                    step = json.loads(line)
                    if "message" in step:
                        console.print(f"{name}: {step['message']}", markup=False)
                    elif not shown:
                        text = f"{name}: {step['label']} {step['done']} of {step['total']}"
                        console.print(text, markup=False)
                    else:
                        if step["label"] not in tasks:
                            tasks[step["label"]] = shown.add_task(step["label"], total=step["total"])
                        shown.update(tasks[step["label"]], completed=step["done"])
                if last:
                    return
                ended.wait(0.2)
