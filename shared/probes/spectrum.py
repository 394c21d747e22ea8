"""Fourier amplitudes of sampled functions, and norms of a network's weight matrices."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from shared.rng import generator as seeded_generator


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


def random_direction(model: nn.Module, *index: int) -> dict[str, Tensor]:
    """A random direction of unit length in the space of all parameters, by parameter name.

    It is uniform on the sphere, float32, on the device of the parameters, and depends on ``index``
    (seed first) alone.
    """
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    device = next(model.parameters()).device
    vector = torch.randn(sum(map(torch.Size.numel, shapes.values())), generator=seeded_generator(*index))
    parts = (vector / vector.norm()).split([shape.numel() for shape in shapes.values()])
    return {
        name: part.reshape(shape).to(device)
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


@torch.no_grad()
def perturbed_amplitudes(
    model: nn.Module,
    x: Tensor,
    frequencies: list[int],
    radii: list[float],
    draws: int,
    *,
    seed: int,
    batch: int = 20,
) -> Tensor:
    r"""Amplitudes of a network whose parameters are moved by a given length in random directions.

    The parameters become :math:`\theta + \rho\hat\theta` with :math:`\hat\theta` uniform on the unit
    sphere of all parameters, a new one for each radius and draw (Rahaman et al. 2019, fig. 4).

    Args:
        model: with one output; its parameters and gradients are left as they are.
        x: [N, in] inputs on the uniform grid z = n / N.
        frequencies: K whole periods over the unit interval.
        radii: R lengths, each at least 0.
        draws: D directions for each radius.
        seed: of the directions.
        batch: how many perturbed networks are evaluated at once; does not change the result beyond
            rounding.

    Returns:
        [R, D, K] float64.

    Raises:
        ValueError: a radius is negative, or a count below one.
    """
    if min(radii, default=0) < 0 or draws < 1 or batch < 1:
        raise ValueError(f"radii {radii}, draws {draws}, batch {batch}: none below 0, 1 and 1 is allowed")
    parameters = dict(model.named_parameters())

    def output(shift: dict[str, Tensor]) -> Tensor:
        return functional_call(model, {name: parameters[name] + shift[name] for name in parameters}, (x,))[
            :, 0
        ]

    found = []
    for row, radius in enumerate(radii):
        for start in range(0, draws, batch):
            directions = [
                random_direction(model, seed, row, draw) for draw in range(start, min(start + batch, draws))
            ]
            shifts = {name: radius * torch.stack([d[name] for d in directions]) for name in parameters}
            found.append(amplitudes(vmap(output)(shifts), frequencies))
    return torch.cat(found).reshape(len(radii), draws, len(frequencies))


def flow_rate(model: nn.Module, x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    r"""How fast a network's function changes under gradient flow on its mean squared error.

    :math:`\dot f(z) = -\nabla_\theta f(z) \cdot \nabla_\theta \frac1N \sum_n (f(x_n) - y_n)^2`, which on
    the training inputs is also the rate of the residual :math:`f - y`.

    Args:
        model: with one output; its parameters and gradients are left as they are.
        x: [N, in] training inputs.
        y: [N, 1] targets.
        at: [M, in] where the rate is wanted.

    Returns:
        [M], of the precision of ``x``.
    """
    parameters = list(model.parameters())
    descent = [-g for g in torch.autograd.grad(nn.functional.mse_loss(model(x), y), parameters)]
    # The product of the Jacobian with the descent direction, as the derivative of one with its transpose.
    output = model(at)[:, 0]
    probe = torch.zeros_like(output, requires_grad=True)
    transposed = torch.autograd.grad(output, parameters, probe, create_graph=True)
    return torch.autograd.grad(transposed, probe, descent)[0]
