"""A real browser for tests: Debian's chromium, driven over chromedriver's HTTP interface with the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["MISSING", "Browser"]

MISSING = None if shutil.which("chromedriver") and shutil.which("chromium") else (
    "no browser here: `make test-browser` installs chromium and chromium-driver where it may"
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
SWITCHES = ["--headless=new", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"]


class Browser:
    """One headless session; use it as a context."""

    def __enter__(self) -> Browser:
        log = subprocess.PIPE
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=log, stderr=subprocess.DEVNULL, text=True)
        assert self.driver.stdout is not None
        port = None
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                port = int("".join(ch for ch in line.rsplit("port", 1)[1] if ch.isdigit()))
                break
        assert port is not None, "chromedriver did not start"
        self.root = f"http://127.0.0.1:{port}"
        switches = SWITCHES + (["--no-sandbox"] if os.geteuid() == 0 else [])
        wanted = {"goog:chromeOptions": {"args": switches}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._send("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        self.root += f"/session/{session}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send("", method="DELETE")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
            assert self.driver.stdout is not None
            self.driver.stdout.close()

    def _send(self, path: str, body: dict | None = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(error.read().decode()) from None

    def tool(self, command: str, **params: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._send("/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, page: Path | str, width: int, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Load a file or an address at a width, in light or dark colours, with or without scripts."""
        self.tool(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tool("Emulation.setEmulatedMedia", features=[colours])
        self.tool("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._send("/url", {"url": page if isinstance(page, str) else page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns."""
        return self._send("/execute/sync", {"script": script, "args": list(arguments)})

    def complaints(self) -> list[str]:
        """What the console holds since the last call."""
        return [entry["message"] for entry in self._send("/se/log", {"type": "browser"})]

    def hover(self, selector: str, across: float = 0.5) -> None:
        """Move the pointer over an element, at a share of its width."""
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        box = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return [b.x + b.width * arguments[1], b.y + b.height / 2]", selector, across,
        )  # fmt: skip
        self.tool("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
        time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Click an element."""
        found = self._send("/element", {"using": "css selector", "value": selector})[_ELEMENT]
        self._send(f"/element/{found}/click", {})

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        size = self.run(
            "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )  # fmt: skip
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        shot = self.tool("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))
