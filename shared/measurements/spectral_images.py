"""Measurements of the spectral-bias chapter on images of two classes."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from shared import data
from shared.checkpoints import Checkpoint
from shared.devices import resolve_device
from shared.models import build
from shared.probes.kernel import binned_spectrum, eigenbasis, gaussian_kernel
from shared.rng import derived_seed, generator
from shared.store import Arrays, measurement
from shared.synthetic import radial_wave
from shared.training import Recipe, train


@measurement(
    version=1,
    trajectories=("clean_error", "noisy_error", "spectrum"),
    outcomes=("clean_spectrum", "noisy_spectrum"),  # the basis is nearly degenerate
    uses=(
        "models.build",
        "models.fully_connected.FullyConnected",
        "probes.kernel.binned_spectrum",
        "probes.kernel.eigenbasis",
        "probes.kernel.gaussian_kernel",
        "rng.derived_seed",
        "rng.generator",
        "rng.global_seed",
        "training.Recipe",
        "training.train",
    ),
)
def kernel_spectrum(
    *,
    noise: Literal["high frequency", "white"],
    dataset: str = "mnist",
    classes: list[int] = [3, 8],  # noqa: B006  read only, and a default has to be plain data
    count: int = 2_000,
    kernel_width: float = 1.25,
    bins: int = 100,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 1e-4,
    steps: int = 600,
    every: int = 10,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train on noisy labels of images and watch the network in the eigenbasis of a Gaussian kernel.

    The inputs are the first images of two classes, in the order of the file, with labels -1 and +1.
    High-frequency noise has the coefficient :math:`(i / (n - 1))^2` on eigenvector i; white noise is
    uniform on (-1, 1). (The source's third experiment; its notebook for the white noise.)

    Args:
        noise: which is added to the labels.
        dataset: name or folder, see :func:`shared.data.load`.
        classes: the two labels.
        count: n images of the two classes.
        kernel_width: :math:`\sigma` of the kernel, on pixels over 255.
        bins: of the spectrum.
        width, layers, learning_rate, steps: of the network and its full-batch Adam.
        every: iterations between observations.
        seed: of the white noise and the initial weights.
        device: where to train.

    Returns:
        ``iteration`` [T]; ``clean_error`` and ``noisy_error`` [T], mean squared error against labels
        without and with noise, at the training inputs; ``spectrum`` [T, bins] of the network,
        ``clean_spectrum`` and ``noisy_spectrum`` [bins] of the labels, mean moduli of coefficients;
        ``eigenvalue`` [n], falling.

    Raises:
        ValueError: the set lacks one of the classes or has too few images, or a size is refused.
        DataUnavailable: the data set cannot be had.
    """
    x, clean = _two_classes(dataset, classes, count)
    values, basis = eigenbasis(gaussian_kernel(x, kernel_width))
    if noise == "white":
        added = 2 * torch.rand(count, generator=generator(seed, 1), dtype=torch.float64) - 1
    else:
        added = basis @ (torch.arange(count, dtype=torch.float64) / (count - 1)) ** 2
    noisy = clean + added
    place = {"dtype": torch.float32, "device": resolve_device(device)}
    model = build(
        "fully_connected", in_channels=x.shape[1], classes=1, hidden=width, layers=layers,
        seed=derived_seed(seed, 0),
    ).to(**place)  # fmt: skip

    def observe(step: int, model: nn.Module, output: Tensor) -> dict[str, Tensor]:
        function = output[:, 0].cpu().double()
        return {
            "clean_error": (function - clean).square().mean(),
            "noisy_error": (function - noisy).square().mean(),
            "spectrum": binned_spectrum(function, basis, bins),
        }

    recipe = Recipe(steps=steps, learning_rate=learning_rate)
    inputs, labels = x.to(**place), noisy[:, None].to(**place)
    seen = train(model, inputs, labels, recipe, observe=observe, at=lambda step: step % every == 0)
    return {
        "iteration": seen["iteration"].numpy().astype(np.int32),
        **{name: seen[name].float().numpy() for name in ("clean_error", "noisy_error", "spectrum")},
        "clean_spectrum": binned_spectrum(clean, basis, bins).float().numpy(),
        "noisy_spectrum": binned_spectrum(noisy, basis, bins).float().numpy(),
        "eigenvalue": values.float().numpy(),
    }


