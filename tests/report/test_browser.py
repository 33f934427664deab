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


def test_pages_fit_and_load_without_trouble(page, hostile_page, tmp_path):
    if browser.find() is None:
        pytest.skip("no Chromium on the path: the page is not looked at here")
    bad = tmp_path / "bad.html"
    bad.write_text("<img src=absent.png><script>console.error('x'); nothing()</script>")
    with browser.launch(tmp_path / "profile") as chromium:
        for path, size in ((page, "phone"), (page, "desktop"), (hostile_page, "phone")):
            shown = chromium.open(path.as_uri(), *SIZES[size], dark=path is hostile_page)
            assert shown.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
            assert shown.evaluate(OVERFLOW) == []
            widths = shown.evaluate(IMAGES)
            assert len(widths) == 5
            assert min(widths) > 300
            assert shown.events(*TROUBLE) == []
            requests = shown.events("Network.requestWillBeSent")
            fetched = [event["params"]["request"]["url"] for event in requests]
            assert [url for url in fetched if not url.startswith("data:")] == [path.as_uri()]
        text = shown.evaluate("document.body.innerText")  # of the hostile page
        for words in ("<script>alert(1)</script>", "abc⟨U+202E⟩dcba"):
            assert words in text
        assert shown.evaluate("document.scripts.length") == 0
        trouble = chromium.open(bad.as_uri(), *SIZES["desktop"]).events(*TROUBLE)
        kinds = {event["method"] for event in trouble}  # which the browser would see
        assert {"Network.loadingFailed", "Runtime.exceptionThrown"} <= kinds
