"""Flatness and landscapes against exact derivatives and independent searches."""

import copy
import warnings

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn
from torch.func import jacrev

from shared.models import build
from shared.probes.basis_paths import BasisPaths, rescaled
from shared.probes.flatness import Objective, expected_sharpness, hessian_diagonal, hessian_trace, sharpness
from shared.probes.landscape import crossings, filter_normalised, normal_direction, plane
from shared.rng import generator

SPACES = ("weights", "paths")


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    """Few places with labels at odds with each other, so that the loss has a minimum at finite weights."""
    places = torch.randn(6, 3, generator=generator(1), dtype=torch.float64)
    labels = torch.randint(3, (60,), generator=generator(2))
    return places.repeat(10, 1), labels


@pytest.fixture(scope="module")
def minimum() -> nn.Module:
    """A small network at a minimum at which no node is at its kink, as one is at most of the minima."""
    model = build("plain_mlp", in_channels=3, classes=3, hidden=8, layers=3).double()
    x, y = samples()
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=2000,
        tolerance_grad=1e-10,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
    model.zero_grad()
    return model


def objective(model: nn.Module, space: str, **options) -> Objective:
    return Objective(model, *samples(), space=space, **options)


def hessian(found: Objective) -> torch.Tensor:
    return jacrev(jacrev(found))(found.point).detach()


def scaled(model: nn.Module) -> nn.Module:
    factors = [torch.exp(torch.randn(8, generator=generator(3, i), dtype=torch.float64)) for i in range(2)]
    return rescaled(model, factors)


