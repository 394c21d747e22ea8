"""The measurements on images and on curves, against plain computations of what they report."""

import numpy as np
import pytest
import torch

from shared import data
from shared.measurements.spectral_curves import curve_classification, curve_regression
from shared.measurements.spectral_images import kernel_spectrum, label_noise
from shared.models import build
from shared.rng import derived_seed

IMAGES = {"dataset": "fashion_mnist_small", "classes": [2, 7], "count": 50, "width": 8, "layers": 3}
CURVE = {"points": 40, "width": 8, "layers": 3, "steps": 20, "every": 8}


@pytest.fixture(autouse=True)
def _own_store(own_store):
    """Nothing here reads or writes the book's records."""


def images_of_both(count):
    images = data.load("fashion_mnist_small")
    chosen = [i for i, label in enumerate(images.y_train) if label in (2, 7)][:count]
    x = torch.stack([torch.tensor(images.x_train[i].flatten() / 255.0) for i in chosen])
    y = torch.tensor([-1.0 if images.y_train[i] == 2 else 1.0 for i in chosen], dtype=torch.float64)
    return x, y


def test_label_noise_reports_errors_on_the_last_images_of_the_file():
    found = label_noise(**IMAGES, frequency=0.3, amplitude=0.7, training_share=0.7, steps=20, every=8, seed=5)
    x, y = images_of_both(50)
    wave = 0.7 * torch.sin(2 * torch.pi * 0.3 * (x**2).sum(dim=1).sqrt())
    model = build("fully_connected", in_channels=784, classes=1, hidden=8, layers=3, seed=derived_seed(5, 0))
    with torch.no_grad():
        output = model.double()(x)[:, 0]
    assert found["iteration"].tolist() == [0, 8, 16, 20]
    expected = {
        "clean_error": ((output - y)[35:] ** 2).mean(),
        "noisy_error": ((output - y - wave)[35:] ** 2).mean(),
        "training_error": ((output - y - wave)[:35] ** 2).mean(),
        "accuracy": (output[35:].sign() == y[35:]).double().mean(),
    }
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value.item(), rel=1e-5), name
    assert found["noise_power"] == pytest.approx((wave[35:] ** 2).mean().item(), rel=1e-5)
    assert found["training_error"][-1] < found["training_error"][0]


def test_without_amplitude_labels_are_clean_whatever_the_frequency():
    one, other = (
        label_noise(**IMAGES, frequency=k, amplitude=0.0, steps=20, every=10, seed=0) for k in (0.1, 3.0)
    )
    assert one["noise_power"] == 0
    for name in ("clean_error", "training_error"):
        assert np.array_equal(one[name], other[name])
    assert np.array_equal(one["clean_error"], one["noisy_error"])


@pytest.mark.parametrize("measure", [label_noise, kernel_spectrum])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"classes": [3, 10]}, r"classes = \[3, 10\]: two different ones from 0 to 9"),
        ({"classes": [3, 3]}, r"classes = \[3, 3\]: two different ones from 0 to 9"),
        ({"classes": [3]}, r"classes = \[3\]: two different ones"),
        ({"count": 100_000}, r"count = 100000: from 2 to \d+ images of these classes are there"),
        ({"width": 0}, "hidden = 0: a fully connected network needs at least 1"),
        ({"layers": 0}, "layers = 0"),
    ],
)
def test_images_and_networks_that_do_not_exist_are_refused(measure, wrong, message):
    own = {"frequency": 1.0, "amplitude": 1.0} if measure is label_noise else {"noise": "white", "bins": 5}
    with pytest.raises(ValueError, match=message):
        measure.function(**measure.resolve(IMAGES | own | {"steps": 2} | wrong))


@pytest.mark.parametrize("wrong", [{"training_share": 1.0}, {"training_share": 0.0}, {"amplitude": -1.0}])
def test_a_share_or_amplitude_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="a share between 0 and 1 and a finite amplitude"):
        label_noise(**(IMAGES | {"frequency": 1.0, "amplitude": 1.0} | wrong))


