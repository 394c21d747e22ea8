"""Ensembles against the plain loop over networks."""

import math

import pytest
import torch
from torch import nn

from shared.ensemble import initialised, input_gradients, stacked
from shared.measurements.nad import architecture
from shared.models.dropout import Dropout
from shared.rng import generator, global_seed
from shared.sgd import SgdRecipe, accuracy, train, train_ensemble

SMALLEST = {
    "lenet": 0.5,
    "vgg11": 1 / 32,
    "resnet18": 1 / 16,
    "densenet121": 1 / 16,
    "logistic_regression": 1.0,
    "vision_transformer": 1 / 8,
    "mlp_mixer": 1 / 8,
}
networks = pytest.mark.parametrize("name", SMALLEST)


def make(name: str, classes: int = 2):
    return architecture(name, classes=classes, width=SMALLEST[name])


def built(constructor, seed: int, index: int) -> nn.Module:
    with global_seed(seed, index):
        return constructor()


@networks
def test_initial_weights_are_those_of_the_constructor_to_the_last_bit(name):
    ensemble = initialised(make(name), 3, seed=7, first=2)
    for index in range(3):
        expected = built(make(name), 7, 2 + index).state_dict()
        found = ensemble.network(index).state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def drawn_in_another_way():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.rand(2, 3).abs() + torch.randperm(3))
    return model


def drawn_and_changed():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight *= model.weight
    return model


def drawn_in_part():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[1].normal_()
    return model


@pytest.mark.parametrize("constructor", [drawn_in_another_way, drawn_and_changed, drawn_in_part])
def test_constructors_that_cannot_be_repeated_are_called(constructor):
    ensemble = initialised(constructor, 3, seed=1)
    for index in range(3):
        expected = built(constructor, 1, index)
        assert torch.equal(ensemble.network(index).weight, expected.weight)


def test_no_networks_are_refused():
    with pytest.raises(ValueError, match="count = 0: at least one"):
        initialised(make("lenet"), 0)


@networks
def test_gradients_are_those_of_each_network(name):
    point = torch.randn(1, 32, 32, generator=generator(0), dtype=torch.float64)
    found = input_gradients(initialised(make(name, classes=1), 3, seed=2).to(point), point)
    for index, row in enumerate(found):
        model = built(make(name, classes=1), 2, index).double().eval()
        x = point[None].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x)
        torch.testing.assert_close(row, gradient.flatten())


