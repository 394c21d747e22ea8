"""Basis paths against brute force over all paths of small networks."""

import itertools
import math

import pytest
import torch
from torch import nn

from shared.models import build
from shared.probes.basis_paths import BasisPaths, rescaled
from shared.probes.plain import plain_layers
from shared.rng import generator

UNIMODAL = [[3, 4, 4, 4, 2], [5, 4, 4, 3], [3, 2, 4, 6, 3], [6, 5, 4, 3, 2], [3, 4, 6, 4, 2], [2, 2, 4, 2, 2]]
EQUAL = [[3, 4, 4, 4, 2], [5, 4, 4, 3], [2, 5, 3]]


def mlp(widths: list[int], seed: int = 0) -> nn.Module:
    modules = []
    for fan_in, fan_out in itertools.pairwise(widths):
        modules += [nn.Linear(fan_in, fan_out, bias=False), nn.ReLU()]
    return drawn(nn.Sequential(*modules[:-1]), seed)


def cnn(seed: int = 0) -> nn.Module:
    layers = [
        nn.Conv2d(2, 2, 3, padding=1, bias=False), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2, 3, (1, 2), bias=False), nn.ReLU(), nn.AvgPool2d((1, 1)), nn.Flatten(),
        nn.Linear(3 * 2, 2, bias=False),
    ]  # fmt: skip
    return drawn(nn.Sequential(*layers), seed)


def drawn(model: nn.Module, seed: int) -> nn.Module:
    model = model.double()
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            draw = torch.randn(parameter.shape, generator=generator(seed, place), dtype=torch.float64)
            parameter.copy_(draw + 0.3 * draw.sign())  # none close to zero
    return model


def all_paths(model: nn.Module) -> dict[tuple[tuple[int, ...], tuple[int, ...]], float]:
    """The value of every path by its nodes and its parallel edges, by going through all of them."""
    layers = [layer.edges().detach() for layer in plain_layers(model)]
    widths = [layers[0].shape[1], *(layer.shape[0] for layer in layers)]
    found = {}
    for nodes in itertools.product(*map(range, widths)):
        for edges in itertools.product(*(range(layer.shape[2]) for layer in layers)):
            steps = (layers[i][nodes[i + 1], nodes[i], edges[i]].item() for i in range(len(layers)))
            found[nodes, edges] = math.prod(steps)
    return found


def path_matrix(model: nn.Module, seed: int | None = None) -> torch.Tensor:
    """How often each basis path [m - H] takes each weight [m], from doubling one weight after another."""
    before = BasisPaths(model, seed=seed).values()
    columns = []
    for parameter in model.parameters():
        for place in range(parameter.numel()):
            with torch.no_grad():
                parameter.view(-1)[place] *= 2
                columns.append((BasisPaths(model, seed=seed).values() / before).log2())
                parameter.view(-1)[place] /= 2
    return torch.stack(columns, dim=1)


