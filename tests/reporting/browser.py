"""A headless Chromium, driven through chromedriver's own HTTP interface."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1000",
]
ALL_TEXT = """
const parts = [];
const walk = (node) => {
  if (node.nodeType === Node.TEXT_NODE) { if (node.data.trim()) parts.push(node.data.trim()); return; }
  if (["SCRIPT", "STYLE", "TEMPLATE"].includes(node.nodeName)) return;
  if (node.shadowRoot) walk(node.shadowRoot);
  if (node.nodeName === "IFRAME" && node.contentDocument) walk(node.contentDocument);
  node.childNodes.forEach(walk);
};
walk(document);
return parts.join("\\n");
"""
ALL_IMAGES = """
const found = [];
const walk = (node) => {
  if (node.nodeName === "IMG" && node.naturalWidth > 0) found.push(node.src);
  if (node.shadowRoot) walk(node.shadowRoot);
  node.childNodes.forEach(walk);
};
walk(document);
return found;
"""


class Browser:
    """One window.

    Args:
        session: Address of the WebDriver session.
    """

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        request(f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return request(f"{self._session}/execute/sync", {"script": script, "args": []})

    def text(self) -> str:
        """All text of the page, shadow trees included."""
        return str(self.run(ALL_TEXT))

    def wait(self, holds: Callable[[str], bool], seconds: float = 30) -> str:
        """The page's text as soon as it fulfils a condition, or as it is when time is up."""
        return awaited(self.text, holds, seconds)

    def images(self, count: int, seconds: float = 30) -> list[str]:
        """The addresses of the images that have arrived: so many, or as many as there are when time is up."""
        return awaited(lambda: self.run(ALL_IMAGES), lambda found: len(found) >= count, seconds)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(request(f"{self._session}/screenshot")))


def awaited(read: Callable[[], T], holds: Callable[[T], bool], seconds: float) -> T:
    """What is read as soon as it fulfils a condition, or what it is when time is up."""
    until = time.monotonic() + seconds
    while True:
        found = read()
        if holds(found) or time.monotonic() > until:
            return found
        time.sleep(0.3)


def request(url: str, body: Any = None, method: str | None = None) -> Any:
    encoded = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, encoded, {"Content-Type": "application/json"}, method=method)
    # A proxy of the environment has no part in a call of this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=60) as answer:
        return json.load(answer)["value"]


@contextmanager
def listening(command: list[str], sign: str) -> Iterator[str]:
    """A server while it runs; gives the line of its output that has a sign."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            line = next((line for line in server.stdout if sign in line), None)
            if line is None:
                raise RuntimeError(f"{command[0]} ended with {server.wait()} before it was ready")
            yield line
        finally:
            server.terminate()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a fresh profile."""
    assert CHROMIUM is not None and DRIVER is not None
    with listening([DRIVER, "--port=0"], "started successfully on port") as line:
        root = f"http://127.0.0.1:{line.rsplit(maxsplit=1)[-1].rstrip('.')}"
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options}}
            session = f"{root}/session/{request(f'{root}/session', {'capabilities': wanted})['sessionId']}"
            try:
                yield Browser(session)
            finally:
                request(session, method="DELETE")
