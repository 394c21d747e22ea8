import numpy as np
import pytest

from shared import claims
from shared.claims import NOT_REPRODUCED, NOT_TESTED, PARTLY, REPRODUCED, combine, direction_holds, size_holds
from shared.figures import all_figures
from shared.statistics import Estimate


def estimate(value, low, high):
    return Estimate(*(np.asarray(entry, dtype=float) for entry in (value, low, high)), samples=5)


@pytest.mark.parametrize(
    ("low", "high", "sign", "holds"),
    [
        (0.1, 0.9, 1, True),
        (-0.1, 0.9, 1, False),
        (0.0, 0.9, 1, False),
        (-0.9, -0.1, 1, False),
        (-0.9, -0.1, -1, True),
    ],
)
def test_a_direction_holds_when_its_interval_excludes_the_null_on_its_side(low, high, sign, holds):
    assert direction_holds(estimate((low + high) / 2, low, high), null_value=0, sign=sign) is holds


@pytest.mark.parametrize(
    ("value", "low", "high", "reading", "side", "holds"),
    [
        (10.9, 10.8, 11.0, 0.05, None, True),  # within ten per cent
        (11.2, 11.1, 11.3, 0.05, None, False),
        (11.2, 11.1, 11.3, 0.15, None, True),  # within the reading error
        (14.0, 9.0, 20.0, 0.05, None, True),  # inside our interval
        (14.0, 13.0, 15.0, 0.05, "at least", True),
        (8.0, 7.0, 8.5, 0.05, "at least", False),
        (np.inf, np.inf, np.inf, 0.05, None, False),
        (20.0, -np.inf, np.inf, 0.05, None, False),  # one seed has no interval to lie in
    ],
)
def test_a_size_holds_within_the_largest_tolerance(value, low, high, reading, side, holds):
    found = size_holds(estimate(value, low, high), published=[10.0], reading=reading, side=side)
    assert found.tolist() == [holds]


@pytest.mark.parametrize(
    ("direction", "size", "identity", "scale", "verdict"),
    [
        (True, None, None, "full", REPRODUCED),
        (True, None, None, "reduced", REPRODUCED),
        (False, None, None, "full", NOT_REPRODUCED),
        (None, [True, True], None, "full", REPRODUCED),
        (None, [True, True], None, "reduced", PARTLY),
        (None, [True, False], None, "full", NOT_REPRODUCED),
        (True, [True, True], None, "full", REPRODUCED),
        (True, [True, False], None, "full", PARTLY),
        (False, [True, True], None, "full", NOT_REPRODUCED),
        (False, [False, True], None, "full", NOT_REPRODUCED),
        (None, None, True, "full", REPRODUCED),
        (None, None, False, "reduced", NOT_REPRODUCED),
    ],
)
def test_verdicts_follow_the_rules(direction, size, identity, scale, verdict):
    sizes = None if size is None else np.array(size)
    assert combine(direction, sizes, identity, scale) == verdict


@pytest.fixture
def one_claim(monkeypatch):
    entry = {
        "figure": "x/y",
        "source": "text",
        "place": "p. 1 <here>",
        "claim": "A & B",
        "scale": "full",
        "direction": {"statistic": "slope", "unit": "one", "null_value": 0, "sign": 1},
        "size": {"statistic": "ends", "unit": "m", "labels": ["a", "b"], "published": [1, 2000]},
    }
    entry["size"] |= {"reading": 0.05, "known": "stated"}
    monkeypatch.setattr(claims, "registry", lambda: {"c": entry})
    monkeypatch.setattr(claims, "sources", lambda: {"text": "The text"})
    return entry


def test_a_judged_claim_shows_what_it_was_judged_by(one_claim, monkeypatch):
    monkeypatch.setenv("BOOK_RUN", "record")
    verdict = claims.judge(
        "c", direction=estimate(2, 1, 3), size=estimate([1.01, 3000], [1, 2900], [1.1, 3100])
    )
    assert verdict.verdict == PARTLY
    box = claims.claim_box(verdict)
    for text in (
        "partly reproduced",
        "A &amp; B",
        "p. 1 &lt;here&gt;",
        "2\u202f000",
        "above 0",
        "1 to 3",
        "full scale with 5 seeds",
    ):
        assert text in box
    assert box.count(">yes<") == 2
    assert box.count(">no<") == 1
    assert "Not counted" not in box
    data, metadata = verdict._repr_mimebundle_()
    assert metadata[claims.VERDICT_KEY]["parts"]["size"]["holds"] == [True, False]
    assert data["text/plain"] == "c: partly reproduced"


