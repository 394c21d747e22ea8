import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from shared.models import build
from shared.probes import spectrum
from shared.rng import generator


@pytest.mark.parametrize("points", [64, 65, 256])
@pytest.mark.parametrize("frequency", [1, 7, 31])
def test_a_pure_sine_has_its_amplitude_at_any_length(points, frequency):
    z = torch.arange(points, dtype=torch.float64) / points
    values = 0.7 * torch.sin(2 * math.pi * frequency * z + 0.4)
    found = spectrum.amplitudes(values, list(range(points // 2 + 1)))
    expected = torch.zeros(points // 2 + 1, dtype=torch.float64)
    expected[frequency] = 0.7
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_the_edges_of_the_spectrum_have_no_mirror_image():
    z = torch.arange(64, dtype=torch.float64) / 64
    values = 0.5 + 0.25 * torch.cos(2 * math.pi * 32 * z)
    found = spectrum.amplitudes(values, [0, 32])
    torch.testing.assert_close(found, torch.tensor([0.5, 0.25], dtype=torch.float64))


@pytest.mark.parametrize("points", [10, 11])
def test_parseval(points):
    values = torch.randn(points, dtype=torch.float64, generator=generator(0))
    frequencies = list(range(points // 2 + 1))
    power = spectrum.amplitudes(values, frequencies) ** 2
    halved = torch.tensor([1.0 if 2 * k in (0, points) else 0.5 for k in frequencies])
    torch.testing.assert_close((power * halved).sum(), (values**2).mean())


def test_coefficients_are_the_sums_they_stand_for():
    """Against the definition, term by term."""
    values = torch.randn(3, 12, generator=generator(1))
    found = spectrum.coefficients(values, [2, 5])
    for row in range(3):
        for column, k in enumerate([2, 5]):
            terms = [values[row, n].item() * np.exp(-2j * np.pi * k * n / 12) for n in range(12)]
            assert abs(found[row, column].item() - 2 * sum(terms) / 12) < 1e-12


@pytest.mark.parametrize("frequency", [-1, 33])
def test_frequencies_outside_the_sampling_are_refused(frequency):
    with pytest.raises(ValueError, match=rf"frequency {frequency} is outside \[0, 32\]"):
        spectrum.amplitudes(torch.zeros(64), [frequency])


def with_weights(*weights: torch.Tensor) -> nn.Module:
    layers = []
    for weight in weights:
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.data = weight.clone()
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers)


def test_spectral_norms_are_the_largest_singular_values():
    model = build("fully_connected", in_channels=2, classes=3, hidden=9, layers=4, seed=1)
    expected = [np.linalg.svd(w.numpy(), compute_uv=False)[0] for w in spectrum.linear_weights(model)]
    np.testing.assert_allclose(spectrum.spectral_norms(model).numpy(), expected, rtol=1e-12)


def test_the_literal_quantity_is_the_published_loop():
    """Against the loop and the last line as they were published, precedence and all."""
    weight = torch.randn(6, 6, dtype=torch.float64, generator=generator(2))
    model = with_weights(weight).double()
    found = spectrum.literal_spectral_norms(model, iterations=7, generator=generator(5))
    a = weight.numpy()
    b = torch.rand(6, generator=generator(5), dtype=torch.float64).numpy()
    for _ in range(7):
        b = a @ b / np.linalg.norm(a @ b)
    literal = abs((b.T @ a @ b / b.T) @ b)
    np.testing.assert_allclose(found.item(), literal, rtol=1e-10)


def test_the_literal_quantity_is_the_width_times_a_real_dominant_eigenvalue():
    basis = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator(3))).Q
    scale = torch.diag(torch.tensor([3.0, 1.0, 0.5, 0.2, 0.1], dtype=torch.float64))
    shear = torch.eye(5, dtype=torch.float64)
    shear[0, 4] = 10.0  # far from symmetric, so that the largest singular value is another number
    weight = basis @ shear @ scale @ torch.linalg.inv(shear) @ basis.T
    model = with_weights(weight).double()
    literal = spectrum.literal_spectral_norms(model, iterations=200, generator=generator(0)).item()
    assert literal == pytest.approx(5 * 3.0, rel=1e-9)
    assert spectrum.spectral_radii(model).item() == pytest.approx(3.0, rel=1e-9)
    assert spectrum.spectral_norms(model).item() > 10


def test_rows_and_columns_have_their_euclidean_norm_and_no_radius():
    row = torch.tensor([[3.0, 4.0]])
    model = with_weights(row)
    assert spectrum.literal_spectral_norms(model, iterations=3, generator=generator(0)).item() == 5
    assert spectrum.spectral_norms(model).item() == pytest.approx(5)
    assert torch.isnan(spectrum.spectral_radii(model)).all()


def test_zero_weights_have_zero_norms():
    model = with_weights(torch.zeros(4, 4))
    for norms in (
        spectrum.spectral_norms(model),
        spectrum.literal_spectral_norms(model, iterations=3, generator=generator(0)),
        spectrum.spectral_radii(model),
    ):
        assert norms.tolist() == [0.0]


def test_a_network_without_linear_layers_is_refused():
    with pytest.raises(ValueError, match="ReLU has no linear layer"):
        spectrum.spectral_norms(nn.ReLU())


def test_perturbed_amplitudes_are_those_of_networks_perturbed_one_at_a_time():
    """Against the plain loop that writes the moved parameters into a copy."""
    model = build("fully_connected", in_channels=1, classes=1, hidden=6, layers=3, seed=4)
    x = (torch.arange(16) / 16)[:, None]
    before = [p.clone() for p in model.parameters()]
    found = spectrum.perturbed_amplitudes(model, x, [1, 3], [0.0, 0.5, 2.0], 5, seed=9, batch=2)
    assert found.shape == (3, 5, 2)
    for row, radius in enumerate([0.0, 0.5, 2.0]):
        for draw in range(5):
            moved = copy.deepcopy(model)
            direction = spectrum.random_direction(model, 9, row, draw)
            with torch.no_grad():
                for name, parameter in moved.named_parameters():
                    parameter += radius * direction[name]
                expected = spectrum.amplitudes(moved(x)[:, 0], [1, 3])
            torch.testing.assert_close(found[row, draw], expected, rtol=1e-5, atol=1e-7)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, old)
        assert parameter.grad is None
    again = spectrum.perturbed_amplitudes(model, x, [1, 3], [0.0, 0.5, 2.0], 5, seed=9, batch=5)
    torch.testing.assert_close(found, again, rtol=1e-5, atol=1e-7)


def test_random_directions_are_uniform_on_the_sphere_and_depend_on_their_index_alone():
    model = nn.Linear(2, 1, bias=True)
    drawn = [spectrum.random_direction(model, 0, 0, i) for i in range(3000)]
    vectors = torch.stack([torch.cat([d["weight"].flatten(), d["bias"]]) for d in drawn]).double()
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3000, dtype=torch.float64), rtol=1e-6, atol=0)
    assert vectors.mean(dim=0).abs().max() < 0.05
    torch.testing.assert_close(vectors.T @ vectors / 3000, torch.eye(3).double() / 3, rtol=0, atol=0.03)
    again = spectrum.random_direction(model, 0, 0, 7)
    assert torch.equal(again["weight"], drawn[7]["weight"])


def test_perturbations_refuse_what_has_no_meaning():
    model = nn.Linear(1, 1)
    for radii, draws, batch in (([-1.0], 1, 1), ([1.0], 0, 1), ([1.0], 1, 0)):
        with pytest.raises(ValueError, match="none below 0, 1 and 1 is allowed"):
            spectrum.perturbed_amplitudes(model, torch.zeros(4, 1), [1], radii, draws, seed=0, batch=batch)


def test_the_flow_rate_is_the_limit_of_small_steps_of_gradient_descent():
    model = build("fully_connected", in_channels=1, classes=1, hidden=7, layers=3, seed=5).double()
    x = (torch.arange(12, dtype=torch.float64) / 12)[:, None]
    y, at = torch.sin(5 * x), torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    found = spectrum.flow_rate(model, x, y, at)
    assert all(parameter.grad is None for parameter in model.parameters())
    moved = copy.deepcopy(model)
    optimizer = torch.optim.SGD(moved.parameters(), lr=1e-6)
    nn.functional.mse_loss(moved(x), y).backward()
    optimizer.step()
    expected = (moved(at) - model(at))[:, 0].detach() / 1e-6
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-8)
