import pytest
import torch

from shared.models import build
from shared.rng import derived_seed, generator, global_seed


def test_the_source_network_has_its_shapes():
    model = build("fully_connected", in_channels=1, classes=1)
    shapes = [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    assert shapes == [(256, 1), *[(256, 256)] * 4, (1, 256)]
    assert sum(p.numel() for p in model.parameters()) == 256 * 2 + 4 * (256 * 256 + 256) + 257


def test_width_multiplies_the_hidden_layers_and_one_layer_is_linear():
    model = build("fully_connected", in_channels=3, classes=2, width=0.5, hidden=10, layers=2)
    assert [tuple(p.shape) for p in model.parameters()] == [(5, 3), (5,), (2, 5), (2,)]
    linear = build("fully_connected", in_channels=3, classes=2, layers=1)
    x = torch.randn(4, 3, generator=generator(0))
    torch.testing.assert_close(linear(x) + linear(-x), 2 * linear(torch.zeros(4, 3)))


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    first = build("fully_connected", in_channels=1, classes=1, hidden=4, seed=3)
    state = torch.random.get_rng_state()
    torch.manual_seed(2)
    second = build("fully_connected", in_channels=1, classes=1, hidden=4, seed=3)
    other = build("fully_connected", in_channels=1, classes=1, hidden=4, seed=4)
    pairs = zip(first.parameters(), second.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(a, b) and not torch.equal(a, c) for a, b, c in pairs)
    torch.manual_seed(1)
    assert torch.equal(torch.random.get_rng_state(), state), "building leaves the global generator alone"


@pytest.mark.parametrize("size", ["in_channels", "classes", "hidden", "layers"])
def test_sizes_below_one_are_refused(size):
    with pytest.raises(ValueError, match=f"{size} = 0: a fully connected network needs at least 1"):
        build("fully_connected", **({"in_channels": 1, "classes": 1} | {size: 0}))


def test_an_unknown_network_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'resnet'; there are fully_connected"):
        build("resnet")


def test_derived_seeds_differ_and_draws_do_not_depend_on_others():
    seeds = {derived_seed(seed, index) for seed in range(20) for index in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**63 for seed in seeds)
    torch.rand(5)
    assert torch.equal(torch.rand(3, generator=generator(1, 2)), torch.rand(3, generator=generator(1, 2)))
    with global_seed(1):
        inside = torch.rand(2)
    with global_seed(1):
        assert torch.equal(torch.rand(2), inside)
