import warnings

import pytest
import safetensors.torch
import torch
from torch import nn

from shared.errors import WrongRequest
from shared.loading import check, digest, has_weights, load_model
from shared.models import build

SHAPE = {"in_channels": 1, "classes": 4, "size": 8}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 4)

    def forward(self, x):
        return self.layer(x.flatten(1))


@pytest.fixture
def images():
    return torch.rand(3, 1, 8, 8)


@pytest.fixture
def program(tmp_path):
    """A network exported with a batch of any length, and the network."""
    model = Small().eval()
    batch = {"x": {0: torch.export.Dim("batch", min=1)}}
    exported = torch.export.export(model, (torch.rand(2, 1, 8, 8),), dynamic_shapes=batch)
    torch.export.save(exported, tmp_path / "net.pt2")
    return tmp_path / "net.pt2", model


def test_a_name_builds_a_network_of_the_book(images):
    model = load_model("fully_connected:hidden=6,layers=3", **SHAPE, seed=2)
    same = build("fully_connected", in_channels=64, classes=4, hidden=6, layers=3, seed=2)
    assert torch.equal(model(images), same(images))
    check(model, images, "fully_connected", at_once=2)


def test_a_name_of_torchvision_builds_its_network():
    model = load_model("resnet18", in_channels=3, classes=7, size=32, seed=1)
    assert model.fc.out_features == 7
    again = load_model("resnet18", in_channels=3, classes=7, size=32, seed=1)
    assert torch.equal(model.conv1.weight, again.conv1.weight)
    check(model, torch.rand(2, 3, 32, 32), "resnet18", at_once=2)


def test_weights_come_from_a_file(tmp_path, images):
    trained = build("fully_connected", in_channels=64, classes=4, hidden=5, layers=2, seed=9)
    path = tmp_path / "weights.safetensors"
    safetensors.torch.save_file(trained.state_dict(), path)
    model = load_model(f"fully_connected:hidden=5,layers=2@{path}", **SHAPE)
    assert torch.equal(model(images), trained(images))


def test_an_exported_program_runs_and_has_no_modes(program, images):
    path, original = program
    model = load_model(str(path), **SHAPE)
    check(model, images, str(path), at_once=2)
    torch.testing.assert_close(model.train().eval()(images), original(images))


def test_a_torchscript_program_runs(tmp_path, images):
    model = Small().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a format that torch means to replace
        torch.jit.trace(model, images).save(str(tmp_path / "net.pt"))
    loaded = load_model(str(tmp_path / "net.pt"), **SHAPE)
    check(loaded, images, "net.pt", at_once=2)
    torch.testing.assert_close(loaded(images), model(images))


def test_digests_follow_the_content_and_weights_are_recognised(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"one")
    first = digest(f"resnet18@{path}")
    path.write_bytes(b"two")
    assert digest(f"resnet18@{path}") != first
    assert len(first) == 12
    assert digest("resnet18") == ""
    assert not any(map(has_weights, ("resnet18", "resnet18:weights=None", "fully_connected:hidden=3")))
    assert all(map(has_weights, ("resnet18@w.safetensors", "net.pt2", "resnet18:weights=DEFAULT")))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet81", "no network or program is called 'resnet81'; did you mean resnet18"),
        ("fully_connected:hidden", "'hidden' is not OPTION=VALUE"),
        ("fully_connected:hidden=0", "hidden = 0: a fully connected network needs at least 1"),
        ("fully_connected:colour=red", "unexpected keyword argument 'colour'"),
        ("fully_connected@", r"what follows @ is a file of weights that ends in \.safetensors"),
        ("fully_connected@w.pt", r"what follows @ is a file of weights that ends in \.safetensors"),
        ("vit_b_16:image_size=28", "no network 'vit_b_16' with .*: AssertionError, Input shape indivisible"),
        ("resnet18:weights=NOPE", "no network 'resnet18' with {'weights': 'NOPE'}: KeyError"),
        ("fully_connected@nowhere.safetensors", "nowhere.safetensors cannot be read: No such file"),
        ("nowhere.pt2", "nowhere.pt2 cannot be read: No such file"),
    ],
)
def test_what_does_not_exist_is_named(spec, message):
    with pytest.raises(WrongRequest, match=message):
        load_model(spec, **SHAPE)


