"""Measurements of the chapter on flatness, on small cases that can be worked out otherwise."""

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
from shared.probes.basis_paths import BasisPaths, rescaled
from shared.probes.flatness import Objective
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


@pytest.mark.parametrize("space", ["weights", "paths"])
def test_flatness_is_that_of_the_trained_network(space):
    found = trained_flatness.function(
        space=space,
        **SMALL,
        until=0.0,
        radii=[1e-3, 1e3],
        norms=[0.5],
        samples=3,
        draws=4,
        restarts=0,
        probed=20,
    )
    run = network()
    x, y = run.train[0][:20].double(), run.train[1][:20]
    objective = Objective(run.network.double(), x, y, space=space)
    assert found["dimension"] == len(objective.point)
    assert found["norm"] == pytest.approx(objective.point.norm().item(), rel=1e-5)
    assert found["largest"] == pytest.approx(objective.point.abs().max().item(), rel=1e-5)
    assert found["slope"] == pytest.approx(objective.slope(), rel=1e-5)
    changes = []
    for draw in range(4):
        noise = torch.randn(
            len(objective.point), generator=generator(derived_seed(0, 5), draw), dtype=torch.float64
        )
        step = 0.5 / math.sqrt(len(objective.point)) * noise
        ends = [objective(objective.point + step), objective(objective.point - step)]
        changes.append((sum(ends) / 2 - objective(objective.point)).item())
    assert found["expected"] == pytest.approx([abs(np.mean(changes))], rel=1e-4)
    assert found["sharpness"][0] > 0
    if space == "paths":
        assert found["sharpness"][1] == np.inf
        assert found["nearest_zero"] == pytest.approx(
            BasisPaths(run.network.double()).nearest_zero(), rel=1e-5
        )
        assert found["flip_radius"] == pytest.approx(BasisPaths(run.network).flip_radius(x), rel=1e-5)
    else:
        assert np.isnan(found["flip_radius"])


def test_a_factor_on_a_node_moves_the_trace_as_the_theorem_says():
    options = SMALL | {"transformation": "node", "draws": 2, "probed": 10, "until": 0.0}
    first = rescaled_flatness.function(space="weights", amount=1.0, **options)
    second = rescaled_flatness.function(space="weights", amount=0.5, **options)
    into, out, others = first["blocks"]
    assert second["trace"] == pytest.approx(4 * into + out / 4 + others, rel=1e-9)
    assert first["output_change"] == 0
    assert second["output_change"] < 1e-12
    pair = [rescaled_flatness.function(space="paths", amount=a, **options) for a in (1.0, 0.5)]
    for name in ("loss", "trace", "expected", "sharpness"):
        assert pair[1][name] == pytest.approx(pair[0][name], rel=1e-8)


def test_a_layer_is_given_a_norm():
    model = network().network.double()
    changed = rescaled(model, scaling(model, "layer", 0.3))
    norms = plain_layers(changed)[0].edges().flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, 0.3 / math.sqrt(5)), rtol=1e-10, atol=0)
    options = SMALL | {"transformation": "layer", "draws": 2, "probed": 10, "until": 0.0}
    shrunk = rescaled_flatness.function(space="weights", amount=0.1, radius=0.1, **options)
    # The ball holds a network that puts out zero everywhere, whose loss is the logarithm of the classes.
    assert shrunk["loss"] + shrunk["sharpness"] >= 0.99 * math.log(10)


def test_random_factors_on_all_nodes_move_neither_the_function_nor_the_measures():
    model = network().network.double()
    factors = scaling(model, "network", 0.7)
    assert [len(factor) for factor in factors] == [5, 5]
    assert len(torch.cat(factors).unique()) == 10
    torch.testing.assert_close(torch.cat(scaling(model, "network", 1.4)), torch.cat(factors) ** 2)
    options = SMALL | {"transformation": "network", "draws": 2, "probed": 10, "until": 0.0}
    pair = [rescaled_flatness.function(space="paths", amount=a, **options) for a in (0.0, 0.7)]
    assert pair[0]["output_change"] == 0 < pair[1]["output_change"] < 1e-12
    for name in ("loss", "trace", "expected", "sharpness"):
        assert pair[1][name] == pytest.approx(pair[0][name], rel=1e-8)
    assert pair[0]["constant_loss"] == pytest.approx(math.log(10))


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
        points=3,
        probed=16,
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
        batch=20, width=1 / 16, **TASK, spans=[0.01], points=3, probed=4, until=10.0, every=2
    )
    assert np.isnan(ended["epoch_loss"]).tolist() == [False, False, True]
    paths = BasisPaths(run.network)
    draw = torch.randn(paths.count, generator=generator(derived_seed(0, 5, 0)), dtype=torch.float64)
    moved = mean_loss(paths.perturbed(0.01 * 0.05 * draw), x, y)
    assert found["paths"][0, 2, 1] == pytest.approx(moved, rel=1e-4)
    assert found["paths"][0, 2, 1] - centre == pytest.approx(moved - centre, rel=0.02)
    flat = torch.nn.utils.parameters_to_vector(run.network.parameters()).detach().double()
    draw = torch.randn(len(flat), generator=generator(derived_seed(0, 6, 0)), dtype=torch.float64)
    torch.nn.utils.vector_to_parameters((flat + 0.001 * 0.05 * draw).float(), run.network.parameters())
    # The rise, not the loss, which a step so small hardly changes.
    assert found["weights"][2, 1] - centre == pytest.approx(run.loss(x, y) - centre, rel=0.02)


def mean_loss(model, x, y) -> float:
    return torch.nn.functional.cross_entropy(model(x), y).item()
