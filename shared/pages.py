"""From executed notebooks to the browsable book: generated tables, strict build, one swap."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from shared import catalogue, claims, paths, results
from shared.errors import FailedRun
from shared.figures import all_figures
from shared.files import locked, write_atomically
from shared.report import counted

HTML = paths.BUILD / "html"
JUPYTER_BOOK = "from jupyter_book.cli.main import main; main()"
STAMP = paths.BUILD / "inputs"
LINES_OF_A_FAILED_BUILD = 12


def build(*, strict: bool = True) -> tuple[Path, bool]:
    """Build the book from the executed notebooks.

    The built book is replaced only when the new one is complete; without changes nothing is built.

    Args:
        strict: whether a warning fails the build.

    Returns:
        The first page, and whether it was up to date already.

    Raises:
        FailedRun: a figure has not been executed, or the build fails.
    """
    missing = [figure.name for figure in all_figures() if not figure.page.exists()]
    if missing:
        raise FailedRun(f"not executed yet: {', '.join(missing)}\n`book run --all` executes every figure")
    with locked("build"):
        write_generated_tables()
        inputs = f"{_inputs_digest()} {'strict' if strict else 'lenient'}"
        index = HTML / "index.html"
        if index.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == inputs:
            return index, True
        _swap(_sphinx(strict))
        write_atomically(STAMP, inputs)
    return index, False


def _inputs_digest() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(paths.BOOK.rglob("*")):
        if path.is_file() and paths.BUILD not in path.parents and "__pycache__" not in path.parts:
            digest.update(path.relative_to(paths.BOOK).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update((paths.ROOT / "requirements.lock").read_bytes())
    return digest.hexdigest()


def _sphinx(strict: bool) -> Path:
    """Build into a folder beside the built book, and return it."""
    staging = paths.BUILD / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", str(paths.BOOK), "--path-output", str(staging)]
    command += ["-W", "-n", "--keep-going"] if strict else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = staging / "_build" / "html"
    if done.returncode or not (found / "index.html").exists():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        telling = [line for line in lines if "WARNING" in line or "ERROR" in line] or lines
        raise FailedRun("the book does not build:\n" + "\n".join(telling[-LINES_OF_A_FAILED_BUILD:]))
    return found


def _swap(new: Path) -> None:
    old = paths.BUILD / "old"
    shutil.rmtree(old, ignore_errors=True)
    if HTML.exists():
        HTML.replace(old)
    new.replace(HTML)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(paths.BUILD / "staging", ignore_errors=True)


def write_generated_tables() -> None:
    """Write the tables that the claims page and the status page include."""
    for name, rows in {"claims": _claim_rows(), "status": _status_rows()}.items():
        target = paths.FIGURES / f"_{name}.md"
        text = "\n".join(rows) + "\n"
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            write_atomically(target, text)


def _claim_rows() -> Iterable[str]:
    """One row for each claim: in our words, published, ours, verdict, where it is shown."""
    verdicts = results.verdicts()
    counts = [verdicts.get(claim, {}).get("verdict", claims.NOT_TESTED) for claim in claims.registry()]
    tally = (f"{counts.count(v)} {v}" for v in dict.fromkeys([claims.REPRODUCED, claims.PARTLY, *counts]))
    yield f"{counted(len(counts), 'claim')}: {', '.join(tally)}.\n"
    yield "| claim | published or required | here | verdict | figure |"
    yield "|---|---|---|---|---|"
    titles = {figure.name: figure.title for figure in all_figures()}
    for claim, entry in sorted(claims.registry().items(), key=lambda item: item[1]["figure"]):
        verdict = verdicts.get(claim)
        link = f"[{titles[entry['figure']]}](/figures/{entry['figure']}.ipynb)"
        cells = [
            f"{entry['claim']} ({claims.sources()[entry['source']]}) `{claim}` {entry.get('note', '')}",
            claims.published_summary(entry),
            claims.measured_summary(verdict) if verdict else "",
            f"**{verdict['verdict']}** ({entry['scale']} scale)" if verdict else claims.NOT_TESTED,
            link,
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _status_rows() -> Iterable[str]:
    """One row for each figure: its records, what made them and whether they are up to date."""
    yield "| " + " | ".join(catalogue.STATUS_HEADINGS) + " |"
    yield "|---" * len(catalogue.STATUS_HEADINGS) + "|"
    for name, *cells in catalogue.status_rows():
        yield f"| [{name}](/figures/{name}.ipynb) | " + " | ".join(cells) + " |"
