"""Networks whose paths the basis does not describe, and what is said of them."""

import pytest
import torch
from test_basis_paths import mlp
from torch import nn

from shared.probes.basis_paths import BasisPaths


class Shortcut(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Linear(3, 3, bias=False) for _ in range(2))

    def forward(self, x):
        y = self.first(x).relu()
        return self.second(y) + y


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.layer(torch.relu(self.layer(x)))


class Choosing(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class Odd(nn.ReLU):
    def forward(self, x):
        return x.sigmoid()


def zeroed(model: nn.Module, value: float = 0.0) -> nn.Module:
    with torch.no_grad():
        model[2].weight[1, 1] = value
    return model


def unflattened() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Linear(4, 2, bias=False))


def faint() -> nn.Module:
    model = mlp([2, *[2] * 60, 2])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-6)
    return model


def plain(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3, bias=False), *modules, nn.Linear(3, 2, bias=False))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)), "^2: has a bias"),
        (plain(nn.BatchNorm1d(3), nn.ReLU()), "^1: BatchNorm1d; path values do not"),
        (plain(nn.GELU()), "^1: GELU is not known to commute"),
        (Shortcut(), "relu: a shortcut, a second branch"),
        (Twice(), "^layer: its weights are used twice"),
        (Choosing(), "cannot be read as a chain of layers"),
        (zeroed(mlp([3, 4, 4, 2])), "^2: 1 skeleton weights are zero"),
        (
            mlp([4, 6, 2, 6, 3]),
            r"^4: from 2 to 6 nodes; the hidden widths \[6, 2, 6\]",
        ),
        (mlp([3, 2]), "no hidden layer"),
        (nn.ReLU(), "no layer with weights"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Linear(4, 2, bias=False)),
            "^1: a linear behind an",
        ),
        (plain(nn.Flatten()), r"^1: only an image is flattened, from its channels on: flatten\(1\)"),
        (nn.Sequential(nn.Flatten(2), nn.Linear(3, 3, bias=False)), "^0: only an image is flattened"),
        (plain(nn.MaxPool2d(2)), "^1: a pooling behind a vector"),
        (plain(Odd()), "^1: Odd is not known to commute"),
        (zeroed(mlp([3, 4, 4, 2]), float("nan")), "weights that are not finite"),
        (mlp([3, 4, 4, 2]).to("meta"), "on the meta device"),
        (faint(), "^0: products along the skeleton leave the range"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2, bias=False), nn.ReLU()), "^0: a convolution in 2 groups"),
    ],
)
def test_what_is_not_plain_is_refused(model, message):
    with pytest.raises(ValueError, match=message):
        BasisPaths(model)
