"""Plain ReLU networks seen as graphs: layers without biases, one after another.

Everything between two layers has to commute with a positive factor on a channel: ReLU, pooling, and
taking an image apart into a vector do; biases, normalisation and shortcuts do not.
"""

import operator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

LAYERS = (nn.Linear, nn.Conv2d)
HOMOGENEOUS = (nn.ReLU, nn.Flatten, nn.Identity, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d)
# What every step is to the graph, by its module, function or method: subclasses may do anything else.
KINDS: dict[object, str] = {
    nn.Linear: "linear",
    nn.Conv2d: "convolution",
    **dict.fromkeys((nn.ReLU, nn.Identity, torch.relu, F.relu, "relu"), "nodewise"),
    **dict.fromkeys((nn.Flatten, torch.flatten, "flatten"), "flatten"),
    **dict.fromkeys((nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d), "pooling"),
    **dict.fromkeys((F.avg_pool2d, F.adaptive_avg_pool2d, F.max_pool2d), "pooling"),
}


@dataclass(frozen=True)
class PlainLayer:
    """The weights of one layer as edges between two levels of nodes.

    A node is a coordinate of a vector or a channel of an image. Between two of them there are as
    many parallel edges as a kernel has entries, or a flattened channel pixels.

    Attributes:
        name: of the module.
        weight: its parameter.
        incoming, outgoing: nodes before and behind it.
    """

    name: str
    weight: nn.Parameter
    incoming: int
    outgoing: int

    @property
    def parameter(self) -> str:
        """Name of the weight among the model's parameters."""
        return f"{self.name}.weight" if self.name else "weight"

    def edges(self, weight: Tensor | None = None) -> Tensor:
        """The weights, or others of the same shape, as [outgoing, incoming, parallel edges]."""
        values = self.weight if weight is None else weight
        return values.reshape(self.outgoing, self.incoming, -1)

    @property
    def centre(self) -> int:
        """The parallel edge in the middle: the centre of a kernel."""
        height, width = self.weight.shape[2:] if self.weight.ndim == 4 else (1, self.edges().shape[2])
        return height // 2 * width + width // 2


def plain_layers(model: nn.Module) -> list[PlainLayer]:
    """The layers of a plain network in their order.

    Raises:
        ValueError: the network has a bias, a normalisation, a shortcut, a layer that is used twice or
            in groups, or a part of another kind; it is named.
    """
    modules = dict(model.named_modules())
    found: list[PlainLayer] = []
    shape = "input"  # then "image", channels of pixels, and "vector"
    for node in _trace(model).nodes:
        _check_single(node)
        if node.op in ("placeholder", "output"):
            continue
        module = modules[node.target] if node.op == "call_module" else None
        kind = _kind(node, module)
        shape = _shape_behind(node, module, kind, shape)
        if kind in ("linear", "convolution"):
            found.append(_layer(node.target, module, found))
    if not found:
        raise ValueError("the network has no layer with weights")
    known = {layer.parameter for layer in found}
    for name, _ in model.named_parameters():
        if name not in known:
            raise ValueError(f"{name} is a parameter of no plain layer")
    return found


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        """Parts of a known kind are not looked into."""
        return isinstance(module, (*LAYERS, *HOMOGENEOUS)) or super().is_leaf_module(module, name)


def _trace(model: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise ValueError(f"the network cannot be read as a chain of layers: {error}") from error


def _check_single(node: fx.Node) -> None:
    """Every step has one input and one place where its result goes."""
    branches = node.op != "output" and len(node.users) != 1
    if node.op == "get_attr" or len(node.all_input_nodes) > 1 or branches:
        place = node.target if node.op == "call_module" else node.name
        what = "a shortcut, a second branch or an input that is not used"
        raise ValueError(f"{place}: {what}; the layers have to follow one another")


def _kind(node: fx.Node, module: nn.Module | None) -> str:
    """What a step is; refused where it is not known to commute with positive factors on nodes."""
    target = node.target if module is None else type(module)
    if target in KINDS:
        return KINDS[target]
    if module is None:
        name = target if isinstance(target, str) else target.__name__
        if target in (operator.add, torch.add):
            raise ValueError(f"{node.name}: a constant or a shortcut is added")
        raise ValueError(f"{node.name}: {name} is not known to commute with positive factors")
    if "Norm" in target.__name__:
        kind = target.__name__
        raise ValueError(f"{node.target}: {kind}; path values do not describe a network with a normalisation")
    raise ValueError(f"{node.target}: {target.__name__} is not known to commute with positive factors")


def _shape_behind(node: fx.Node, module: nn.Module | None, kind: str, shape: str) -> str:
    """The shape behind a step; refused where channels and pixels would be mixed up."""
    place = node.target if module is not None else node.name
    if kind == "nodewise":
        return shape
    if kind == "flatten":
        dimensions = (module.start_dim, module.end_dim) if module else (*node.args[1:], *node.kwargs.values())
        if shape == "vector" or tuple(dimensions) not in ((1,), (1, -1)):
            raise ValueError(f"{place}: only an image is flattened, from its channels on: flatten(1)")
        return "vector"
    allowed = ("input", "vector") if kind == "linear" else ("input", "image")
    if shape not in allowed:
        raise ValueError(f"{place}: a {kind} behind a{'n image' if shape == 'image' else ' vector'}")
    return "vector" if kind == "linear" else "image"


def _layer(name: str, module: nn.Linear | nn.Conv2d, before: list[PlainLayer]) -> PlainLayer:
    if module.bias is not None:
        raise ValueError(f"{name}: has a bias, which is not a weight on a path")
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        raise ValueError(f"{name}: a convolution in {module.groups} groups")
    if any(layer.weight is module.weight for layer in before):
        raise ValueError(f"{name}: its weights are used twice")
    incoming = before[-1].outgoing if before else module.weight.shape[1]
    if module.weight.shape[1] % incoming:
        raise ValueError(f"{name}: {module.weight.shape[1]} inputs from {incoming} channels")
    return PlainLayer(name, module.weight, incoming, module.weight.shape[0])
