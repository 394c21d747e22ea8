"""Measurements of the spectral-bias chapter."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from shared.checkpoints import Checkpoint
from shared.devices import resolve_device
from shared.models import build
from shared.probes import spectrum
from shared.rng import derived_seed, generator
from shared.store import Arrays, measurement
from shared.synthetic import waves
from shared.training import Recipe, train

SNAPSHOT_ITERATIONS = (100, 1_000, 10_000)  # and the last one


@measurement(
    version=1,
    trajectories=("coefficients", "loss", "spectral_norms", "literal_norms"),
    outcomes=("spectral_radii", "snapshots"),
    uses=(
        "models.build",
        "models.fully_connected.FullyConnected",
        "probes.spectrum.coefficients",
        "probes.spectrum.linear_weights",
        "probes.spectrum.spectral_norms",
        "probes.spectrum.literal_spectral_norms",
        "probes.spectrum.spectral_radii",
        "rng.derived_seed",
        "rng.generator",
        "rng.global_seed",
        "synthetic.waves",
        "training.Recipe",
        "training.train",
    ),
)
def learning_order(
    *,
    frequencies: list[int],
    amplitudes: list[float],
    points: int = 200,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 3e-4,
    steps: int = 60_000,
    every: int = 100,
    norm_iterations: int = 100,
    precision: Literal["float32", "float64"] = "float32",
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Train one network on a sum of sine waves and watch its spectrum and its weights.

    The seed sets the phases of the target and the initial weights; targets that differ only in
    their amplitudes share both. (Figure of the blog's first experiment; Rahaman et al. 2019, fig. 1.)

    Args:
        frequencies: [K] whole periods over the unit interval.
        amplitudes: [K] of the target.
        points: N samples, at n / N.
        width: of the hidden layers.
        layers: L linear layers.
        learning_rate: of full-batch Adam.
        steps: iterations.
        every: iterations between observations.
        norm_iterations: of the iteration inside the published code's "spectral norm".
        precision: of weights and training.
        seed: of phases and initial weights.
        device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.

    Returns:
        ``iteration`` [T]; ``coefficients`` [T, K, 2], real and imaginary part of the complex
        amplitudes of the network; ``target_coefficients`` [K, 2]; ``loss`` [T], mean squared error;
        ``spectral_norms`` and ``literal_norms`` [T, L]; ``spectral_radii`` [L] at the end (NaN for
        matrices that are not square); ``snapshot_iteration`` [S], ``snapshots`` [S, N], the network
        at those iterations; ``target`` [N].

    Raises:
        ValueError: a list or a size is refused (see :func:`waves`, :class:`Recipe`, ``build``).
        Diverged: the loss is not finite.
    """
    # First of all, so that the only local names are the arguments.
    checkpoint = Checkpoint(learning_order.name, locals(), learning_order.fingerprint)
    place = {"dtype": getattr(torch, precision), "device": resolve_device(device)}
    target = waves(frequencies, amplitudes, points, seed=derived_seed(seed, 1))
    x, y = target.positions[:, None].to(**place), target.values[:, None].to(**place)
    model = build(
        "fully_connected", in_channels=1, classes=1, hidden=width, layers=layers, seed=derived_seed(seed, 0)
    ).to(**place)
    kept = {*SNAPSHOT_ITERATIONS, steps}

    def observe(step: int, model: nn.Module, output: Tensor) -> dict[str, Tensor]:
        return {
            "output": output[:, 0],
            "loss": nn.functional.mse_loss(output, y),
            "spectral_norms": spectrum.spectral_norms(model),
            "literal_norms": spectrum.literal_spectral_norms(
                model, iterations=norm_iterations, generator=generator(seed, 2, step)
            ),
        }

    seen = train(
        model,
        x,
        y,
        Recipe(steps=steps, learning_rate=learning_rate),
        observe=observe,
        at=lambda step: step % every == 0 or step in kept,
        checkpoint=checkpoint,
    )
    checkpoint.save_network(model.state_dict())
    snapshots = torch.isin(seen["iteration"], torch.tensor(sorted(kept)))
    return {
        "iteration": seen["iteration"].numpy().astype(np.int32),
        "coefficients": _parts(spectrum.coefficients(seen["output"], frequencies)),
        "target_coefficients": _parts(spectrum.coefficients(target.values, frequencies)),
        "loss": seen["loss"].float().numpy(),
        "spectral_norms": seen["spectral_norms"].float().numpy(),
        "literal_norms": seen["literal_norms"].float().numpy(),
        "spectral_radii": spectrum.spectral_radii(model).float().cpu().numpy(),
        "snapshot_iteration": seen["iteration"][snapshots].numpy().astype(np.int32),
        "snapshots": seen["output"][snapshots].float().numpy(),
        "target": target.values.float().numpy(),
    }


