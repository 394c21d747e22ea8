"""Image data sets by name, as uint8 arrays.

Each set is parsed once into ``data_cache/datasets/NAME.npz`` with the keys x_train, y_train, x_test,
y_test; a file with those keys that lies there already is taken as it is, so that a machine without
internet can be served by hand. Every load checks the images and labels against the set's identity.
"""

import contextlib
import functools
import hashlib
import http.client
import io
import json
import socket
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shared import paths
from shared.errors import WrongRequest, nearest
from shared.files import locked, write_atomically

KEYS = ("x_train", "y_train", "x_test", "y_test")
DOWNLOAD_TIMEOUT_SECONDS = 20
MOST_CLASSES = 256  # labels are kept in one byte
EIGHT_BIT_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")
UNREADABLE = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile)

Splits = dict[str, np.ndarray]


class DataUnavailable(Exception):
    """A data set is not on this machine and cannot be fetched, or is not what its name says."""


@dataclass(frozen=True)
class Source:
    """What is known of a set before it is there.

    Attributes:
        reader: name of the function below that downloads and parses it; None if it comes with the book.
        digest: of its images and labels in any order; None until pinned at first use.
        order: digest of its images in the official order, for sets that some experiments use in
            that order; sets without one are put in the order of the samples' digests.
    """

    reader: str | None
    digest: str | None
    order: str | None


REGISTRY = {
    "mnist": Source("MNIST", "31ba30892787", "06b0d1f124c4"),
    "fashion_mnist": Source("FashionMNIST", "f87b3d430b18", "ca3ab2a37f84"),
    "fashion_mnist_small": Source(None, "173f8432ccaa", "688a1802a15f"),
    "cifar10": Source("CIFAR10", "72b02ed7c122", None),
    "svhn": Source("SVHN", None, None),
}


@dataclass(frozen=True)
class Images:
    """A data set: uint8 images [N, H, W, C], int64 labels [N], and what it is.

    Attributes:
        x_train, y_train, x_test, y_test: the two splits.
        identity: name and digest; part of the key of every measurement that uses the set.
        classes: number of classes.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    identity: str
    classes: int

    @functools.cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation [C] of each channel of the training images, over 255."""
        counts = np.stack([np.bincount(channel.ravel(), minlength=256) for channel in self._channels()])
        levels = np.arange(256) / 255
        shares = counts / counts.sum(axis=1, keepdims=True)
        mean = shares @ levels
        return mean, np.sqrt((shares * (levels - mean[:, None]) ** 2).sum(axis=1))

    def _channels(self) -> Iterator[np.ndarray]:
        for channel in range(self.x_train.shape[-1]):
            yield self.x_train[..., channel]


def load(name: str, *, root: Path | str | None = None) -> Images:
    """The data set called ``name``, or the one in the folder at the path ``name``.

    Args:
        name: a key of ``REGISTRY``, or a path to a folder that holds ``train`` and ``test``, each
            with one folder of images for every class.
        root: where the ``.npz`` files lie; ``data_cache/datasets`` by default.

    Raises:
        WrongRequest: there is no such set or folder.
        DataUnavailable: it cannot be fetched, or what is there is not the set.
    """
    root = Path(root or paths.DATASETS)
    if name in REGISTRY:
        source, label, target = REGISTRY[name], name, root / f"{name}.npz"
    elif name and Path(name).is_dir():
        source, label = Source("folder", None, None), f"folder-{Path(name).resolve().name}"
        target = root / f"{label}-{_listing_digest(Path(name))}.npz"
    else:
        raise WrongRequest(f"no data set or folder is called {name!r}; {nearest(name, REGISTRY)}")
    with locked(f"data-{target.stem}"):
        if not target.exists():
            _fetch(name, source, target)
        splits = _read(target)
    splits, digest = _arranged(splits, source, target)
    if source.reader != "folder":
        _check_identity(label, digest, source, target)
    channels = [splits[key] if splits[key].ndim == 4 else splits[key][..., None] for key in KEYS[::2]]
    y_train, y_test = (splits[key].astype(np.int64) for key in KEYS[1::2])
    classes = int(y_train.max()) + 1
    return Images(channels[0], y_train, channels[1], y_test, f"{label}-{digest}", classes)


def is_here(name: str) -> bool:
    """Whether a set of the registry can be loaded without a download."""
    return (paths.DATASETS / f"{name}.npz").exists()


