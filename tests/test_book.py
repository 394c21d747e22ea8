"""The built book, read back from its HTML. ``make book`` builds it, and ``make test`` runs that first."""

import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from shared import claims, paths
from shared.errors import FailedRun
from shared.figures import all_figures
from shared.pages import HTML, build, write_generated_tables

LARGEST_PAGE = 3_000_000
LOADING = {
    "script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src",
    "audio": "src", "object": "data", "embed": "src",
}  # fmt: skip


class Page(HTMLParser):
    """What a page loads, links to, names and says."""

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.loads: list[str] = []
        self.links: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.names: set[str] = set()
        self.inline = ""
        self.text = ""
        self._inside = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self._inside = tag if tag in ("script", "style") else ""
        if "id" in found:
            self.names.add(found["id"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img":
            self.images.append(found)
        if found.get(LOADING.get(tag, "")) and not (tag == "link" and found.get("rel") == "canonical"):
            self.loads.append(found[LOADING[tag]])

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside:
            self.inline += data
        else:
            self.text += data


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    assert HTML.exists(), "the book is not built; run `make book`"
    found = [path for path in sorted(HTML.rglob("*.html")) if "_static" not in path.parts]
    return {path: Page(path) for path in found}


def page(pages, name) -> Page:
    return pages[HTML / f"{name}.html"]


def local(source: Path, reference: str) -> tuple[Path, str] | None:
    """The file and the place in it that a link of ``source`` leads to, or None for other hosts."""
    parts = urlsplit(reference)
    if parts.scheme or parts.netloc:
        return None
    target = source.parent / unquote(parts.path) if parts.path else source
    return target.resolve(), parts.fragment


def test_every_page_of_the_contents_is_built(pages):
    contents = yaml.safe_load((paths.BOOK / "_toc.yml").read_text())
    files = [contents["root"]]
    for part in contents["parts"]:
        for chapter in part["chapters"]:
            files += [chapter["file"], *(section["file"] for section in chapter.get("sections", []))]
    for name in files:
        assert HTML / f"{name}.html" in pages


def test_every_link_within_the_book_leads_somewhere(pages):
    checked = 0
    for path, found in pages.items():
        for reference in found.links + found.loads:
            target = local(path, reference)
            if target is None or (reference.startswith(("#", "javascript")) and target[1] == ""):
                continue
            file, fragment = target
            assert file.exists(), f"{path.name}: {reference}"
            if fragment and file in pages and "search" not in file.name:
                assert fragment in pages[file].names, f"{path.name}: {reference}"
            checked += 1
    assert checked > 50


def test_no_page_loads_anything_from_another_host(pages):
    for path, found in pages.items():
        for reference in found.loads:
            parts = urlsplit(reference)
            assert not parts.netloc, f"{path.name} loads {reference}"
            assert parts.scheme in ("", "data"), f"{path.name} loads {reference}"
        assert not re.findall(r"https?://(?!www\.w3\.org)[\w.-]+", found.inline), path.name


def test_no_style_sheet_or_script_of_a_page_names_another_host_to_load_from(pages):
    """Of style sheets, everything they load; of scripts, the services the theme could ask."""
    used = {local(path, ref)[0] for path, found in pages.items() for ref in found.loads if local(path, ref)}
    for file in used:
        text = file.read_text(encoding="utf-8", errors="ignore") if file.suffix in (".css", ".js") else ""
        if file.suffix == ".css":
            assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)'\"]+", text), file
        elif "mathjax" not in file.parts:
            assert not re.findall(r"(?:unpkg|jsdelivr|cdnjs|googleapis)\.\w+", text), file


def test_formulas_are_served_from_the_book(pages):
    with_formulas = [found for found in pages.values() if 'class="math' in found.path.read_text()]
    assert with_formulas
    for found in with_formulas:
        assert any("mathjax" in ref.lower() for ref in found.loads), found.path


def test_every_image_has_a_text_alternative(pages):
    images = [(path, image) for path, found in pages.items() for image in found.images]
    assert images
    for path, image in images:
        assert len((image.get("alt") or "").strip()) > 10, f"{path.name}: {image.get('src')}"


def test_every_figure_is_numbered_shows_its_claims_and_can_be_downloaded(pages):
    for figure in all_figures():
        found = page(pages, f"figures/{figure.name}")
        assert re.search(r"Fig\. \d+", found.text)
        for name, entry in claims.registry().items():
            if entry["figure"] == figure.name:
                assert name in found.names, f"no box for {name}"
        assert "Not counted" not in found.text, "the page shows another run than the record"
        assert "Provenance" in found.text
        notebook = [ref for ref in found.links if ref.endswith(".ipynb")]
        assert notebook, "no download of the notebook"
        downloaded = local(found.path, notebook[0])[0].read_text()
        assert "image/png" in downloaded


def test_the_claims_page_lists_every_claim_with_its_verdict(pages):
    found = page(pages, "claims")
    text = found.path.read_text()
    for name, entry in claims.registry().items():
        assert name in found.text
        assert f"figures/{entry['figure']}.html" in text
    verdicts = (claims.REPRODUCED, claims.PARTLY, claims.NOT_REPRODUCED, claims.NOT_TESTED)
    rows = re.findall(r"<tr.*?</tr>", text, flags=re.DOTALL)[1:]
    assert len(rows) == len(claims.registry())
    assert all(any(verdict in row for verdict in verdicts) for row in rows)


def test_the_status_page_names_every_figure_and_its_machine(pages):
    found = page(pages, "status")
    for figure in all_figures():
        assert figure.name in found.text
    for word in ("torch 2.", "numpy 2.", "unchanged"):
        assert word in found.text


def test_no_progress_and_no_streams_on_a_page(pages):
    for path, found in pages.items():
        markup = found.path.read_text()
        assert 'class="output stream' not in markup, path
        assert 'class="output traceback' not in markup, path


def test_no_page_is_too_large(pages):
    for path, found in pages.items():
        own = [local(path, image["src"])[0] for image in found.images if not image["src"].startswith("data:")]
        size = path.stat().st_size + sum(file.stat().st_size for file in own)
        assert size < LARGEST_PAGE, path


def test_the_book_speaks_of_itself_alone(pages):
    for path, found in pages.items():
        for place in (paths.ROOT, Path.home(), Path(tempfile.gettempdir())):
            assert f"{place}/" not in found.text, path


def test_without_changes_nothing_is_built():
    _, current = build()
    assert current


def test_a_figure_that_was_not_executed_stops_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    with pytest.raises(FailedRun, match=r"not executed yet: .*spectral/fig03_learning_order"):
        build()


def test_generated_tables_are_written_only_when_they_change(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    write_generated_tables()
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {path.name for path in stamps} == {"_claims.md", "_status.md"}
    write_generated_tables()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps


def test_tables_of_a_page_are_drawn(pages):
    for path, found in pages.items():
        assert not re.search(r"<p>\s*\|", found.path.read_text(encoding="utf-8")), path
    assert "<table" in page(pages, "figures/spectral/fig02_learned_function").path.read_text(encoding="utf-8")
