"""Errors that a person can act on; the ``book`` command prints them without a traceback."""

import difflib
from collections.abc import Iterable


class WrongRequest(Exception):
    """What was asked for does not exist or is not allowed; nothing has been run or written."""


class FailedRun(Exception):
    """Something that was asked for could not be completed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint at the known name nearest to ``name``, or at all of them where none is near."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
