"""The deep linear example of the chapter on anisotropy: what pooling loses, and what it slows down."""

import numpy as np
import torch

from shared.ensemble import initialised
from shared.models.linear import LinearPooling, average_pooling
from shared.probes.linear_pooling import wave
from shared.rng import derived_seed
from shared.store import Arrays, measurement
from shared.synthetic import directional


@measurement(
    version=1,
    uses=(
        "ensemble.Ensemble",
        "ensemble.initialised",
        "ensemble.stacked",
        "models.linear.LinearPooling",
        "models.linear.average_pooling",
        "probes.linear_pooling.wave",
        "rng.derived_seed",
        "rng.global_seed",
        "rng.normal_rows",
        "synthetic.directional",
    ),
)
def pooled_waves(
    *,
    size: int = 32,
    stride: int = 2,
    epsilon: float = 1.0,
    sigma: float = 3.0,
    samples: int = 100_000,
    networks: int = 1_000,
    rate: float = 1e-3,
    seed: int = 0,
) -> Arrays:
    r"""Classify waves behind an average pooling, and take one step of gradient descent on each.

    Args:
        size: D, values of a signal.
        stride: S of the pooling.
        epsilon, sigma: of the distribution D(v).
        samples: to fit the best linear classifier behind the pooling to, and as many to test it on.
        networks: deep linear networks :math:`\theta^T A (\varphi \circledast x)` that take the step.
        rate: learning rate of the step.
        seed: of samples and networks.

    Returns:
        For each frequency from 0 to D / 2: ``accuracy`` [K] of the fitted classifier, and ``speed``
        [networks, K], by how much the response to the wave rises in the step, over the rate: the
        loss is minus half the difference of the outputs for v and -v.

    Raises:
        ValueError: the stride does not divide the size, or a number is out of range.
    """
    pooling = average_pooling(size, stride).double()
    accuracies, speeds = [], []
    ensemble = initialised(
        lambda: LinearPooling(size=size, stride=stride), networks, seed=derived_seed(seed, 1)
    )
    for frequency in range(size // 2 + 1):
        v = wave(frequency, size)
        sets = [
            directional(
                v, samples, epsilon=epsilon, sigma=sigma, seed=derived_seed(seed, 2 + part, frequency + 1)
            )
            for part in range(2)
        ]
        accuracies.append(_fitted_accuracy(*((x.double() @ pooling.T, 1 - 2 * y) for x, y in sets)))
        speeds.append([_speed(ensemble.network(i).double(), v, rate) for i in range(networks)])
    return {
        "accuracy": np.array(accuracies, dtype=np.float32),
        "speed": np.array(speeds, dtype=np.float32).T,
    }


def _fitted_accuracy(
    train_set: tuple[torch.Tensor, torch.Tensor], test_set: tuple[torch.Tensor, torch.Tensor]
) -> float:
    """Test accuracy of Fisher's discriminant through the origin, where the classes are mirror images."""
    x, y = train_set
    weights = torch.linalg.lstsq(x, y.double()[:, None], driver="gelsd").solution[:, 0]
    x, y = test_set
    return (torch.sign(x @ weights) == y).double().mean().item()


def _speed(model: LinearPooling, v: torch.Tensor, rate: float) -> float:
    pair = torch.stack([v, -v])

    def response() -> torch.Tensor:
        up, down = model(pair)[:, 0]
        return (up - down) / 2

    before = response()
    gradients = torch.autograd.grad(before, list(model.parameters()))
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter += rate * gradient
        return ((response() - before) / rate).item()
