"""What the store relies on: versions that follow arguments, and declared sources that are complete."""

import sys
from pathlib import Path

import pytest
from conftest import SMALL_RUN

from shared import paths, signatures
from shared.fingerprint import covered
from shared.measurements import load
from shared.store import MEASUREMENTS

# Modules that carry a result from where it is computed to where it is read, and cannot change it.
CARRIERS = {
    "checkpoints", "data", "devices", "files", "fingerprint", "paths", "progress", "provenance", "store",
    "sweep", "values",
}  # fmt: skip
TARGET = {k: v for k, v in SMALL_RUN.items() if k not in ("steps", "every")}
PLAIN_TRAINING = {
    "hidden": 3,
    "layers": 2,
    "dataset": "fashion_mnist_small",
    "images": 20,
    "epochs": 1,
}
PLAIN = PLAIN_TRAINING | {"draws": 2, "probed": 5}
SMALL = {
    "spectral.learning_order": SMALL_RUN,
    "spectral.robustness": TARGET | {"steps": 20, "radii": 3, "draws": 2},
    "spectral.residual_rates": TARGET,
    "spectral_regions.plane_regions": {"width": 4, "layers": 3, "samples": 20, "steps": 5, "checks": 5},
    "spectral_images.kernel_spectrum": {
        "noise": "white",
        "dataset": "fashion_mnist_small",
        "count": 20,
        "bins": 5,
        "width": 4,
        "layers": 3,
        "steps": 5,
    },
    "spectral_images.label_noise": {
        "frequency": 0.2,
        "amplitude": 1.0,
        "dataset": "fashion_mnist_small",
        "count": 20,
        "width": 4,
        "layers": 3,
        "steps": 5,
    },
    "spectral_curves.curve_regression": TARGET | {"lobes": 2, "steps": 20},
    "spectral_curves.curve_classification": {
        "lobes": 2,
        "frequency": 3,
        "points": 16,
        "width": 8,
        "layers": 3,
        "steps": 20,
        "resolution": 4,
    },
    "diffeo.field_statistics": {"cutoff": 3, "size": 8, "count": 3},
    "diffeo.folded_shares": {"cutoff": 3, "size": 8, "count": 3, "factors": [1.0]},
    "diffeo_stability.network_stability": {
        "model": "fully_connected:hidden=4,layers=2",
        "weights": "",
        "dataset": "fashion_mnist_small",
        "mean": [],
        "std": [],
        "displacements": [1.0],
        "count": 3,
    },
    "diffeo_stability.convention_stability": {"steps": 2, "hidden": 4, "layers": 2, "count": 3},
    "diffeo_stripes.stripe_training": {
        "points": 20,
        "dimension": 3,
        "hidden": 4,
        "test_points": 10,
        "most_steps": 20,
    },
    "nad.anisotropy_directions": {"model": "lenet", "networks": 3, "kept": 2},
    "nad.directional_training": {
        "model": "lenet",
        "indices": [[0, 1]],
        "samples": 4,
        "epochs": 1,
    },
    "nad_images.image_training": {
        "model": "lenet",
        "dataset": "fashion_mnist_small",
        "images": 4,
        "epochs": 1,
    },
    "nad_images.poison_size": {
        "model": "logistic_regression",
        "indices": [0, 5],
        "dataset": "fashion_mnist_small",
        "images": 20,
        "step": 0.0,
        "networks": 1100,
    },
    "nad_linear.pooled_waves": {"size": 4, "samples": 10, "networks": 2},
    "psi.trained_flatness": PLAIN
    | {"spaces": ["weights", "paths"], "radii": [0.001], "norms": [0.01], "samples": 2},
    "psi_planes.rescaled_flatness": PLAIN
    | {"space": "weights", "factors": [], "norms": [], "spreads": [0.5]},
    "psi_planes.noisy_errors": PLAIN_TRAINING | {"space": "paths", "sigmas": [0.01], "draws": 2},
    "psi_planes.landscape": {
        "batch": 10,
        "width": 1 / 16,
        "dataset": "fashion_mnist_small",
        "images": 20,
        "epochs": 1,
        "points": 1,
        "probed": 4,
    },
    "spectral.trained_spectrum": TARGET | {"steps": 20, "samples": 64},
}
load()


def test_the_tracked_list_is_that_of_the_code():
    changed = signatures.unversioned_changes(signatures.tracked(), signatures.current())
    assert not changed, f"raise the version of {changed}"
    assert signatures.tracked() == signatures.current(), "`make signatures` writes the list"


OLD = {"m": {"version": 1, "arguments": {"a": "int", "b": "float"}, "defaults": {"b": 1.0}}}


@pytest.mark.parametrize(
    ("new", "refused"),
    [
        ({"version": 1, "arguments": {"a": "int", "b": "float"}, "defaults": {"b": 1.0}}, False),
        ({"version": 1, "arguments": {"a": "int", "b": "float"}, "defaults": {"b": 2.0}}, True),
        ({"version": 2, "arguments": {"a": "int", "b": "float"}, "defaults": {"b": 2.0}}, False),
        ({"version": 1, "arguments": {"a": "float", "b": "float"}, "defaults": {"b": 1.0}}, True),
        ({"version": 1, "arguments": {"b": "float"}, "defaults": {"b": 1.0}}, True),
        (
            {"version": 1, "arguments": OLD["m"]["arguments"] | {"c": "int"}, "defaults": {"b": 1.0, "c": 3}},
            False,
        ),
        ({"version": 1, "arguments": OLD["m"]["arguments"] | {"c": "int"}, "defaults": {"b": 1.0}}, True),
    ],
)
def test_a_change_of_arguments_or_defaults_needs_a_version(new, refused):
    assert bool(signatures.unversioned_changes(OLD, {"m": new})) is refused


def called_in_package(function) -> set[str]:
    """Dotted names, below the package, of every function that a call of ``function`` enters."""
    codes = {}

    def note(frame, event, _):  # called millions of times
        if event == "call":
            codes[id(frame.f_code)] = frame.f_code

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    entered = set()
    for code in codes.values():
        path = Path(code.co_filename)
        if path.is_relative_to(paths.PACKAGE):
            module = ".".join(path.relative_to(paths.PACKAGE).with_suffix("").parts)
            entered.add((module.removesuffix(".__init__"), code.co_qualname.split(".<locals>")[0]))
    return {f"{module}.{name}" for module, name in entered if module.split(".")[0] not in CARRIERS}


@pytest.mark.parametrize("name", sorted(MEASUREMENTS))
def test_a_measurement_declares_everything_it_calls(own_store, name):
    measurement = MEASUREMENTS[name]
    assert name in SMALL, "give it small arguments above"
    declared = covered(measurement.uses)
    arrays = {}
    entered = called_in_package(lambda: arrays.update(measurement.function(**SMALL[name])))
    assert measurement.outcomes | measurement.trajectories <= arrays.keys(), (
        "it names what it does not return"
    )
    methods_of_classes = {call for call in entered if call.rpartition(".")[0] in declared}
    assert entered, "nothing was traced"
    assert measurement.uses[0] in entered
    assert entered - methods_of_classes - declared == set()


def test_the_trace_finds_an_undeclared_call(own_store, monkeypatch):
    measurement = MEASUREMENTS["spectral.learning_order"]
    entered = called_in_package(lambda: measurement.function(**SMALL[measurement.name]))
    fewer = [use for use in measurement.uses if use != "synthetic.waves"]
    assert "synthetic.waves" in entered - covered(fewer)