def test_an_interrupted_run_on_noisy_labels_ends_with_the_same_bits(monkeypatch):
    arguments = IMAGES | {"frequency": 0.2, "amplitude": 1.0, "steps": 30, "every": 5}
    whole = label_noise.function(**label_noise.resolve(arguments))
    monkeypatch.setattr("shared.training.SECONDS_BETWEEN_STATES", 0.0)
    calls = iter(range(12))
    monkeypatch.setattr(
        "shared.training.LOSSES", {"mse": lambda a, b: next(calls) * 0 + torch.nn.functional.mse_loss(a, b)}
    )
    with pytest.raises(StopIteration):
        label_noise.function(**label_noise.resolve(arguments))
    monkeypatch.setattr("shared.training.LOSSES", {"mse": torch.nn.functional.mse_loss})
    again = label_noise.function(**label_noise.resolve(arguments))
    for name, array in whole.items():
        assert np.array_equal(array, again[name]), name


def test_a_curve_run_reports_the_amplitudes_of_the_network_along_the_curve():
    found = curve_regression(lobes=3, frequencies=[2, 5], amplitudes=[1.0, 2.0], seed=4, **CURVE)
    z = torch.arange(40, dtype=torch.float64) / 40
    radius = 1 + torch.sin(2 * torch.pi * 3 * z) / 2
    x = torch.stack([radius * torch.cos(2 * torch.pi * z), radius * torch.sin(2 * torch.pi * z)], dim=1)
    model = build("fully_connected", in_channels=2, classes=1, hidden=8, layers=3, seed=derived_seed(4, 0))
    with torch.no_grad():
        output = model.double()(x)[:, 0]
    for index, k in enumerate((2, 5)):
        component = (output * torch.exp(-2j * torch.pi * k * z)).sum() * 2 / 40
        ours = complex(*found["coefficients"][0, index])
        assert ours == pytest.approx(component.item(), abs=1e-6)
    assert np.hypot(*found["target_coefficients"].T).tolist() == pytest.approx([1.0, 2.0], rel=1e-6)
    assert found["iteration"].tolist() == [0, 8, 16, 20]


def test_classes_along_a_curve_have_the_accuracy_and_the_map_of_the_network():
    found = curve_classification(lobes=2, frequency=3, resolution=5, seed=1, **(CURVE | {"steps": 400}))
    assert found["accuracy"][-1] > found["majority"]
    assert found["loss"][-1] < found["loss"][0]
    assert found["probability"].shape == (5, 5)
    assert ((found["probability"] >= 0) & (found["probability"] <= 1)).all()


def test_the_map_has_y_along_its_rows(monkeypatch):
    """A network whose output is the first coordinate has a map that rises along the columns."""
    import shared.measurements.spectral_curves as module

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return self.scale * x[:, :1]

    monkeypatch.setattr(module, "build", lambda *_, **__: First())
    found = curve_classification(lobes=0, frequency=1, resolution=4, **(CURVE | {"steps": 1}))
    chance = found["probability"].astype(float)
    assert (np.diff(chance, axis=1) > 0).all()
    assert np.ptp(chance, axis=0).max() == 0


def test_five_points_a_period_make_three_fifths_of_the_larger_class():
    arguments = CURVE | {"points": 1_000, "steps": 1}
    found = curve_classification(lobes=20, frequency=200, resolution=2, **arguments)
    assert found["majority"] == pytest.approx(0.6)


@pytest.mark.parametrize("frequency", [0, 20, 25])
def test_waves_at_or_above_the_nyquist_limit_of_the_curve_are_refused(frequency):
    with pytest.raises(ValueError, match=rf"frequency {frequency} is outside \(0, 20\), the Nyquist limit"):
        curve_classification(lobes=1, frequency=frequency, **CURVE)
    with pytest.raises(ValueError, match=rf"frequency {frequency} is outside \(0, 20\), the Nyquist limit"):
        curve_regression(lobes=1, frequencies=[frequency], amplitudes=[1.0], **CURVE)


def test_unequal_lists_and_empty_maps_are_refused():
    with pytest.raises(ValueError, match="amplitudes has 1 entries and frequencies 2"):
        curve_regression(lobes=1, frequencies=[1, 2], amplitudes=[1.0], **CURVE)
    with pytest.raises(ValueError, match=r"resolution = 1, extent = 1\.6: at least 2"):
        curve_classification(lobes=1, frequency=2, resolution=1, **CURVE)
