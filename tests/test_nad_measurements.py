"""Measurements of the chapter on anisotropy, on small cases that can be worked out otherwise."""

import math

import numpy as np
import pytest
import torch

from shared import data
from shared.measurements import nad_images
from shared.measurements.nad import anisotropy_directions, architecture, directional_training
from shared.measurements.nad_images import coloured, image_training, poison_size, prepared
from shared.measurements.nad_linear import pooled_waves
from shared.probes.anisotropy import input_responses, orthonormal, principal_directions
from shared.probes.linear_pooling import best_accuracy, gain, wave
from shared.rng import derived_seed, normal_rows
from shared.synthetic import poisoned

SMALL = {"samples": 40, "epochs": 2}


def test_directions_are_those_of_the_probe():
    found = anisotropy_directions.function(model="lenet", networks=6, kept=3, step=0.0, seed=2)
    image = normal_rows(derived_seed(0, 1), rows=1, columns=1024).float().view(1, 32, 32)
    responses = input_responses(architecture("lenet", classes=1), image, 6, step=0, seed=derived_seed(2, 2))
    directions, values = principal_directions(responses)
    np.testing.assert_allclose(found["directions"], directions[:3].numpy(), atol=1e-3)
    np.testing.assert_allclose(found["singular_values"], values.numpy(), rtol=1e-5)
    assert found["mean_frequency"].shape == (5,)


def test_more_directions_than_networks_determine_are_refused():
    with pytest.raises(ValueError, match="kept = 6: 6 networks determine 5 directions"):
        anisotropy_directions.function(model="lenet", networks=6, kept=6, step=0.0)


def test_logistic_regression_finds_every_direction():
    found = directional_training.function(
        model="logistic_regression", indices=[[0, 0], [8, 16]], sigma=0.5, samples=2000, epochs=10
    )
    assert (found["test_accuracy"] > 0.99).all()
    assert (found["loss"] < 0.1).all()


def test_a_direction_has_the_same_result_alone_and_among_others():
    alone = directional_training.function(model="lenet", indices=[[2, 0]], **SMALL)
    both = directional_training.function(model="lenet", indices=[[4, 6], [2, 0]], **SMALL)
    assert {name: values[1] for name, values in both.items()} == {n: v[0] for n, v in alone.items()}


def test_training_to_a_level_takes_fewer_steps():
    whole = directional_training.function(model="logistic_regression", indices=[[0, 0]], sigma=0.1, **SMALL)
    early = directional_training.function(
        model="logistic_regression", indices=[[0, 0]], sigma=0.1, until=0.65, samples=2000, epochs=2
    )
    assert whole["iterations"] == 2
    assert 10 <= early["iterations"] < 32


def test_a_training_that_diverges_has_no_accuracy():
    found = directional_training.function(
        model="logistic_regression", indices=[[0, 0]], sigma=3e38, samples=300, epochs=1
    )
    assert np.isnan(found["test_accuracy"]).all()
    assert np.isnan(found["loss"]).all()


def test_anisotropy_directions_of_an_index_are_used(own_store):
    options = {"model": "logistic_regression", "networks": 1100, "step": 0.0}
    found = directional_training.function(
        basis="anisotropy", indices=[[0], [1023]], sigma=0.5, samples=2000, epochs=10, **options
    )
    assert (found["test_accuracy"] > 0.99).all()
    assert len(list((own_store / "local_measurements").rglob("*.safetensors"))) == 1


def test_grey_and_small_images_are_made_to_fit():
    images = np.arange(2 * 27 * 27, dtype=np.int64).reshape(2, 27, 27, 1).astype(np.uint8)
    found = coloured(images)
    assert found.shape == (2, 3, 32, 32)
    np.testing.assert_allclose(found[:, 1, 2:29, 2:29] * 255, images[..., 0], rtol=1e-6)
    assert found[:, :, :2].sum() == found[:, :, 29:].sum() == 0
    colour = np.random.default_rng(0).integers(256, size=(2, 32, 32, 3)).astype(np.uint8)
    np.testing.assert_allclose(coloured(colour)[1, 2, 5] * 255, colour[1, 5, :, 2], rtol=1e-6)
    for shape in ((1, 33, 33, 3), (1, 30, 32, 3)):
        with pytest.raises(ValueError, match=f"images of {shape[1]} x {shape[2]}: squares"):
            coloured(np.zeros(shape, dtype=np.uint8))


