"""Keeps the built pages from loading anything from another host."""

from typing import Any

from sphinx.application import Sphinx


def remove_foreign_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Drop what an extension adds to a page for services that this book does not use."""
    context["script_files"] = [script for script in context["script_files"] if not _is_foreign(script)]


def _is_foreign(script: Any) -> bool:
    body = script.attributes.get("body") or ""
    return "thebe" in f"{script.filename} {body}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx; late, so that every other extension has added its scripts."""
    app.connect("html-page-context", remove_foreign_scripts, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
