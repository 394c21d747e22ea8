"""The claims of the sources: their registry, and verdicts computed from measurements."""

import functools
import html
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from shared import paths
from shared.statistics import Estimate, number

VERDICT_KEY = "relu_book_verdict"  # in the metadata of an output
SIZE_TOLERANCE = 0.10  # of the published value
ROUNDING = 1e-12  # errors below it are those of a processor's arithmetic, and not shown as they are

REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_TESTED = (
    "reproduced",
    "partly reproduced",
    "not reproduced",
    "not tested at this scale",
)


@functools.cache
def registry() -> dict[str, dict[str, Any]]:
    """Every claim of ``claims.yaml`` by its id."""
    return yaml.safe_load(paths.CLAIMS.read_text(encoding="utf-8"))["claims"]


@functools.cache
def sources() -> dict[str, str]:
    """The titles of the sources by their keys."""
    return yaml.safe_load(paths.CLAIMS.read_text(encoding="utf-8"))["sources"]


def direction_holds(estimate: Estimate, *, null_value: float, sign: int) -> bool:
    """Whether the interval excludes the null on the claimed side."""
    return bool(estimate.low > null_value if sign > 0 else estimate.high < null_value)


def size_holds(
    estimate: Estimate, *, published: list[float], reading: float, side: str | None = None
) -> np.ndarray:
    """Where the published value [K] is in our interval, or ours within the reading error or 10 % of it.

    With ``side="at least"`` a larger value of ours is within it too.
    """
    target = np.asarray(published, dtype=float)
    ours, low, high = (np.reshape(a, target.shape) for a in (estimate.value, estimate.low, estimate.high))
    near = np.abs(ours - target) <= max(reading, SIZE_TOLERANCE) * np.abs(target)
    # An unbounded interval, of a single seed, says nothing.
    inside = (low <= target) & (target <= high) & np.isfinite(low) & np.isfinite(high)
    above = (ours >= target) if side == "at least" else np.zeros_like(near)
    return near | inside | above


def combine(direction: bool | None, size: np.ndarray | None, identity: bool | None, scale: str) -> str:
    """The verdict from the parts that a claim has (None where it lacks one)."""
    if identity is not None:
        return REPRODUCED if identity else NOT_REPRODUCED
    if size is None:
        return REPRODUCED if direction else NOT_REPRODUCED
    if size.all() and direction is not False:
        return REPRODUCED if scale == "full" else PARTLY
    return PARTLY if direction else NOT_REPRODUCED


def published_values(claim: str) -> tuple[list[Any], list[float]]:
    """Labels and published values of a claim's size part, for drawing them beside ours."""
    size = registry()[claim]["size"]
    return size.get("labels", []), size["published"]


@dataclass(frozen=True)
class Verdict:
    """What a claim's criterion says of a measurement; shown as a box on the page."""

    claim: str
    verdict: str
    parts: dict[str, dict[str, Any]]
    samples: int

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return {"text/html": claim_box(self), "text/plain": self.summary}, {VERDICT_KEY: self.as_json()}

    @property
    def summary(self) -> str:
        """The claim and its verdict in one line."""
        return f"{self.claim}: {self.verdict}"

    def as_json(self) -> dict[str, Any]:
        """The verdict as JSON-able data, with numbers rounded to what they mean."""
        return {
            "claim": self.claim,
            "verdict": self.verdict,
            "parts": self.parts,
            "samples": self.samples,
        }


def judge(
    claim: str,
    *,
    direction: Estimate | None = None,
    size: Estimate | None = None,
    identity: float | None = None,
) -> Verdict:
    """Compare measurements with the criteria of a claim.

    Args:
        claim: its id in ``claims.yaml``.
        direction: estimate of the statistic of its direction part.
        size: estimate, scalar or [K], of the statistic of its size part.
        identity: error that its identity part bounds.

    Raises:
        KeyError: there is no such claim.
        ValueError: a part that the claim has was not given, or one was given that it has not.
    """
    entry = registry()[claim]
    given = {"direction": direction, "size": size, "identity": identity}
    for part, value in given.items():
        if (part in entry) != (value is not None):
            raise ValueError(f"{claim}: part {part!r} was {'not ' if part in entry else ''}given")
    if size is not None and size.value.size != len(entry["size"]["published"]):
        return Verdict(claim, NOT_TESTED, {}, size.samples)  # other parameters than the source's
    held: dict[str, Any] = {"direction": None, "size": None, "identity": None}
    parts: dict[str, dict[str, Any]] = {}
    if direction is not None:
        held["direction"] = direction_holds(direction, **_pick(entry["direction"], "null_value", "sign"))
        parts["direction"] = _part(direction, held["direction"])
    if size is not None:
        held["size"] = size_holds(size, **_pick(entry["size"], "published", "reading", "side"))
        parts["size"] = _part(size, held["size"])
    if identity is not None:
        held["identity"] = bool(identity <= entry["identity"]["tolerance"])
        shown = max(identity, ROUNDING) if identity else identity
        parts["identity"] = {"value": [_round(shown)], "holds": [held["identity"]]}
    samples = next((e.samples for e in (direction, size) if e is not None), 1)
    return Verdict(claim, combine(**held, scale=entry["scale"]), parts, samples)


