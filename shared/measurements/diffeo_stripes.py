"""The stripe model of the chapter on diffeomorphisms: learning which directions do not matter."""

import numpy as np
import torch

from shared.checkpoints import Checkpoint
from shared.devices import resolve_device
from shared.flow import Flow, gradient_flow
from shared.models import build
from shared.probes.stability import stripe_stability
from shared.rng import derived_seed
from shared.store import Arrays, measurement
from shared.synthetic import stripes


@measurement(
    version=1,
    outcomes=("stability", "small_stability", "parallel", "perpendicular", "test_error", "steps", "margin"),
    uses=(
        "flow.Flow",
        "flow.End",
        "flow.gradient_flow",
        "models.build",
        "models.mean_field.MeanField",
        "probes.stability.probing",
        "probes.stability.stripe_stability",
        "rng.derived_seed",
        "rng.global_seed",
        "rng.normal_rows",
        "synthetic.stripes",
    ),
)
def stripe_training(
    *,
    points: int,
    dimension: int = 30,
    hidden: int = 200,
    alpha: float = 1e-6,
    sharpness: float = 20.0,
    radius: float = 1.0,
    test_points: int = 10_000,
    most_steps: int = 1_000_000,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train a network of one hidden layer on the stripe model and measure what it has become blind to.

    Args:
        points: P, of the training set.
        dimension: d; the label depends on one coordinate of them.
        hidden: h, neurons.
        alpha: scale of the predictor.
        sharpness: beta of the soft hinge loss.
        radius: norm of the noise; a tenth of it is tried too.
        test_points: for the relative stability and the test error.
        most_steps: after which training ends.
        seed: of the points and the initial weights.
        device: where to train.

    Returns:
        ``stability``, R at ``radius``, ``small_stability`` at a tenth of it, ``initial_stability`` of the
        untrained network; ``parallel`` and ``perpendicular``, mean square over neurons of the weights
        along the informative coordinate and along one of the others; ``test_error``, fraction;
        ``steps``; ``margin``, the smallest one at the end.

    Raises:
        ValueError: a size is out of range.
    """
    # First of all, so that the only local names are the arguments.
    checkpoint = Checkpoint(stripe_training.name, locals(), stripe_training.fingerprint)
    flow = Flow(alpha=alpha, sharpness=sharpness, most_steps=most_steps)
    place = {"dtype": torch.float32, "device": resolve_device(device)}
    x, y = (part.to(**place) for part in stripes(points, dimension, seed=derived_seed(seed, 1)))
    there, label = (part.to(**place) for part in stripes(test_points, dimension, seed=derived_seed(seed, 2)))
    model = build(
        "mean_field", in_channels=dimension, classes=1, hidden=hidden, seed=derived_seed(seed, 0)
    ).to(**place)
    noise = {"radius": radius, "seed": derived_seed(seed, 3)}
    before = stripe_stability(model, there, **noise)
    with torch.no_grad():
        initial = model(there)[:, 0]
    end = gradient_flow(model, x, y, flow, checkpoint=checkpoint)
    checkpoint.save_network(model.state_dict())
    with torch.no_grad():
        wrong = (model(there)[:, 0] - initial) * label <= 0
    square = model.weight.detach().double().square().mean(dim=0).cpu()
    found = {
        "stability": stripe_stability(model, there, **noise),
        "small_stability": stripe_stability(model, there, **(noise | {"radius": radius / 10})),
        "initial_stability": before,
        "parallel": square[0].item(),
        "perpendicular": square[1:].mean().item(),
        "test_error": wrong.double().mean().item(),
        "steps": end.steps,
        "margin": end.smallest_margin,
    }
    return {name: np.float32(value) for name, value in found.items()}
