"""What a reader's browser makes of the page, on a phone and on a desktop."""

import pytest

from tests.report import browser

SIZES = {"phone": (375, 812), "desktop": (1280, 900)}
TROUBLE = (
    "Log.entryAdded",
    "Network.loadingFailed",
    "Page.javascriptDialogOpening",
    "Runtime.consoleAPICalled",
    "Runtime.exceptionThrown",
)
# Elements that stick out to the right and are not inside a container that scrolls.
OVERFLOW = """[...document.querySelectorAll("main *")]
  .filter(e => !e.closest(".scroll table") && e.getBoundingClientRect().right > innerWidth + 0.5)
  .map(e => e.outerHTML.slice(0, 80))"""
IMAGES = "Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    if browser.find() is None:
        pytest.skip("no Chromium on the path: the page is not looked at here")
    with browser.launch(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("report", ["page", "hostile_page"])
def test_the_page_fits_and_loads_without_trouble(chromium, request, report, size, dark):
    path = request.getfixturevalue(report)
    page = chromium.open(path.as_uri(), *SIZES[size], dark=dark)
    assert page.evaluate("innerWidth") == SIZES[size][0]
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert page.evaluate(OVERFLOW) == []
    widths = page.evaluate(IMAGES)
    assert len(widths) == 5
    assert min(widths) > 300
    assert page.events(*TROUBLE) == []
    requests = page.events("Network.requestWillBeSent")
    fetched = [event["params"]["request"]["url"] for event in requests]
    assert [url for url in fetched if not url.startswith("data:")] == [path.as_uri()]


def test_hostile_text_is_shown_and_does_nothing(chromium, hostile_page):
    page = chromium.open(hostile_page.as_uri(), *SIZES["phone"])
    text = page.evaluate("document.body.innerText")
    for words in ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "abc⟨U+202E⟩dcba"):
        assert words in text
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("document.querySelectorAll('[onerror], main b ~ img').length") == 0
    assert page.events("Page.javascriptDialogOpening") == []


def test_a_wide_table_scrolls_inside_its_box(chromium, page):
    phone = chromium.open(page.as_uri(), *SIZES["phone"])
    box = "document.querySelector('.scroll[aria-label=\"Fit of the encodings\"]')"
    assert phone.evaluate(f"{box}.scrollWidth > {box}.clientWidth")
    desktop = chromium.open(page.as_uri(), *SIZES["desktop"])
    assert desktop.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")


def test_the_browser_would_see_trouble(chromium, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<img src=absent.png><script>console.error('x'); nothing()</script>"
        "<div style='width: 2000px'>wide</div>"
    )
    page = chromium.open(bad.as_uri(), *SIZES["desktop"])
    kinds = {event["method"] for event in page.events(*TROUBLE)}
    assert {"Network.loadingFailed", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"} <= kinds
    assert page.evaluate("document.documentElement.scrollWidth") > SIZES["desktop"][0]
