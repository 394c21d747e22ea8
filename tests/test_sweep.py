import ast
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import SMALL_RUN

from shared import paths
from shared.figures import find
from shared.measurements.spectral import learning_order
from shared.parameters import resolve
from shared.progress import progress
from shared.store import read_record
from shared.sweep import execution, stacked, sweep

RUNS = [SMALL_RUN | {"seed": seed} for seed in range(2)]


@pytest.fixture
def alone(own_store, monkeypatch):
    """Workers are processes of their own and see the real paths, so these sweeps stay in this one."""
    monkeypatch.setenv("BOOK_JOBS", "1")
    return own_store


def test_results_come_in_order_and_are_stored_one_by_one(alone):
    learning_order(**RUNS[1])
    found = sweep(learning_order, RUNS)
    for run, arrays in zip(RUNS, found, strict=True):
        record = learning_order.lookup(**run)
        np.testing.assert_array_equal(arrays["coefficients"], record.arrays["coefficients"])
    assert stacked(found)["loss"].shape == (2, 3)


def test_an_interrupted_sweep_keeps_what_is_finished(alone, monkeypatch):
    function = learning_order.function

    def stops(*, seed, **arguments):
        if seed == 1:
            raise KeyboardInterrupt
        return function(seed=seed, **arguments)

    monkeypatch.setattr(learning_order, "function", stops)
    with pytest.raises(KeyboardInterrupt):
        sweep(learning_order, RUNS)
    assert learning_order.lookup(**RUNS[0]) is not None
    assert learning_order.lookup(**RUNS[1]) is None


def test_threads_are_set_inside_and_restored(alone):
    before = torch.get_num_threads()
    with execution(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_float64_and_float32_agree_at_the_start_of_training(alone):
    """The two precisions are two measurements of one thing before their trajectories part."""
    single, double = (
        learning_order(**SMALL_RUN, precision=precision)["coefficients"]
        for precision in ("float32", "float64")
    )
    np.testing.assert_allclose(single, double, atol=2e-5)


def test_progress_outside_a_terminal_is_plain_lines(capsys, monkeypatch):
    monkeypatch.delenv("BOOK_PROGRESS", raising=False)
    with progress("work", 3, 1) as advance:
        advance()
        advance()
    assert capsys.readouterr().err == "work: 2 of 3\nwork: 3 of 3\n"


def test_progress_of_a_notebook_goes_to_its_file_alone(capsys, tmp_path, monkeypatch):
    file = tmp_path / "progress"
    monkeypatch.setenv("BOOK_PROGRESS", str(file))
    with progress("work", 2) as advance:
        advance()
    assert [line.split('"done": ')[1][0] for line in file.read_text().splitlines()] == ["0", "1"]
    assert capsys.readouterr() == ("", "")


def test_two_workers_give_the_bits_of_one_process(alone, tmp_path):
    """In a copy of the package, since workers see the real paths of the package they import."""
    root = tmp_path / "copy"
    shutil.copytree(paths.PACKAGE, root / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import json, sys\n"
        "from shared.measurements.spectral import learning_order\n"
        "from shared.sweep import sweep\n"
        "found = sweep(learning_order, json.loads(sys.argv[1]), jobs=2)\n"
        "print([arrays['coefficients'].tobytes().hex() for arrays in found])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(RUNS)],
        cwd=root,  # the first place that Python imports from
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    inside = [arrays["coefficients"].tobytes().hex() for arrays in sweep(learning_order, RUNS)]
    assert ast.literal_eval(done.stdout) == inside
    modes = [
        read_record(path).provenance["mode"]
        for path in (root / "data_cache" / "local").rglob("*.safetensors")
    ]
    assert modes == ["worker process"] * 2


def test_the_same_call_gives_the_same_bits(alone):
    first, second = (learning_order.function(**learning_order.resolve(RUNS[0])) for _ in range(2))
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


def test_the_record_takes_a_step_at_full_size(alone):
    figure = find("spectral/fig03_learning_order")
    values = resolve(figure.parameter_cell, figure.presets["paper"])
    arguments = {name: values[name] for name in learning_order.parameters if name in values}
    found = learning_order(**arguments | {"steps": 1, "every": 1, "device": "cpu"})
    assert found["coefficients"].shape == (2, 10, 2)
    assert found["spectral_norms"].shape == (2, 6)
    assert (found["spectral_norms"][0] != found["spectral_norms"][1]).all()