def identity(name: str) -> str:
    """The identity of a set; of one in the registry, known without its images once it is pinned.

    That of a folder is taken from its images each time, so that a folder that has changed, or
    another one of the same name, is another set.

    Raises:
        WrongRequest: there is no such set or folder.
        DataUnavailable: the set has not been used before and cannot be had now.
    """
    digest = REGISTRY[name].digest or _pinned().get(name) if name in REGISTRY else None
    return f"{name}-{digest}" if digest else load(name).identity


def _pinned() -> dict[str, str]:
    try:
        return json.loads(paths.IDENTITIES.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _check_identity(label: str, digest: str, source: Source, target: Path) -> None:
    """Compare with the declared or pinned digest; pin one that is new."""
    with locked("identities"):
        pinned = _pinned()
        expected = source.digest or pinned.get(label)
        if expected is None:
            text = json.dumps(pinned | {label: digest}, indent=1, sort_keys=True)
            write_atomically(paths.IDENTITIES, text + "\n")
        elif digest != expected:
            raise DataUnavailable(
                f"{label} at {target} is not the set expected ({digest}, not {expected});\n"
                "remove the file to have it fetched again"
                + ("" if source.digest else f", or the entry {label} of {paths.IDENTITIES} to accept it")
            )


def _fetch(name: str, source: Source, target: Path) -> None:
    """Download or parse a set and write it, checked, in one step."""
    if source.reader is None:
        raise DataUnavailable(f"{name} comes with the book but {target} is gone;\n`git checkout` restores it")
    splits = _from_folder(Path(name)) if source.reader == "folder" else _download(name, source.reader, target)
    _validate(splits, target)
    if source.digest and _arranged(splits, source, target)[1] != source.digest:
        raise DataUnavailable(
            f"what was downloaded is not {name}: its images or labels differ;\nput {name} at {target}"
        )
    buffer = io.BytesIO()
    np.savez(buffer, **{key: array.astype(np.uint8) for key, array in splits.items()})
    write_atomically(target, buffer.getvalue())


def _download(name: str, reader: str, target: Path) -> Splits:
    import torchvision.datasets

    constructor = getattr(torchvision.datasets, reader)
    splits: Splits = {}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, suffix=".tmp") as folder, _timeout():
        try:
            for part in ("train", "test"):
                which = {"split": part} if reader == "SVHN" else {"train": part == "train"}
                found = constructor(folder, download=True, **which)
                pixels = np.asarray(found.data)
                splits[f"x_{part}"] = pixels.transpose(0, 2, 3, 1) if reader == "SVHN" else pixels
                splits[f"y_{part}"] = np.asarray(found.labels if reader == "SVHN" else found.targets)
        except (OSError, RuntimeError, EOFError, http.client.HTTPException) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(":")
            raise DataUnavailable(
                f"{name} is not on this machine and cannot be downloaded ({reason}); put it at {target},\n"
                "as arrays x_train, y_train, x_test, y_test, or go on without it with --preset smoke"
            ) from error
    return splits


