"""Executing one notebook through papermill, in the interpreter that asks for it."""

import contextlib
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared import paths
from shared.claims import VERDICT_KEY
from shared.errors import FailedRun
from shared.figures import Figure
from shared.files import write_atomically
from shared.provenance import now, package_versions
from shared.report import RECORDS_KEY
from shared.values import canonical_json

KERNEL_COMMAND = [
    "-Xfrozen_modules=off",
    "-m",
    "ipykernel_launcher",
    "-f",
    "{connection_file}",
    "--log-level=CRITICAL",
]
# Cells that papermill adds to the source's own, which are the ones a message counts.
ADDED_TAGS = {"papermill-error-cell-tag", "injected-parameters"}
LINES_OF_AN_ERROR = 2
METADATA_KEY = "relu_book"


@dataclass(frozen=True)
class Executed:
    """An executed notebook: where it lies, the verdicts it reached and the records it used."""

    path: Path
    verdicts: list[dict[str, Any]]
    records: list[str]
    was_current: bool


@dataclass(frozen=True)
class Request:
    """One notebook to execute.

    Attributes:
        figure: its source.
        values: of all parameters, checked.
        label: how the page calls this run: ``record``, another preset, or ``changed parameters``.
        output: the executed copy.
        fresh: whether stored records are computed again.
        jobs: worker processes of each sweep; None for as many as the cores allow.
    """

    figure: Figure
    values: Mapping[str, Any]
    label: str
    output: Path
    fresh: bool = False
    jobs: int | None = None

    @property
    def injected(self) -> dict[str, Any]:
        """The values that differ from the parameter cell."""
        return {n: v for n, v in self.values.items() if v != self.figure.parameter_cell.parameters[n].default}

    def inputs_digest(self) -> str:
        """Hash of everything but the records that the executed notebook depends on."""
        digest = hashlib.sha256(self.figure.notebook.read_bytes())
        digest.update(
            canonical_json([self.label, dict(self.values), package_versions(), sys.version]).encode()
        )
        for source in [paths.CLAIMS, *sorted(paths.PACKAGE.rglob("*.py"))]:
            digest.update(source.relative_to(paths.ROOT).as_posix().encode() + b"\0" + source.read_bytes())
        return digest.hexdigest()


def execute(request: Request, progress_file: Path | None = None) -> Executed:
    """Execute a notebook, unless its executed copy is up to date.

    The copy appears under its name only when every cell has run; until then an earlier one stays.

    Args:
        request: what to execute.
        progress_file: receives the progress of the sweeps inside, one JSON line a step.

    Raises:
        FailedRun: a cell raised, the kernel died, or it ended before the last cell; the message
            names notebook, cell and error, and where the unfinished copy lies.
    """
    current = None if request.fresh else _current(request)
    if current:
        return current
    import papermill  # a second of imports that a refusal must not wait for

    # What these would say of a failed or interrupted run is said better below.
    for name in ("papermill", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)

    since = _fresh_since(request)
    inputs = request.inputs_digest()  # before the run, lest a change during it pass for up to date
    with tempfile.TemporaryDirectory(prefix="relu-book-") as scratch:
        partial = Path(scratch) / "executed.ipynb"
        error: BaseException | None = None
        try:
            with _kernel_environment(request, since, Path(scratch), progress_file):
                papermill.execute_notebook(
                    str(request.figure.notebook),
                    str(partial),
                    parameters=request.injected,
                    kernel_name="python3",
                    progress_bar=False,
                    cwd=str(paths.ROOT),
                )
        except Exception as raised:  # a kernel can die in many ways; all of them are a failed run
            error = raised
        notebook = json.loads(partial.read_text(encoding="utf-8")) if partial.exists() else {"cells": []}
        _refuse_unfinished(request, notebook, error)
        _fresh_mark(request).unlink(missing_ok=True)
        return _publish(request, notebook, inputs)


def _fresh_since(request: Request) -> str:
    """The time before which records do not count; that of an interrupted fresh run is taken up again."""
    if not request.fresh:
        return ""
    mark = _fresh_mark(request)
    if not mark.exists():
        write_atomically(mark, now())
    return mark.read_text(encoding="utf-8")


