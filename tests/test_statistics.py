import numpy as np
import pytest

from shared.statistics import exact, first_passage, number, over_seeds, rank_correlation


def test_the_interval_covers_the_mean_as_often_as_it_says():
    """The percentile bootstrap of a mean of 40 covers a little less than 95 %."""
    generator = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        found = over_seeds(np.mean, generator.normal(size=40), seed=trial)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 200 <= 0.985


def test_the_interval_of_a_mean_is_near_the_normal_one():
    sample = np.random.default_rng(1).normal(size=400)
    found = over_seeds(np.mean, sample)
    half = 1.96 * sample.std() / 20
    assert found.value == pytest.approx(sample.mean())
    assert found.high - found.value == pytest.approx(half, rel=0.1)
    assert found.value - found.low == pytest.approx(half, rel=0.1)


def test_the_same_seeds_are_drawn_from_all_arrays():
    sample = np.random.default_rng(2).normal(size=10)
    found = over_seeds(lambda a, b: (a - b).mean(), sample, sample - 3)
    assert found.low == pytest.approx(3)
    assert found.high == pytest.approx(3)


def test_vectors_and_infinite_values_are_kept():
    sample = np.array([[1.0, np.inf], [2.0, np.inf], [3.0, np.inf]])
    found = over_seeds(lambda a: a.mean(axis=0), sample)
    assert found.value.tolist() == [2.0, np.inf]
    assert found.high[1] == np.inf


def test_one_seed_has_an_unbounded_interval():
    found = over_seeds(np.mean, np.array([1.0]))
    assert (found.value, found.low, found.high, found.samples) == (1.0, -np.inf, np.inf, 1)


def test_an_exact_value_is_its_own_interval():
    found = exact([1.0, 2.0])
    assert found.value.tolist() == found.low.tolist() == found.high.tolist() == [1.0, 2.0]


def test_unequal_numbers_of_seeds_and_nan_are_refused():
    with pytest.raises(ValueError, match=r"arrays of \[2, 3\] seeds"):
        over_seeds(lambda a, b: 0.0, np.zeros(2), np.zeros(3))
    with pytest.raises(ValueError, match="statistic is NaN"):
        over_seeds(np.mean, np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match="NaN for some draws"):
        over_seeds(lambda a: np.nan if len(set(a)) == 1 else a.mean(), np.array([1.0, 2.0]))


def test_first_passage_is_the_first_record_at_or_above_the_level():
    curves = np.array([[0.0, 0.6, 0.1], [0.5, 0.2, 0.2], [0.4, 0.9, 0.3]])
    assert first_passage(np.array([0, 100, 200]), curves).tolist() == [100.0, 0.0, np.inf]


def test_rank_correlation():
    assert rank_correlation(np.arange(4), np.array([1.0, 5.0, 70.0, np.inf])) == pytest.approx(1)
    assert rank_correlation(np.arange(3), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1)
    assert rank_correlation(np.arange(3), np.full(3, np.inf)) == 0
    assert rank_correlation(np.empty(0), np.empty(0)) == 0
    # with d the differences of ranks, 1 - 6 sum d^2 / (n (n^2 - 1))
    assert rank_correlation(np.arange(4), np.array([2.0, 1.0, 4.0, 3.0])) == pytest.approx(1 - 6 * 4 / 60)


def test_a_rank_correlation_within_groups_does_not_see_their_difference():
    x = np.array([1.0, 2.0, 3.0, 11.0, 12.0, 13.0])
    y = np.array([3.0, 2.0, 1.0, 13.0, 12.0, 11.0])
    groups = np.array([0, 0, 0, 1, 1, 1])
    assert rank_correlation(x, y) > 0.5
    assert rank_correlation(x, y, groups) == pytest.approx(-1)
    assert rank_correlation(x, np.array([1.0, 2.0, 3.0, 13.0, 12.0, 11.0]), groups) == pytest.approx(0)
    assert rank_correlation(groups, y, groups) == 0
    # Of groups of three and two: products of centred ranks over the root of their sums of squares.
    part = rank_correlation(x[:5], np.array([1.0, 3.0, 2.0, 5.0, 4.0]), groups[:5])
    assert part == pytest.approx((1 - 0.5) / (2 + 0.5))


def test_numbers_are_written_without_exponents():
    assert number([0.12345, 1234567.0, 22000, 3]) == "0.123, 1\u202f234\u202f567, 22\u202f000, 3"
    assert number([np.inf, -np.inf]) == "∞, -∞"


def test_strata_keep_their_numbers_in_every_draw():
    values, strata = np.array([0.0, 1.0, 10.0, 12.0, 14.0]), np.array([1, 1, 0, 0, 0])
    found = over_seeds(lambda v: [(v < 5).sum(), v[v > 5].mean() - v[v < 5].mean()], values, strata=strata)
    assert found.low[0] == found.value[0] == found.high[0] == 2
    assert found.value[1] == 11.5
    assert 9 <= found.low[1] < 11.5 < found.high[1] <= 14
    with pytest.raises(ValueError, match="the same number"):
        over_seeds(np.mean, values, strata=strata[1:])


def test_the_strata_are_independent_of_their_order():
    values = np.array([1.0, 2.0, 5.0, 30.0, 40.0, 70.0])
    mixed = [3, 0, 4, 1, 5, 2]
    direct = over_seeds(np.mean, values, strata=np.repeat([0, 1], 3))
    assert direct.high - direct.low < over_seeds(np.mean, values).high - over_seeds(np.mean, values).low
    again = over_seeds(np.mean, values[mixed], strata=np.repeat([0, 1], 3)[mixed])
    assert (again.low, again.high) == (direct.low, direct.high)
