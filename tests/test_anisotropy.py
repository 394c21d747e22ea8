"""Anisotropy directions against algebra and against slow references."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from shared.measurements.nad import architecture, named_direction
from shared.models.linear import LinearPooling, LogisticRegression
from shared.probes import anisotropy
from shared.probes.anisotropy import (
    agreement,
    flipped,
    fourier_direction,
    fourier_energy,
    input_responses,
    marchenko_pastur,
    mean_frequency,
    mixed_responses,
    orthonormal,
    principal_directions,
)
from shared.probes.linear_pooling import gain
from shared.rng import generator, global_seed

SMALL = 16  # pixels a side


def small_lenet() -> nn.Module:
    from shared.models.convolutional import LeNet

    return LeNet(in_channels=1, classes=1, size=SMALL)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def orthogonal(size: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(normal(size, size, seed=seed))[0]


def loop_of_differences(make, point, count, step, seed):
    """Network by network, pixel by pixel."""
    rows = []
    for index in range(count):
        with global_seed(seed, index):
            model = make().double().eval()
        row = []
        for pixel in range(point.numel()):
            shift = torch.zeros_like(point).flatten()
            shift[pixel] = step
            shift = shift.view_as(point)
            row.append((model((point + shift)[None]) - model((point - shift)[None])).item() / (2 * step))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64)


def test_differences_are_those_of_a_loop_over_networks_and_pixels():
    point = normal(1, SMALL, SMALL)
    expected = loop_of_differences(small_lenet, point, 2, 100.0, seed=4)
    torch.testing.assert_close(input_responses(small_lenet, point, 2, seed=4), expected)


def test_step_zero_is_the_gradient_of_autograd_and_the_limit_of_small_steps():
    point = normal(1, SMALL, SMALL)
    found = input_responses(small_lenet, point, 3, step=0, seed=1)
    for index, row in enumerate(found):
        with global_seed(1, index):
            model = small_lenet().double().eval()
        x = point[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        torch.testing.assert_close(row, gradient.flatten())
    # Piecewise linear: a step that crosses no kink gives the same.
    near = input_responses(small_lenet, point, 3, step=1e-7, seed=1)
    torch.testing.assert_close(near, found, atol=1e-6, rtol=1e-4)


def test_a_large_step_gives_the_odd_part_of_a_homogeneous_network():
    def make():
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(36, 1, bias=False)
        )

    point = normal(1, 5, 5)
    found = input_responses(make, point, 2, step=1e9, seed=2)
    for index, row in enumerate(found):
        with global_seed(2, index):
            model = make().double()
        impulses = torch.eye(25, dtype=torch.float64).view(25, 1, 5, 5)
        odd = (model(impulses) - model(-impulses)).flatten().detach() / 2
        torch.testing.assert_close(row, odd, atol=1e-6, rtol=1e-6)


def test_batch_normalisation_is_the_identity_before_training():
    point = normal(1, 32, 32)
    make = architecture("resnet18", classes=1, width=1 / 16)
    found = input_responses(make, point, 1, step=0, seed=3)
    with global_seed(3, 0):
        model = make().double().eval()
    x = point[None].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    torch.testing.assert_close(found[0], gradient.flatten())


def test_a_network_has_the_same_responses_alone_and_among_others():
    point = normal(1, SMALL, SMALL)
    few = input_responses(small_lenet, point, 2, step=0, seed=1)
    many = input_responses(small_lenet, point, 5, step=0, seed=1)
    torch.testing.assert_close(many[:2], few)


def test_logistic_regression_has_the_spectrum_of_pure_noise():
    def make():
        return LogisticRegression(in_channels=1, classes=1, size=SMALL)

    count, dimension = 4000, SMALL**2
    responses = input_responses(make, torch.zeros(1, SMALL, SMALL), count, step=0)
    _, values = principal_directions(responses)
    # Weights are uniform on +-1 / sqrt(D), of variance 1 / 3 D.
    low, high = marchenko_pastur(count, dimension, 1 / (3 * dimension))
    assert values[0].item() == pytest.approx(high, rel=0.01)
    assert values[-1].item() == pytest.approx(low, rel=0.01)
    at_any_step = input_responses(make, torch.zeros(1, SMALL, SMALL), 5, step=100)
    torch.testing.assert_close(at_any_step, responses[:5], atol=1e-5, rtol=1e-4)


def test_the_published_control_has_the_published_edges():
    # 10 000 networks of 1 024 weights, uniform on +-1/32.
    low, high = marchenko_pastur(10_000, 1024, 1 / (3 * 1024))
    assert (low, high) == (pytest.approx(1.23, abs=0.005), pytest.approx(2.38, abs=0.005))


@pytest.mark.parametrize("stride", [2, 4])
def test_the_linear_network_has_the_covariance_that_algebra_gives(stride):
    size, count = 16, 5_000

    def make():
        return LinearPooling(size=size, stride=stride)

    responses = input_responses(make, torch.zeros(1, 1, size), count, step=0).double()
    transform = torch.fft.fft(responses, norm="ortho")
    covariance = (transform.conj().T @ transform / count).abs()
    expected = gain(torch.arange(size), size, stride).square()
    expected *= covariance.diagonal().sum() / expected.sum()
    # At the constant the products of two squared normal numbers spread most: sqrt(8) times their mean.
    error = 4 * math.sqrt(8 / count) * expected[0]
    torch.testing.assert_close(covariance.diagonal(), expected, atol=error.item(), rtol=0)
    # A real signal ties l to D - l in no way that the covariance of the transform would show.
    assert (covariance - covariance.diagonal().diag()).max() < error


def test_without_the_convolution_the_covariance_has_the_rank_of_the_pooling():
    def make():
        return LinearPooling(size=16, stride=4, convolution=False)

    responses = input_responses(make, torch.zeros(1, 1, 16), 200, step=0)
    directions, values = principal_directions(responses, center=False)
    assert (values > 1e-6 * values[0]).sum() == 4
    assert directions.shape == (16, 16)
    torch.testing.assert_close(directions @ directions.T, torch.eye(16, dtype=torch.float64))


def test_mixed_derivatives_of_the_linear_network_follow_the_gain():
    size, stride, count = 16, 2, 5_000

    def make():
        return LinearPooling(size=size, stride=stride)

    rows = mixed_responses(make, torch.zeros(1, 1, size), count).double()
    power = torch.fft.fft(rows, norm="ortho").abs().square().mean(dim=0)
    expected = gain(torch.arange(size), size, stride).square()
    expected *= power.sum() / expected.sum()
    error = 4 * math.sqrt(8 / count) * expected[0].item()
    torch.testing.assert_close(power, expected, atol=error, rtol=0)


def test_mixed_responses_have_the_second_moment_of_the_mixed_derivative():
    def make():
        return nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    point, count = normal(1, 2, 2), 1
    with global_seed(5, 0):
        model = make().double()
    names = list(dict(model.named_parameters()))

    def output(x, *weights):
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(model, parameters, (x[None],)).squeeze()

    weights = tuple(p.detach() for p in model.parameters())

    def gradient(x):
        found = torch.autograd.functional.jacobian(lambda *w: output(x, *w), weights, create_graph=True)
        return torch.cat([g.flatten() for g in found])

    mixed = torch.autograd.functional.jacobian(gradient, point).flatten(1)  # [parameters, D]
    row = mixed_responses(make, point, count, seed=5)[0]
    directions = [
        torch.randn(w.shape, generator=g, dtype=w.dtype) for g in [generator(5, 3, 0)] for w in weights
    ]
    expected = torch.cat([d.flatten() for d in directions]) @ mixed
    torch.testing.assert_close(row, expected)


@pytest.mark.parametrize("center", [True, False])
def test_directions_are_eigenvectors_of_the_covariance(center):
    responses = normal(50, 6) * torch.arange(6, 0, -1) + 3
    directions, values = principal_directions(responses, center=center)
    rows = (responses - responses.mean(dim=0) if center else responses).numpy()
    eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)
    np.testing.assert_allclose(values.square().numpy(), eigenvalues[::-1])
    np.testing.assert_allclose(np.abs(directions.numpy() @ vectors[:, ::-1]), np.eye(6), atol=1e-8)


def test_directions_are_complete_orthonormal_and_of_fixed_sign():
    responses = normal(200, 64)
    directions, _ = principal_directions(responses)
    assert directions.shape == (64, 64)
    torch.testing.assert_close(directions @ directions.T, torch.eye(64, dtype=torch.float64))
    largest = directions.abs().argmax(dim=1, keepdim=True)
    assert (directions.gather(1, largest) > 0).all()
    torch.testing.assert_close(principal_directions(-responses)[0], directions)


def test_fewer_networks_than_pixels_determine_fewer_directions():
    assert principal_directions(normal(5, 9))[0].shape == (4, 9)
    assert principal_directions(normal(5, 9), center=False)[0].shape == (5, 9)


def test_half_precision_is_made_orthonormal_again():
    basis = orthogonal(64)
    rounded = basis.half().double()
    repaired = orthonormal(rounded)
    torch.testing.assert_close(repaired @ repaired.T, torch.eye(64, dtype=torch.float64))
    assert (repaired - basis).abs().max() < 1e-3


def test_agreement_of_spaces():
    basis = orthogonal(10)
    turned = torch.linalg.qr(normal(3, 3, seed=1))[0] @ basis[:3]
    assert agreement(basis[:3], turned) == pytest.approx(1)
    assert agreement(basis[:3], basis[3:6]) == pytest.approx(0)
    assert agreement(basis[:4], basis[2:6]) == pytest.approx(0.5)


@pytest.mark.parametrize("frequency", [(0, 0), (-16, -16), (3, -5), (-16, 4)])
@pytest.mark.parametrize("phase", ["cosine", "sine"])
def test_a_fourier_direction_is_a_part_of_one_coefficient(frequency, phase):
    ky, kx = frequency
    if phase == "sine" and ky in (0, -16) and kx in (0, -16):
        with pytest.raises(ValueError, match="is zero on 32 x 32 pixels"):
            fourier_direction(ky, kx, phase=phase)
        return
    direction = fourier_direction(ky, kx, phase=phase)
    spectrum = np.zeros((32, 32), dtype=complex)
    spectrum[ky, kx] = 1
    wave_ = np.fft.ifft2(spectrum)
    expected = wave_.real if phase == "cosine" else wave_.imag
    np.testing.assert_allclose(direction, expected / np.linalg.norm(expected), atol=1e-12)


def test_energy_and_mean_frequency_of_waves():
    directions = torch.stack([fourier_direction(*f).flatten() for f in ((0, 0), (3, 4), (-16, 0))])
    energy = fourier_energy(directions)
    torch.testing.assert_close(energy.sum(dim=(1, 2)), torch.ones(3, dtype=torch.float64))
    assert energy[0, 16, 16] == pytest.approx(1)
    assert energy[1, 19, 20] == pytest.approx(0.5)
    torch.testing.assert_close(mean_frequency(directions), torch.tensor([0, 5, 16], dtype=torch.float64))


def test_flipping_exchanges_the_coefficients_and_twice_is_nothing():
    basis = orthogonal(16)
    images = normal(3, 2, 4, 4)
    there = flipped(images, basis)
    before = images.flatten(2) @ basis.T
    torch.testing.assert_close(there.flatten(2) @ basis.T, before.flip(-1))
    torch.testing.assert_close(flipped(there, basis), images)


def test_named_directions_are_orthonormal_bases():
    for basis in ("dct", "pixel"):
        found = torch.stack([named_direction(basis, [i, j]) for i in (0, 5, 31) for j in (0, 7, 30)])
        torch.testing.assert_close(found @ found.T, torch.eye(9, dtype=torch.float64))
    assert named_direction("random", [3]).norm().item() == pytest.approx(1)
    assert torch.equal(named_direction("anisotropy", [1], torch.eye(3)), torch.eye(3)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: input_responses(small_lenet, torch.zeros(SMALL, SMALL), 1), r"one image \[C, H, W\]"),
        (lambda: input_responses(small_lenet, torch.zeros(1, SMALL, SMALL), 0), "count = 0"),
        (lambda: input_responses(small_lenet, torch.zeros(1, SMALL, SMALL), 1, step=-1), "step = -1"),
        (lambda: input_responses(small_lenet, torch.full((1, SMALL, SMALL), math.inf), 1), "not finite"),
        (lambda: principal_directions(torch.zeros(1, 5)), "n of at least 2"),
        (lambda: principal_directions(torch.full((3, 5), math.nan)), "not finite"),
        (lambda: fourier_direction(17, 0), r"frequency \(17, 0\): the limit of 32 pixels is 16"),
        (lambda: fourier_direction(0, 0, phase="sine"), "zero on 32 x 32"),
        (lambda: fourier_direction(0, 0, phase="tangent"), "there are cosine and sine"),
        (lambda: flipped(torch.zeros(1, 1, 4, 4), torch.eye(15)), "a basis of 16 vectors"),
        (lambda: flipped(torch.zeros(1, 1, 4, 4), torch.ones(16, 16)), "not orthonormal"),
        (lambda: agreement(torch.eye(3), torch.eye(4)), "must be the same"),
        (lambda: named_direction("dct", [3]), "2 entries"),
        (lambda: named_direction("pixel", [3, 32]), "outside the basis"),
    ],
)
def test_what_cannot_be_used_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("step", [0.0, 100.0])
def test_networks_of_more_outputs_are_refused(step):
    def make():
        return LogisticRegression(in_channels=1, classes=2, size=4)

    with pytest.raises(ValueError, match="the networks have 2 outputs: one is needed"):
        input_responses(make, torch.zeros(1, 4, 4), 1, step=step)


def test_many_networks_are_taken_in_parts(monkeypatch):
    point = normal(1, SMALL, SMALL)
    whole = input_responses(small_lenet, point, 5, step=0, seed=1)
    mixed = mixed_responses(small_lenet, point, 5, seed=1)
    monkeypatch.setattr(anisotropy, "NETWORKS_AT_ONCE", 2)
    torch.testing.assert_close(input_responses(small_lenet, point, 5, step=0, seed=1), whole)
    torch.testing.assert_close(mixed_responses(small_lenet, point, 5, seed=1), mixed)
