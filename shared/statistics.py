"""Statistics over seeds: estimates with intervals, and summaries of learning curves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 2_000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A statistic [K] (or a scalar) with the ends of its 95 % interval, of the same shape."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    samples: int

    def __str__(self) -> str:
        return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"


def over_seeds(
    statistic: Callable[..., Any], *samples: np.ndarray, strata: np.ndarray | None = None, seed: int = 0
) -> Estimate:
    """A statistic of all seeds, with a percentile-bootstrap interval over them.

    Args:
        statistic: of arrays shaped like ``samples``; returns a scalar or [K].
        samples: arrays [seeds, ...]; the same seeds are drawn, with replacement, from all of them.
        strata: labels [seeds]; as many are drawn of each label as there are, among themselves.
        seed: of the draws.

    Returns:
        The estimate; with fewer than two seeds its interval is unbounded.

    Raises:
        ValueError: the arrays differ in their number of seeds, or the statistic is NaN.
    """
    counts = {len(array) for array in (*samples, *([] if strata is None else [strata]))}
    if len(counts) != 1:
        raise ValueError(f"arrays of {sorted(counts)} seeds: they must have the same number")
    (count,) = counts
    value = np.asarray(statistic(*samples), dtype=float)
    if np.isnan(value).any():
        raise ValueError("the statistic is NaN")
    if count < 2:
        return Estimate(value, np.full_like(value, -np.inf), np.full_like(value, np.inf), count)
    draws = _draws(np.zeros(count) if strata is None else np.asarray(strata), seed)
    replicates = np.stack([np.asarray(statistic(*(s[draw] for s in samples)), float) for draw in draws])
    if np.isnan(replicates).any():
        raise ValueError("the statistic is NaN for some draws of the seeds")
    tail = (1 - CONFIDENCE) / 2
    # An observed quantile, not an interpolated one: a statistic may be infinite.
    low, high = np.quantile(replicates, [tail, 1 - tail], axis=0, method="inverted_cdf")
    return Estimate(value, low, high, count)


def _draws(strata: np.ndarray, seed: int) -> np.ndarray:
    """Indices [RESAMPLES, seeds], drawn with replacement within each stratum."""
    random, draws = np.random.default_rng(seed), np.empty((RESAMPLES, len(strata)), dtype=int)
    for label in np.unique(strata):
        (places,) = np.nonzero(strata == label)
        draws[:, places] = places[random.integers(len(places), size=(RESAMPLES, len(places)))]
    return draws


def number(value: Any) -> str:
    """A number, or several, as the pages write it: three digits, no exponent where it can be helped."""
    texts = []
    for entry in np.ravel(np.asarray(value, dtype=float)):
        if np.isinf(entry):
            texts.append("∞" if entry > 0 else "-∞")
            continue
        text = f"{entry:.3g}"
        texts.append(f"{entry:,.0f}".replace(",", "\u202f") if "e+" in text or abs(entry) >= 1000 else text)
    return ", ".join(texts)


def exact(value: Any) -> Estimate:
    """A value [K] (or a scalar) that no seed enters, as an estimate whose interval is itself."""
    value = np.asarray(value, dtype=float)
    return Estimate(value, value, value, samples=1)


def first_passage(iteration: np.ndarray, curves: np.ndarray, level: float = 0.5) -> np.ndarray:
    """The first recorded iteration at which each curve reaches a level.

    Args:
        iteration: [T], increasing.
        curves: [T, K].
        level: to be reached.

    Returns:
        [K] float, infinite where a curve never does.
    """
    reached = curves >= level
    return np.where(reached.any(axis=0), iteration[reached.argmax(axis=0)], np.inf)


def rank_correlation(x: np.ndarray, y: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Spearman's correlation of x [K] and y [K]; infinite entries rank last, ties share a rank.

    With labels ``groups`` [K] the ranks are those within each group, less the group's mean, so that a
    difference between groups has no part in it. Zero where one of the two has no order to agree with.
    """
    import scipy.stats  # seconds of imports that a listing of the figures must not wait for

    labels = np.zeros(len(x)) if groups is None else np.asarray(groups)
    ranks = np.zeros((2, len(x)))
    for label in np.unique(labels):
        chosen = labels == label
        for row, values in zip(ranks, (np.asarray(x), np.asarray(y)), strict=True):
            row[chosen] = scipy.stats.rankdata(values[chosen]) - (chosen.sum() + 1) / 2
    if not len(x) or (np.ptp(ranks, axis=1) == 0).any():
        return 0.0
    return float(np.corrcoef(ranks)[0, 1])
