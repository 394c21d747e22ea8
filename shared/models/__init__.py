"""Networks by name."""

from collections.abc import Callable
from typing import Any

from torch import nn

from shared.rng import global_seed

REGISTRY: dict[str, Callable[..., nn.Module]] = {}


def register(name: str) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Make a constructor known to :func:`build` under ``name``."""

    def wrap(constructor: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        REGISTRY[name] = constructor
        return constructor

    return wrap


def build(
    name: str, *, in_channels: int = 3, classes: int = 10, width: float = 1.0, seed: int = 0, **options: Any
) -> nn.Module:
    """The network called ``name``, freshly initialised.

    Args:
        name: a key of ``REGISTRY``.
        in_channels: channels of the input; for fully connected networks, its coordinates.
        classes: outputs.
        width: multiplier of every hidden width; 1 is the source's own network.
        seed: of the initial weights, which depend on nothing else.
        options: what the constructor takes beyond these.

    Raises:
        ValueError: the name is unknown, or the constructor refuses a value.
    """
    if name not in REGISTRY:
        raise ValueError(f"no network is called {name!r}; there are {', '.join(sorted(REGISTRY))}")
    with global_seed(seed):
        return REGISTRY[name](in_channels=in_channels, classes=classes, width=width, **options)


from shared.models import (  # noqa: E402  they register their networks
    convolutional,
    fully_connected,
    linear,
    mean_field,
    mixing,
    plain,
    residual,
)

__all__ = [
    "REGISTRY",
    "build",
    "convolutional",
    "fully_connected",
    "linear",
    "mean_field",
    "mixing",
    "plain",
    "register",
    "residual",
]
