"""One environment, three files that describe it, and a tree that says what it is."""

import re
import tomllib

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from shared import paths

LOCK = [
    Requirement(line)
    for line in (paths.ROOT / "requirements.lock").read_text().splitlines()
    if line and not line.startswith("#")
]
PROJECT = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
CONDA = yaml.safe_load((paths.ROOT / "environment.yml").read_text())


def pins(platform: str, machine: str, python: str) -> dict[str, Version]:
    """What the lock installs on a machine, by name."""
    full = f"{python}.9"
    place = {
        "sys_platform": platform,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform],
        "platform_machine": machine,
        "python_version": python,
        "python_full_version": full,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "extra": "",
    }
    found: dict[str, Version] = {}
    for requirement in LOCK:
        if requirement.marker is None or requirement.marker.evaluate(place):
            assert requirement.name not in found, requirement.name
            (specifier,) = requirement.specifier
            assert specifier.operator == "=="
            found[requirement.name.lower().replace("_", "-")] = Version(specifier.version)
    return found


def test_the_lock_pins_everything_the_project_asks_for_on_every_machine():
    wanted = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    wanted += [Requirement(text) for text in PROJECT["dependency-groups"]["dev"]]
    for platform, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")):
        for python in ("3.11", "3.12", "3.13"):
            found = pins(platform, machine, python)
            for requirement in wanted:
                assert requirement.specifier.contains(found[requirement.name.lower()]), requirement
            assert found["torch"] == Version("2.14.1")
            assert found["torchvision"] == Version("0.29.1")
            nvidia = [name for name in found if name.startswith("nvidia")]
            assert bool(nvidia) == (platform == "linux")


def test_conda_takes_python_from_one_channel_and_the_rest_from_the_lock():
    assert len(CONDA["channels"]) == 1
    *from_channel, pip = CONDA["dependencies"]
    assert sorted(entry.split("=")[0] for entry in from_channel) == ["pip", "python"]
    assert pip == {"pip": ["-r requirements.lock", "-e ."]}
    (python,) = [entry for entry in from_channel if entry.startswith("python")]
    version = python.split("=")[1]
    assert Version(version) in Requirement(f"python{PROJECT['project']['requires-python']}").specifier


def test_the_makefile_installs_the_lock():
    assert "-r requirements.lock" in (paths.ROOT / "Makefile").read_text()


def test_modules_stay_small():
    for path in [*paths.PACKAGE.rglob("*.py"), *(paths.ROOT / "tests").glob("*.py")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path


def test_probes_and_models_know_nothing_of_files_store_or_papermill():
    for folder in ("probes", "models", "ensemble.py"):
        place = paths.PACKAGE / folder
        for path in [place] if place.is_file() else place.glob("*.py"):
            imported = re.findall(r"^\s*(?:from|import) (shared[.\w]*)", path.read_text(), flags=re.MULTILINE)
            for name in imported:
                allowed = re.match(r"shared\.(models|probes|rng|synthetic|ensemble)", name)
                assert allowed, f"{path} imports {name}"


def test_the_readme_starts_with_two_commands():
    text = (paths.ROOT / "README.md").read_text()
    first = re.search(r"```console\n(.*?)```", text, flags=re.DOTALL)
    assert first
    assert first.group(1).strip().split("\n") == ["$ make book", "$ make test"]
    assert not re.findall(r"@\w+@|TODO|PLACEHOLDER", text)
