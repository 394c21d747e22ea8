import json

import numpy as np
import pytest
from PIL import Image

from shared import data, paths
from shared.data import DataUnavailable, Source
from shared.errors import WrongRequest

MARK = 17


def small_set(count=12, size=(6, 6)):
    generator = np.random.default_rng(0)
    splits = {}
    for part in ("train", "test"):
        splits[f"x_{part}"] = generator.integers(256, size=(count, *size), dtype=np.uint8)
        splits[f"y_{part}"] = (np.arange(count) % 3).astype(np.uint8)
    return splits


@pytest.fixture
def declared(own_store, tmp_path, monkeypatch):
    """A registry of one set, and the folder its file lies in."""

    def declare(splits, *, ordered=False, pinned=True):
        source = Source("MNIST", None, None)
        digest = data._arranged(splits, source, tmp_path)[1]
        order = data._order_digest(splits) if ordered else None
        monkeypatch.setitem(data.REGISTRY, "tiny", Source("MNIST", digest if pinned else None, order))
        np.savez(tmp_path / "tiny.npz", **splits)
        return digest

    declare.root = tmp_path
    return declare


def test_the_embedded_set_is_what_it_says():
    images = data.load("fashion_mnist_small")
    assert images.x_train.shape == (5000, 28, 28, 1)
    assert images.x_test.shape == (1000, 28, 28, 1)
    assert images.x_train.dtype == np.uint8
    assert images.y_train.dtype == np.int64
    assert images.classes == 10
    assert sorted(set(images.y_test)) == list(range(10))
    assert images.identity == data.identity("fashion_mnist_small")
    assert (paths.DATASETS / "fashion_mnist_small.npz").stat().st_size < 3_000_000


def test_moments_are_those_of_the_training_pixels():
    images = data.load("fashion_mnist_small")
    mean, std = images.moments
    np.testing.assert_allclose(mean, [(images.x_train / 255).mean()], rtol=1e-9)
    np.testing.assert_allclose(std, [(images.x_train / 255).std()], rtol=1e-9)


def test_identity_does_not_depend_on_order_and_does_on_pixels_and_labels(declared):
    splits = small_set()
    digest = declared(splits)
    shuffled = {key: array[::-1].copy() for key, array in splits.items()}
    source = Source(None, None, None)
    assert data._arranged(shuffled, source, declared.root)[1] == digest
    for key in ("x_train", "y_test"):
        changed = {name: array.copy() for name, array in splits.items()}
        changed[key].flat[0] ^= 1
        assert data._arranged(changed, source, declared.root)[1] != digest


def test_a_set_without_an_official_order_has_one_order_wherever_it_comes_from(declared):
    splits = small_set()
    declared(splits)
    first = data.load("tiny", root=declared.root)
    np.savez(declared.root / "tiny.npz", **{key: array[::-1] for key, array in splits.items()})
    second = data.load("tiny", root=declared.root)
    for key in data.KEYS:
        np.testing.assert_array_equal(getattr(first, key), getattr(second, key))
    pairs = {(x.tobytes(), int(y)) for x, y in zip(splits["x_train"], splits["y_train"], strict=True)}
    assert pairs == {(x.tobytes(), int(y)) for x, y in zip(first.x_train, first.y_train, strict=True)}


def test_a_set_with_an_official_order_keeps_it_and_refuses_another(declared):
    splits = small_set()
    declared(splits, ordered=True)
    images = data.load("tiny", root=declared.root)
    np.testing.assert_array_equal(images.x_train[..., 0], splits["x_train"])
    np.savez(declared.root / "tiny.npz", **{key: array[::-1] for key, array in splits.items()})
    with pytest.raises(DataUnavailable, match="not in the official order"):
        data.load("tiny", root=declared.root)


def test_other_images_under_the_name_are_refused(declared):
    splits = small_set()
    declared(splits)
    splits["x_test"][0, 0, 0] ^= 1
    np.savez(declared.root / "tiny.npz", **splits)
    with pytest.raises(DataUnavailable, match=r"tiny at .* is not the set expected"):
        data.load("tiny", root=declared.root)


