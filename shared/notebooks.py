"""Source notebooks: outputs taken out before they are committed."""

import sys
from pathlib import Path

import nbformat


def clear_outputs(path: Path) -> bool:
    """Remove outputs and execution counts from a notebook; whether there were any."""
    notebook = nbformat.read(path, as_version=4)
    found = False
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            cell.outputs, cell.execution_count, found = [], None, True
    if found:
        nbformat.write(notebook, path)
    return found


if __name__ == "__main__":
    changed = [name for name in sys.argv[1:] if name.endswith(".ipynb") and clear_outputs(Path(name))]
    sys.exit(f"outputs removed from {', '.join(changed)}" if changed else 0)
