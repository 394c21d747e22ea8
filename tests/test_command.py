"""The ``book`` command, run as a person runs it, on a small project of its own."""

import json
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import LINE, MEASURE

from shared import paths
from shared.store import read_record

FIGURE = "sample/fig01_scaled"


def printed(path) -> np.ndarray:
    """The numbers that the sample notebook printed, bit for bit."""
    for cell in json.loads(path.read_text())["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                return np.frombuffer(bytes.fromhex("".join(output["text"]).strip()))
    raise AssertionError(f"{path} printed nothing")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "stepps=3"], ["stepps", "did you mean steps"]),
        (["-p", "stepps", "3"], ["stepps", "did you mean steps"]),
        (["-p", "steps", "abc"], ["steps = abc", "int"]),
        (["-p", "steps=2.5"], ["steps = 2.5", "int"]),
        (["-p", "values", "increasing"], ["values = increasing", "list[float]"]),
        (["-p", "steps=0"], ["steps = 0", "1 <= steps <= 100"]),
        (["-p", "wait=-1"], ["wait = -1.0", "wait >= 0"]),
        (["-p", "steps"], ["steps", "NAME=VALUE"]),
        (["--preset", "smokey"], ["smokey", "did you mean smoke"]),
        (["--prest", "smoke"], ["--prest"]),
        (["-j", "0"], ["--jobs"]),
        (["--output", "notebooks/sample/fig01_scaled.ipynb"], ["source notebooks"]),
        (["--output", "figure.pdf"], ["figure.pdf", ".ipynb"]),
        (["--output", "book/figures/sample/fig01_scaled.ipynb"], ["lies in the book"]),
        (["--output", "folder.ipynb"], ["folder.ipynb", "cannot be written"]),
        (["--output", "/dev/null/figure.ipynb"], ["/dev/null", "cannot be written"]),
        (["-p", "wait=" + "9" * 400], ["wait", "float"]),
        (["-p", "device=mps:7"], ["device"]),
    ],
)
def test_wrong_requests_are_refused_before_anything_runs(project, arguments, words):
    (project.root / "folder.ipynb").mkdir()
    before = project.files()
    done = project.book("run", "sample/fig01", *arguments)
    assert done.returncode == 2
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""
    assert project.files() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "sample/fig02"], ["'sample/fig02'", "did you mean sample/fig01_scaled"]),
        (["show", "fog01"], ["'fog01'", "sample/fig01_scaled"]),
        (["run"], ["name the figures", "--all"]),
        (["run", "fig01", "--all"], ["name the figures"]),
        (["data", "minst"], ["'minst'", "did you mean mnist"]),
        (["rnu"], ["rnu"]),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(project, arguments, words):
    done = project.book(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) <= 2
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize(
    "arguments", [["list"], ["show", "fig01"], ["run", "fig01", "-p", "steps=x"], ["--help"]]
)
def test_listings_and_refusals_do_not_import_torch(project, arguments):
    code = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('torch' in sys.modules, 'papermill' in sys.modules))\n"
        f"sys.argv = ['book', *{arguments!r}]\n"
        "from shared.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.root,
        env=project.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().endswith("False False"), done.stderr


