"""Gradient flow, the network it is made for, and the stripe model."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from shared import flow as module
from shared.checkpoints import Checkpoint
from shared.flow import Flow, gradient_flow
from shared.measurements.diffeo_stripes import stripe_training
from shared.models import build
from shared.probes.stability import stripe_stability
from shared.rng import generator
from shared.synthetic import stripes


def network(hidden=5, dimension=3, seed=0, dtype=torch.float64):
    return build("mean_field", in_channels=dimension, classes=1, hidden=hidden, seed=seed).to(dtype)


def test_the_network_is_its_formula():
    model, x = network(), torch.randn(4, 3, dtype=torch.float64, generator=generator(1))
    for row, output in zip(x, model(x), strict=True):
        total = 0.0
        for weight, bias, outer in zip(model.weight, model.bias, model.outer, strict=True):
            total += outer * max(0, (weight @ row / math.sqrt(3) + bias).item())
        assert output.item() == pytest.approx(total.item() / 5)


def test_its_parameters_start_standard_normal():
    model = network(hidden=4_000)
    for parameter in model.parameters():
        assert parameter.mean().item() == pytest.approx(0, abs=0.06)
        assert parameter.std().item() == pytest.approx(1, abs=0.05)


def test_its_gradient_is_that_of_autograd():
    model, x = network(), torch.randn(7, 3, dtype=torch.float64, generator=generator(1))
    slope = torch.randn(7, dtype=torch.float64, generator=generator(2))
    expected = torch.autograd.grad((slope * model(x)[:, 0]).sum(), list(model.parameters()))
    for found, wanted in zip(model.gradient(x, slope), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("wrong", [{"classes": 2}, {"hidden": 0}, {"in_channels": 0}])
def test_a_network_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match="one output and at least one of the others"):
        build("mean_field", **({"in_channels": 3, "classes": 1} | wrong))


def test_small_steps_follow_the_flow_of_the_loss():
    """Against plain gradient descent on the loss as written, with many short steps."""
    x, y = stripes(20, 3, seed=1)
    model, reference = network(), network()
    flow = Flow(alpha=0.5, margin_step=1e-3, parameter_step=1e-3, most_steps=200)
    end = gradient_flow(model, x, y, flow)
    initial = reference(x)[:, 0].detach()
    parameters = list(reference.parameters())
    for _ in range(4_000):
        margins = flow.alpha * (reference(x)[:, 0] - initial) * y
        loss = torch.log1p(torch.exp(20 * (1 - margins))).mean() / 20 / flow.alpha
        gradient = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, slope in zip(parameters, gradient, strict=True):
                parameter -= end.time / 4_000 * slope
    for found, wanted, start in zip(model.parameters(), parameters, network().parameters(), strict=True):
        assert (found - wanted).norm() < 0.02 * (found - start).norm()


def test_it_ends_when_every_margin_is_one():
    x, y = stripes(60, 4, seed=2)
    model = network(hidden=50, dimension=4)
    initial = model(x)[:, 0].detach()
    flow = Flow(alpha=1e-3)
    end = gradient_flow(model, x, y, flow)
    margins = flow.alpha * (model(x)[:, 0] - initial) * y
    assert end.separated
    assert end.smallest_margin == pytest.approx(margins.min().item())
    assert margins.min() >= 1


def test_a_minimum_with_margins_below_one_is_an_end_too():
    """Opposite labels on one point cannot both have a margin."""
    x, y = torch.ones(2, 3, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)
    end = gradient_flow(network(), x, y, Flow(alpha=1.0))
    assert not end.separated
    assert end.smallest_margin == pytest.approx(0, abs=1e-6)


def test_the_loss_never_rises():
    x, y = stripes(40, 4, seed=2)
    model = network(hidden=20, dimension=4)
    initial = model(x)[:, 0].detach()
    losses = []
    for steps in range(10, 400, 30):
        gradient_flow(trained := network(hidden=20, dimension=4), x, y, Flow(alpha=1e-2, most_steps=steps))
        margins = 1e-2 * (trained(x)[:, 0] - initial) * y
        losses.append(torch.log1p(torch.exp(20 * (1 - margins))).mean().item())
    assert (np.diff(losses) <= 1e-4).all()
    assert losses[-1] < losses[0] / 2


def test_points_left_out_do_not_matter(monkeypatch):
    x, y = stripes(100, 4, seed=3)
    ends = []
    for idle in (2.0, math.inf):
        monkeypatch.setattr(module, "IDLE_MARGIN", idle)
        model = network(hidden=30, dimension=4)
        initial = model(x).detach()
        gradient_flow(model, x, y, Flow(alpha=1e-3, most_steps=700))
        ends.append(1e-3 * (model(x) - initial)[:, 0].detach() * y)
    assert ends[0].max() > 2.5
    # The steps differ in length, since idle points do not limit them.
    assert (ends[0] - ends[1]).abs().max() < 0.05 * ends[0].max()


def test_the_number_of_steps_is_a_limit_and_the_end_says_so():
    x, y = stripes(30, 3, seed=1)
    end = gradient_flow(network(), x, y, Flow(alpha=1e-6, most_steps=7))
    assert (end.steps, end.separated) == (7, False)


def test_an_interrupted_run_ends_with_the_same_bits(own_store, monkeypatch):
    x, y = (part.float() for part in stripes(30, 3, seed=1))
    whole = network(hidden=20, dimension=3, dtype=torch.float32)
    end = gradient_flow(whole, x, y, Flow(alpha=1e-2))
    monkeypatch.setattr(module, "SECONDS_BETWEEN_STATES", 0.0)
    checkpoint = Checkpoint("flow", {}, "code")
    calls = iter(range(40))
    stopped = network(hidden=20, dimension=3, dtype=torch.float32)
    gradient = stopped.gradient
    stopped.gradient = lambda *arguments: (next(calls), gradient(*arguments))[1]
    with pytest.raises(StopIteration):
        gradient_flow(stopped, x, y, Flow(alpha=1e-2), checkpoint=checkpoint)
    again = network(hidden=20, dimension=3, dtype=torch.float32)
    assert gradient_flow(again, x, y, Flow(alpha=1e-2), checkpoint=checkpoint) == end
    assert torch.equal(again.weight, whole.weight)


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"sharpness": -1.0}, {"margin_step": math.inf}])
def test_a_flow_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="it must be positive and finite"):
        Flow(**({"alpha": 1.0} | wrong))
    with pytest.raises(ValueError, match="most_steps = 0: at least 1"):
        Flow(alpha=1.0, most_steps=0)


# The data, and what is measured on it


def test_labels_of_stripes_are_balanced_and_depend_on_one_coordinate():
    x, y = stripes(100_000, 4, seed=1)
    assert y.mean().item() == pytest.approx(0, abs=0.015)
    assert set(y.tolist()) == {1.0, -1.0}
    assert all(
        label == (1 if -0.3 < row[0] < 1.18549 else -1)
        for row, label in zip(x[:500].tolist(), y, strict=False)
    )
    assert torch.cov(x.T).sub(torch.eye(4)).abs().max() < 0.02
    assert torch.equal(stripes(10, 4, seed=1)[0], x[:10])


@pytest.mark.parametrize(("points", "dimension"), [(0, 3), (5, 1)])
def test_stripes_without_points_or_directions_are_refused(points, dimension):
    with pytest.raises(ValueError, match="at least 1 point of 2 coordinates"):
        stripes(points, dimension)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_linear_function_has_the_stability_of_algebra():
    a = torch.tensor([3.0, 1.0, -2.0, 0.5], dtype=torch.float64)
    x = torch.zeros(200_000, 4, dtype=torch.float64)
    expected = (a[1:].square().sum() / 3) / (a.square().sum() / 4)
    found = stripe_stability(Function(lambda x: x @ a), x, radius=0.7)
    assert found == pytest.approx(expected.item(), rel=0.02)


def test_what_depends_on_the_stripe_alone_is_perfectly_stable():
    x, _ = stripes(50, 3)
    assert stripe_stability(Function(lambda x: x[:, :1].sin()), x, radius=1.0) == 0
    assert math.isnan(stripe_stability(Function(lambda x: x[:, :1] * 0), x, radius=1.0))
    assert stripe_stability(Function(lambda x: x[:, :2] ** 2), x, radius=1.0, informative=2) == 0


@pytest.mark.parametrize("wrong", [{"radius": 0.0}, {"informative": 3}, {"radius": math.nan}])
def test_noise_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match="fewer than the 3 coordinates and a positive norm"):
        stripe_stability(Function(lambda x: x), torch.zeros(5, 3), **({"radius": 1.0} | wrong))


def test_training_on_stripes_aligns_the_weights(own_store):
    found = stripe_training(
        points=200, dimension=5, hidden=50, alpha=1e-4, test_points=2_000, most_steps=3_000
    )
    assert found["stability"] < 0.2 < found["initial_stability"] < 3
    assert found["perpendicular"] < 0.2 * found["parallel"]
    assert found["test_error"] < 0.1
    few = stripe_training(points=40, dimension=5, hidden=50, alpha=1e-4, test_points=2_000)
    assert few["stability"] > found["stability"]
