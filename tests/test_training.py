import numpy as np
import pytest
import torch

from shared import training
from shared.checkpoints import Checkpoint
from shared.models import build
from shared.training import Diverged, Recipe, train

X = torch.linspace(0, 1, 40)[:, None]
Y = torch.sin(6 * X)


def network(seed=0, dtype=torch.float32):
    return build("fully_connected", in_channels=1, classes=1, hidden=8, layers=3, seed=seed).to(dtype)


def run(model, steps=20, *, checkpoint=None, stop=None, **recipe):
    def observe(step, model, output):
        if step == stop:
            raise KeyboardInterrupt
        return {"output": output[:, 0]}

    settings = Recipe(steps=steps, learning_rate=1e-2, **recipe)
    dtype = next(model.parameters()).dtype
    return train(
        model,
        X.to(dtype),
        Y.to(dtype),
        settings,
        observe=observe,
        at=lambda s: s % 5 == 0,
        checkpoint=checkpoint,
    )


def test_the_loop_is_adam_written_out():
    """Against the update of Kingma and Ba, written out in float64."""
    model, reference = network(dtype=torch.float64), network(dtype=torch.float64)
    run(model, steps=12)
    weights = list(reference.parameters())
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    for step in range(1, 13):
        loss = ((reference(X.double()) - Y.double()) ** 2).mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, m, v, g in zip(weights, first, second, gradients, strict=True):
                m.mul_(0.9).add_(0.1 * g)
                v.mul_(0.999).add_(0.001 * g * g)
                w -= 1e-2 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
    for ours, expected in zip(model.parameters(), weights, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_observations_are_of_the_network_at_their_iteration():
    model = network()
    initial = model(X)[:, 0].detach()
    seen = run(model)
    assert seen["iteration"].tolist() == [0, 5, 10, 15, 20]
    torch.testing.assert_close(seen["output"][0], initial)
    torch.testing.assert_close(seen["output"][-1], model(X)[:, 0].detach())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_same_call_gives_the_same_bits():
    first, second = run(network()), run(network())
    assert torch.equal(first["output"], second["output"])


def test_an_interrupted_run_continues_to_the_same_bits(own_store, monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_STATES", 0)
    whole, model = network(), network()
    expected = run(whole)
    checkpoint = Checkpoint("test", {"seed": 0}, "code")
    with pytest.raises(KeyboardInterrupt):
        run(model, checkpoint=checkpoint, stop=15)
    assert checkpoint.load_state()[1] == {"step": 15}
    other = network(seed=1)  # a state that is restored leaves nothing of what was there
    seen = run(other, checkpoint=checkpoint)
    assert torch.equal(seen["output"], expected["output"])
    for ours, theirs in zip(other.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_training_stops_at_a_loss_that_is_not_finite():
    model = network()
    with torch.no_grad():
        model.layers[0].weight[0, 0] = torch.nan
    with pytest.raises(Diverged, match="loss is nan at iteration 0"):
        run(model)


def test_denormals_are_flushed_inside_the_loop_only():
    tiny = torch.tensor([1e-39])
    with training._flushed_denormals():
        assert (tiny * 1).item() == 0
    assert (tiny * 1).item() != 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0, "learning_rate": 1.0}, "steps = 0"),
        ({"steps": 1, "learning_rate": 0.0}, "learning_rate = 0.0"),
        ({"steps": 1, "learning_rate": 1.0, "loss": "hinge"}, "loss = 'hinge': there are mse, bce"),
    ],
)
def test_a_recipe_refuses_what_cannot_be_trained(settings, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_networks_are_kept_and_states_end_with_them(own_store):
    checkpoint = Checkpoint("test", {"seed": 0}, "code")
    model = network()
    checkpoint.save_state({"x": torch.ones(1)}, {"step": 1})
    checkpoint.save_network(model.state_dict())
    assert checkpoint.load_state() is None
    for name, tensor in checkpoint.load_network().items():
        assert torch.equal(tensor, model.state_dict()[name])
    assert Checkpoint("test", {"seed": 0}, "other code").load_network() is None
    assert Checkpoint("test", {"seed": 1}, "code").load_network() is None


def test_a_torn_checkpoint_is_set_aside(own_store):
    checkpoint = Checkpoint("test", {}, "code")
    checkpoint.save_state({"x": torch.ones(100)}, {"step": 1})
    checkpoint.state_path.write_bytes(checkpoint.state_path.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="cannot be used"):
        assert checkpoint.load_state() is None
    assert np.all([p.name.endswith(".damaged") for p in checkpoint.state_path.parent.iterdir()])


def test_bce_is_binary_cross_entropy_of_logits():
    output, target = torch.tensor([[0.3], [-2.0]]), torch.tensor([[1.0], [0.0]])
    probability = torch.sigmoid(output)
    expected = -(target * probability.log() + (1 - target) * (1 - probability).log()).mean()
    torch.testing.assert_close(training.LOSSES["bce"](output, target), expected)
