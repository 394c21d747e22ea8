"""Every notebook: its form, its presets, and a run at smoke scale."""

import ast
import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from shared import paths
from shared.figures import all_figures, find
from shared.notebooks import clear_outputs
from shared.parameters import resolve

FIGURES = all_figures()
LONGEST_CELL = 30
figures = pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)


def code_cells(figure):
    return [cell for cell in figure.cells if cell["cell_type"] == "code"]


def source(cell) -> str:
    return "".join(cell["source"])


def test_there_are_figures():
    assert FIGURES


@figures
def test_it_is_in_the_table_of_contents(figure):
    contents = (paths.BOOK / "_toc.yml").read_text()
    assert f"file: figures/{figure.name}\n" in contents


@figures
def test_it_carries_no_outputs(figure):
    for cell in code_cells(figure):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@figures
def test_it_has_the_parts_of_a_page(figure):
    text = "\n".join(source(cell) for cell in figure.cells if cell["cell_type"] == "markdown")
    assert figure.title
    for heading in (
        "**The claim.**",
        "**What is measured.**",
        "## Claims",
        "## How far to trust it",
        "{cite",
    ):
        assert heading in text
    assert "provenance_line()" in source(figure.cells[-1])
    assert figure.parameter_cell.parameters["device"].default == "auto"


@figures
def test_cells_are_short_and_prose_carries_the_argument(figure):
    lengths = [len(source(cell).splitlines()) for cell in code_cells(figure)]
    assert max(lengths) <= LONGEST_CELL
    assert sorted(lengths)[len(lengths) // 2] <= 12, "median"
    prose = sum(len(source(cell).split()) for cell in figure.cells if cell["cell_type"] == "markdown")
    visible = [c for c in code_cells(figure) if "hide-input" not in c["metadata"].get("tags", [])]
    assert prose >= 50 * len(visible)


@figures
def test_its_figures_have_captions_and_text_alternatives(figure):
    drawing = [cell for cell in code_cells(figure) if "new_figure" in source(cell)]
    assert drawing
    for cell in drawing:
        settings = cell["metadata"]["mystnb"]
        assert len(settings["figure"]["caption"]) > 40
        assert settings["figure"]["name"].startswith("fig-")
        assert len(settings["image"]["alt"]) > 40


@figures
def test_it_defines_nothing_long(figure):
    for cell in code_cells(figure):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno <= 4, node.name


def test_presets_are_of_notebooks_that_exist():
    declared = yaml.safe_load(paths.PRESETS.read_text())
    assert declared.keys() == {figure.name for figure in FIGURES}


@figures
def test_its_presets_and_its_own_values_are_allowed(figure):
    assert {"record", "smoke", "paper"} == figure.presets.keys()
    for preset in figure.presets.values():
        values = resolve(figure.parameter_cell, preset)
        assert values.keys() == figure.parameter_cell.parameters.keys()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of what a run reads, so that it writes to a store of its own."""
    root = tmp_path_factory.mktemp("copy of the project")
    for folder in (paths.PACKAGE, paths.NOTEBOOKS):
        shutil.copytree(folder, root / folder.name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "book").mkdir()
    shutil.copy(paths.CLAIMS, root / "book")
    (root / "data_cache" / "datasets").mkdir(parents=True)
    shutil.copy(paths.DATASETS / "fashion_mnist_small.npz", root / "data_cache" / "datasets")
    return root


@figures
def test_it_runs_at_smoke_scale(figure, copy):
    done = subprocess.run(
        [sys.executable, "-m", "shared.cli", "run", figure.name, "--preset", "smoke", "-j", "1"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads((copy / "runs" / "smoke" / f"{figure.name}.ipynb").read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert not [out for out in outputs if out["output_type"] == "stream"], "a page shows no streams"
    images = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(images) == sum("new_figure" in source(cell) for cell in code_cells(figure))


def test_a_figure_is_found_by_any_unambiguous_name():
    name = FIGURES[0].name
    for spelling in (name, name.split("/")[1], name[:14], f"notebooks/{name}.ipynb"):
        assert find(spelling).name == name


def test_outputs_are_cleared(tmp_path):
    notebook = json.loads(FIGURES[0].notebook.read_text())
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(notebook))
    assert not clear_outputs(path)
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]
    cell["execution_count"] = 3
    path.write_text(json.dumps(notebook))
    assert clear_outputs(path)
    assert not clear_outputs(path)