@pytest.mark.parametrize("space", SPACES)
def test_an_objective_is_the_loss_of_the_network(minimum, space):
    x, y = samples()
    found = objective(minimum, space)
    direct = nn.functional.cross_entropy(minimum(x), y)
    torch.testing.assert_close(found(found.point), direct, rtol=1e-12, atol=0)
    step = 1e-2 * torch.randn(len(found.point), generator=generator(4), dtype=torch.float64)
    moved = copy.deepcopy(minimum)
    if space == "paths":
        moved = BasisPaths(minimum).perturbed(step)
    else:
        nn.utils.vector_to_parameters(found.point + step, moved.parameters())
    torch.testing.assert_close(
        found(found.point + step), nn.functional.cross_entropy(moved(x), y), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("space", SPACES)
def test_traces_against_the_whole_hessian(minimum, space):
    found = objective(minimum, space)
    whole = hessian(found)
    exact = whole.trace().item()
    torch.testing.assert_close(hessian_diagonal(found), whole.diagonal(), rtol=1e-9, atol=1e-9)
    assert hessian_trace(found, samples=None).value == pytest.approx(exact, rel=1e-10)
    estimate = hessian_trace(found, samples=400, seed=1)
    assert 0 < estimate.error < 0.1 * exact
    assert abs(estimate.value - exact) < 4 * estimate.error


@pytest.mark.parametrize("space", SPACES)
def test_expected_sharpness_is_half_the_trace_for_little_noise(minimum, space):
    found = objective(minimum, space)
    sigma = 1e-4
    exact = sigma**2 / 2 * hessian(found).trace().item()
    estimate = expected_sharpness(found, sigma=sigma, draws=2000)
    assert abs(estimate.value - exact) < 4 * estimate.error + 0.02 * exact
    assert estimate.error < 0.1 * exact
    assert estimate.crossings == 0


@pytest.mark.parametrize("space", SPACES)
def test_sharpness_against_another_search(minimum, space):
    found = objective(minimum, space)
    radius = 0.1 if space == "weights" else 0.3 * found.paths.nearest_zero()
    ours = sharpness(found, radius=radius).value
    start = found(found.point).item()

    def negative(place):
        place = torch.from_numpy(place).requires_grad_()
        (gradient,) = torch.autograd.grad(value := found(found.point + radius * place), place)
        return -value.item(), -gradient.numpy()

    ball = {"type": "ineq", "fun": lambda o: 1 - o @ o, "jac": lambda o: -2 * o}
    random = np.random.default_rng(0)
    best = 0.0
    for _ in range(12):
        place = random.normal(size=len(found.point))
        place /= np.linalg.norm(place)
        answer = scipy.optimize.minimize(
            negative, place, jac=True, method="SLSQP", constraints=[ball], options={"maxiter": 200}
        )
        if answer.x @ answer.x <= 1 + 1e-6:
            best = max(best, -answer.fun - start)
    assert ours == pytest.approx(best, rel=0.01)
    little = 1e-4  # of which the quadratic part decides, and what is left of the gradient
    curved = little**2 / 2 * torch.linalg.eigvalsh(hessian(found))[-1].item()
    inclined = little * jacrev(found)(found.point).norm().item()
    assert 0.95 * curved < sharpness(found, radius=little).value < 1.05 * (curved + inclined)
    assert inclined < 0.1 * curved


def test_the_three_measures_over_paths_do_not_see_a_positive_scaling(minimum):
    before, behind = (objective(model, "paths") for model in (minimum, scaled(minimum)))
    radius = 0.3 * before.paths.nearest_zero()
    for measure, options in (
        (hessian_trace, {"samples": 20}),
        (hessian_trace, {"samples": None}),
        (expected_sharpness, {"sigma": 0.01, "draws": 20}),
        (sharpness, {"radius": radius, "restarts": 1, "steps": 20}),
    ):
        first, second = measure(before, **options), measure(behind, **options)
        assert second.value == pytest.approx(first.value, rel=1e-8)
        over_weights = [measure(objective(m, "weights"), **options).value for m in (minimum, scaled(minimum))]
        assert abs(over_weights[0] / over_weights[1] - 1) > 0.1


def test_a_skeleton_of_other_nodes_gives_other_measures_of_the_same_function(minimum):
    first, second = objective(minimum, "paths"), objective(minimum, "paths", seed=1)
    assert first(first.point).item() == pytest.approx(second(second.point).item(), rel=1e-12)
    traces = [hessian_trace(o, samples=None).value for o in (first, second)]
    assert abs(traces[0] / traces[1] - 1) > 0.01


def test_what_is_no_minimum_is_measured_with_a_warning():
    model = build("plain_mlp", in_channels=3, classes=3, hidden=4, layers=3).double()
    with pytest.warns(UserWarning, match="not at a minimum: a step of 1 %"):
        found = hessian_trace(objective(model, "weights"), samples=None)
    assert np.isfinite(found.value)


def test_a_minimum_is_measured_without_a_warning(minimum):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hessian_trace(objective(minimum, "paths"), samples=None)


@pytest.mark.parametrize("space", SPACES)
def test_both_signs_of_a_draw_are_used(minimum, space):
    found = objective(minimum, space)
    changes = []
    for draw in range(3):
        noise = 0.01 * torch.randn(len(found.point), generator=generator(7, draw), dtype=torch.float64)
        ends = found(found.point + noise) + found(found.point - noise)
        changes.append((ends / 2 - found(found.point)).item())
    estimate = expected_sharpness(found, sigma=0.01, draws=3, seed=7)
    assert estimate.value == pytest.approx(abs(np.mean(changes)), rel=1e-10)
    assert estimate.error == pytest.approx(np.std(changes, ddof=1) / np.sqrt(3), rel=1e-10)


def test_a_network_in_training_mode_is_measured_in_evaluation_mode_and_left_as_it_is():
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3)).double()
    found = objective(model, "weights")
    assert found(found.point) == found(found.point)
    assert model.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda o: sharpness(o, radius=np.nan), "radius = nan: it must be positive and finite"),
        (lambda o: sharpness(o, radius=0.1, restarts=-1), "restarts = -1: at least 0"),
        (lambda o: sharpness(o, radius=0.1, steps=0), "steps = 0: at least 1"),
        (lambda o: hessian_trace(o, samples=1), "samples = 1: at least 2"),
        (lambda o: expected_sharpness(o, sigma=0.1, draws=1), "draws = 1: at least 2"),
        (lambda o: expected_sharpness(o, sigma=np.inf), "sigma = inf: it must be positive"),
        (lambda o: Objective(o.model, o.x, o.y[1:]), "60 samples and 59 classes"),
        (lambda o: Objective(o.model, o.x[:0], o.y[:0]), "0 samples and 0 classes"),
    ],
)
def test_numbers_out_of_range_are_refused(minimum, call, message):
    with pytest.raises(ValueError, match=message):
        call(objective(minimum, "weights"))