def test_a_figure_runs_from_anywhere_is_recorded_and_runs_no_second_time(project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first = project.book("run", "fig01", cwd=elsewhere)
    assert first.returncode == 0, first.stderr
    assert project.calls() == 2
    numbers = printed(project.page)
    np.testing.assert_allclose(numbers.reshape(2, 2), [[2, 4], [2, 4]], atol=0.1)
    records = list((project.root / "data_cache" / "measurements").rglob("*.safetensors"))
    assert len(records) == 2
    assert read_record(records[0]).provenance["threads"] == 1
    results = json.loads((project.root / "data_cache" / "results.json").read_text())[FIGURE]
    assert results["verdicts"]["sample.scaled"]["verdict"] == "reproduced"
    assert len(results["records"]) == 2
    assert list(elsewhere.iterdir()) == []

    stamp = project.page.stat().st_mtime_ns
    second = project.book("run", "--all")
    assert "unchanged" in second.stdout
    assert project.page.stat().st_mtime_ns == stamp

    project.page.unlink()
    third = project.book("run", "fig01")
    assert "executed" in third.stdout
    assert project.calls() == 2, "a page that is made again reads the store"
    assert printed(project.page).tobytes() == numbers.tobytes()

    listed = project.book("list").stdout
    assert FIGURE in listed
    assert "1 reproduced" in listed
    assert "yes" in listed


def test_one_worker_or_two_give_the_same_numbers_and_fresh_the_recorded_ones(project):
    assert project.book("run", "fig01", "-j", "1").returncode == 0
    numbers = printed(project.page)
    assert project.book("run", "fig01", "--fresh", "-j", "2").returncode == 0
    assert project.calls() == 4
    assert printed(project.page).tobytes() == numbers.tobytes()


def test_changed_parameters_and_presets_leave_the_page_and_the_record_alone(project):
    assert project.book("run", "fig01").returncode == 0
    before = project.page.read_bytes()
    tracked = sorted((project.root / "data_cache" / "measurements").rglob("*"))
    changed = project.book("run", "fig01", "-p", "values=[3,1e-3]", "-p", "steps", "1")
    assert changed.returncode == 0, changed.stderr
    output = next((project.root / "runs" / "changed" / "sample").glob("*.ipynb"))
    assert str(output.relative_to(project.root)) in changed.stdout
    np.testing.assert_allclose(printed(output), [6, 0.002], atol=0.1)
    assert project.book("run", "fig01", "--preset", "smoke").returncode == 0
    assert (project.root / "runs" / "smoke" / f"{FIGURE}.ipynb").exists()
    assert project.page.read_bytes() == before
    assert sorted((project.root / "data_cache" / "measurements").rglob("*")) == tracked


def test_an_override_that_says_the_same_is_the_record(project):
    assert project.book("run", "fig01", "-p", "steps=2", "-p", "device=cpu").returncode == 0
    assert project.page.exists()


FAULTS = {
    "raises": ("values[5]", "cell 4 (values[5]): IndexError: list index out of range"),
    "exits": ("import sys; sys.exit(0)", "cell 4 (import sys; sys.exit(0)): SystemExit: 0"),
    "killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "DeadKernelError"),
    "leaves": ("import os; os._exit(0)", "cell 4 (import os; os._exit(0)): the kernel ended before"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_notebook_that_does_not_reach_its_end_fails_the_run_and_keeps_the_page(project, fault):
    project.page.parent.mkdir(parents=True)
    project.page.write_text("the previous good page")
    source, words = FAULTS[fault]
    project.write_notebook("x = 1", source, "y = 2")
    done = project.book("run", "fig01")
    assert done.returncode == 1
    message = done.stderr.strip()
    assert FIGURE in message
    assert words in message
    assert "Traceback" not in message
    assert project.page.read_text() == "the previous good page"
    assert (project.root / "runs" / "failed" / f"{FIGURE}.ipynb").exists()
    assert not (project.root / "data_cache" / "results.json").exists()


def test_make_stops_where_a_notebook_fails(project):
    """``make book`` itself, with the environment of the tests in place of one of its own."""
    project.write_notebook("1 / 0")
    makefile = ["make", "-f", str(paths.ROOT / "Makefile"), "book", "-o", "installed"]
    done = subprocess.run(
        [*makefile, f"RUN={shlex.quote(sys.executable)}", "INSTALLED=installed"],
        cwd=project.root,
        env={name: value for name, value in project.environment.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, "what make exits with when a command fails"
    assert "ZeroDivisionError" in done.stderr
    assert "is built" not in done.stdout
    assert "cell 3 (1 / 0)" in done.stderr


def test_a_changed_constant_shows_on_the_page_in_status_and_in_verify(project):
    assert project.book("run", "fig01").returncode == 0
    assert "Stale" not in project.page.read_text()
    assert "unchanged" in project.book("status").stdout
    agreed = project.book("verify", "fig01")
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr
    assert agreed.stdout.count("agrees") == 2

    module = project.root / "shared" / "measurements" / "sample.py"
    module.write_text(module.read_text().replace("FACTOR = 2.0", "FACTOR = 2.5"))
    assert project.book("run", "fig01").returncode == 0
    assert "**Stale:**" in project.page.read_text()
    assert "2 records stale" in project.book("status").stdout
    stored = {
        p: p.read_bytes() for p in (project.root / "data_cache" / "measurements").rglob("*.safetensors")
    }
    differs = project.book("verify", "fig01")
    assert differs.returncode == 1
    assert differs.stdout.count("DIFFERS") == 2
    assert {path: path.read_bytes() for path in stored} == stored


def test_missing_and_damaged_records_are_reported(project):
    assert project.book("run", "fig01").returncode == 0
    first, second = sorted((project.root / "data_cache" / "measurements").rglob("*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:50])
    assert "2 records missing or damaged" in project.book("status").stdout
    done = project.book("verify")
    assert done.returncode == 1
    assert done.stdout.count("is missing or damaged") == 2
    again = project.book("run", "fig01")
    assert again.returncode == 0
    assert "cannot be used" in again.stdout, "the person is told"
    assert "cannot be used" not in project.page.read_text(), "the page is not"


def test_a_page_that_was_tampered_with_is_made_again(project):
    assert project.book("run", "fig01").returncode == 0
    good = project.page.read_text()
    for content in (good.replace("Twice two", "Twice three"), "[]", "", good[:-50]):
        project.page.write_text(content)
        assert "executed" in project.book("run", "fig01").stdout
        assert json.loads(project.page.read_text())["cells"] == json.loads(good)["cells"]


@pytest.mark.parametrize(
    ("file", "content"),
    [("data_cache/results.json", "[]"), ("data_cache/results.json", ""), ("notebooks/presets.yaml", "a: [")],
)
def test_damaged_files_of_the_project_are_named(project, file, content):
    (project.root / file).parent.mkdir(exist_ok=True)
    (project.root / file).write_text(content)
    done = project.book("list")
    assert done.returncode == 1
    assert file in done.stderr
    assert "Traceback" not in done.stderr


def test_figures_are_drawn_whatever_the_environment_says(project):
    project.environment["MPLBACKEND"] = "Agg"
    project.write_notebook("import matplotlib.pyplot as plt\nplt.plot([0, 1])")
    assert project.book("run", "fig01").returncode == 0
    assert "image/png" in project.page.read_text()
    assert not list(project.page.parent.glob("*.png"))
    output = project.root / "mine" / "figure.ipynb"
    assert project.book("run", "fig01", "--output", str(output)).returncode == 0
    assert output.with_suffix(".1.png").read_bytes().startswith(b"\x89PNG")


def test_two_processes_that_want_one_record_compute_it_once(project):
    arguments = ("run", "fig01", "-p", "steps=1", "-p", "wait=3", "--output")
    started = [
        subprocess.Popen(
            project.command(*arguments, str(project.root / f"{name}.ipynb")),
            cwd=project.root, env=project.environment, stdout=subprocess.DEVNULL,
        )
        for name in ("one", "two")
    ]  # fmt: skip
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert project.calls() == 1
    assert printed(project.root / "one.ipynb").tobytes() == printed(project.root / "two.ipynb").tobytes()


def heeding_ctrl_c():
    """A shell that starts the tests in the background has them, and what they start, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_stops_everything_and_the_next_run_continues(project):
    process = subprocess.Popen(
        project.command("run", "fig01", "-p", "steps=20", "-p", "wait=1", "-j", "2"),
        cwd=project.root, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    local = project.root / "data_cache" / "local"
    deadline = time.monotonic() + 120
    while len(list(local.rglob("*.safetensors"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped" in errors
    assert "Traceback" not in errors
    kept = len(list(local.rglob("*.safetensors")))
    time.sleep(3)
    assert len(list(local.rglob("*.safetensors"))) == kept, "workers went on"
    assert kept < 20
    assert not list(project.root.rglob("*.tmp"))
    calls = project.calls()
    done = project.book("run", "fig01", "-p", "steps=20", "-p", "wait=1", "-j", "2")
    assert done.returncode == 0, done.stderr
    assert project.calls() - calls == 20 - kept


def test_progress_is_plain_lines_in_a_pipe_and_nothing_on_the_page(project):
    done = project.book("run", "fig01")
    assert f"{FIGURE}: sample.scaled 2 of 2" in done.stdout
    assert "2 of 2" not in project.page.read_text()


def test_the_page_does_not_depend_on_the_kernel_a_notebook_names(project):
    project.write_notebook("import sys\nprint(sys.executable.encode().hex())", MEASURE, LINE)
    assert project.book("run", "fig01").returncode == 0
    page = json.loads(project.page.read_text())
    text = "".join(page["cells"][2]["outputs"][0]["text"]).strip()
    assert bytes.fromhex(text).decode() == sys.executable
    assert page["metadata"]["kernelspec"]["name"] == "python3"


def test_smoke_time_is_kept_when_everything_was_computed(project):
    assert project.book("run", "fig01", "--preset", "smoke", "--fresh").returncode == 0
    results = json.loads((project.root / "data_cache" / "results.json").read_text())
    assert results[FIGURE]["seconds"]["smoke"] > 0
    assert "smoke" in project.book("list").stdout


def test_an_interrupted_fresh_run_continues_and_a_finished_one_starts_anew(project):
    arguments = ("run", "fig01", "-p", "steps=8", "-p", "wait=1", "-j", "1")
    assert project.book(*arguments).returncode == 0
    process = subprocess.Popen(
        project.command(*arguments, "--fresh"), cwd=project.root, env=project.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while project.calls() < 8 + 4:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert project.book(*arguments, "--fresh").returncode == 0
    assert project.calls() <= 8 + 8 + 1, "only the one that was interrupted is computed twice"
    before = project.calls()
    assert project.book(*arguments, "--fresh").returncode == 0
    assert project.calls() == before + 8


def test_a_figure_that_computes_on_its_page_needs_no_record(project):
    assert " no " in project.book("list").stdout
    project.write_notebook("from shared.report import provenance_line", "provenance_line()")
    done = project.book("run", "sample/fig01")
    assert done.returncode == 0, done.stderr
    assert "needs none" in project.book("list").stdout
    assert "needs no record" in project.book("status").stdout
