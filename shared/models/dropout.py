"""Dropout whose mask is drawn before the pass, so that it depends on a seed alone."""

import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Set each of ``features`` to zero with some probability in training, and scale up the others.

    The mask is a buffer [N, features] that :func:`masks` draws before each pass: the same on every
    device, and in an ensemble of networks the same as in each of them alone.

    Args:
        features: of the input [N, features].
        probability: of a zero.
    """

    def __init__(self, features: int, probability: float = 0.5):
        super().__init__()
        self.features, self.probability = features, probability
        self.register_buffer("mask", torch.ones(1, features), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, features] to the same shape."""
        return x * self.mask if self.training else x


def masks(model: nn.Module, count: int, generator: torch.Generator) -> dict[str, Tensor]:
    """New masks for a batch of ``count``, by the names of the buffers that they belong in."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            kept = torch.rand(count, module.features, generator=generator) >= module.probability
            found[f"{name}.mask"] = (kept / (1 - module.probability)).to(module.mask)
    return found
