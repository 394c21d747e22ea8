"""Networks of a user: by name, with weights from a file, or as an exported program."""

import contextlib
import hashlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from shared.errors import WrongRequest, nearest
from shared.models import REGISTRY, build
from shared.rng import global_seed
from shared.values import parse

PROGRAMS = (".pt2", ".pt", ".ts", ".torchscript")


def load_model(spec: str, *, in_channels: int, classes: int, size: int, seed: int = 0) -> nn.Module:
    """The network that ``spec`` describes.

    Args:
        spec: ``NAME``, ``NAME:OPTION=VALUE,...`` or either followed by ``@FILE.safetensors``, where NAME is
            a network of ``torchvision.models`` or else of :mod:`shared.models`; or the path of a program
            saved by ``torch.export.save`` (``.pt2``) or as TorchScript (``.pt``, ``.ts``).
        in_channels: of the images.
        classes: outputs of a network built by its name.
        size: pixels a side of the images, for networks that take them as vectors.
        seed: of initial weights.

    Raises:
        WrongRequest: there is no such network or file, or the file does not fit the network.
    """
    if is_program(spec):
        return _program(Path(spec))
    name, options, file = _parts(spec)
    model = _built(name, options, in_channels=in_channels, classes=classes, size=size, seed=seed)
    if file:
        _fill(model, Path(file), name)
    return model


def is_program(spec: str) -> bool:
    """Whether ``spec`` is the path of a program, which has no modes that could be changed."""
    return Path(spec).suffix in PROGRAMS and ("@" not in spec or Path(spec).is_file())


def has_weights(spec: str) -> bool:
    """Whether ``spec`` names weights, so that the network is not a freshly initialised one."""
    if is_program(spec):
        return True
    _, options, file = _parts(spec)
    return bool(file) or options.get("weights") is not None


def digest(spec: str) -> str:
    """Of the file that ``spec`` names, so that a record knows its content; empty without a file.

    Raises:
        WrongRequest: there is no such file.
    """
    file = spec if is_program(spec) else _parts(spec)[2]
    return hashlib.sha256(_read(Path(file))).hexdigest()[:12] if file else ""


def check(model: nn.Module, images: Tensor, spec: str, *, at_once: int) -> None:
    """Run images through the network in the batches to come, so that what does not fit is named.

    Raises:
        WrongRequest: the network does not take the images, gives no row of finite outputs for each, or
            others for the same image again.
    """
    batches = {len(part): part for part in images.split(at_once)}
    outputs = [_output(model, part, spec) for part in [*batches.values(), images[:at_once]]]
    first, again = outputs[0], outputs[-1]
    if not torch.allclose(first, again, rtol=1e-3, atol=1e-3 * again.abs().max().item()):
        raise WrongRequest(
            f"{spec} gives other outputs for the same images again; save it in evaluation mode"
        )


def _output(model: nn.Module, images: Tensor, spec: str) -> Tensor:
    """Outputs of a batch in evaluation mode, once they are what they have to be."""
    shape = list(images.shape)
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            output = model(images.clone())  # some networks write into what they are given
    except Exception as error:  # whatever a foreign program raises
        hint = "\n(an exported program needs a batch dimension of any length)" if is_program(spec) else ""
        raise WrongRequest(
            f"{spec} does not take images of shape {shape}: {_first_line(error)}{hint}"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    if not (isinstance(output, Tensor) and output.ndim and len(output) == len(images)):
        found = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise WrongRequest(f"{spec} returns {found} for images of shape {shape}; one row for each is needed")
    if not torch.isfinite(output).all():
        raise WrongRequest(
            f"{spec} returns values that are not finite for images from {images.min():.3g} "
            f"to {images.max():.3g}"
        )
    return output


class _Program(nn.Module):
    """A program without modes of its own; what it holds is hidden from ``train`` and ``eval``."""

    def __init__(self, run: Any):
        super().__init__()
        self.hidden = (run,)

    def forward(self, x: Tensor) -> Any:
        return self.hidden[0](x)


def _program(path: Path) -> nn.Module:
    content = _read(path)
    try:
        with warnings.catch_warnings(), _quiet_logging():
            warnings.simplefilter("ignore")  # of formats that torch means to replace
            if path.suffix == ".pt2":
                return _Program(torch.export.load(path).module())
            return torch.jit.load(path, map_location="cpu").eval()
    except Exception as error:  # torch raises many kinds for a damaged file
        kind = "an exported program" if path.suffix == ".pt2" else "a TorchScript program"
        raise WrongRequest(
            f"{path} ({len(content)} bytes) is not {kind}: {_first_line(error)}\n"
            "weights alone are given as NAME@FILE.safetensors"
        ) from error


@contextlib.contextmanager
def _quiet_logging() -> Iterator[None]:
    """Nothing in the log of what is told to the user anyway."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _built(
    name: str, options: dict[str, Any], *, in_channels: int, classes: int, size: int, seed: int
) -> nn.Module:
    import torchvision.models

    try:
        known = torchvision.models.list_models(module=torchvision.models)
        if name in known:
            outputs = {} if options.get("weights") is not None else {"num_classes": classes}
            with global_seed(seed):
                return torchvision.models.get_model(name, **outputs, **options)
        if name in REGISTRY:
            coordinates = in_channels * size**2 if name == "fully_connected" else in_channels
            return build(name, in_channels=coordinates, classes=classes, seed=seed, **options)
    except OSError as error:
        raise WrongRequest(f"the weights of {name} cannot be downloaded: {_first_line(error)}") from error
    except Exception as error:  # whatever a constructor raises for options that it does not take
        kind = type(error).__name__
        raise WrongRequest(f"no network {name!r} with {options}: {kind}, {_first_line(error)}") from error
    raise WrongRequest(f"no network or program is called {name!r}; {nearest(name, [*REGISTRY, *known])}")


def _parts(spec: str) -> tuple[str, dict[str, Any], str]:
    """Name, options and file of weights of a spec."""
    before, sign, file = spec.partition("@")
    if sign and Path(file).suffix != ".safetensors":
        raise WrongRequest(f"{spec}: what follows @ is a file of weights that ends in .safetensors")
    name, _, text = before.partition(":")
    options = {}
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition("=")
        if not (sign and key.isidentifier()):
            raise WrongRequest(f"{spec}: {part!r} is not OPTION=VALUE")
        options[key] = parse(value, Any)
    return name, options, file


def _fill(model: nn.Module, path: Path, name: str) -> None:
    try:
        tensors = safetensors.torch.load(_read(path))
    except safetensors.SafetensorError as error:
        raise WrongRequest(f"{path} is not a safetensors file: {_first_line(error)}") from error
    wanted = {key: list(value.shape) for key, value in model.state_dict().items()}
    found = {key: list(value.shape) for key, value in tensors.items()}
    for key in [*wanted, *found]:
        if wanted.get(key) != found.get(key):
            raise WrongRequest(
                f"{path} does not fit {name}: {key} has shape {found.get(key, 'none')} "
                f"and the network needs {wanted.get(key, 'none')}"
            )
    model.load_state_dict(tensors)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WrongRequest(f"{path} cannot be read: {error.strerror or error}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
