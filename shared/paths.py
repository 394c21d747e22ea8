"""Where things lie; every path of the project is named here."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shared"
NOTEBOOKS = ROOT / "notebooks"
PRESETS = NOTEBOOKS / "presets.yaml"

BOOK = ROOT / "book"
CLAIMS = BOOK / "claims.yaml"
FIGURES = BOOK / "figures"  # executed copies of the notebooks, the pages of the book
BUILD = BOOK / "_build"
RUNS = ROOT / "runs"  # executed copies of anything but the record

DATA_CACHE = ROOT / "data_cache"
MEASUREMENTS = DATA_CACHE / "measurements"  # of the record, tracked
LOCAL_MEASUREMENTS = DATA_CACHE / "local"  # of every other run, not tracked
SIGNATURES = DATA_CACHE / "signatures.json"
IDENTITIES = DATA_CACHE / "identities.json"
RESULTS = DATA_CACHE / "results.json"  # verdicts and records of each figure
DATASETS = DATA_CACHE / "datasets"
CHECKPOINTS = DATA_CACHE / "checkpoints"
LOCKS = DATA_CACHE / "locks"
