"""The figures of the book: one notebook each, found by name."""

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shared import paths
from shared.errors import FailedRun, WrongRequest, nearest
from shared.parameters import ParameterCell, read_cell

RECORD = "record"


@dataclass(frozen=True)
class Figure:
    """One notebook; ``name`` is chapter/stem, for example ``spectral/fig03_learning_order``."""

    name: str

    @property
    def notebook(self) -> Path:
        """The source notebook."""
        return paths.NOTEBOOKS / f"{self.name}.ipynb"

    @property
    def page(self) -> Path:
        """The executed copy that the book shows."""
        return paths.FIGURES / f"{self.name}.ipynb"

    @functools.cached_property
    def cells(self) -> list[dict[str, Any]]:
        """The source notebook's cells."""
        return json.loads(self.notebook.read_text(encoding="utf-8"))["cells"]

    @property
    def title(self) -> str:
        """The first heading of the notebook."""
        for line in "".join(self.cells[0]["source"]).splitlines():
            if line.startswith("# "):
                return line.removeprefix("# ").strip()
        raise ValueError(f"{self.notebook} does not begin with a heading")

    @functools.cached_property
    def parameter_cell(self) -> ParameterCell:
        """What the notebook's parameter cell declares."""
        tagged = [c for c in self.cells if "parameters" in c["metadata"].get("tags", [])]
        if len(tagged) != 1:
            raise ValueError(f"{self.notebook} has {len(tagged)} cells tagged parameters, not one")
        return read_cell("".join(tagged[0]["source"]))

    @functools.cached_property
    def presets(self) -> dict[str, dict[str, Any]]:
        """What differs from the parameter cell at each scale, by the scale's name."""
        declared = _declared_presets().get(self.name) or {}
        return {RECORD: {}} | {name: values or {} for name, values in declared.items()}


def _declared_presets() -> dict[str, Any]:
    try:
        found = yaml.safe_load(paths.PRESETS.read_text(encoding="utf-8"))
        if all(isinstance(presets, dict | None) for presets in found.values()):
            return found
        reason = "a figure's presets are not a mapping"
    except (OSError, yaml.YAMLError, AttributeError) as error:
        reason = str(error).splitlines()[0]
    raise FailedRun(f"{paths.PRESETS} cannot be read: {reason}")


def all_figures() -> list[Figure]:
    """Every figure, by chapter and number."""
    files = sorted(paths.NOTEBOOKS.glob("*/*.ipynb"))
    return [Figure(f"{file.parent.name}/{file.stem}") for file in files]


def find(request: str) -> Figure:
    """The figure that a person means by its name, its stem or an unambiguous beginning of either.

    Raises:
        WrongRequest: no figure, or more than one, is called so.
    """
    wanted = request.removesuffix(".ipynb").removeprefix("notebooks/")
    names = [figure.name for figure in all_figures()]
    spelled = {name: {name, name.split("/")[1]} for name in names}
    exact = [name for name in names if wanted in spelled[name]]
    begun = [name for name in names if any(spelling.startswith(wanted) for spelling in spelled[name])]
    matches = exact or begun
    if wanted and len(matches) == 1:
        return Figure(matches[0])
    if wanted and matches:
        raise WrongRequest(f"{request!r} could be any of {', '.join(matches)}")
    raise WrongRequest(f"no figure is called {request!r}; {nearest(wanted, names)}")
