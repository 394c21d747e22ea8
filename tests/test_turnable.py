"""Surfaces to turn: what is in their HTML. That they turn is tested in the browser."""

import json
import re

import numpy as np
import pytest

from shared.turnable import Turnable


def bundle(**options) -> dict[str, str]:
    low = np.array([[0.0, 1.0], [2.0, np.nan]])
    surfaces = {"one <b>": low, "two": np.array([[-5.0, 4.0], [4.0, 9.0]])}
    return Turnable(surfaces, **{"low": 0.0, "high": 4.0} | options)._repr_mimebundle_()


def test_heights_are_shares_of_the_scale_and_cut_off_at_its_ends():
    text = bundle()["text/html"]
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(data)["surfaces"] == [[[0, 0.25], [0.5, 1]], [[0, 1], [1, 1]]]
    assert len(set(json.loads(data)["colours"])) > 20


def test_every_surface_has_its_title_and_a_name_for_readers_of_screens():
    text = bundle()["text/html"]
    assert text.count("<canvas") == 2
    assert 'aria-label="Surface that can be turned: one &lt;b&gt;"' in text
    assert "<figcaption>two</figcaption>" in text
    assert bundle()["text/plain"] == "surfaces: one <b>, two"


def test_nothing_is_loaded_from_anywhere():
    assert not re.search(r"(src|href)=|https?:|import ", bundle()["text/html"])


def test_two_on_a_page_do_not_share_a_name():
    names = {re.search(r'id="(.*?)"', bundle(high=high)["text/html"])[1] for high in (4.0, 5.0)}
    assert len(names) == 2


def test_other_titles_give_another_name_and_only_squares_are_drawn():
    square = np.eye(3)
    names = [Turnable({title: square}, low=0, high=1)._repr_mimebundle_()["text/html"][:40] for title in "ab"]
    assert names[0] != names[1]
    with pytest.raises(ValueError, match=r"a: heights of shape \[2, 3\]; a square"):
        Turnable({"a": np.ones((2, 3))}, low=0, high=1)


def test_a_floor_above_the_ceiling_is_refused():
    with pytest.raises(ValueError, match=r"low = 4.0, high = 4.0: the floor must be below"):
        bundle(low=4.0)