NETWORKS = {**{"-".join(map(str, w)): mlp(w) for w in UNIMODAL}, "convolutional": cnn()}


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_basis_has_as_many_paths_as_weights_less_hidden_nodes(name, seed):
    model = NETWORKS[name]
    layers = plain_layers(model)
    weights = sum(layer.weight.numel() for layer in layers)
    hidden = sum(layer.outgoing for layer in layers[:-1])
    matrix = path_matrix(model, seed)
    assert BasisPaths(model, seed=seed).count == len(matrix) == weights - hidden
    assert torch.linalg.matrix_rank(matrix) == weights - hidden
    ends = torch.tensor([0, *itertools.accumulate(layer.weight.numel() for layer in layers)])
    assert set(matrix.unique().tolist()) == {0.0, 1.0}
    for start, end in itertools.pairwise(ends):
        assert (matrix[:, start:end].sum(dim=1) == 1).all()


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_basis_path_is_a_path_and_every_path_comes_from_them(name, seed):
    model = NETWORKS[name]
    paths = BasisPaths(model, seed=seed)
    values = paths.values()
    table = all_paths(model)
    alone = set()
    for (nodes, edges), value in table.items():
        powers = paths.exponents(nodes, edges)
        product = math.prod(values[place].item() ** power for place, power in powers.items())
        assert product == pytest.approx(value, rel=1e-12)
        if list(powers.values()) == [1]:
            alone |= set(powers)
    assert alone == set(range(paths.count))


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_basis_path_is_told_by_its_nodes(name, seed):
    paths = BasisPaths(NETWORKS[name], seed=seed)
    for coordinate in range(paths.count):
        nodes, edges = paths.path(coordinate)
        assert paths.exponents(nodes, edges) == {coordinate: 1}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_skeleton_has_a_weight_for_every_hidden_node_and_the_chains(name, seed):
    paths = BasisPaths(NETWORKS[name], seed=seed)
    skeleton = paths.skeleton()
    hidden = paths.widths[1:-1]
    assert sum(not free for *_, free in skeleton) == sum(hidden)
    assert sum(free for *_, free in skeleton) == max(hidden)
    # One into every node up to the widest level, and one out of every node from there on.
    widest = paths.free_layer + 1
    assert sorted((i, head) for i, _, head, _ in skeleton if i < widest) == [
        (i, head) for i in range(widest) for head in range(paths.widths[i + 1])
    ]
    assert sorted((i, tail) for i, tail, _, _ in skeleton if i >= widest) == [
        (i, tail) for i in range(widest, len(paths.layers)) for tail in range(paths.widths[i])
    ]


@pytest.mark.parametrize("widths", EQUAL)
def test_the_lemma_of_the_source_for_equal_widths(widths):
    """A product over the non-skeleton weights, divided by the chains between them."""
    model = mlp(widths)
    paths = BasisPaths(model)
    values = paths.values()
    for (nodes, _), value in all_paths(model).items():
        last = len(widths) - 2
        off = [
            i
            for i in range(last + 1)
            if not (
                (i == 0 and nodes[0] == nodes[1] % widths[0])
                or (i == last and nodes[last + 1] == nodes[last] % widths[-1])
                or (0 < i < last and nodes[i] == nodes[i + 1])
            )
        ]
        singles = [_along_skeleton(nodes, i, widths) for i in off]
        between = [nodes[i + 1] for i in off[:-1]]
        chains = [_chain(node, widths) for node in between]
        if not off:
            singles, chains = [nodes], []
        numerator = math.prod(_value(paths, values, path) for path in singles)
        denominator = math.prod(_value(paths, values, path) for path in chains)
        assert numerator / denominator == pytest.approx(value, rel=1e-12)


def _chain(node: int, widths: list[int]) -> tuple[int, ...]:
    return (node % widths[0], *[node] * (len(widths) - 2), node % widths[-1])


def _along_skeleton(nodes: tuple[int, ...], step: int, widths: list[int]) -> tuple[int, ...]:
    tail, head = nodes[step], nodes[step + 1]
    before = _chain(tail, widths)[:step] if step else ()
    behind = _chain(head, widths)[step + 2 :] if step + 2 < len(widths) else ()
    return (*before, tail, head, *behind)


def _value(paths: BasisPaths, values: torch.Tensor, nodes: tuple[int, ...]) -> float:
    powers = paths.exponents(nodes, [0] * (len(nodes) - 1))
    assert list(powers.values()) == [1]
    return values[next(iter(powers))].item()


