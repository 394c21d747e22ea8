"""The built book in a browser that cannot reach any other host."""

import functools
import http.server
import shutil
import threading

import numpy as np
import pytest

from shared.figures import all_figures
from shared.pages import HTML
from shared.turnable import Turnable

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no Chromium with its driver is here (Debian: chromium chromium-driver)"
)
SWITCHES = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1400,1000", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip
SECONDS = 20
FIGURE_PAGE = f"figures/{all_figures()[0].name}.html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    assert HTML.exists(), "the book is not built; run `make book`"
    handler = functools.partial(Quiet, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for switch in SWITCHES:
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=webdriver.ChromeService(DRIVER), options=options)
    yield driver
    driver.quit()


def until(browser, script):
    """Wait until a script of the page gives something true, and return it."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, SECONDS).until(lambda driver: driver.execute_script(f"return {script}"))


def test_formulas_are_drawn(browser, address):
    browser.get(f"{address}/{FIGURE_PAGE}")
    formulas = until(browser, "document.querySelectorAll('.math').length")
    drawn = "document.querySelectorAll('.math mjx-container').length"
    assert until(browser, f"{drawn} >= {formulas} && {drawn}")
    assert until(browser, "document.querySelector('.math mjx-container').getBoundingClientRect().height") > 10
    assert not browser.execute_script("return document.querySelectorAll('mjx-merror').length")


def test_nothing_fails_to_load_and_nothing_is_asked_of_another_host(browser, address):
    browser.get_log("browser")
    for page in (FIGURE_PAGE, "intro.html", "claims.html"):
        browser.get(f"{address}/{page}")
        until(browser, "document.readyState === 'complete'")
        asked = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        assert asked
        assert [name for name in asked if not name.startswith(address)] == []
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_search_finds_a_word(browser, address):
    browser.get(f"{address}/search.html?q=Nyquist+amplitudes")
    browser.get(f"{address}/search.html?q=amplitudes")
    # The results come one after another.
    links = "[...document.querySelectorAll('#search-results li a')]"
    assert until(browser, f"{links}.some(a => a.href.includes('spectral/fig03_learning_order.html'))")


def ground(browser, selector):
    """Mean of red, green and blue of the nearest opaque ground behind an element."""
    return browser.execute_script(
        """
        let element = document.querySelector(arguments[0]);
        while (element) {
            const parts = getComputedStyle(element).backgroundColor.match(/[\\d.]+/g).map(Number);
            if (parts.length < 4 || parts[3] > 0) return (parts[0] + parts[1] + parts[2]) / 3;
            element = element.parentElement;
        }
        return 255;
        """,
        selector,
    )


def contrast(browser, selector):
    """Difference of brightness, up to 255, between an element's text and the ground behind it."""
    colour = browser.execute_script(
        "return getComputedStyle(document.querySelector(arguments[0])).color", selector
    )
    text = sum(float(part) for part in colour[4:-1].split(",")[:3]) / 3
    return abs(text - ground(browser, selector))


def test_the_theme_switch_works_and_figures_stay_readable(browser, address):
    browser.get(f"{address}/{FIGURE_PAGE}")
    browser.execute_script("localStorage.clear()")
    browser.get(f"{address}/{FIGURE_PAGE}")
    until(browser, "document.readyState === 'complete'")
    seen = {}
    for _ in range(3):
        theme = browser.execute_script("return document.documentElement.dataset.theme")
        seen[theme] = ground(browser, "main p")
        figure = ground(browser, ".cell_output img")
        if theme == "dark":
            assert figure > 240, "figures keep a light ground"
            filters = browser.execute_script(
                "return getComputedStyle(document.querySelector('.cell_output img')).filter"
            )
            assert filters == "none"
        browser.execute_script("document.querySelector('.theme-switch-button').click()")
    assert seen["light"] > 200
    assert seen["dark"] < 60


def test_a_claim_box_is_legible_in_both_themes(browser, address):
    browser.get(f"{address}/{FIGURE_PAGE}")
    for theme in ("light", "dark"):
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        assert contrast(browser, ".claim td") > 100, theme


def test_titles_of_surfaces_are_legible_in_both_themes(browser, address):
    browser.get(f"{address}/figures/psi/fig03_landscapes.html")
    for theme in ("light", "dark"):
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        assert contrast(browser, "figure:has(> canvas) figcaption") > 100, theme


def test_surfaces_turn_together_by_keys_and_by_dragging(browser, tmp_path):
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.by import By

    bump = np.exp(-(np.linspace(-2, 2, 9)[:, None] ** 2) - np.linspace(-1, 1, 9) ** 2)
    page = tmp_path / "page.html"
    surfaces = Turnable({"one": bump, "two": bump.T}, low=0.0, high=1.0)._repr_mimebundle_()
    page.write_text(f"<!doctype html><meta charset=utf-8>{surfaces['text/html']}", encoding="utf-8")
    browser.get(page.as_uri())

    def pictures():
        return browser.execute_script(
            "return [...document.querySelectorAll('canvas')].map(c => c.toDataURL())"
        )

    first = pictures()
    assert len(set(first)) == 2
    canvas = browser.find_element(By.TAG_NAME, "canvas")
    canvas.send_keys(Keys.ARROW_RIGHT)
    by_key = pictures()
    ActionChains(browser).click_and_hold(canvas).move_by_offset(40, 25).release().perform()
    dragged = pictures()
    for view in range(2):
        assert len({first[view], by_key[view], dragged[view]}) == 3
    canvas.send_keys(Keys.ESCAPE)
    assert pictures() == dragged
