"""Fourier amplitudes of sampled functions, and norms of a network's weight matrices."""

import torch
from torch import Tensor, nn


def coefficients(values: Tensor, frequencies: list[int]) -> Tensor:
    r"""Complex amplitude of each frequency of a function sampled on a uniform grid.

    Args:
        values: [..., N] real samples at :math:`z = n / N`, n = 0 ... N - 1.
        frequencies: K whole periods over the unit interval.

    Returns:
        [..., K] complex128. A component :math:`A \sin(2\pi k z + \varphi)` has modulus A, whatever
        N: the single-sided transform over N, twice except at 0 and at the Nyquist limit, which
        have no mirror image.

    Raises:
        ValueError: a frequency is negative or above N / 2.
    """
    points = values.shape[-1]
    for frequency in frequencies:
        if not 0 <= frequency <= points / 2:
            raise ValueError(f"frequency {frequency} is outside [0, {points / 2:g}] for {points} points")
    transform = torch.fft.rfft(values.double(), dim=-1) / points
    factor = torch.tensor([1.0 if 2 * k in (0, points) else 2.0 for k in frequencies])
    return transform[..., frequencies] * factor.to(transform)


def amplitudes(values: Tensor, frequencies: list[int]) -> Tensor:
    """Amplitude of each frequency: the modulus of :func:`coefficients`, [..., K] float64."""
    return coefficients(values, frequencies).abs()


def linear_weights(model: nn.Module) -> list[Tensor]:
    """The weight matrices [out, in] of a network's linear layers, in order: float64, on the CPU.

    Raises:
        ValueError: the network has no linear layer.
    """
    weights = [
        module.weight.detach().to("cpu", torch.float64)
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    if not weights:
        raise ValueError(f"{type(model).__name__} has no linear layer to take a norm of")
    return weights


def spectral_norms(model: nn.Module) -> Tensor:
    """Largest singular value of the weight matrix of each linear layer, [layers] float64."""
    return torch.stack([torch.linalg.matrix_norm(weight, ord=2) for weight in linear_weights(model)])


def literal_spectral_norms(model: nn.Module, *, iterations: int, generator: torch.Generator) -> Tensor:
    r"""What the code behind the published curves computes under the name of spectral norm.

    For a square matrix W it iterates :math:`b \leftarrow Wb / \lVert Wb \rVert` (on W, not on
    :math:`W^T W`) and returns :math:`n\,\lvert b^T W b \rvert`, where n is the width: its last line
    divides by :math:`b^T` elementwise before it multiplies by :math:`b`. Where W has one real
    dominant eigenvalue this tends to n times its modulus; where it has a complex pair it does not
    converge. For the first and last layer it is the Frobenius norm, which for a row or a
    column is the largest singular value.

    Args:
        model: a network with linear layers.
        iterations: steps of the iteration; the published number is not known.
        generator: of the start vectors, uniform on [0, 1).

    Returns:
        [layers] float64.
    """
    found = []
    for weight in linear_weights(model):
        rows, columns = weight.shape
        if rows != columns:
            found.append(torch.linalg.matrix_norm(weight))
            continue
        b = torch.rand(columns, generator=generator, dtype=torch.float64)
        for _ in range(iterations):
            b = weight @ b
            b = b / torch.linalg.vector_norm(b).clamp_min(torch.finfo(b.dtype).tiny)  # W may be 0
        found.append(rows * (b @ weight @ b).abs())
    return torch.stack(found)


def spectral_radii(model: nn.Module) -> Tensor:
    """Largest modulus of an eigenvalue of each square weight matrix; NaN for the others, [layers].

    The literal quantity above, divided by the width, tends to this one where it converges.
    """
    return torch.stack(
        [
            torch.linalg.eigvals(weight).abs().max()
            if weight.shape[0] == weight.shape[1]
            else weight.new_tensor(torch.nan)
            for weight in linear_weights(model)
        ]
    )
