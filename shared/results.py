"""The small tracked file that says, of each figure, its verdicts and the records it shows."""

import json
from typing import Any

from shared import paths
from shared.errors import FailedRun
from shared.execution import Executed
from shared.figures import RECORD, Figure
from shared.files import locked, write_atomically
from shared.store import DamagedRecord, Record, read_record


def load() -> dict[str, dict[str, Any]]:
    """By figure: ``verdicts`` by claim, ``records`` (names below ``data_cache``), ``seconds`` by scale."""
    try:
        found = json.loads(paths.RESULTS.read_text(encoding="utf-8"))
        if all(entry.keys() == {"verdicts", "records", "seconds"} for entry in found.values()):
            return found
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        pass
    raise FailedRun(
        f"{paths.RESULTS} is damaged;\n`git checkout` restores it; without it, `book run --all` makes another"
    )


def save(figure: Figure, executed: Executed) -> None:
    """Write what the record run of a figure found; the file changes only when the findings do."""
    found = {
        "verdicts": {verdict["claim"]: verdict for verdict in executed.verdicts},
        "records": sorted(executed.records),
    }
    computing = round(sum(_seconds(name) for name in executed.records), 1)
    with locked("results"):
        before = load()
        seconds = before.get(figure.name, {}).get("seconds", {}) | {RECORD: computing}
        _replace(before, figure, found | {"seconds": seconds})


def save_time(figure: Figure, scale: str, seconds: float) -> None:
    """Write how long a figure took at a scale other than the record's, everything computed."""
    with locked("results"):
        before = load()
        entry = before.get(figure.name, {"verdicts": {}, "records": [], "seconds": {}})
        _replace(before, figure, entry | {"seconds": entry["seconds"] | {scale: round(seconds, 1)}})


def _replace(results: dict[str, Any], figure: Figure, entry: dict[str, Any]) -> None:
    if results.get(figure.name) != entry:
        text = json.dumps(results | {figure.name: entry}, indent=1, sort_keys=True)
        write_atomically(paths.RESULTS, text + "\n")


def _seconds(name: str) -> float:
    return read_record(paths.DATA_CACHE / name).provenance["seconds"]


def verdicts() -> dict[str, dict[str, Any]]:
    """Every verdict of the book by its claim."""
    return {claim: verdict for entry in load().values() for claim, verdict in entry["verdicts"].items()}


def records(figure: str) -> tuple[list[Record], list[str]]:
    """The stored records that a figure shows, and the names of those that are missing or damaged."""
    found, missing = [], []
    for name in load().get(figure, {}).get("records", []):
        try:
            found.append(read_record(paths.DATA_CACHE / name))
        except (FileNotFoundError, DamagedRecord):
            missing.append(name)
    return found, missing