def images(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = generator(seed)
    x = torch.randn(count, 1, 32, 32, generator=source, dtype=torch.float64)
    return x, torch.randint(2, (count,), generator=source)


# The dense network takes a minute of tests and has no layer that the others lack.
@pytest.mark.parametrize("name", [name for name in SMALLEST if name != "densenet121"])
@pytest.mark.parametrize("extra", [{}, {"momentum": 0.9, "weight_decay": 0.01}])
def test_training_together_is_training_alone(name, extra):
    recipe = SgdRecipe(epochs=2, learning_rate=0.1, batch=4, clip=0.3, **extra)
    models = [built(make(name), 1, index).double() for index in range(2)]
    sets = [images(10, seed) for seed in range(2)]
    ensemble = stacked(models)
    together = train_ensemble(
        ensemble, *(torch.stack(part) for part in zip(*sets, strict=True)), recipe, seeds=[5, 6]
    )
    for index, (model, (x, y)) in enumerate(zip(models, sets, strict=True)):
        alone = train(model, x, y, recipe, seed=5 + index)
        torch.testing.assert_close(together[index], alone, atol=1e-5, rtol=1e-5)
        for key, value in model.state_dict().items():
            if not key.endswith("num_batches_tracked"):
                torch.testing.assert_close(ensemble.network(index).state_dict()[key], value)


def test_a_training_follows_torch():
    """Against a loop written out: clipped gradients, momentum, decay, a rate that falls to zero."""
    recipe = SgdRecipe(epochs=3, learning_rate=0.2, batch=4, momentum=0.9, weight_decay=0.01, clip=0.1)
    x, y = images(9, 0)
    model = built(make("logistic_regression"), 0, 0).double()
    weight, bias = (p.detach().clone() for p in model.parameters())
    found = train(model, x, y, recipe, seed=3)
    speed = [torch.zeros_like(weight), torch.zeros_like(bias)]
    losses = []
    batches = [
        cut for epoch in range(3) for cut in torch.randperm(9, generator=generator(3, 1, epoch)).split([4, 5])
    ]
    for step, index in enumerate(batches):
        flat, label = x[index].flatten(1), nn.functional.one_hot(y[index], 2).double()
        logits = flat @ weight.T + bias
        losses.append(-(label * logits.log_softmax(dim=1)).sum(dim=1).mean())
        error = (logits.softmax(dim=1) - label) / len(index)
        gradients = [error.T @ flat, error.sum(dim=0)]
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        for gradient, p, s in zip(gradients, (weight, bias), speed, strict=True):
            s.mul_(0.9).add_(gradient * min(1, 0.1 / (norm + 1e-6)) + 0.01 * p)
            p.sub_(0.2 * (1 - step / 6) * s)
    torch.testing.assert_close(found.double(), torch.stack(losses), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(model.classifier.weight.detach(), weight)
    torch.testing.assert_close(model.classifier.bias.detach(), bias)


def test_a_last_image_by_itself_joins_the_batch_before():
    recipe = SgdRecipe(epochs=1, learning_rate=0.1, batch=4)
    assert [len(index) for _, index in recipe.batches(9, seed=0)] == [4, 5]
    assert [len(index) for _, index in recipe.batches(10, seed=0)] == [4, 4, 2]
    assert recipe.steps(9) == 2
    epochs = SgdRecipe(epochs=2, learning_rate=0.1, batch=4).batches(8, seed=0)
    orders = [index for _, index in epochs]
    assert sorted(torch.cat(orders[:2]).tolist()) == list(range(8))
    assert not torch.equal(torch.cat(orders[:2]), torch.cat(orders[2:]))


def test_training_ends_when_the_loss_is_low_enough_alone_and_together():
    recipe = SgdRecipe(epochs=40, learning_rate=0.5, batch=4, until=0.05)
    models = [built(make("logistic_regression"), 1, index).double() for index in range(2)]
    x, y = images(8, 0)
    hard = torch.zeros_like(x)  # nothing to learn from
    ensemble = stacked(models)
    together = train_ensemble(ensemble, torch.stack([x, hard]), torch.stack([y, y]), recipe, seeds=[0, 0])
    alone = train(models[0], x, y, recipe, seed=0)
    taken = len(alone)
    assert 10 <= taken < recipe.steps(8)
    assert alone[-10:].mean() < 0.05 <= alone[-11:-1].mean()
    torch.testing.assert_close(together[0, :taken], alone, atol=1e-5, rtol=1e-5)
    assert torch.isnan(together[0, taken:]).all()
    assert torch.isfinite(together[1]).all()
    torch.testing.assert_close(ensemble.network(0).classifier.weight, models[0].classifier.weight)


def test_a_loss_that_is_not_finite_ends_a_training_and_leaves_the_others():
    recipe = SgdRecipe(epochs=2, learning_rate=0.1, batch=4)
    models = [built(make("logistic_regression"), 1, index).double() for index in range(2)]
    x, y = images(8, 0)
    broken = x.clone()
    broken[0] = math.inf
    ensemble = stacked(models)
    together = train_ensemble(ensemble, torch.stack([broken, x]), torch.stack([y, y]), recipe, seeds=[0, 0])
    alone = [
        train(model, images_, y, recipe, seed=0) for model, images_ in zip(models, (broken, x), strict=True)
    ]
    assert torch.isinf(alone[0][-1])
    assert torch.isinf(together[0, len(alone[0]) - 1])
    assert torch.isnan(together[0, len(alone[0]) :]).all()
    torch.testing.assert_close(together[1], alone[1], atol=1e-5, rtol=1e-5)


def test_dropout_zeroes_a_share_keeps_the_mean_and_depends_on_the_seed_alone():
    from shared.models.dropout import masks

    model = nn.Sequential(Dropout(1000, 0.25), nn.Linear(1000, 2))
    (name,) = drawn = masks(model, 50, generator(1))
    assert name == "0.mask"
    mask = drawn[name]
    assert mask.unique().tolist() == [0, pytest.approx(1 / 0.75)]
    assert (mask == 0).float().mean().item() == pytest.approx(0.25, abs=0.01)
    assert torch.equal(masks(model, 50, generator(1))[name], mask)
    model[0].mask = mask
    x = torch.ones(50, 1000)
    assert torch.equal(model[0](x), mask)
    assert torch.equal(model.eval()[0](x), x)


def test_accuracy_counts_the_right_ones():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 1.0]])
    assert accuracy(nn.Identity(), x, torch.tensor([0, 0, 0]), at_once=2) == pytest.approx(2 / 3)


def test_mixed_precision_trains_in_single_precision_weights():
    recipe = SgdRecipe(epochs=4, learning_rate=0.1, batch=4, precision="bfloat16")
    x, y = images(8, 0)
    model = built(make("lenet"), 0, 0)
    losses = train(model, x.float(), y, recipe)
    assert losses[-1] < losses[0]
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs = 0"),
        ({"batch": 1}, "batch = 1"),
        ({"learning_rate": 0.0}, r"learning_rate = 0\.0"),
        ({"clip": -1.0}, r"clip = -1\.0"),
        ({"momentum": 1.0}, r"momentum = 1\.0"),
        ({"weight_decay": -1.0}, r"weight_decay = -1\.0"),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SgdRecipe(**({"epochs": 1, "learning_rate": 0.1} | change))
