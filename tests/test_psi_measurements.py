"""Measurements of the chapter on flatness, on small cases that can be worked out otherwise."""

import copy
import math

import numpy as np
import pytest
import torch

from shared.measurements.psi import ToLoss, trained, trained_flatness
from shared.measurements.psi_planes import (
    _negative,
    landscape,
    noisy_errors,
    rescaled_flatness,
    scaling,
)
from shared.models import build
from shared.probes.basis_paths import BasisPaths, rescaled
from shared.probes.flatness import Objective
from shared.probes.landscape import filter_normalised
from shared.probes.plain import plain_layers
from shared.rng import derived_seed, generator
from shared.sgd import SgdRecipe

TASK = {"dataset": "fashion_mnist_small", "images": 60, "epochs": 3}
SMALL = TASK | {"hidden": 5, "layers": 3, "learning_rate": 0.03}
RECIPE = SgdRecipe(3, 0.03, batch=64, clip=math.inf)


def network():
    return trained("plain_mlp", RECIPE, seed=0, device="cpu", hidden=5, layers=3, **_without_epochs())


def _without_epochs() -> dict:
    return {name: value for name, value in TASK.items() if name != "epochs"} | {"until": 0.0}


def test_a_network_is_trained_on_normalised_images():
    run = network()
    x, y = run.train
    assert x.shape == (60, 1, 28, 28)
    assert len(run.losses) == 3
    outcome = run.outcome()
    outputs = run.network(x)
    direct = torch.nn.functional.cross_entropy(outputs, y).item()
    assert outcome["train_loss"] == pytest.approx(direct, rel=1e-5)
    assert outcome["train_accuracy"] == pytest.approx((outputs.argmax(1) == y).float().mean().item())
    assert abs(run.test[0].mean()) < 0.2
    with pytest.raises(ValueError, match=r"training diverged at step \d+, with a rate of 1000000000"):
        trained("plain_mlp", SgdRecipe(30, 1e9, clip=math.inf), seed=0, device="cpu", **_without_epochs())
    one_step = SgdRecipe(1, 1e9, batch=60, clip=math.inf)
    with pytest.raises(ValueError, match="training diverged at step 1"):  # which its losses do not show
        trained("plain_mlp", one_step, seed=0, device="cpu", **_without_epochs())
    with pytest.raises(ValueError, match="images = 1000000: fashion_mnist_small has"):
        trained(
            "plain_mlp", RECIPE, seed=0, device="cpu", until=0.0, dataset="fashion_mnist_small", images=10**6
        )


def test_training_ends_behind_the_epoch_that_reaches_the_loss():
    recipe = SgdRecipe(50, 0.1, batch=20, clip=math.inf)
    options = _without_epochs() | {"seed": 0, "device": "cpu", "hidden": 8, "layers": 2}
    whole = trained("plain_mlp", recipe, **options)
    level = (math.log(10) + whole.loss(*whole.train)) / 2
    ended = trained("plain_mlp", recipe, **options | {"until": level, "every": 2})
    steps = len(ended.losses)
    assert steps % 6 == 0
    assert {rate for rate, _ in ToLoss(50, 0.1, batch=20, done=lambda: False).batches(60, 0)} == {0.1}
    assert 0 < steps < len(whole.losses) == 150
    torch.testing.assert_close(ended.losses, whole.losses[:steps])
    assert ended.loss(*ended.train) < level
    earlier = trained("plain_mlp", recipe, **options | {"until": ended.loss(*ended.train) + 1e-6, "every": 2})
    assert len(earlier.losses) == steps


def test_flatness_is_that_of_the_trained_network():
    options = {
        "radii": [1e-6, 1e3],
        "norms": [0.5, 50.0],
        "samples": 3,
        "draws": 4,
        "restarts": 1,
        "probed": 20,
    }
    skeletons = {"spaces": ["weights", "paths"], "skeletons": [-1, 3]}
    found = trained_flatness.function(**skeletons, **SMALL, **options, until=0.0)
    run = network()
    x, y = run.train[0][:20].double(), run.train[1][:20]
    assert found["train_loss"] == pytest.approx(run.outcome()["train_loss"], rel=1e-6)
    model = run.network.double()
    objectives = [Objective(model, x, y)]
    objectives += [Objective(model, x, y, space="paths", seed=order) for order in (None, 3)]
    for place, objective in enumerate(objectives):
        _check_measured({name: found[name][place] for name in PER_BASIS}, objective, x)
    assert found["sharpness"][0, 1] < np.inf == found["sharpness"][1, 1] == found["sharpness"][2, 1]
    assert found["crossings"][0, 1] == 0 < found["crossings"][1, 1]
    with pytest.raises(ValueError, match=r"skeletons = \[\]: at least one of each is needed"):
        trained_flatness.function(spaces=["paths"], skeletons=[], **SMALL)


PER_BASIS = ("sharpness", "trace", "expected", "crossings", "slope", "dimension", "norm")
PER_BASIS += ("largest", "smallest", "nearest_zero", "flip_radius")