@measurement(
    version=1,
    trajectories=("clean_error", "noisy_error", "accuracy", "training_error"),
    uses=(
        "models.build",
        "models.fully_connected.FullyConnected",
        "rng.derived_seed",
        "rng.generator",
        "rng.global_seed",
        "synthetic.radial_wave",
        "training.Recipe",
        "training.train",
    ),
)
def label_noise(
    *,
    frequency: float,
    amplitude: float,
    dataset: str = "mnist",
    classes: list[int] = [3, 8],  # noqa: B006  read only, and a default has to be plain data
    count: int = 11_982,
    training_share: float = 0.8,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 1e-4,
    steps: int = 1_500,
    every: int = 10,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train on labels of images with a radial wave added, and validate on other images.

    The inputs are the first images of two classes, in the order of the file; those at its end are
    held out. Labels are :math:`\pm 1 + \beta \sin(2\pi k \lVert x \rVert)`. (The source's second
    experiment on images; Rahaman et al. 2019, sec. 3.)

    Args:
        frequency: k, waves per unit of the norm of the pixels over 255.
        amplitude: :math:`\beta`; 0 trains on clean labels.
        dataset: name or folder, see :func:`shared.data.load`.
        classes: the two labels, for -1 and +1.
        count: n images of the two classes.
        training_share: of the images, rounded down; the rest is for validation.
        width, layers, learning_rate, steps: of the network and its full-batch Adam.
        every: iterations between observations.
        seed: of the initial weights.
        device: where to train.

    Returns:
        ``iteration`` [T]; of the images held out, ``clean_error`` and ``noisy_error`` [T], mean squared
        error against labels without and with the wave, and ``accuracy`` [T] of the sign;
        ``training_error`` [T], mean squared error against the noisy labels trained on; ``noise_power``,
        mean square of the wave on the images held out.

    Raises:
        ValueError: the set lacks one of the classes or has too few images, or a size is refused.
        DataUnavailable: the data set cannot be had.
        Diverged: the loss is not finite.
    """
    # First of all, so that the only local names are the arguments.
    arguments = dict(locals()) | {"dataset": data.identity(dataset)}
    if not (0 < training_share < 1 and 0 <= amplitude < np.inf):
        raise ValueError(
            f"training_share = {training_share}, amplitude = {amplitude}: a share between 0 and 1 and "
            "a finite amplitude of at least 0 are needed"
        )
    x, clean = _two_classes(dataset, classes, count)
    noise = amplitude * radial_wave(x, frequency)
    place = {"dtype": torch.float32, "device": resolve_device(device)}
    model = build(
        "fully_connected", in_channels=x.shape[1], classes=1, hidden=width, layers=layers,
        seed=derived_seed(seed, 0),
    ).to(**place)  # fmt: skip
    inputs, labels = x.to(**place), (clean + noise)[:, None].to(**place)
    trained = int(training_share * count)

    def observe(step: int, model: nn.Module, output: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            held_out = model(inputs[trained:])[:, 0].cpu().double()
        return {
            "clean_error": (held_out - clean[trained:]).square().mean(),
            "noisy_error": (held_out - clean[trained:] - noise[trained:]).square().mean(),
            "accuracy": ((held_out > 0) == (clean[trained:] > 0)).double().mean(),
            "training_error": nn.functional.mse_loss(output, labels[:trained]),
        }

    checkpoint = Checkpoint(label_noise.name, arguments, label_noise.fingerprint)
    seen = train(
        model, inputs[:trained], labels[:trained], Recipe(steps=steps, learning_rate=learning_rate),
        observe=observe, at=lambda step: step % every == 0 or step == steps, checkpoint=checkpoint,
    )  # fmt: skip
    checkpoint.save_network(model.state_dict())
    watched = ("clean_error", "noisy_error", "accuracy", "training_error")
    return {
        "iteration": seen["iteration"].numpy().astype(np.int32),
        **{name: seen[name].float().numpy() for name in watched},
        "noise_power": noise[trained:].square().mean().float().numpy(),
    }


def _two_classes(dataset: str, classes: list[int], count: int) -> tuple[Tensor, Tensor]:
    """The first images [count, D] of two classes, pixels over 255, and labels [count] of -1 and +1."""
    images = data.load(dataset)
    if len(set(classes)) != 2 or not set(classes) <= set(range(images.classes)):
        raise ValueError(f"classes = {classes}: two different ones from 0 to {images.classes - 1} are needed")
    chosen = np.flatnonzero(np.isin(images.y_train, classes))
    if not 2 <= count <= len(chosen):
        raise ValueError(f"count = {count}: from 2 to {len(chosen)} images of these classes are there")
    chosen = chosen[:count]
    x = torch.from_numpy(images.x_train[chosen].reshape(count, -1)).double() / 255
    sign = np.where(images.y_train[chosen] == classes[0], -1.0, 1.0)
    return x, torch.from_numpy(sign)
