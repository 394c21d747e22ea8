"""Networks that cut an image into patches: a small vision transformer and a small MLP-mixer."""

import math

import torch
from torch import Tensor, nn

from shared.models import register
from shared.models.convolutional import scaled


class Patches(nn.Conv2d):
    """Squares of ``patch`` pixels, each mapped to one token of ``features``."""

    def __init__(self, in_channels: int, features: int, patch: int):
        super().__init__(in_channels, features, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, size, size] to tokens [N, (size / patch)^2, features]."""
        return super().forward(x).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    """Attention of tokens to each other, in several heads."""

    def __init__(self, features: int, heads: int):
        super().__init__()
        self.heads = heads
        self.incoming = nn.Linear(features, 3 * features)
        self.outgoing = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, tokens, features] to the same shape."""
        count, tokens, features = x.shape
        parts = self.incoming(x).view(count, tokens, 3, self.heads, features // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(2, 3) / math.sqrt(query.shape[3])).softmax(dim=3)
        return self.outgoing((weights @ value).transpose(1, 2).flatten(2))


class TransposedMLP(nn.Module):
    """A hidden layer that mixes the tokens of each feature."""

    def __init__(self, tokens: int, hidden: int):
        super().__init__()
        self.layers = _hidden_layer(tokens, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, tokens, features] to the same shape."""
        return self.layers(x.transpose(1, 2)).transpose(1, 2)


class Residual(nn.Module):
    """Add what a part makes of the normalised tokens to the tokens."""

    def __init__(self, features: int, part: nn.Module):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, tokens, features] to the same shape."""
        return x + self.part(self.norm(x))


class PatchNetwork(nn.Module):
    """Patches, residual parts, the mean over tokens, and a linear layer.

    Args:
        patches: the first layer.
        parts: of the residual stream.
        position: features of each place [tokens, features], added to the tokens; None for none.
        classes: outputs.
    """

    def __init__(self, patches: Patches, parts: list[nn.Module], position: Tensor | None, classes: int):
        super().__init__()
        features = patches.out_channels
        self.patches = patches
        self.position = None if position is None else nn.Parameter(position)
        self.parts = nn.Sequential(*(Residual(features, part) for part in parts), nn.LayerNorm(features))
        self.classifier = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        tokens = self.patches(x)
        if self.position is not None:
            tokens = tokens + self.position
        return self.classifier(self.parts(tokens).mean(dim=1))


@register("vision_transformer")
class VisionTransformer(PatchNetwork):
    """A vision transformer of two layers, with torch's default initialisation.

    (Dosovitskiy et al. 2021, with the mean over tokens in place of a class token.)

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of the 64 features.
        size: pixels a side.
        patch: pixels a side of a patch, a divisor of the size.
        depth: layers of attention, each with a hidden layer behind it.
        heads: of the attention, a divisor of the features.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        classes: int,
        width: float = 1.0,
        size: int = 32,
        patch: int = 4,
        depth: int = 2,
        heads: int = 4,
    ):
        features, tokens = scaled(width, 64), _tokens(size, patch)
        if features % heads:
            raise ValueError(f"width = {width}: {heads} heads do not divide {features} features")
        parts: list[nn.Module] = []
        for _ in range(depth):
            parts += [Attention(features, heads), _hidden_layer(features, 2 * features)]
        position = nn.init.normal_(torch.empty(tokens, features), std=1 / math.sqrt(features))
        super().__init__(Patches(in_channels, features, patch), parts, position, classes)


@register("mlp_mixer")
class MLPMixer(PatchNetwork):
    """An MLP-mixer of two layers, with torch's default initialisation (Tolstikhin et al. 2021).

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of the 64 features.
        size: pixels a side.
        patch: pixels a side of a patch, a divisor of the size.
        depth: layers, each of a mixing of tokens and one of features.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        classes: int,
        width: float = 1.0,
        size: int = 32,
        patch: int = 4,
        depth: int = 2,
    ):
        features, tokens = scaled(width, 64), _tokens(size, patch)
        parts: list[nn.Module] = []
        for _ in range(depth):
            parts += [TransposedMLP(tokens, tokens), _hidden_layer(features, 2 * features)]
        super().__init__(Patches(in_channels, features, patch), parts, None, classes)


def _hidden_layer(features: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, features))


def _tokens(size: int, patch: int) -> int:
    if patch < 1 or size % patch:
        raise ValueError(f"size = {size}, patch = {patch}: the patch must divide the size")
    return (size // patch) ** 2
