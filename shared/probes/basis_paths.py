r"""Basis paths of plain ReLU networks: coordinates that positive scalings leave alone.

A path runs from an input to an output along one weight of each layer, and its value is their product.
A factor on the incoming weights of a hidden node and its inverse on the outgoing ones changes no path.
All paths are products of powers of m - H of them, m weights and H hidden nodes, and so is the network.
(Yi et al. 2019; the skeleton is that of Meng et al. 2019, "G-SGD".)
"""

import copy
import itertools
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shared.probes.plain import PlainLayer, plain_layers
from shared.rng import generator


class BasisPaths:
    r"""A basis of the paths of a plain network, and the maps between its values and weights.

    The skeleton has one weight into every hidden node up to the widest level and one out of every
    hidden node behind it; those into the first widest level are called free, the others are fixed: one
    for each hidden node, H in all. Every weight that is not fixed has one basis path, which runs along
    the skeleton otherwise. With the fixed weights held, values and weights determine each other.

    Args:
        model: a chain of linear layers and convolutions without biases (see
            :func:`shared.probes.plain.plain_layers`); its weights are read once, here.
        seed: of an order of the nodes, which the skeleton depends on; None for the one they have.

    Attributes:
        model: the network.
        layers: its layers.
        widths: nodes of each level, the input's and the output's among them.
        free_layer: the layer whose skeleton weights are not fixed.
        count: m - H.

    Raises:
        ValueError: the network is not plain, has no hidden layer, has hidden widths that fall and rise
            again, or a zero on its skeleton; the layer is named.
    """

    def __init__(self, model: nn.Module, *, seed: int | None = None):
        self.model = model
        self.layers = plain_layers(model)
        if any(not torch.isfinite(layer.weight).all() for layer in self.layers if not layer.weight.is_meta):
            raise ValueError("the network has weights that are not finite")
        self.widths = [self.layers[0].incoming, *(layer.outgoing for layer in self.layers)]
        hidden = self.widths[1:-1]
        if not hidden:
            raise ValueError("the network has no hidden layer, and so no positive scaling")
        self.free_layer = hidden.index(max(hidden))
        _check_unimodal(hidden, self.layers)
        if self.layers[0].weight.is_meta:
            raise ValueError("the weights are on the meta device and have no values")
        self._orders = [_order(width, seed, level) for level, width in enumerate(self.widths)]
        self._weights = [
            self._ordered(i, layer.edges().detach().double()) for i, layer in enumerate(self.layers)
        ]
        self._factors = self._chain_products()
        for layer, factor in zip(self.layers, self._factors, strict=True):
            if not (torch.isfinite(factor).all() and factor.all()):
                raise ValueError(f"{layer.name}: products along the skeleton leave the range of numbers")
        self._fixed = [self._fixed_entries(index) for index in range(len(self.layers))]
        sizes = [int((~fixed).sum()) for fixed in self._fixed]
        self._offsets = [0, *itertools.accumulate(sizes)]
        self.count = self._offsets[-1]

    def values(self) -> Tensor:
        """The values of all basis paths, [count] float64, layer by layer of their own weights."""
        parts = zip(self._weights, self._factors, self._fixed, strict=True)
        return torch.cat([(weight * factor)[~fixed] for weight, factor, fixed in parts])

    def weights(self, values: Tensor) -> dict[str, Tensor]:
        """The weights with which the basis paths have given values; the fixed ones are held.

        (Equations 20 and 21 of the source, written so that a weight of zero is no exception.)

        Args:
            values: [count] float64; may require gradients.

        Returns:
            Parameters of the model by name, float64.

        Raises:
            ValueError: there are not as many values as paths.
        """
        if values.shape[-1] != self.count:
            raise ValueError(f"values of shape {list(values.shape)}: {self.count} are needed")
        parts = [self._full(index, values) for index in range(len(self.layers))]
        ratio = self._free(parts[self.free_layer]) / self._free_values()
        return {
            layer.parameter: self._unordered(index, self._projected(index, part, ratio))
            for index, (layer, part) in enumerate(zip(self.layers, parts, strict=True))
        }

    def perturbed(self, epsilon: Tensor) -> nn.Module:
        """A copy of the model with the values of its basis paths moved by ``epsilon`` [count].

        Raises:
            ValueError: there is not one finite change for each path, or the value of an all-skeleton path
                would reach or cross zero, which no network with these signs has; the layer is named.
        """
        if epsilon.shape != (self.count,) or not torch.isfinite(epsilon).all():
            raise ValueError(
                f"epsilon of shape {list(epsilon.shape)}: {self.count} finite changes are needed"
            )
        crossing = self.crossings(epsilon)
        if crossing:
            name = self.layers[self.free_layer].name
            raise ValueError(f"{name}: {crossing} of its all-skeleton paths would cross zero")
        changed = copy.deepcopy(self.model)
        with torch.no_grad():
            weights = self.weights(self.values() + epsilon.to(self._weights[0]))
            for name, parameter in changed.named_parameters():
                parameter.copy_(weights[name])
        return changed

    def crossings(self, epsilon: Tensor) -> int:
        """How many all-skeleton paths reach or cross zero under a perturbation [count]."""
        moved = self._free(self._full(self.free_layer, self.values() + epsilon))
        return int((moved * self._free_values() <= 0).sum())

    def nearest_zero(self) -> float:
        """The smallest modulus of an all-skeleton path: so far values can move before one reaches zero."""
        return self._free_values().abs().min().item()

    def flip_radius(self, x: Tensor) -> float:
        r"""Up to which change of path values no node of the first level can switch, for any sample.

        :math:`\min_{x, i} |\sum_j v^i_j x_j| / \|x\|` over samples and nodes i, where :math:`v^i_j` is the
        value of the path from input j through node i and on along the skeleton. (The condition that the
        source derives from its equation 25.)

        Args:
            x: samples [N, ...], flattened to the inputs of a linear first layer; one of zeros alone has no
                say.

        Raises:
            ValueError: the first layer is a convolution, its level is not the widest, or the samples do
                not fit it.
        """
        first = self.layers[0]
        if self.free_layer != 0 or first.weight.ndim != 2:
            raise ValueError(f"{first.name}: a linear layer into the widest level is needed")
        values = (self._weights[0] * self._factors[0])[..., 0]
        vectors = x.flatten(1).to(values)
        vectors = vectors[vectors.norm(dim=1) > 0]
        if vectors.shape[1] != first.incoming or not len(vectors):
            raise ValueError(
                f"samples of {list(x.shape)}: {first.incoming} coordinates, not all zero, are needed"
            )
        sums = vectors[:, self._orders[0]] @ values.T
        return (sums.abs() / vectors.norm(dim=1, keepdim=True)).min().item()

    def exponents(self, nodes: Sequence[int], edges: Sequence[int]) -> dict[int, int]:
        """The powers of basis paths whose product is the value of a path.

        (The source's lemma; here for unequal widths too.)

        Args:
            nodes: of the path, one of each level.
            edges: which of the parallel ones it takes, one for each layer.

        Returns:
            Powers other than zero by the index of the basis path.
        """
        places = [int((o == n).nonzero()) for o, n in zip(self._orders, nodes, strict=True)]
        powers: Counter[int] = Counter()
        for index, edge in enumerate(edges):
            head, tail = places[index + 1], places[index]
            if self._fixed[index][head, tail, edge]:
                continue
            powers[self._coordinate(index, head, tail, edge)] += 1
            if index != self.free_layer:  # its basis path crosses the free layer along a chain
                chain = head if index < self.free_layer else tail
                start = int(self._predecessors(self.free_layer)[chain])
                centre = self.layers[self.free_layer].centre
                powers[self._coordinate(self.free_layer, chain, start, centre)] -= 1
        return {coordinate: power for coordinate, power in powers.items() if power}

    def path(self, coordinate: int) -> tuple[list[int], list[int]]:
        """The nodes, one of each level, and the parallel edges, one for each layer, of a basis path."""
        index = next(i for i, end in enumerate(self._offsets[1:]) if coordinate < end)
        entries = (~self._fixed[index]).nonzero()
        head, tail, edge = entries[coordinate - self._offsets[index]].tolist()
        places, edges = [tail, head], [edge]
        for layer in range(index - 1, -1, -1):
            places.insert(0, int(self._predecessors(layer)[places[0]]))
            edges.insert(0, self.layers[layer].centre)
        for layer in range(index + 1, len(self.layers)):
            places.append(int(self._successors(layer)[places[-1]]))
            edges.append(self.layers[layer].centre)
        return [int(o[place]) for o, place in zip(self._orders, places, strict=True)], edges

    def skeleton(self) -> list[tuple[int, int, int, bool]]:
        """Layer, tail, head, and whether it is free, of every skeleton weight."""
        chains = self._free_entries()
        found = []
        for index, fixed in enumerate(self._fixed):
            marked = (chains if index == self.free_layer else fixed).any(dim=2)
            for head, tail in marked.nonzero().tolist():
                ends = int(self._orders[index][tail]), int(self._orders[index + 1][head])
                found.append((index, *ends, index == self.free_layer))
        return found

    def _free_entries(self) -> Tensor:
        """The free entries of the free layer, as truth values [outgoing, incoming, edges]."""
        entries = torch.zeros_like(self._weights[self.free_layer], dtype=torch.bool)
        tails = self._predecessors(self.free_layer)
        entries[torch.arange(len(tails)), tails, self.layers[self.free_layer].centre] = True
        return entries

    def _ordered(self, index: int, edges: Tensor) -> Tensor:
        return edges[self._orders[index + 1]][:, self._orders[index]]

    def _unordered(self, index: int, edges: Tensor) -> Tensor:
        back = [order.argsort() for order in self._orders[index : index + 2]]
        return edges[back[1]][:, back[0]].reshape(self.layers[index].weight.shape)

    def _predecessors(self, index: int) -> Tensor:
        """The tail of the skeleton weight into each node behind layer ``index``."""
        before, behind = self.widths[index : index + 2]
        return torch.arange(behind) % before

    def _successors(self, index: int) -> Tensor:
        """The head of the skeleton weight out of each node before layer ``index``."""
        before, behind = self.widths[index : index + 2]
        return torch.arange(before) % behind

    def _chain_products(self) -> list[Tensor]:
        """For each layer [outgoing, incoming, 1], the product of the skeleton weights before and behind."""
        last = len(self.layers) - 1
        before = [self._weights[0].new_ones(self.widths[0])]
        for index in range(last):
            tails = self._predecessors(index)
            steps = self._skeleton(index, torch.arange(len(tails)), tails)
            before.append(steps * before[-1][tails])
        behind = [self._weights[0].new_ones(self.widths[-1])]
        for index in range(last, 0, -1):
            heads = self._successors(index)
            steps = self._skeleton(index, heads, torch.arange(len(heads)))
            behind.insert(0, steps * behind[0][heads])
        return [b[None, :, None] * a[:, None, None] for b, a in zip(before, behind, strict=True)]

    def _skeleton(self, index: int, heads: Tensor, tails: Tensor) -> Tensor:
        """Weights of layer ``index`` that chains run along; none may be zero."""
        chosen = self._weights[index][heads, tails, self.layers[index].centre]
        if (chosen == 0).any():
            raise ValueError(
                f"{self.layers[index].name}: {int((chosen == 0).sum())} skeleton weights are zero"
            )
        return chosen

    def _fixed_entries(self, index: int) -> Tensor:
        """The entries of layer ``index`` that are held, as truth values [outgoing, incoming, edges]."""
        fixed = torch.zeros_like(self._weights[index], dtype=torch.bool)
        centre = self.layers[index].centre
        if index < self.free_layer:
            tails = self._predecessors(index)
            fixed[torch.arange(len(tails)), tails, centre] = True
        elif index > self.free_layer:
            heads = self._successors(index)
            fixed[heads, torch.arange(len(heads)), centre] = True
        return fixed

    def _coordinate(self, index: int, head: int, tail: int, edge: int) -> int:
        """Place among the values of the basis path of one weight."""
        flat = (~self._fixed[index]).flatten()
        shape = self._weights[index].shape
        place = (head * shape[1] + tail) * shape[2] + edge
        return self._offsets[index] + int(flat[:place].sum())

    def _full(self, index: int, values: Tensor) -> Tensor:
        """The values of the layer's basis paths at the places of their weights; anything at fixed ones."""
        fixed = self._fixed[index]
        if index == self.free_layer:
            return values[self._offsets[index] : self._offsets[index + 1]].view(fixed.shape)
        places = ((~fixed).flatten().cumsum(0) - 1 + self._offsets[index]).clamp(0, self.count - 1)
        return values[places].view(fixed.shape)

    def _free(self, part: Tensor) -> Tensor:
        """Of something at the places of the free layer's weights, what is at the free ones."""
        tails = self._predecessors(self.free_layer)
        return part[torch.arange(len(tails)), tails, self.layers[self.free_layer].centre]

    def _free_values(self) -> Tensor:
        return self._free(self._weights[self.free_layer] * self._factors[self.free_layer])

    def _projected(self, index: int, part: Tensor, ratio: Tensor) -> Tensor:
        """Weights of a layer from the values of its paths and the factors on the free weights."""
        weights = part / self._factors[index]
        if index < self.free_layer:
            weights = weights / ratio[: self.widths[index + 1], None, None]
        elif index > self.free_layer:
            weights = weights / ratio[None, : self.widths[index], None]
        return torch.where(self._fixed[index], self._weights[index], weights)


