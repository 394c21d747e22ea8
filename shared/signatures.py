"""The tracked list of every measurement's version, arguments and defaults.

Records are found by the arguments that differ from the defaults, so a default that changes without
its version would make old records answer new questions. The list makes such a change visible.
"""

import json
import sys
from typing import Any

from shared import paths
from shared.files import write_atomically
from shared.measurements import load
from shared.store import MEASUREMENTS

Signatures = dict[str, dict[str, Any]]


def tracked() -> Signatures:
    """The list as it is tracked."""
    try:
        return json.loads(paths.SIGNATURES.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def current() -> Signatures:
    """The list as today's code has it."""
    load()
    return {name: measurement.signature() for name, measurement in sorted(MEASUREMENTS.items())}


def unversioned_changes(before: Signatures, after: Signatures) -> list[str]:
    """Measurements whose records a change orphans or misleads although the version stayed.

    A new argument with a default is no such change: old records keep their keys and their meaning.
    """
    found = []
    for name, old in before.items():
        new = after.get(name)
        if new is None or new["version"] != old["version"]:
            continue
        kept = all(new["arguments"].get(argument) == kind for argument, kind in old["arguments"].items())
        same = all(new["defaults"].get(argument) == value for argument, value in old["defaults"].items())
        added = new["arguments"].keys() - old["arguments"].keys()
        if not (kept and same and added <= new["defaults"].keys()):
            found.append(name)
    return found


def main() -> None:
    """Write the list, unless a measurement has changed without its version."""
    before, after = tracked(), current()
    changed = unversioned_changes(before, after)
    if changed:
        sys.exit(f"raise the version of {', '.join(changed)}: arguments or defaults have changed")
    write_atomically(paths.SIGNATURES, json.dumps(after, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
