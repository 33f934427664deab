"""A headless Chromium, spoken to over a pipe in the DevTools protocol; standard library only."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)

# Chromium reads commands from descriptor 3 and writes to 4. This moves ours there, out of the way
# first, because they may themselves be 3 and 4.
MOVE = """
import fcntl, os, sys
commands, events = (fcntl.fcntl(int(fd), fcntl.F_DUPFD_CLOEXEC, 10) for fd in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(events, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find() -> str | None:
    """The path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def launch(profile: Path) -> Iterator["Browser"]:
    """A browser with an empty profile, ended on leaving."""
    commands_read, commands_write = os.pipe()
    events_read, events_write = os.pipe()
    command = [str(find()), *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [sys.executable, "-IS", "-c", MOVE, str(commands_read), str(events_write), *command],
        pass_fds=(commands_read, events_write),
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_read)
    os.close(events_write)
    try:
        yield Browser(commands_write, events_read)
    finally:
        os.close(commands_write)
        os.close(events_read)
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Browser:
    """One browser; `open` gives a page."""

    def __init__(self, commands: int, events: int):
        self._commands, self._events = commands, events
        self._buffer, self._last = b"", 0
        self.events: list[dict[str, Any]] = []

    def open(self, url: str, width: int, height: int, *, dark: bool = False) -> "Page":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        page.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=url)
        page.wait_for("Page.loadEventFired")
        return page

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._last += 1
        command = {"id": self._last, "method": method, "params": params}
        command |= {"sessionId": session} if session else {}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self.read()
            if message.get("id") == self._last:
                assert "error" not in message, message
                return message["result"]

    def read(self, timeout: float = 60) -> dict[str, Any]:
        """The next message; events are kept in `events`."""
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._events], [], [], end - time.monotonic())
            chunk = os.read(self._events, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("the browser ended or fell silent")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str):
        self._browser, self._session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """What happened so far, of the kinds named."""
        return [
            event
            for event in self._browser.events
            if event.get("sessionId") == self._session and event["method"] in methods
        ]

    def wait_for(self, method: str) -> None:
        while not self.events(method):
            self._browser.read()

    def evaluate(self, expression: str) -> Any:
        """The JSON value of a JavaScript expression, a promise awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page, below the fold too, as a PNG: for a person to look at."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))