def _fresh_mark(request: Request) -> Path:
    key = canonical_json([request.label, dict(request.values), str(request.output)])
    return paths.RUNS / "fresh" / hashlib.sha256(key.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _kernel_environment(
    request: Request, since: str, scratch: Path, progress_file: Path | None
) -> Iterator[None]:
    """Make ``python3`` mean this interpreter, keep the user's IPython files out, pass the run's facts."""
    spec = scratch / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    command = {"argv": [sys.executable, *KERNEL_COMMAND], "display_name": "Python 3", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps(command), encoding="utf-8")
    changes = {
        "JUPYTER_PATH": str(spec.parents[1]),
        "IPYTHONDIR": str(scratch / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join([str(paths.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "BOOK_RUN": request.label,
        "BOOK_JOBS": str(request.jobs or 0),
        "BOOK_FRESH": since,
        "BOOK_PROGRESS": str(progress_file or os.devnull),
    }
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _refuse_unfinished(request: Request, notebook: dict[str, Any], error: BaseException | None) -> None:
    """Raise unless every code cell has run to its end without an error.

    papermill takes ``sys.exit()`` for success and may miss a kernel that ends quietly, so the
    executed copy itself is asked.
    """
    source = [c for c in notebook["cells"] if not ADDED_TAGS & set(c["metadata"].get("tags", []))]
    cells = [(index, cell) for index, cell in enumerate(source, start=1) if cell["cell_type"] == "code"]
    for index, cell in cells:
        outputs = [output for output in cell["outputs"] if output["output_type"] == "error"]
        if outputs:
            what = f"{outputs[0]['ename']}: {outputs[0]['evalue']}".strip().rstrip(":")
            raise _failure(request, notebook, index, cell, what)
        replied = "shell.execute_reply" in cell["metadata"].get("execution", {})
        if "".join(cell["source"]).strip() and not replied:
            reason = f"{type(error).__name__}" if error else "the notebook ended early"
            raise _failure(
                request, notebook, index, cell, f"the kernel ended before this cell did ({reason})"
            )
    if error or not cells:
        raise FailedRun(f"{request.figure.name}: {error or 'nothing was executed'}")


def _failure(
    request: Request, notebook: dict[str, Any], index: int, cell: dict[str, Any], what: str
) -> FailedRun:
    kept = paths.RUNS / "failed" / f"{request.figure.name}.ipynb"
    write_atomically(kept, json.dumps(notebook))
    first_line = "".join(cell["source"]).strip().split("\n")[0]
    what = "\n".join(what.splitlines()[:LINES_OF_AN_ERROR])
    return FailedRun(
        f"{request.figure.name}, cell {index} ({first_line}): {what}\n"
        f"The unfinished copy is {kept.relative_to(paths.ROOT)}"
    )


def _publish(request: Request, notebook: dict[str, Any], inputs: str) -> Executed:
    """Write the executed copy under its name, with what tells later whether it is up to date."""
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)  # times: two equal runs leave equal copies
        cell["metadata"].pop("execution", None)
    records = [name for names in _outputs(notebook, RECORDS_KEY) for name in names]
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        METADATA_KEY: {
            "run": request.label,
            "inputs": inputs,
            "cells": _cells_digest(notebook),
            "records": {name: _file_digest(paths.DATA_CACHE / name) for name in records},
        },
    }
    write_atomically(request.output, json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return Executed(request.output, list(_outputs(notebook, VERDICT_KEY)), records, was_current=False)


def _current(request: Request) -> Executed | None:
    """The executed copy, if neither its inputs nor its records have changed since."""
    try:
        notebook = json.loads(request.output.read_text(encoding="utf-8"))
        facts = notebook["metadata"][METADATA_KEY]
        changed = (
            facts["inputs"] != request.inputs_digest()
            or facts["cells"] != _cells_digest(notebook)
            or any(_file_digest(paths.DATA_CACHE / name) != d for name, d in facts["records"].items())
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # gone, or none of ours
        return None
    if changed:
        return None
    verdicts = list(_outputs(notebook, VERDICT_KEY))
    return Executed(request.output, verdicts, list(facts["records"]), was_current=True)


def _outputs(notebook: dict[str, Any], key: str) -> Iterator[Any]:
    """What the outputs of a notebook hold under a key of their metadata."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if key in output.get("metadata", {}):
                yield output["metadata"][key]


def _cells_digest(notebook: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(notebook["cells"], sort_keys=True).encode()).hexdigest()


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