def test_a_set_without_a_declared_digest_is_pinned_at_first_use(declared):
    splits = small_set()
    digest = declared(splits, pinned=False)
    assert data.load("tiny", root=declared.root).identity == f"tiny-{digest}"
    assert json.loads(paths.IDENTITIES.read_text()) == {"tiny": digest}
    (declared.root / "tiny.npz").unlink()
    assert data.identity("tiny") == f"tiny-{digest}", "known without the images"
    splits["y_train"][0] ^= 1
    np.savez(declared.root / "tiny.npz", **splits)
    with pytest.raises(DataUnavailable, match="to accept it"):
        data.load("tiny", root=declared.root)


@pytest.mark.parametrize(
    "splits",
    [
        {"x_train": np.zeros((2, 3, 3))},
        {"y_train": np.zeros(5, dtype=np.uint8)},
        {"x_train": np.zeros((0, 6, 6), dtype=np.uint8), "y_train": np.zeros(0, dtype=np.uint8)},
        {"x_test": np.zeros((12, 5, 6), dtype=np.uint8)},
        {"y_train": np.full(12, 0.7)},
        {"y_train": np.full(12, 256)},
        {"y_train": np.full(12, -1)},
        {"y_train": np.array(["1"] * 12)},
        {"x_train": np.zeros((12, 1, 6, 6), dtype=np.uint8)},
    ],
)
def test_arrays_that_are_no_image_set_are_refused(declared, splits):
    declared(small_set())
    np.savez(declared.root / "tiny.npz", **(small_set() | splits))
    with pytest.raises(DataUnavailable, match=r"tiny\.npz"):
        data.load("tiny", root=declared.root)


@pytest.mark.parametrize("content", ["torn", "empty", "an array"])
def test_a_file_that_is_no_set_is_named(declared, content):
    declared(small_set())
    target = declared.root / "tiny.npz"
    if content == "an array":
        with target.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        target.write_bytes(target.read_bytes()[: {"torn": 100, "empty": 0}[content]])
    with pytest.raises(DataUnavailable, match=r"tiny\.npz cannot be read"):
        data.load("tiny", root=declared.root)


def test_without_network_and_file_two_lines_say_the_way_on(own_store, tmp_path, monkeypatch):
    import torchvision.datasets

    class Unreachable:
        def __init__(self, *_, **__):
            raise RuntimeError("Error downloading train-images\nlong traceback")

    monkeypatch.setattr(torchvision.datasets, "MNIST", Unreachable)
    with pytest.raises(DataUnavailable) as raised:
        data.load("mnist", root=tmp_path / "sets")
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert "mnist" in lines[0]
    assert str(tmp_path / "sets" / "mnist.npz") in lines[0]
    assert "--preset smoke" in lines[1]
    assert not list((tmp_path / "sets").iterdir())


@pytest.mark.parametrize(("reader", "name"), [("MNIST", "mnist"), ("SVHN", "svhn"), ("CIFAR10", "cifar10")])
def test_downloads_are_parsed_checked_and_kept(own_store, tmp_path, monkeypatch, reader, name):
    """Through a stand-in for torchvision's class that holds the arrays as the real one does."""
    import torchvision.datasets

    calls = []

    class Downloaded:
        def __init__(self, folder, *, download, split=None, train=None):
            calls.append(split or train)
            part = 0 if (split == "train" or train) else 1
            shape = {"MNIST": (4, 6, 6), "SVHN": (4, 3, 6, 6), "CIFAR10": (4, 6, 6, 3)}[reader]
            pixels = np.random.default_rng(part).integers(256, size=shape, dtype=np.uint8)
            if reader == "SVHN":
                pixels[:, 2, 0, 5] = MARK
                self.labels = np.arange(4)
            else:
                self.targets = [0, 1, 2, 3]
            self.data = pixels

    monkeypatch.setattr(torchvision.datasets, reader, Downloaded)
    monkeypatch.setitem(data.REGISTRY, name, Source(reader, None, None))
    images = data.load(name, root=tmp_path)
    assert images.x_train.shape == (4, 6, 6, 1 if reader == "MNIST" else 3)
    if reader == "SVHN":
        assert (images.x_train[:, 0, 5, 2] == MARK).all(), "channels come last"
    data.load(name, root=tmp_path)
    assert len(calls) == 2, "parsed once"