@contextlib.contextmanager
def _timeout() -> Iterator[None]:
    """Make a dead connection fail within seconds; torchvision's downloaders wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _from_folder(folder: Path) -> Splits:
    """Parse ``folder/train/CLASS/image`` and ``folder/test/CLASS/image``."""
    from torchvision.datasets import ImageFolder

    for part in ("train", "test"):
        if not (folder / part).is_dir():
            raise DataUnavailable(
                f"{folder} has no folder {part!r};\n"
                "a data set of your own needs train and test, each with one folder of images a class"
            )
    try:
        sets = {part: ImageFolder(folder / part, loader=_pixels) for part in ("train", "test")}
    except FileNotFoundError as error:
        raise DataUnavailable(f"{folder}: {str(error).splitlines()[0]}") from error
    if len(sets["train"].classes) > MOST_CLASSES:
        raise DataUnavailable(
            f"{folder} has {len(sets['train'].classes)} classes, and {MOST_CLASSES} are the most"
        )
    if sets["train"].classes != sets["test"].classes:
        raise DataUnavailable(
            f"{folder}: train has the classes {', '.join(sets['train'].classes)} "
            f"and test {', '.join(sets['test'].classes)}; they must be the same"
        )
    splits: Splits = {}
    shape = None
    for part, found in sets.items():
        images = []
        for path, (image, _) in zip((path for path, _ in found.samples), found, strict=True):
            shape = shape or image.shape
            if image.shape != shape:
                raise DataUnavailable(
                    f"{path} is {image.shape[1]} by {image.shape[0]} pixels, "
                    f"the first image {shape[1]} by {shape[0]};\nall images must have the same size"
                )
            images.append(image)
        splits[f"x_{part}"] = np.stack(images)
        splits[f"y_{part}"] = np.asarray(found.targets, dtype=np.uint8)
    return splits


def _pixels(path: str) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode not in EIGHT_BIT_MODES:
                raise DataUnavailable(
                    f"{path} has pixels of mode {image.mode}; it needs eight bits a channel"
                )
            return np.asarray(image.convert("RGB"))
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read as an image: {error}") from error


def _read(target: Path) -> Splits:
    try:
        with target.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            splits = {key: stored[key] for key in KEYS}
    except UNREADABLE as error:
        raise DataUnavailable(
            f"{target} cannot be read ({error});\nit needs the arrays {', '.join(KEYS)}"
        ) from error
    _validate(splits, target)
    return splits


def _validate(splits: Splits, target: Path) -> None:
    """Refuse arrays that are not a set of equally large images with a label each."""
    for part in ("train", "test"):
        x, y = splits[f"x_{part}"], splits[f"y_{part}"]
        images = x.dtype == np.uint8 and x.ndim in (3, 4) and x.shape[3:] in ((), (1,), (3,)) and x.size
        labels = images and y.dtype.kind in "iu" and y.shape == x.shape[:1]
        if not (labels and 0 <= y.min() <= y.max() < MOST_CLASSES):
            raise DataUnavailable(
                f"{target}: x_{part} is {x.dtype} {list(x.shape)} and y_{part} {y.dtype} {list(y.shape)};\n"
                "uint8 images [N, H, W] or [N, H, W, 1 or 3] and labels [N] from 0 to 255 are needed"
            )
    if splits["x_train"].shape[1:] != splits["x_test"].shape[1:]:
        raise DataUnavailable(f"{target}: images of train and test differ in size")


def _arranged(splits: Splits, source: Source, target: Path) -> tuple[Splits, str]:
    """The set in its order, and its digest, which does not depend on order."""
    arranged, parts = dict(splits), []
    for part in ("train", "test"):
        x, y = splits[f"x_{part}"], splits[f"y_{part}"]
        samples = _sample_digests(x, y)
        order = sorted(range(len(samples)), key=samples.__getitem__)
        parts.append(hashlib.sha256(b"".join(samples[i] for i in order)).digest())
        if source.order is None:
            arranged[f"x_{part}"], arranged[f"y_{part}"] = x[order], y[order]
    digest = hashlib.sha256(b"".join(parts)).hexdigest()[:12]
    if source.order and digest == source.digest and _order_digest(splits) != source.order:
        raise DataUnavailable(
            f"{target} is not in the official order, which some experiments use;\n"
            "remove it to have it fetched again"
        )
    return arranged, digest


def _sample_digests(x: np.ndarray, y: np.ndarray) -> list[bytes]:
    size = repr((*x.shape[1:3], x.shape[3] if x.ndim == 4 else 1)).encode()
    samples = zip(x, y.astype(np.uint8), strict=True)
    return [hashlib.sha256(size + image.tobytes() + label.tobytes()).digest() for image, label in samples]


def _order_digest(splits: Splits) -> str:
    digest = hashlib.sha256()
    for key in KEYS:
        digest.update(np.ascontiguousarray(splits[key].astype(np.uint8)).tobytes())
    return digest.hexdigest()[:12]


def _listing_digest(folder: Path) -> str:
    """Hash of the names, sizes and times of all files below a folder."""
    entries = sorted(
        f"{path.relative_to(folder).as_posix()} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in folder.rglob("*")
        if path.is_file()
    )
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()[:12]


def photograph(size: int) -> np.ndarray:
    """A photograph in the public domain, as float32 [3, size, size] from 0 to 1.

    The portrait of Grace Hopper that comes with matplotlib: its upper square, reduced to ``size``.

    Raises:
        ValueError: the size is not from 2 to 512.
    """
    from matplotlib.cbook import get_sample_data
    from PIL import Image

    if not 2 <= size <= 512:
        raise ValueError(f"size = {size}: from 2 to 512 pixels")
    with get_sample_data("grace_hopper.jpg") as file, Image.open(file) as image:
        square = image.convert("RGB").crop((0, 0, 512, 512)).resize((size, size), Image.Resampling.LANCZOS)
        return np.asarray(square).transpose(2, 0, 1).astype(np.float32) / 255