def _check_measured(found, objective, x):
    """Everything measured in one basis, against definitions written out."""
    size, seed = len(objective.point), derived_seed(0, 5)
    start, moduli = objective(objective.point), objective.point.abs()
    facts = {"dimension": size, "norm": moduli.norm(), "largest": moduli.max(), "smallest": moduli.min()}
    facts |= {"slope": objective.slope()}
    if objective.paths is not None:
        nearest, flip = objective.paths.nearest_zero(), objective.paths.flip_radius(x)
        facts |= {"nearest_zero": nearest, "flip_radius": flip}
    for name, value in facts.items():
        assert found[name] == pytest.approx(float(value), rel=1e-5), name
    quadratic = []
    for sample in range(3):
        signs = (torch.rand(size, generator=generator(seed, sample)) < 0.5).double() * 2 - 1
        _, product = torch.autograd.functional.hvp(objective, objective.point, signs)
        quadratic.append((signs @ product).item())
    assert found["trace"] == pytest.approx(np.mean(quadratic), rel=1e-4)
    for place, norm in enumerate((0.5, 50.0)):
        changes, crossed = [], 0
        for draw in range(4):
            noise = torch.randn(size, generator=generator(seed, draw), dtype=torch.float64)
            ends = [objective.point + sign * norm / math.sqrt(size) * noise for sign in (1, -1)]
            crossed += sum(objective.crossings(end) for end in ends)
            changes.append((sum(map(objective, ends)) / 2 - start).item())
        assert found["expected"][place] == pytest.approx(abs(np.mean(changes)), rel=1e-4)
        assert found["crossings"][place] == pytest.approx(crossed / 8)
    # In a ball so small the rise is that of the gradient.
    assert found["sharpness"][0] == pytest.approx(1e-6 * objective.slope() / moduli.norm().item(), rel=0.01)


RESCALED = SMALL | {
    "factors": [0.5],
    "norms": [0.1],
    "spreads": [0.7],
    "draws": 2,
    "probed": 10,
    "until": 0.0,
}


def test_a_factor_on_a_node_moves_the_trace_as_the_theorem_says():
    found = rescaled_flatness.function(space="weights", **RESCALED)
    into, out, others = found["blocks"][0]
    assert found["trace"][0] == pytest.approx(into + out + others, rel=1e-12)
    assert found["trace"][1] == pytest.approx(4 * into + out / 4 + others, rel=1e-9)
    assert found["output_change"][0] == 0 < found["output_change"].max() < 1e-12
    assert found["trace"][2] > 2 * found["trace"][0]


def test_no_scaling_moves_what_is_measured_over_paths():
    found = rescaled_flatness.function(space="paths", **RESCALED)
    for name in ("loss", "trace", "expected", "sharpness"):
        assert found[name].shape == (4,)
        assert found[name] == pytest.approx(np.full(4, found[name][0]), rel=1e-8)
    assert np.isnan(found["blocks"]).all()


def test_a_layer_is_given_a_norm():
    model = network().network.double()
    changed = rescaled(model, scaling(model, "layer", 0.3))
    norms = plain_layers(changed)[0].edges().flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, 0.3 / math.sqrt(5)), rtol=1e-10, atol=0)
    found = rescaled_flatness.function(space="weights", radius=0.1, **RESCALED)
    # The ball holds a network that puts out zero everywhere, whose loss is the logarithm of the classes.
    assert found["constant_loss"] == pytest.approx(math.log(10))
    assert found["loss"][2] + found["sharpness"][2] >= 0.99 * found["constant_loss"]


def test_random_factors_are_the_same_for_all_networks_and_follow_their_spread():
    model = network().network.double()
    factors = scaling(model, "network", 0.7)
    random = generator(0, 6)
    for factor in factors:
        expected = torch.exp(0.7 * torch.randn(5, generator=random, dtype=torch.float64))
        torch.testing.assert_close(factor, expected)
    assert len(torch.cat(factors).unique()) == 10
    with pytest.raises(ValueError, match="transformation = 'nodes': node, layer or network"):
        scaling(model, "nodes", 0.7)


def test_fixed_weights_below_zero_are_counted():
    run = network()
    options = {"space": "paths", "sigmas": [0.0], "draws": 2, "until": 0.0, **SMALL}
    # Of 15 skeleton weights the five into the first hidden level are free.
    hidden, outgoing = (layer.weight for layer in plain_layers(run.network)[1:])
    fixed = [*hidden.diagonal().tolist(), *outgoing.diagonal().tolist()]
    assert len(fixed) == 10
    assert noisy_errors.function(**options)["negative"] == sum(weight < 0 for weight in fixed)
    with torch.no_grad():
        hidden[1, 1] = outgoing[2, 2] = -0.5
        plain_layers(run.network)[0].weight[0, 0] = -0.5  # a free one
    before = sum(weight < 0 for place, weight in enumerate(fixed) if place not in (1, 7))
    assert _negative(BasisPaths(run.network)) == before + 2


