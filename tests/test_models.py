import pytest
import torch

from shared.models import build
from shared.models.convolutional import MaxPool
from shared.models.mixing import Attention
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
    with pytest.raises(ValueError, match="'resnet'; there are densenet121, fully_connected"):
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


@pytest.mark.parametrize(
    ("name", "weights"),
    [  # counts that the usual networks for CIFAR-10 have
        ("lenet", 62_006),
        ("vgg11", 9_756_426),
        ("resnet18", 11_173_962),
        ("densenet121", 6_956_298),
        ("logistic_regression", 30_730),
    ],
)
def test_the_networks_for_images_have_their_size(name, weights):
    model = build(name)
    assert sum(p.numel() for p in model.parameters()) == weights
    with torch.no_grad():
        assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("name", ["lenet", "vgg11", "resnet18", "densenet121"])
def test_networks_without_pooling_keep_the_map(name):
    width = 1 / 4 if name == "lenet" else 1 / 16
    pooled = build(name, in_channels=1, classes=2, width=width)
    whole = build(name, in_channels=1, classes=2, width=width, pooling=False)
    kinds = (torch.nn.MaxPool2d, torch.nn.AvgPool2d, torch.nn.AdaptiveAvgPool2d)
    assert not [m for m in whole.modules() if isinstance(m, kinds)]
    with torch.no_grad():
        assert whole.eval()(torch.zeros(1, 1, 32, 32)).shape == (1, 2)
    linear = [next(m for m in model.modules() if isinstance(m, torch.nn.Linear)) for model in (pooled, whole)]
    assert linear[1].in_features > linear[0].in_features


def test_rectifying_after_the_maximum_is_rectifying_before():
    model = build("lenet", in_channels=1, classes=2).double()
    layers = list(model.features)
    swapped = torch.nn.Sequential(
        *[layers[i] for i in (0, 2, 1, 3, 5, 4)], torch.nn.Flatten(), *model.classifier
    )
    x = torch.randn(3, 1, 32, 32, generator=generator(0), dtype=torch.float64)
    assert torch.equal(model(x), swapped(x))
    gradients = []
    for network in (model, swapped):
        network.zero_grad()
        network(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("size", [(4, 6), (5, 7), (2, 2)])
def test_the_maximum_is_that_of_torch_with_and_without_a_gradient(size):
    x = torch.randn(3, 6, *size, generator=generator(0))
    pool = MaxPool()
    expected = torch.nn.functional.max_pool2d(x, 2)
    assert torch.equal(pool(x), expected)
    with torch.no_grad():
        assert torch.equal(pool(x), expected)
    x[0, 0, 0, 0] = torch.nan
    with torch.no_grad():
        assert torch.isnan(pool(x)).sum() == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lenet", {"size": 10}, "size = 10: nothing would be left"),
        ("lenet", {"width": 0.01}, r"width = 0\.01: nothing is left of 6 channels"),
        ("vgg11", {"size": 28}, "size = 28: five maxima"),
        ("resnet18", {"size": 28}, "size = 28: three halvings"),
        ("densenet121", {"size": 28}, "size = 28: three halvings"),
        ("logistic_regression", {"width": 2.0}, r"width = 2\.0"),
        ("linear_pooling", {}, "one channel, one output"),
        ("vision_transformer", {"patch": 5}, "size = 32, patch = 5: the patch must divide"),
        ("vision_transformer", {"width": 1 / 32}, "4 heads do not divide 2 features"),
        ("mlp_mixer", {"size": 30}, "size = 30, patch = 4"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, **options)


def test_average_pooling_needs_a_divisor():
    with pytest.raises(ValueError, match="size = 9, stride = 2: the stride must divide"):
        build("linear_pooling", in_channels=1, classes=1, size=9, stride=2)


def test_attention_is_that_of_torch():
    with global_seed(0):
        ours = Attention(8, 2)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.incoming.weight)
        theirs.in_proj_bias.copy_(ours.incoming.bias)
        theirs.out_proj.load_state_dict(ours.outgoing.state_dict())
    x = torch.randn(3, 5, 8, generator=generator(1))
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0])


def test_a_transformer_without_places_and_with_one_patch_each_sees_no_order_of_patches():
    model = build("vision_transformer", in_channels=1, classes=2, size=8).double()
    x = torch.randn(1, 1, 8, 8, generator=generator(0), dtype=torch.float64)
    swapped = torch.cat([x[..., 4:], x[..., :4]], dim=3)
    assert (model(x) - model(swapped)).abs().max() > 1e-3
    with torch.no_grad():
        model.position.zero_()
    torch.testing.assert_close(model(x), model(swapped))


def test_a_mixer_mixes_the_tokens():
    model = build("mlp_mixer", in_channels=1, classes=2, size=8).double()
    tokens = torch.zeros(1, 4, 64, dtype=torch.float64)
    tokens[0, 0, 5] = 1
    mixed = model.parts[0].part(tokens) - model.parts[0].part(torch.zeros_like(tokens))
    assert (mixed[0, :, 5].abs() > 1e-6).all()
    assert mixed[0][:, torch.arange(64) != 5].abs().max() == 0
