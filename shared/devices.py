"""Which device a computation runs on."""

import torch

from shared.provenance import processor


class UnknownDevice(ValueError):
    """A device is not known, or this machine has none of its kind."""


def resolve_device(name: str) -> torch.device:
    """The device called ``name``; ``"auto"`` is CUDA where there is one and the CPU elsewhere.

    Apple's GPU (``"mps"``) is taken only when it is named: its float32 differs the most.

    Raises:
        UnknownDevice: the name is unknown or the device is not there.
    """
    available = ["cpu"]
    available += ["cuda"] if torch.cuda.is_available() else []
    available += ["mps"] if torch.backends.mps.is_available() else []
    if name == "auto":
        return torch.device("cuda" if "cuda" in available else "cpu")
    if name.split(":")[0] not in available:
        raise UnknownDevice(f"device {name!r} is not here; this machine has auto, {', '.join(available)}")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """What the maker calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return processor()