def test_an_interval_over_other_things_than_seeds_says_so(one_claim, monkeypatch):
    monkeypatch.setenv("BOOK_RUN", "record")
    one_claim["over"] = "waves"
    verdict = claims.judge(
        "c", direction=estimate(2, 1, 3), size=estimate([1.01, 3000], [1, 2900], [1.1, 3100])
    )
    assert "full scale with 5 waves" in claims.claim_box(verdict)


def test_a_run_that_is_not_the_record_says_so(one_claim, monkeypatch):
    monkeypatch.setenv("BOOK_RUN", "smoke")
    verdict = claims.judge("c", direction=estimate(2, 1, 3), size=estimate([1, 2000], [1, 2000], [1, 2000]))
    assert "Not counted" in claims.claim_box(verdict)


def test_values_of_other_parameters_are_not_compared(one_claim):
    verdict = claims.judge("c", direction=estimate(2, 1, 3), size=estimate([1, 2, 3], [0, 0, 0], [9, 9, 9]))
    assert verdict.verdict == NOT_TESTED


def test_infinite_values_survive_in_json(one_claim):
    verdict = claims.judge(
        "c", direction=estimate(2, -np.inf, np.inf), size=estimate([1, np.inf], [1, 5], [1, np.inf])
    )
    part = verdict.as_json()["parts"]["size"]
    assert part["value"] == [1.0, "inf"]
    assert "∞" in claims.claim_box(verdict)
    assert claims.measured_summary(verdict.as_json())


def test_parts_must_be_those_of_the_claim(one_claim):
    with pytest.raises(ValueError, match="part 'size' was not given"):
        claims.judge("c", direction=estimate(2, 1, 3))
    with pytest.raises(ValueError, match="part 'identity' was given"):
        claims.judge("c", direction=estimate(2, 1, 3), size=estimate([1, 2], [1, 2], [1, 2]), identity=0.0)


def test_an_identity_holds_to_its_tolerance(one_claim):
    one_claim.pop("direction"), one_claim.pop("size")
    one_claim["identity"] = {"tolerance": 1e-6}
    assert claims.judge("c", identity=1e-7).verdict == REPRODUCED
    assert claims.judge("c", identity=1e-5).verdict == NOT_REPRODUCED


def test_every_claim_of_the_registry_is_complete():
    figures = {figure.name for figure in all_figures()}
    for name, entry in claims.registry().items():
        assert entry["figure"] in figures, name
        assert entry["source"] in claims.sources(), name
        assert entry["scale"] in ("full", "reduced"), name
        assert entry["claim"].endswith("."), name
        assert entry["place"], name
        assert entry.get("note", ".").endswith("."), name
        assert {"direction", "size", "identity"} & entry.keys(), name
        if "direction" in entry:
            assert entry["direction"].keys() == {"statistic", "unit", "null_value", "sign"}, name
        if "size" in entry:
            size = entry["size"]
            assert size.keys() >= {"statistic", "unit", "published", "reading", "known"}, name
            assert len(size.get("labels", size["published"])) == len(size["published"]), name


def test_an_error_of_rounding_is_the_same_on_every_machine(monkeypatch):
    entry = {"figure": "a/b", "source": "blog", "scale": "full", "identity": {"tolerance": 1e-10}}
    monkeypatch.setattr(claims, "registry", lambda: {"an.identity": entry})
    errors = (0.0, 3e-16, 2e-15, 5e-11)
    verdicts = [claims.judge("an.identity", identity=error) for error in errors]
    shown = [verdict.parts["identity"]["value"] for verdict in verdicts]
    assert shown == [[0.0], [1e-12], [1e-12], [5e-11]]
    summaries = [claims.measured_summary(verdict.as_json()) for verdict in verdicts]
    assert summaries == ["0", "below 1e-12", "below 1e-12", "5e-11"]