@pytest.mark.parametrize("space", ["weights", "paths"])
def test_errors_under_noise_are_those_of_the_moved_network(space):
    found = noisy_errors.function(space=space, sigmas=[0.02, 0.1], draws=2, until=0.0, **SMALL)
    run = network()
    flat = torch.nn.utils.parameters_to_vector(run.network.parameters()).detach().double()
    paths = BasisPaths(run.network)
    for draw in range(2):
        size = paths.count if space == "paths" else len(flat)
        noise = torch.randn(size, generator=generator(0, 5, draw), dtype=torch.float64)
        for place, sigma in enumerate((0.02, 0.1)):
            if space == "paths":
                moved = paths.perturbed(sigma * noise)
            else:
                moved = copy.deepcopy(run.network)
                torch.nn.utils.vector_to_parameters((flat + sigma * noise).float(), moved.parameters())
            for part, (x, y) in (("train", run.train), ("test", run.test)):
                error = 1 - (moved(x).argmax(1) == y).double().mean().item()
                assert found[f"{part}_error"][place, draw] == pytest.approx(error, abs=1e-6)
    assert found["train_error"].std() > 0


def test_signs_of_a_skeleton_wider_than_the_classes_are_counted():
    model = build("plain_mlp", in_channels=784, classes=10, hidden=12, layers=3, seed=0)
    outgoing = plain_layers(model)[2].weight
    with torch.no_grad():
        outgoing[1, 11] = -1.0  # the node 11 leads to the class 11 - 10
        outgoing[2, 11] = -1.0  # not on the skeleton
    assert _negative(BasisPaths(model)) == 1


def test_errors_without_noise_are_those_of_the_network():
    found = noisy_errors.function(space="paths", sigmas=[0.0, 100.0], draws=2, until=0.0, **SMALL)
    assert found["train_error"].shape == (2, 2)
    assert found["train_error"][0] == pytest.approx([1 - found["train_accuracy"]] * 2, abs=1e-6)
    assert found["test_error"][0] == pytest.approx([1 - found["test_accuracy"]] * 2, abs=1e-6)
    assert found["crossings"][0] == 0
    assert found["crossings"][1] > 0
    assert found["test_error"][1].mean() > 0.6


def test_planes_go_through_the_trained_network():
    found = landscape.function(
        batch=20,
        width=1 / 16,
        **TASK,
        spans=[0.01, 0.001],
        weight_spans=[0.002, 0.01],
        points=3,
        probed=16,
        draws=2,
        precision="float32",
        until=0.0,
    )
    run = trained(
        "plainnet18",
        SgdRecipe(3, 0.05, batch=20, clip=1.0),
        seed=0,
        device="cpu",
        width=1 / 16,
        **_without_epochs(),
    )
    x, y = (part[:16] for part in run.train)
    centre = run.loss(x, y)
    assert found["paths"].shape == (2, 3, 3)
    assert found["weights"].shape == found["filters"].shape == (3, 3)
    for name in ("paths", "weights", "filters"):
        assert found[name][..., 1, 1] == pytest.approx(centre, rel=1e-4)
    assert len(np.unique(found["paths"])) > 10
    assert len(np.unique(found["weights"])) == len(np.unique(found["filters"])) == 9
    assert found["crossings"][:, 1, 1].tolist() == [0, 0]
    assert found["epoch_loss"] == pytest.approx([p.mean().item() for p in run.losses.split(3)], rel=1e-5)
    ended = landscape.function(
        batch=20, width=1 / 16, **TASK, points=3, probed=4, draws=2, until=10.0, every=2
    )
    assert np.isnan(ended["epoch_loss"]).tolist() == [False, False, True]
    paths = BasisPaths(run.network)
    draw = torch.randn(paths.count, generator=generator(derived_seed(0, 5, 0)), dtype=torch.float64)
    moved = mean_loss(paths.perturbed(0.01 * 0.05 * draw), x, y)
    assert found["paths"][0, 2, 1] == pytest.approx(moved, rel=1e-4)
    assert found["paths"][0, 2, 1] - centre == pytest.approx(moved - centre, rel=0.02)
    for place, (space, end) in enumerate((("paths", 0.001), ("weights", 0.002))):
        objective = Objective(run.network, x, y, space=space)
        size, noise = len(objective.point), []
        for draw in range(2):
            step = torch.randn(size, generator=generator(derived_seed(0, 7), draw), dtype=torch.float64)
            noise += [objective(objective.point + sign * end * 0.05 * step).item() for sign in (1, -1)]
        change = abs(np.mean(noise) - objective(objective.point).item())
        assert found["expected"][place] == pytest.approx(change, rel=1e-4)
    weights = Objective(run.network, x, y)
    for name, end in (("weights", 0.002), ("filters", 0.01)):
        draw = torch.randn(
            len(weights.point), generator=generator(derived_seed(0, 6, 0)), dtype=torch.float64
        )
        draw = 0.05 * draw if name == "weights" else filter_normalised(weights, draw)
        moved = copy.deepcopy(run.network)
        torch.nn.utils.vector_to_parameters((weights.point + end * draw).float(), moved.parameters())
        # The rise, not the loss, which a step so small hardly changes.
        assert found[name][2, 1] - centre == pytest.approx(mean_loss(moved, x, y) - centre, rel=0.02)


def mean_loss(model, x, y) -> float:
    return torch.nn.functional.cross_entropy(model(x), y).item()
