"""The Gaussian kernel on given inputs, and functions in the basis of its eigenvectors."""

import torch
from torch import Tensor


def gaussian_kernel(x: Tensor, width: float) -> Tensor:
    r"""The matrix :math:`K_{ij} = e^{-\lVert x_i - x_j\rVert^2 / 2\sigma^2}`, [N, N] float64.

    Args:
        x: [N, D] inputs.
        width: :math:`\sigma`, positive.

    Raises:
        ValueError: the width is not positive.
    """
    if not width > 0:
        raise ValueError(f"kernel width {width}: it must be positive")
    x = x.double()
    # Differences of squares lose digits where points are close; this way of taking distances does not.
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return torch.exp(-squares / (2 * width**2))


def eigenbasis(kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues [N], falling, and orthonormal eigenvectors [N, N] in columns, of a symmetric matrix.

    Each eigenvector has its entry of largest modulus positive, since its sign is otherwise arbitrary.
    """
    values, vectors = torch.linalg.eigh(kernel.double())
    values, vectors = values.flip(0), vectors.flip(1)
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return values, vectors * largest.sign()


def binned_spectrum(values: Tensor, basis: Tensor, bins: int) -> Tensor:
    """Moduli of the coefficients of a function in a basis, averaged in bins of neighbours.

    Args:
        values: [N] of the function at the points of the kernel.
        basis: [N, N], eigenvectors in columns.
        bins: number of bins; N must be a multiple.

    Returns:
        [bins] float64.

    Raises:
        ValueError: N is not a multiple of the bins.
    """
    if bins < 1 or len(values) % bins:
        raise ValueError(f"{len(values)} coefficients cannot be put into {bins} equal bins")
    return (basis.T @ values.to(basis)).abs().reshape(bins, -1).mean(dim=1)
