"""What the command prints of figures, parameters and records."""

from collections.abc import Iterator

from shared import claims, paths, results
from shared.figures import RECORD, Figure, all_figures
from shared.report import counted, duration, each, span


def rows() -> Iterator[list[str]]:
    """Figure, title, verdicts, recorded or not, and computing time at each scale that is known."""
    known = results.load()
    for figure in all_figures():
        names = known.get(figure.name, {}).get("records", [])
        here = [name for name in names if (paths.DATA_CACHE / name).exists()]
        if names:
            recorded = "yes" if len(here) == len(names) else f"{len(here)} of {len(names)}"
        else:
            recorded = "needs none" if _needs_none(figure) else "no"
        yield [figure.name, figure.title, _tally(figure), recorded, _times(figure)]


def _needs_none(figure: Figure) -> bool:
    """Whether the record run of a figure has computed everything on the page itself."""
    entry = results.load().get(figure.name, {"records": [], "seconds": {}})
    return RECORD in entry["seconds"] and not entry["records"]


def _tally(figure: Figure) -> str:
    verdicts = results.verdicts()
    names = [
        verdicts[claim]["verdict"] if claim in verdicts else claims.NOT_TESTED for claim in _claims(figure)
    ]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names)) or "none"


def _claims(figure: Figure) -> list[str]:
    return [claim for claim, entry in claims.registry().items() if entry["figure"] == figure.name]


def _times(figure: Figure) -> str:
    seconds = results.load().get(figure.name, {}).get("seconds", {})
    return ", ".join(f"{scale} {duration(seconds[scale])}" for scale in scales(figure) if scale in seconds)


def claim_lines(figure: Figure) -> Iterator[str]:
    """One line for each claim that a figure checks."""
    verdicts = results.verdicts()
    for claim in _claims(figure):
        verdict = verdicts.get(claim, {}).get("verdict", claims.NOT_TESTED)
        yield f"{claim}: {claims.registry()[claim]['claim']} {verdict}"


def scales(figure: Figure) -> list[str]:
    """The presets of a figure, the record first."""
    return list(figure.presets)


def parameter_lines(figure: Figure) -> Iterator[str]:
    """Each parameter as its line of the cell, what the presets make of it, and the conditions."""
    cell = figure.parameter_cell
    for name, parameter in cell.parameters.items():
        yield f"{name}: {parameter.type_text} = {parameter.default!r}  # {parameter.meaning}"
        for scale in scales(figure):
            if name in figure.presets[scale]:
                yield f"    {scale}: {figure.presets[scale][name]!r}"
    for condition in cell.conditions:
        yield f"required: {condition}"


MAIN_LIBRARIES = ("torch", "numpy", "python")
STATUS_HEADINGS = (
    "figure",
    "records",
    "size",
    "made",
    "computing time",
    "on",
    "threads",
    "libraries",
    "verified",
    "code",
)


def status_rows() -> Iterator[list[str]]:
    """For each figure a row under ``STATUS_HEADINGS``: what its records are and how they came about."""
    from shared.measurements import load

    load()  # knows the code that a record is compared with
    for figure in all_figures():
        found, missing = results.records(figure.name)
        facts = [record.provenance for record in found]
        stale = sum(record.stale for record in found)
        verified = [fact["verified"]["date"][:10] for fact in facts if "verified" in fact]
        yield [
            figure.name,
            str(len(found)),
            f"{sum(record.path.stat().st_size for record in found) / 1000:.0f} kB",
            span(fact["finished"][:10] for fact in facts) if facts else "",
            duration(sum(fact["seconds"] for fact in facts)),
            each(f"{fact['device_name']} ({fact['device']})" for fact in facts),
            each(fact["threads"] for fact in facts),
            each(", ".join(f"{name} {fact['versions'][name]}" for name in MAIN_LIBRARIES) for fact in facts),
            f"{len(verified)} {span(verified)}" if verified else "no",
            "needs no record" if _needs_none(figure) else _state(len(found), stale, len(missing)),
        ]


def _state(found: int, stale: int, missing: int) -> str:
    parts = [f"{counted(stale, 'record')} stale"] if stale else []
    parts += [f"{counted(missing, 'record')} missing or damaged"] if missing else []
    return ", ".join(parts) or ("unchanged" if found else "not recorded")