def test_files_that_do_not_fit_are_named(tmp_path):
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(b"no tensors")
    with pytest.raises(WrongRequest, match=r"torn\.safetensors is not a safetensors file"):
        load_model(f"fully_connected@{torn}", **SHAPE)
    other = tmp_path / "other.safetensors"
    network = build("fully_connected", in_channels=64, classes=4, hidden=5, layers=2)
    safetensors.torch.save_file(network.state_dict(), other)
    message = (
        r"other\.safetensors does not fit fully_connected: layers\.0\.weight has shape \[5, 64\] and the"
    )
    with pytest.raises(WrongRequest, match=message):
        load_model(f"fully_connected:hidden=6,layers=2@{other}", **SHAPE)
    torch.save(network.state_dict(), tmp_path / "state.pt")
    for name in ("state.pt", "state.pt2"):
        (tmp_path / name).write_bytes((tmp_path / "state.pt").read_bytes())
        with pytest.raises(WrongRequest, match="weights alone are given as NAME@FILE"):
            load_model(str(tmp_path / name), **SHAPE)


def test_images_that_do_not_fit_are_named(program):
    path, _ = program
    model = load_model(str(path), **SHAPE)
    with pytest.raises(WrongRequest, match=r"net\.pt2 does not take images of shape \[2, 3, 8, 8\]"):
        check(model, torch.rand(2, 3, 8, 8), "net.pt2", at_once=2)
    with pytest.raises(WrongRequest, match=r"returns \[128\] for images of shape \[2, 1, 8, 8\]"):
        check(nn.Flatten(0), torch.rand(2, 1, 8, 8), "flat", at_once=2)
    broken = Small()
    broken.layer.weight.data[:] = torch.inf
    with pytest.raises(WrongRequest, match="returns values that are not finite for images from"):
        check(broken, torch.rand(2, 1, 8, 8), "broken", at_once=2)


def test_weights_that_cannot_be_downloaded_are_named(monkeypatch):
    import torchvision.models

    def fail(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(torchvision.models, "get_model", fail)
    with pytest.raises(WrongRequest, match="the weights of resnet18 cannot be downloaded: no route to host"):
        load_model("resnet18:weights=DEFAULT", **SHAPE)


def test_a_program_that_was_saved_in_training_mode_is_refused(tmp_path, images):
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5)).train()
    batch = {"input": {0: torch.export.Dim("batch", min=1)}}
    exported = torch.export.export(model, (images[:2],), dynamic_shapes=batch)
    torch.export.save(exported, tmp_path / "net.pt2")
    loaded = load_model(str(tmp_path / "net.pt2"), **SHAPE)
    with pytest.raises(WrongRequest, match="other outputs for the same images again; save it in evaluation"):
        check(loaded, images, "net.pt2", at_once=3)


def test_a_program_of_fixed_batch_is_refused_before_it_fails(tmp_path, images):
    exported = torch.export.export(Small().eval(), (images[:2],))
    torch.export.save(exported, tmp_path / "net.pt2")
    loaded = load_model(str(tmp_path / "net.pt2"), **SHAPE)
    with pytest.raises(WrongRequest, match=r"net\.pt2 does not take images of shape \[1, 1, 8, 8\]"):
        check(loaded, images, "net.pt2", at_once=2)


def test_the_images_are_as_before_and_so_are_the_modes(images):
    class Writing(Small):
        def forward(self, x):
            return super().forward(x.sub_(0.5))

    before, model = images.clone(), Writing()
    model.layer.eval()
    check(model, images, "writing", at_once=2)
    assert torch.equal(images, before)
    assert model.training
    assert not model.layer.training
