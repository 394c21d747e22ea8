import math

import pytest
import torch

from shared.probes.kernel import binned_spectrum, eigenbasis, gaussian_kernel
from shared.rng import generator

X = torch.randn(12, 5, generator=generator(0))


def test_the_kernel_is_its_formula_entry_by_entry():
    found = gaussian_kernel(X, 1.3)
    assert found.dtype == torch.float64
    for i in range(12):
        for j in range(12):
            square = sum((a - b) ** 2 for a, b in zip(X[i].tolist(), X[j].tolist(), strict=True))
            assert found[i, j].item() == pytest.approx(math.exp(-square / (2 * 1.3**2)), rel=1e-12)


def test_the_basis_is_orthonormal_diagonalises_and_has_its_signs():
    kernel = gaussian_kernel(X, 1.3)
    values, vectors = eigenbasis(kernel)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-12)
    torch.testing.assert_close(vectors @ torch.diag(values) @ vectors.T, kernel, rtol=0, atol=1e-12)
    assert (values.diff() <= 0).all()
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    assert (largest > 0).all()


def test_coefficients_return_the_function():
    _, vectors = eigenbasis(gaussian_kernel(X, 1.3))
    function = torch.randn(12, dtype=torch.float64, generator=generator(1))
    torch.testing.assert_close(vectors @ (vectors.T @ function), function)
    spectrum = binned_spectrum(function, vectors, 12)
    assert (spectrum**2).sum().item() == pytest.approx((function**2).sum().item())


def test_an_eigenvector_has_one_coefficient_and_bins_average():
    _, vectors = eigenbasis(gaussian_kernel(X, 1.3))
    found = binned_spectrum(3 * vectors[:, 4], vectors, 4)
    torch.testing.assert_close(found, torch.tensor([0, 1.0, 0, 0], dtype=torch.float64), rtol=0, atol=1e-12)


def test_on_a_line_eigenvectors_have_as_many_sign_changes_as_their_index():
    z = (torch.arange(60, dtype=torch.float64) / 60)[:, None]
    _, vectors = eigenbasis(gaussian_kernel(z, 0.1))
    for index in range(10):
        assert (vectors[:, index].sign().diff() != 0).sum().item() == index


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="width 0: it must be positive"):
        gaussian_kernel(X, 0)
    with pytest.raises(ValueError, match="12 coefficients cannot be put into 5 equal bins"):
        binned_spectrum(torch.zeros(12), torch.eye(12), 5)
