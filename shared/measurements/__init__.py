"""One module a chapter: the cached functions that notebooks call."""

import importlib
import pkgutil


def load() -> None:
    """Import every chapter's module, so that all measurements are known to the store."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