@measurement(
    version=1,
    outcomes=("ratio", "ratio_std", "unperturbed", "parameter_norm"),
    uses=(
        *learning_order.uses,
        "probes.spectrum.amplitudes",
        "probes.spectrum.perturbed_amplitudes",
        "probes.spectrum.random_direction",
    ),
)
def robustness(
    *,
    frequencies: list[int],
    amplitudes: list[float],
    points: int = 200,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 3e-4,
    steps: int = 60_000,
    largest_radius: float = 5.001,
    radii: int = 100,
    draws: int = 100,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Perturb the parameters of a trained network and see which frequencies survive.

    The network is the one that :func:`learning_order` trains with the same arguments; it is loaded
    where it is still there. (The blog's second experiment; Rahaman et al. 2019, fig. 4.)

    Args:
        frequencies, amplitudes, points, width, layers, learning_rate, steps: as in :func:`learning_order`.
        largest_radius: length of the longest perturbation, in the norm of the whole parameter vector.
        radii: R lengths from 0 to the longest, equally spaced.
        draws: directions for each length.
        seed: of the trained network and of the directions.
        device: where to train and to evaluate.

    Returns:
        ``radius`` [R]; ``ratio`` and ``ratio_std`` [R, K], mean and standard deviation over draws of the
        amplitude at each frequency over that of the unperturbed network; ``unperturbed`` [K] amplitudes;
        ``parameter_norm``, length of the parameter vector.

    Raises:
        ValueError: a count is below one (radii: two), or as :func:`learning_order`.
    """
    if radii < 2 or not largest_radius > 0:
        raise ValueError(
            f"radii = {radii}, largest_radius = {largest_radius}: at least 2, and above 0, are needed"
        )
    training = {name: value for name, value in locals().items() if name in learning_order.parameters}
    model = _trained(training)
    x = (torch.arange(points, dtype=torch.float64) / points)[:, None].to(next(model.parameters()))
    lengths = np.linspace(0.0, largest_radius, radii)
    with torch.no_grad():
        unperturbed = spectrum.amplitudes(model(x)[:, 0], frequencies)
    if not unperturbed.all():
        raise ValueError(
            f"the trained network has no amplitude at {frequencies} to compare with: {unperturbed}"
        )
    found = spectrum.perturbed_amplitudes(
        model, x, frequencies, lengths.tolist(), draws, seed=derived_seed(seed, 3)
    )
    ratio = (found / unperturbed).cpu()
    return {
        "radius": lengths.astype(np.float32),
        "ratio": ratio.mean(dim=1).float().numpy(),
        "ratio_std": ratio.std(dim=1, correction=0).float().numpy(),
        "unperturbed": unperturbed.float().cpu().numpy(),
        "parameter_norm": np.float32(
            nn.utils.parameters_to_vector(model.parameters()).detach().double().norm()
        ),
    }


@measurement(
    version=1,
    uses=(
        "models.build",
        "models.fully_connected.FullyConnected",
        "probes.spectrum.amplitudes",
        "probes.spectrum.coefficients",
        "probes.spectrum.flow_rate",
        "rng.derived_seed",
        "rng.generator",
        "rng.global_seed",
        "synthetic.waves",
    ),
)
def residual_rates(
    *,
    frequencies: list[int],
    amplitudes: list[float],
    points: int = 200,
    width: int = 256,
    layers: int = 6,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """How fast the residual of an untrained network changes at each frequency under gradient flow.

    Network and target are those of :func:`learning_order` with the same seed, in float64. (The
    theoretical explanation that the blog gives; Rahaman et al. 2019, sec. 3.)

    Args:
        frequencies, amplitudes, points, width, layers, seed, device: as in :func:`learning_order`.

    Returns:
        ``frequency`` [F], all whole numbers from 1 to below the Nyquist limit; ``rate`` [F], modulus of
        the complex amplitude at each of the rate of the residual; ``closed_rate`` [F], the same of the
        rate less the straight line between its values at 0 and 1, so that the two ends of the interval
        meet; ``closed_function`` [F], the same of the network's own function less its line.

    Raises:
        ValueError: as :func:`learning_order`.
    """
    place = {"dtype": torch.float64, "device": resolve_device(device)}
    target = waves(frequencies, amplitudes, points, seed=derived_seed(seed, 1))
    x, y = target.positions[:, None].to(**place), target.values[:, None].to(**place)
    model = build(
        "fully_connected", in_channels=1, classes=1, hidden=width, layers=layers, seed=derived_seed(seed, 0)
    ).to(**place)
    to_the_end = torch.cat([x, torch.ones_like(x[:1])])
    rate = spectrum.flow_rate(model, x, y, to_the_end).cpu()
    function = model(to_the_end)[:, 0].detach().cpu()
    band = list(range(1, (points + 1) // 2))
    return {
        "frequency": np.array(band, dtype=np.int32),
        "rate": spectrum.amplitudes(rate[:-1], band).numpy(),
        "closed_rate": spectrum.amplitudes(_closed(rate), band).numpy(),
        "closed_function": spectrum.amplitudes(_closed(function), band).numpy(),
    }


@measurement(
    version=1,
    outcomes=("amplitude",),
    uses=(*learning_order.uses, "probes.spectrum.amplitudes"),
)
def trained_spectrum(
    *,
    frequencies: list[int],
    amplitudes: list[float],
    points: int = 200,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 3e-4,
    steps: int = 10_000,
    samples: int = 16_384,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """The spectrum of a trained network far above the frequencies of its target.

    The network is the one that :func:`learning_order` trains with the same arguments, evaluated on a
    grid much finer than its samples. (The theorem on the decay of the spectrum.)

    Args:
        frequencies, amplitudes, points, width, layers, learning_rate, steps: as in :func:`learning_order`.
        samples: of the grid on which the trained network is evaluated.
        seed, device: as in :func:`learning_order`.

    Returns:
        ``frequency`` [F], whole numbers from 1 to a quarter of ``samples``; ``amplitude`` [F] of the
        function less the line between its values at 0 and 1.

    Raises:
        ValueError: as :func:`learning_order`, or ``samples`` is below 8.
    """
    if samples < 8:
        raise ValueError(f"samples = {samples}: at least 8 are needed")
    training = {name: value for name, value in locals().items() if name in learning_order.parameters}
    model = _trained(training).double().cpu()
    x = torch.arange(samples + 1, dtype=torch.float64)[:, None] / samples
    band = list(range(1, samples // 4 + 1))
    with torch.no_grad():
        amplitude = spectrum.amplitudes(_closed(model(x)[:, 0]), band)
    return {"frequency": np.array(band, dtype=np.int32), "amplitude": amplitude.float().numpy()}


def _closed(values: Tensor) -> Tensor:
    """Samples [N] at n / N of a function less its line from 0 to 1, from samples [N + 1] up to 1."""
    share = torch.arange(len(values), dtype=values.dtype) / (len(values) - 1)
    return (values - values[0] - share * (values[-1] - values[0]))[:-1]


def _trained(training: dict[str, Any]) -> nn.Module:
    """The network of :func:`learning_order`, trained now unless it is still there."""
    arguments = learning_order.resolve(training)
    checkpoint = Checkpoint(learning_order.name, arguments, learning_order.fingerprint)
    if checkpoint.load_network() is None:
        learning_order.function(**arguments)
    model = build(
        "fully_connected", in_channels=1, classes=1, hidden=arguments["width"], layers=arguments["layers"]
    )
    model.load_state_dict(checkpoint.load_network())
    return model.to(resolve_device(arguments["device"]))


def normalised_amplitudes(results: Arrays) -> np.ndarray:
    """Amplitude of each frequency over that of the target, [..., T, K], from :func:`learning_order`."""
    reached, wanted = results["coefficients"], results["target_coefficients"][..., None, :, :]
    return np.hypot(reached[..., 0], reached[..., 1]) / np.hypot(wanted[..., 0], wanted[..., 1])


def _parts(values: Tensor) -> np.ndarray:
    """Complex [...] to float32 [..., 2]."""
    return torch.view_as_real(values).float().cpu().numpy()