def test_a_loss_that_is_not_finite_is_refused_at_the_start_and_infinite_on_the_way(minimum):
    found = objective(minimum, "weights")
    assert sharpness(found, radius=1e300, restarts=0, steps=2).value == np.inf
    with torch.no_grad():
        found.model.layers[1].weight[0, 0] = np.nan
    broken = objective(found.model, "weights")
    with pytest.raises(ValueError, match="the loss is nan where the network is"):
        sharpness(broken, radius=0.1)


def test_a_ball_that_holds_a_path_of_zero_is_refused(minimum):
    found = objective(minimum, "paths")
    nearest = found.paths.nearest_zero()
    with pytest.raises(ValueError, match=f"free in layer layers.1, reaches zero at {nearest:.3g}"):
        sharpness(found, radius=1.01 * nearest)
    with pytest.raises(ValueError, match="radius = 0: it must be positive"):
        sharpness(found, radius=0)
    assert expected_sharpness(found, sigma=3 * nearest, draws=20).crossings > 0
    with pytest.raises(ValueError, match="space = 'angles': weights or paths"):
        objective(minimum, "angles")


@pytest.mark.parametrize("at_once", [1, 4, 100])
@pytest.mark.parametrize("space", SPACES)
def test_a_plane_is_the_loss_of_one_network_after_another(minimum, space, at_once):
    x, y = samples()
    found = objective(minimum, space)
    first, second = (normal_direction(found, seed) for seed in (1, 2))
    along, across = torch.linspace(-0.2, 0.2, 3), torch.linspace(-0.1, 0.3, 4)
    losses = plane(found, first, second, along, across, at_once=at_once)
    assert losses.shape == (3, 4)
    for i, t in enumerate(along.tolist()):
        for j, s in enumerate(across.tolist()):
            step = t * first + s * second
            if space == "paths":
                moved = BasisPaths(minimum).perturbed(step)
            else:
                moved = copy.deepcopy(minimum)
                nn.utils.vector_to_parameters(found.point + step, moved.parameters())
            expected = nn.functional.cross_entropy(moved(x), y).item()
            assert losses[i, j].item() == pytest.approx(expected, rel=1e-6)


def test_crossings_on_a_plane_are_counted(minimum):
    found = objective(minimum, "paths")
    first = -found.point
    second = torch.zeros_like(first)
    counts = crossings(found, first, second, torch.tensor([0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0]))
    assert counts.flatten().tolist() == [0, 0, 8, 8]
    weights = objective(minimum, "weights")
    assert crossings(weights, -weights.point, weights.point, torch.ones(1), torch.ones(1)).item() == 0


def test_a_plane_of_convolutions(minimum):
    model = build("plainnet18", width=1 / 16)
    x = torch.randn(4, 3, 32, 32, generator=generator(0))
    y = torch.tensor([0, 1, 2, 3])
    found = Objective(model, x, y, space="paths")
    first, second = (normal_direction(found, seed) for seed in (1, 2))
    losses = plane(found, first, second, torch.tensor([0.0, 1e-2]), torch.tensor([0.0]), at_once=2)
    assert losses[0, 0].item() == pytest.approx(nn.functional.cross_entropy(model(x), y).item(), rel=1e-4)
    moved = BasisPaths(model).perturbed(0.01 * first)
    assert losses[1, 0].item() == pytest.approx(nn.functional.cross_entropy(moved(x), y).item(), rel=1e-4)


def test_a_normalised_direction_has_the_norms_of_the_filters(minimum):
    found = objective(minimum, "weights")
    direction = filter_normalised(found, normal_direction(found, 3))
    parts = copy.deepcopy(minimum)
    nn.utils.vector_to_parameters(direction, parts.parameters())
    for part, parameter in zip(parts.parameters(), minimum.parameters(), strict=True):
        torch.testing.assert_close(part.norm(dim=1), parameter.norm(dim=1))
    plain = normal_direction(found, 3)
    assert torch.nn.functional.cosine_similarity(direction[:4], plain[:4], dim=0) > 0.5
    assert abs(plain.std() / 0.05 - 1) < 0.3
