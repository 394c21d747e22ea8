"""Fixtures: a store of its own for a test, and a small project to run the command in."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from shared import paths, store

# Arguments of the learning order that take a fraction of a second.
SMALL_RUN = {
    "frequencies": [1, 2],
    "amplitudes": [1.0, 0.5],
    "points": 16,
    "width": 8,
    "layers": 4,
    "steps": 20,
    "every": 10,
}

SAMPLE_MEASUREMENT = '''
import pathlib
import time

import numpy as np

from shared.store import Arrays, measurement

FACTOR = 2.0
CALLS = pathlib.Path(__file__).parents[2] / "calls.txt"


@measurement(version=1, outcomes=("scaled",))
def scaled(*, values: list[float], wait: float = 0.0, seed: int = 0, device: str = "auto") -> Arrays:
    """Multiply; take down that it was called."""
    with CALLS.open("a") as calls:
        calls.write(f"{seed}\\n")
    time.sleep(wait)
    noise = np.random.default_rng(seed).normal(size=len(values))
    return {"scaled": FACTOR * np.asarray(values) + 0.01 * noise}
'''

SAMPLE_PARAMETERS = """
values: list[float] = [1.0, 2.0]  # to be scaled
steps: int = 2  # runs
wait: float = 0.0  # seconds a run
device: str = "auto"  # auto or cpu
# require 1 <= steps <= 100 and wait >= 0
"""

SAMPLE_CLAIMS = """
sources:
  text: A text
claims:
  sample.scaled:
    figure: sample/fig01_scaled
    source: text
    place: its only line
    claim: Twice two is four.
    scale: full
    size: {statistic: mean over runs, unit: one, published: [2.0, 4.0], reading: 0.05, known: stated}
"""


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Measurements, checkpoints and locks of this test alone."""
    for name in ("MEASUREMENTS", "LOCAL_MEASUREMENTS", "CHECKPOINTS", "LOCKS"):
        monkeypatch.setattr(paths, name, tmp_path / name.lower())
    monkeypatch.setattr(paths, "IDENTITIES", tmp_path / "identities.json")
    monkeypatch.setattr(store, "used_records", {})
    monkeypatch.delenv("BOOK_RUN", raising=False)
    monkeypatch.delenv("BOOK_FRESH", raising=False)
    return tmp_path


class Project:
    """A copy of the package with one sample figure, in a folder with an awkward name."""

    def __init__(self, root: Path):
        self.root = root
        self.notebook = root / "notebooks" / "sample" / "fig01_scaled.ipynb"
        self.page = root / "book" / "figures" / "sample" / "fig01_scaled.ipynb"
        self.environment = os.environ | {"PYTHONPATH": str(root), "COLUMNS": "200"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "shared.cli", *arguments]

    def book(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the ``book`` command of this copy."""
        return subprocess.run(
            self.command(*arguments), cwd=cwd or self.root, env=self.environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip

    def write_notebook(self, *cells: str) -> None:
        """Write the sample notebook: heading, parameters, then these code cells."""
        parameters = new_code_cell(SAMPLE_PARAMETERS.strip(), metadata={"tags": ["parameters"]})
        body = [new_code_cell(source) for source in cells]
        notebook = new_notebook(cells=[new_markdown_cell("# Twice"), parameters, *body])
        notebook.metadata["kernelspec"] = {
            "name": "no-such-kernel",
            "display_name": "none",
            "language": "julia",
        }
        self.notebook.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, self.notebook)

    def files(self) -> set[Path]:
        """Every file below the root but caches of Python and locks."""
        return {
            path for path in self.root.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".lock")
        }

    def calls(self) -> int:
        """How often the sample measurement has been computed."""
        file = self.root / "calls.txt"
        return len(file.read_text().splitlines()) if file.exists() else 0


MEASURE = """
import numpy as np
from shared.claims import judge
from shared.measurements.sample import scaled
from shared.report import provenance_line
from shared.statistics import over_seeds
from shared.sweep import stacked, sweep

runs = [{"values": values, "wait": wait, "seed": seed, "device": device} for seed in range(steps)]
found = stacked(sweep(scaled, runs))["scaled"]
print(found.tobytes().hex())
"""
JUDGE = 'judge("sample.scaled", size=over_seeds(lambda a: a.mean(axis=0), found))'
LINE = "provenance_line()"


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[[], Project]:
    """Builds small projects; the first cells measure, judge and say where the numbers come from."""

    def make(name: str = "ein Büchlein") -> Project:
        root = tmp_path / name
        shutil.copytree(paths.PACKAGE, root / "shared", ignore=shutil.ignore_patterns("__pycache__"))
        for module in (root / "shared" / "measurements").glob("[!_]*.py"):
            module.unlink()
        (root / "shared" / "measurements" / "sample.py").write_text(SAMPLE_MEASUREMENT)
        project = Project(root)
        (root / "book").mkdir()
        (root / "book" / "claims.yaml").write_text(SAMPLE_CLAIMS)
        project.write_notebook(MEASURE, JUDGE, LINE)
        presets = "sample/fig01_scaled:\n  smoke: {steps: 1}\n"
        (root / "notebooks" / "presets.yaml").write_text(presets)
        return project

    return make


@pytest.fixture
def project(make_project: Callable[[], Project]) -> Project:
    return make_project()