def test_a_download_of_something_else_is_not_kept(own_store, tmp_path, monkeypatch):
    import torchvision.datasets

    class Other:
        data, targets = np.zeros((2, 28, 28), dtype=np.uint8), [0, 1]

        def __init__(self, *_, **__):
            pass

    monkeypatch.setattr(torchvision.datasets, "MNIST", Other)
    with pytest.raises(DataUnavailable, match="what was downloaded is not mnist"):
        data.load("mnist", root=tmp_path)
    assert not (tmp_path / "mnist.npz").exists()


def make_folder(root, sizes=((5, 4), (5, 4)), classes=("cat", "dog")):
    for part, size in zip(("train", "test"), sizes, strict=True):
        for label, name in enumerate(classes):
            folder = root / part / name
            folder.mkdir(parents=True)
            for index in range(2):
                pixels = np.full((*size, 3), 50 * label + index, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.png")
    return root


def test_a_folder_of_images_is_a_data_set(own_store, tmp_path, monkeypatch):
    folder = make_folder(tmp_path / "my pets")
    images = data.load(str(folder), root=tmp_path / "cache")
    assert images.x_train.shape == (4, 5, 4, 3)
    assert images.classes == 2
    for image, label in zip(images.x_train, images.y_train, strict=True):
        assert image[0, 0, 0] // 50 == label
    assert images.identity.startswith("folder-my pets-")
    monkeypatch.setattr(data, "_from_folder", None)
    assert data.load(str(folder), root=tmp_path / "cache").identity == images.identity, "parsed once"


def test_folders_that_are_no_data_set_are_refused_by_name(own_store, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataUnavailable, match="has no folder 'train'"):
        data.load(str(tmp_path / "empty"), root=tmp_path)
    uneven = make_folder(tmp_path / "uneven", sizes=((5, 4), (6, 4)))
    with pytest.raises(DataUnavailable, match="is 4 by 6 pixels, the first image 4 by 5"):
        data.load(str(uneven), root=tmp_path)
    extra = make_folder(tmp_path / "extra")
    (extra / "train" / "cow").mkdir()
    Image.new("RGB", (4, 5)).save(extra / "train" / "cow" / "0.png")
    with pytest.raises(DataUnavailable, match="cat, cow, dog and test cat, dog"):
        data.load(str(extra), root=tmp_path)


def test_folders_of_one_name_and_changed_folders_are_other_sets(own_store, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "DATASETS", tmp_path / "cache")
    one, other = make_folder(tmp_path / "a" / "pets"), make_folder(tmp_path / "b" / "pets")
    assert data.identity(str(one)) == data.identity(str(other))
    Image.new("RGB", (4, 5), "red").save(other / "train" / "cat" / "2.png")
    assert data.identity(str(one)) != data.identity(str(other))
    before = data.identity(str(one))
    Image.new("RGB", (4, 5), "blue").save(one / "test" / "dog" / "2.png")
    assert data.identity(str(one)) != before
    with pytest.raises(WrongRequest, match="no data set or folder"):
        data.identity("/nowhere/pets")


def test_images_of_sixteen_bits_and_broken_ones_are_refused(own_store, tmp_path):
    deep = make_folder(tmp_path / "deep")
    Image.fromarray(np.full((5, 4), 3000, dtype=np.uint16)).save(deep / "train" / "cat" / "0.png")
    with pytest.raises(DataUnavailable, match="mode I;16; it needs eight bits"):
        data.load(str(deep), root=tmp_path)
    broken = make_folder(tmp_path / "broken")
    (broken / "test" / "dog" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataUnavailable, match=r"0\.png cannot be read as an image"):
        data.load(str(broken), root=tmp_path)


def test_the_digest_holds_the_size_of_the_images(declared):
    digest = declared(small_set(size=(4, 9)))
    source = Source(None, None, None)
    flat = small_set(size=(4, 9))
    for key in ("x_train", "x_test"):
        flat[key] = flat[key].reshape(-1, 6, 6)
    assert data._arranged(flat, source, declared.root)[1] != digest
    channels = {k: v[..., None] if k.startswith("x") else v for k, v in small_set(size=(4, 9)).items()}
    assert data._arranged(channels, source, declared.root)[1] == digest


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(WrongRequest, match="'minst'; did you mean mnist"):
        data.load("minst")
    with pytest.raises(WrongRequest, match="''"):
        data.load("")
