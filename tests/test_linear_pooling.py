"""What a pooling does to waves, against samples and against the transform of its filter."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from shared.probes.linear_pooling import alias_ratio, best_accuracy, gain, wave


@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("stride", [2, 4])
def test_the_gain_is_that_of_the_filter(size, stride):
    filter_ = np.zeros(size)
    filter_[:stride] = 1 / stride
    np.testing.assert_allclose(
        gain(torch.arange(size), size, stride), np.abs(np.fft.fft(filter_)), atol=1e-12
    )


def test_the_best_accuracy_behind_a_pooling_is_that_of_a_classifier_fitted_to_samples():
    size, stride, frequency = 16, 2, 3
    v = wave(frequency, size).numpy()
    rng = np.random.default_rng(0)
    y = rng.choice([-1, 1], 400_000)
    noise = 3 * rng.normal(size=(400_000, size))
    x = noise - np.outer(noise @ v, v) + np.outer(y, v)
    pooled = x.reshape(len(x), size // stride, stride).mean(axis=2)
    weights = np.linalg.solve(np.cov(pooled.T), pooled[y > 0].mean(axis=0) - pooled[y < 0].mean(axis=0))
    measured = np.mean(np.sign(pooled @ weights) == y)
    assert best_accuracy(wave(frequency, size), stride) == pytest.approx(measured, abs=0.003)


def test_the_alias_ratio_gives_the_accuracy_except_where_the_alias_is_its_own_conjugate():
    for frequency in (2, 3, 5, 9, 14):
        exact = best_accuracy(wave(frequency, 32), 2)
        assert scipy.stats.norm.cdf(math.sqrt(alias_ratio(frequency, 32, 2))) == pytest.approx(exact)
    assert best_accuracy(wave(0, 32), 2) == 1.0
    assert best_accuracy(wave(16, 32), 2) == pytest.approx(0.5)
    assert alias_ratio(0, 32, 2) == math.inf


def test_a_frequency_above_the_limit_is_refused():
    with pytest.raises(ValueError, match="from 0 to 16"):
        wave(17, 32)