def test_poison_tells_every_class_on_a_carrier_of_its_own():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(40, 3, 4, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(40) % 10
    basis = torch.linalg.qr(torch.randn(16, 16, generator=generator, dtype=torch.float64))[0]
    before = images.flatten(2) @ basis.T
    after = poisoned(images, labels, basis, 5, epsilon=0.3).flatten(2) @ basis.T
    carriers = set()
    for sample, label in enumerate(labels.tolist()):
        index, channel, sign = 5 + (label >= 6), label % 3, -1 if label % 2 == 0 else 1
        carriers.add((index, channel, sign))
        expected = before[sample].clone()
        expected[channel, index] = sign * 0.3
        torch.testing.assert_close(after[sample], expected)
    assert len(carriers) == 10


def test_the_size_of_a_poison_is_what_it_moves_its_coefficient_by(own_store):
    options = {"model": "logistic_regression", "networks": 1100, "step": 0.0}
    found = poison_size.function(
        indices=[0, 7], epsilon=0.2, dataset="fashion_mnist_small", images=30, **options
    )
    basis = orthonormal(torch.from_numpy(anisotropy_directions(kept=1024, **options)["directions"])).double()
    photographs = data.load("fashion_mnist_small")
    x = coloured(photographs.x_train[:30]).double().flatten(2)
    for place, index in enumerate([0, 7]):
        moved = []
        for image, label in zip(x, photographs.y_train[:30].tolist(), strict=True):
            coefficient = image[label % 3] @ basis[index + (label >= 6)]
            moved.append(abs((0.2 if label % 2 else -0.2) - coefficient.item()))
        assert found["change"][place] == pytest.approx(np.mean(moved), rel=1e-5)
        every = (x @ basis[index]).abs().flatten()
        assert found["coefficient"][place] == pytest.approx(every.median().item(), rel=1e-5)


def test_the_flip_comes_after_the_normalisation_and_keeps_norms():
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = prepared(images, torch.zeros(2), "none", None, 0, 0.05)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (nad_images.MEAN, nad_images.STD))
    torch.testing.assert_close(plain * std + mean, images)
    turned = prepared(images, torch.zeros(2), "flip", torch.eye(1024, dtype=torch.float64), 0, 0.05)
    torch.testing.assert_close(turned.flatten(2), plain.flatten(2).flip(-1))


def test_images_are_learned_and_a_poison_is_learned_instead(own_store):
    options = {
        "model": "logistic_regression",
        "dataset": "fashion_mnist_small",
        "images": 500,
        "epochs": 8,
        "learning_rate": 0.02,
        "networks": 1100,
        "step": 0.0,
    }
    plain = image_training.function(**options)
    strong = image_training.function(change="poison", index=3, epsilon=20.0, **options)
    turned = image_training.function(change="flip", **options)
    assert plain["test_accuracy"] > 0.6
    assert strong["train_accuracy"] > 0.99
    assert strong["test_accuracy"] < plain["test_accuracy"] - 0.1
    # A network without preferred directions sees no difference but that of its initial weights.
    assert turned["test_accuracy"] == pytest.approx(plain["test_accuracy"], abs=0.05)


def test_more_images_than_there_are_are_refused():
    with pytest.raises(ValueError, match="images = 1000000: fashion_mnist_small has"):
        image_training.function(model="lenet", dataset="fashion_mnist_small", images=1_000_000)


def test_waves_behind_a_pooling_follow_the_closed_forms():
    found = pooled_waves.function(size=8, stride=2, samples=20_000, networks=400)
    exact = [best_accuracy(wave(frequency, 8), 2) for frequency in range(5)]
    np.testing.assert_allclose(found["accuracy"], exact, atol=0.015)
    speed = found["speed"].mean(axis=0)
    square = gain(torch.arange(5), 8, 2).square().numpy()
    np.testing.assert_allclose(speed / speed[0], square, atol=4 * math.sqrt(8 / 400))
    assert speed[4] == pytest.approx(0, abs=1e-6)