@pytest.mark.parametrize("seed", [None, 2])
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_and_values_determine_each_other(name, seed):
    model = NETWORKS[name]
    paths = BasisPaths(model, seed=seed)
    values = paths.values()
    for parameter, weight in paths.weights(values).items():
        torch.testing.assert_close(weight, model.get_parameter(parameter).detach(), rtol=1e-12, atol=0)
    epsilon = 0.3 * values * torch.rand(paths.count, generator=generator(5), dtype=torch.float64)
    moved = BasisPaths(paths.perturbed(epsilon), seed=seed)
    torch.testing.assert_close(moved.values(), values + epsilon, rtol=1e-12, atol=0)
    back = moved.weights(values)
    for parameter, weight in model.named_parameters():
        torch.testing.assert_close(back[parameter], weight.detach(), rtol=1e-11, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_positive_scalings_change_neither_function_nor_values(name):
    model = NETWORKS[name]
    layers = plain_layers(model)
    factors = [
        torch.exp(2 * torch.randn(layer.outgoing, generator=generator(7, i), dtype=torch.float64))
        for i, layer in enumerate(layers[:-1])
    ]
    scaled = rescaled(model, factors)
    shape = (2, 4, 4) if name == "convolutional" else (layers[0].incoming,)
    if name == "convolutional":
        shape = (2, 2, 6)
    x = torch.randn(9, *shape, generator=generator(8), dtype=torch.float64)
    assert not torch.allclose(layers[0].weight, plain_layers(scaled)[0].weight)
    torch.testing.assert_close(scaled(x), model(x), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(BasisPaths(scaled).values(), BasisPaths(model).values(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("name", ["3-4-6-4-2", "3-4-4-4-2", "convolutional"])
def test_the_gradient_over_values_against_differences(name, seed):
    model = NETWORKS[name]
    paths = BasisPaths(model, seed=seed)
    shape = (2, 2, 6) if name == "convolutional" else (3,)
    x = torch.randn(6, *shape, generator=generator(9), dtype=torch.float64)

    def loss(values):
        outputs = torch.func.functional_call(model, paths.weights(values), (x,))
        return outputs.logsumexp(dim=1).sum()

    values = paths.values().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(values), values)
    step = 1e-6
    for place in range(0, paths.count, 5):
        shift = torch.zeros(paths.count, dtype=torch.float64)
        shift[place] = step * values[place].abs().item()
        difference = (loss(values.detach() + shift) - loss(values.detach() - shift)) / (2 * shift[place])
        assert gradient[place].item() == pytest.approx(difference.item(), rel=1e-6, abs=1e-8)
    # A common factor on all values is one on the function.
    factor = torch.ones((), dtype=torch.float64, requires_grad=True)
    (along,) = torch.autograd.grad((factor * model(x)).logsumexp(dim=1).sum(), factor)
    torch.testing.assert_close((gradient * values.detach()).sum(), along, rtol=1e-10, atol=0)


def test_what_crosses_zero_is_counted_and_refused():
    model = mlp([3, 4, 4, 2])
    paths = BasisPaths(model)
    values = paths.values()
    chains = {next(iter(paths.exponents(_chain(i, [3, 4, 4, 2]), [0] * 3))) for i in range(4)}
    assert len(chains) == 4
    epsilon = torch.zeros(paths.count, dtype=torch.float64)
    first, second, *_ = sorted(chains)
    epsilon[first], epsilon[second] = -values[first], -3 * values[second]
    assert paths.crossings(epsilon) == 2
    with pytest.raises(ValueError, match=r"^0: 2 of its all-skeleton paths would cross zero"):
        paths.perturbed(epsilon)
    other = next(i for i in range(paths.count) if i not in chains)
    epsilon = torch.zeros(paths.count, dtype=torch.float64)
    epsilon[other] = -2 * values[other]
    assert paths.crossings(epsilon) == 0
    torch.testing.assert_close(BasisPaths(paths.perturbed(epsilon)).values(), values + epsilon)


def test_a_weight_of_zero_off_the_skeleton_is_no_exception():
    model = mlp([3, 4, 4, 2])
    with torch.no_grad():
        model[2].weight[0, 1] = 0
    paths = BasisPaths(model)
    values = paths.values()
    assert (values == 0).sum() == 1
    moved = paths.perturbed(torch.full((paths.count,), 1e-3, dtype=torch.float64))
    torch.testing.assert_close(BasisPaths(moved).values(), values + 1e-3)


@pytest.mark.parametrize("seed", [None, 6])
def test_within_the_flip_radius_no_node_of_the_first_level_switches(seed):
    widths = [3, 5, 5, 2]
    model = mlp(widths)
    paths = BasisPaths(model, seed=seed)
    x = torch.randn(40, 3, generator=generator(1), dtype=torch.float64)
    radius = paths.flip_radius(x)
    before = model[0](x) > 0
    for draw in range(30):
        step = torch.randn(paths.count, generator=generator(2, draw), dtype=torch.float64)
        moved = paths.perturbed(0.999 * radius * step / step.norm())
        assert ((moved[0](x) > 0) == before).all()
    # The nearest switch: along the sample, for the node whose sum is the smallest.
    sums = torch.stack([_path_sums(paths, node, widths) for node in range(5)])
    distance = (x @ sums.T).abs() / x.norm(dim=1, keepdim=True)
    assert distance.min().item() == pytest.approx(radius, rel=1e-12)
    sample, node = divmod(int(distance.argmin()), 5)
    step = torch.zeros(paths.count, dtype=torch.float64)
    towards = -x[sample] / x[sample].norm() * (x[sample] @ sums[node]).sign()
    for place in range(3):
        step[_first_place(paths, place, node, widths)] = 1.001 * radius * towards[place]
    assert ((paths.perturbed(step)[0](x) > 0) != before).sum() == 1
    with pytest.raises(ValueError, match=r"^0: a linear layer into the widest level"):
        BasisPaths(mlp([3, 4, 6, 2])).flip_radius(x)


def _first_place(paths: BasisPaths, start: int, node: int, widths: list[int]) -> int:
    """The basis path of a weight of the first layer, whose places come first."""
    for rest in itertools.product(*map(range, widths[2:])):
        powers = paths.exponents((start, node, *rest), [0] * (len(widths) - 1))
        if list(powers.values()) == [1] and min(powers) < widths[0] * widths[1]:
            return min(powers)
    raise AssertionError


def _path_sums(paths: BasisPaths, node: int, widths: list[int]) -> torch.Tensor:
    values = paths.values()
    return torch.stack([values[_first_place(paths, start, node, widths)] for start in range(3)])


def test_one_output_is_enough():
    model = mlp([5, 4, 4, 1])
    paths = BasisPaths(model)
    for name, weight in paths.weights(paths.values()).items():
        torch.testing.assert_close(weight, model.get_parameter(name).detach())


def test_the_full_plainnet18_has_the_count_of_the_source():
    paths = BasisPaths(build("plainnet18"))
    assert sum(layer.weight.numel() for layer in paths.layers) == 10_992_320
    assert paths.count == 10_988_416
    assert sum(int(f.sum()) for f in paths._fixed) == 3_904
    values = paths.values()
    assert len(values) == paths.count
    assert torch.isfinite(values).all()


def test_initial_ones_lie_on_the_skeleton():
    for model in (build("plainnet18", width=1 / 16), build("plain_mlp", in_channels=20, hidden=8)):
        paths = BasisPaths(model)
        assert all(product.min() == product.max() == 1 for product in paths._factors)
    for name, options in (("plainnet18", {"width": 1 / 16}), ("plain_mlp", {"in_channels": 3072})):
        outputs = build(name, initial="he", **options)(torch.randn(64, 3, 32, 32, generator=generator(0)))
        assert 0.1 < outputs.std() < 10
    with pytest.raises(ValueError, match="initial = 'zeros': he or skeleton"):
        build("plain_mlp", initial="zeros")


@pytest.mark.parametrize("epsilon", [torch.ones(()), torch.ones(1), torch.full((30,), float("nan"))])
def test_changes_that_do_not_fit_are_refused(epsilon):
    paths = BasisPaths(mlp([3, 4, 4, 2]))
    with pytest.raises(ValueError, match=f"{paths.count} finite changes"):
        paths.perturbed(epsilon)
    with pytest.raises(ValueError, match=f"{paths.count} are needed"):
        paths.weights(torch.ones(paths.count + 1))
    for samples in (torch.zeros(2, 3), torch.ones(2, 7)):
        with pytest.raises(ValueError, match=r"3 coordinates, not all zero, are needed"):
            paths.flip_radius(samples)


@pytest.mark.parametrize("factors", [[torch.ones(4)], [torch.ones(4), torch.zeros(4)], [torch.ones(3)] * 2])
def test_factors_that_are_no_positive_scaling_are_refused(factors):
    with pytest.raises(ValueError, match=r"hidden levels of \[4, 4\] nodes"):
        rescaled(mlp([3, 4, 4, 2]), factors)