def rescaled(model: nn.Module, factors: Sequence[Tensor]) -> nn.Module:
    """A copy of a plain network under a positively scaling transformation, equation (1) of the source.

    Args:
        model: a plain network.
        factors: [h] positive for each hidden level: on the incoming weights of its nodes, and their
            inverses on the outgoing ones.

    Raises:
        ValueError: the network is not plain, or the factors do not fit it or are not positive.
    """
    changed = copy.deepcopy(model)
    layers = plain_layers(changed)
    widths = [layer.outgoing for layer in layers[:-1]]
    fitting = [len(factor) for factor in factors] == widths
    if not (fitting and all(((factor > 0) & torch.isfinite(factor)).all() for factor in factors)):
        raise ValueError(f"factors: positive ones for hidden levels of {widths} nodes are needed")
    outer = [torch.ones(layers[0].incoming), *factors, torch.ones(layers[-1].outgoing)]
    with torch.no_grad():
        for layer, before, behind in zip(layers, outer, outer[1:], strict=False):
            tails, heads = (part.to(layer.weight.device).double() for part in (before, behind))
            factor = heads[:, None, None] / tails[None, :, None]
            layer.weight.copy_((layer.edges().double() * factor).view(layer.weight.shape))
    return changed


def _check_unimodal(hidden: list[int], layers: list[PlainLayer]) -> None:
    widest = hidden.index(max(hidden))
    for level, (before, behind) in enumerate(itertools.pairwise(hidden)):
        if before > behind if level < widest else before < behind:
            raise ValueError(
                f"{layers[level + 1].name}: from {before} to {behind} nodes; the hidden widths {hidden} must "
                "rise and then fall, or a weight would have no path along the skeleton"
            )


def _order(width: int, seed: int | None, level: int) -> Tensor:
    return torch.arange(width) if seed is None else torch.randperm(width, generator=generator(seed, level))