def _pick(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry[name] for name in names if name in entry}


def _part(estimate: Estimate, holds: bool | np.ndarray) -> dict[str, Any]:
    ends = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    rounded = {name: [_round(entry) for entry in np.ravel(array)] for name, array in ends.items()}
    return rounded | {"holds": [bool(entry) for entry in np.ravel(holds)]}


def _round(value: float) -> float | str:
    """Four digits: enough to read, few enough to be the same on every machine. JSON has no inf."""
    rounded = float(f"{value:.4g}")
    return rounded if np.isfinite(rounded) else str(rounded)


def claim_box(verdict: Verdict) -> str:
    """The box on a figure's page: the claim, what was published, what was measured, the verdict."""
    entry = registry()[verdict.claim]
    rows = "".join(_rows(entry, verdict))
    place = f"{sources()[entry['source']]}: {entry['place']}"
    return (
        f'<div class="claim claim-{verdict.verdict.split()[0]}" id="{html.escape(verdict.claim)}">'
        f'<p class="claim-verdict">{verdict.verdict}</p>'
        f"<p>{html.escape(entry['claim'])}</p>"
        "<table><thead><tr><th>quantity</th><th>published or required</th><th>here</th><th>95 % interval</th>"
        f"<th>holds</th></tr></thead><tbody>{rows}</tbody></table>"
        f"{_note(entry)}{_not_counted()}"
        f'<p class="claim-source">{html.escape(place)}. {_how_known(entry)}'
        f"{_tested(entry, verdict)}"
        f"Claim <code>{html.escape(verdict.claim)}</code>.</p></div>"
    )


def _note(entry: dict[str, Any]) -> str:
    return f"<p>{html.escape(entry['note'])}</p>" if "note" in entry else ""


def _tested(entry: dict[str, Any], verdict: Verdict) -> str:
    """At what scale, and what the interval is over; a run that is not the record has no claim to a scale."""
    if "identity" in entry or os.environ.get("BOOK_RUN") != "record":
        return ""
    unit = entry.get("over", "seeds")
    samples = f" with {verdict.samples} {unit}" if verdict.samples > 1 else ""
    return f"Tested at {entry['scale']} scale{samples}. "


def _not_counted() -> str:
    run = os.environ.get("BOOK_RUN", "interactive")
    if run == "record":
        return ""
    return f"<p><strong>Not counted</strong> among the book's verdicts: this is not the record ({run}).</p>"


def _how_known(entry: dict[str, Any]) -> str:
    known = entry.get("size", {}).get("known")
    return f"Published values {html.escape(known)}. " if known else ""


def _rows(entry: dict[str, Any], verdict: Verdict) -> list[str]:
    """Rows of a box: one for each value; values with labels stand below a row that says what they are."""
    rows = []
    for name, part in verdict.parts.items():
        criterion = entry[name]
        quantity = f"{criterion['statistic']}, {criterion['unit']}" if "statistic" in criterion else name
        if "labels" in criterion:
            rows.append(f'<tr><td colspan="5">{html.escape(quantity)}:</td></tr>')
        for index, value in enumerate(part["value"]):
            cells = [
                str(criterion["labels"][index]) if "labels" in criterion else quantity,
                _published(name, criterion, index),
                _shown(name, float(value)),
                _interval(part, index),
                "yes" if part["holds"][index] else "no",
            ]
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return rows


def _shown(part: str, value: float) -> str:
    """A measured value; an error that is rounding only has no digits of its own."""
    return f"below {number(value)}" if part == "identity" and value == ROUNDING else number(value)


def _interval(part: dict[str, Any], index: int) -> str:
    if "low" not in part:
        return ""
    return f"{number(float(part['low'][index]))} to {number(float(part['high'][index]))}"


def _published(part: str, criterion: dict[str, Any], index: int) -> str:
    """What the source says of one value, or the null that a direction must exclude."""
    if part == "direction":
        return f"{'above' if criterion['sign'] > 0 else 'below'} {number(criterion['null_value'])}"
    if part == "identity":
        return f"error up to {criterion['tolerance']:g}"
    side = f"{criterion['side']} " if "side" in criterion else ""
    return side + number(criterion["published"][index])


def published_summary(entry: dict[str, Any]) -> str:
    """What the source says, in a cell of the claims page."""
    if "size" in entry:
        side = f"{entry['size']['side']} " if "side" in entry["size"] else ""
        return side + ", ".join(number(value) for value in entry["size"]["published"])
    part = "direction" if "direction" in entry else "identity"
    return f"{part}: {_published(part, entry[part], 0)}"


def measured_summary(verdict: dict[str, Any]) -> str:
    """What was measured, in a cell of the claims page."""
    texts = []
    for name, part in verdict["parts"].items():
        values = [float(value) for value in part["value"]]
        if len(values) > 1:
            held = f"{sum(part['holds'])} of {len(values)} within tolerance"
            texts.append(f"{', '.join(_shown(name, value) for value in values)} ({held})")
        elif name == "identity":
            texts.append(_shown(name, values[0]))
        else:
            low, high = float(part["low"][0]), float(part["high"][0])
            texts.append(f"{number(values[0])} [{number(low)}, {number(high)}]")
    return "; ".join(texts)
