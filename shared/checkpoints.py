"""Trained networks and resumable training states, as safetensors files that are not tracked."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from shared import paths
from shared.files import set_aside, write_atomically
from shared.progress import notify
from shared.values import canonical_json


class Checkpoint:
    """The files of one training run: its trained network, and its state while it is under way.

    Args:
        name: of the kind of run.
        arguments: everything that determines the run, JSON-able.
        fingerprint: of the code that trains; files written by other code are not used.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any], fingerprint: str):
        text = canonical_json({"name": name, "arguments": dict(arguments), "code": fingerprint})
        stem = hashlib.sha256(text.encode()).hexdigest()[:20]
        self.network_path = paths.CHECKPOINTS / name / f"{stem}.safetensors"
        self.state_path = paths.CHECKPOINTS / name / f"{stem}.state.safetensors"

    def save_network(self, tensors: Mapping[str, Tensor]) -> None:
        """Write a trained network's tensors; the state of the run is no longer needed and removed."""
        self._write(self.network_path, tensors, {})
        self.state_path.unlink(missing_ok=True)

    def load_network(self) -> dict[str, Tensor] | None:
        """The trained network's tensors on the CPU, or None."""
        found = self._read(self.network_path)
        return found and found[0]

    def save_state(self, tensors: Mapping[str, Tensor], position: Mapping[str, Any]) -> None:
        """Write everything a run needs to go on from here: tensors, and JSON-able facts."""
        self._write(self.state_path, tensors, position)

    def load_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What :meth:`save_state` wrote last, or None."""
        return self._read(self.state_path)

    @staticmethod
    def _write(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomically(path, safetensors.torch.save(held, metadata={"facts": canonical_json(dict(facts))}))

    @staticmethod
    def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                facts = json.loads(file.metadata()["facts"])
                return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
        except FileNotFoundError:
            return None
        except (safetensors.SafetensorError, TypeError, KeyError, ValueError) as error:
            notify(f"{path.name} cannot be used ({error}); moved to {set_aside(path).name}")
            return None
