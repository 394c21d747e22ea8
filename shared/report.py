"""What a page says of the numbers it shows: prose with numbers, and the provenance line."""

from dataclasses import dataclass
from typing import Any

from shared import paths
from shared.store import Record, used_records

RECORDS_KEY = "relu_book_records"  # in the metadata of an output


@dataclass(frozen=True)
class Prose:
    """Markdown whose numbers come from the run."""

    text: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/markdown": self.text, "text/plain": self.text}


@dataclass(frozen=True)
class Provenance:
    """The last line of a page: which records it shows, and how they came about."""

    records: tuple[Record, ...]

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        text = describe(self.records)
        names = [record.path.relative_to(paths.DATA_CACHE).as_posix() for record in self.records]
        return {"text/markdown": text, "text/plain": text}, {RECORDS_KEY: names}


def provenance_line() -> Provenance:
    """The provenance of every record that this notebook has used so far."""
    return Provenance(tuple(used_records.values()))


def describe(records: tuple[Record, ...]) -> str:
    """When, for how long, on what and with what the records were made, and whether they are stale."""
    if not records:
        return "*Provenance.* Everything on this page was computed when the page was made."
    details = [record.provenance for record in records]
    stale = sum(record.stale for record in records)
    threads = each(counted(d["threads"], "thread") for d in details)
    sentences = [
        "*Provenance.*",
        f"**Stale:** the code has changed since {counted(stale, 'of these records', 'of these records')} "
        "came about; `book verify` measures again and compares."
        if stale
        else "",
        f"{counted(len(records), 'record')} of {each(d['measurement'] for d in details)}, made",
        f"{span(d['finished'][:10] for d in details)} in {duration(sum(d['seconds'] for d in details))}",
        f"of computing on {each(d['device_name'] for d in details)} ({threads} a run),",
        f"with torch {each(d['versions']['torch'] for d in details)}",
        f"and Python {each(d['versions']['python'] for d in details)},",
        f"at commit {each((d['commit'] or 'unknown')[:10] for d in details)}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """``1 record``, ``2 records``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def each(values: Any) -> str:
    """The distinct values, in order of first appearance, as a list in a sentence."""
    return ", ".join(dict.fromkeys(str(value) for value in values))


def span(dates: Any) -> str:
    """One date, or the first and the last of several."""
    ordered = sorted(set(dates))
    return f"on {ordered[0]}" if len(ordered) == 1 else f"between {ordered[0]} and {ordered[-1]}"


def duration(seconds: float) -> str:
    """A time as a person says it."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.2g} s"
