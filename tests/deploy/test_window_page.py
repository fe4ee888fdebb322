"""The live page of a running party in a real browser: it follows the rounds, names who is late, breaks no rule."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.deploy.agent import Agent
from coterie.deploy.journal import log, shown
from coterie.deploy.trial import free_ports
from coterie.deploy.watch import Watch
from coterie.deploy.window import Window, WindowPlace
from tests.deploy.house import House, Setting
from tests.report.browser import MISSING, Browser

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
NASTY = "<script>window.taken = 1</script><img src=x onerror='window.taken=1'>"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    return Setting.small(tmp_path_factory.mktemp("page") / "t", 300, tick=0.1, patience=600.0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


def settle(browser: Browser, script: str, seconds: float = 20) -> Any:
    """The first true value of an expression on the page."""
    deadline = time.monotonic() + seconds
    while not (value := browser.run(f"return {script}")):
        assert time.monotonic() < deadline, script
        time.sleep(0.1)
    return value


def pictures(browser: Browser, address: str, folder: Path, name: str) -> None:
    """In light and dark, wide and narrow; no page is wider than its window."""
    for dark in (False, True):
        for width in (1200, 390):
            browser.open(address, width, dark=dark)
            settle(browser, "document.querySelectorAll('#graph circle').length")
            browser.picture(folder / f"{name}-{'dark' if dark else 'light'}-{width}.png")
            assert browser.run("return document.documentElement.scrollWidth") <= width
            colours = browser.run("const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]")
            assert (sum(map(int, colours[1][4:-1].split(","))) < 300) == dark


def test_the_page_follows_a_run(setting: Setting, tmp_path: Path, browser: Browser) -> None:
    house, port = House(setting, tmp_path / "house"), free_ports(1)[0]
    address, folder = f"http://127.0.0.1:{port}/", Path(os.environ.get("COTERIE_SHOTS", tmp_path))
    opened: list[Agent] = []

    def look() -> None:
        browser.open(address, 1200)
        settle(browser, "parseInt(document.getElementById('round').textContent) > 8")
        assert browser.run("return document.getElementById('party').textContent") == "ada"
        assert browser.run("return document.querySelectorAll('#graph circle').length") == 3
        assert browser.run("return document.querySelectorAll('#graph .edge.up').length") == 2
        assert browser.run("return document.querySelectorAll('#times .bar').length") > 5
        assert " of 300" in browser.run("return document.title + document.getElementById('round').textContent")
        log.warning("refused %s", NASTY)
        opened[0].transport.refusals.add("stranger", NASTY)  # type: ignore[attr-defined]
        settle(browser, "document.getElementById('log').textContent.includes('onerror')")
        settle(browser, "!document.getElementById('refused').hidden")
        assert browser.run("return [window.taken, document.images.length]") == [None, 0]
        pictures(browser, address, folder, "party-runs")

    def wait() -> None:
        browser.open(address, 1200)
        words = settle(browser, "document.getElementById('state').className.includes('late') "
                                "&& document.getElementById('state').textContent")  # fmt: skip
        assert words == "listening, waiting for ben"
        settle(browser, "document.querySelectorAll('#graph .edge.waited').length === 1")
        assert browser.run("return document.querySelectorAll('#graph .node.up').length") == 1
        pictures(browser, address, folder, "party-waits")

    def over() -> None:
        settle(browser, "document.getElementById('state').className.includes('gone')")
        refused = [text for text in browser.complaints() if "ERR_CONNECTION_REFUSED" not in text]
        assert refused == []  # in particular nothing that the policy would have stopped

    async def scenario() -> None:
        jobs = {n: asyncio.create_task(house.live(n, prepare=opened.append)) for n in ("ada", "ben", "cleo")}
        while len(opened) < 3:
            await asyncio.sleep(0.01)
        agent = opened[0]
        transport: Any = agent.transport
        async with Window(WindowPlace.read(str(port)), Watch(agent, transport, house.state["ada"], recent)):
            await asyncio.to_thread(look)
            await stop(jobs.pop("ben"))
            await asyncio.to_thread(wait)
            await stop(*jobs.values())
        await asyncio.to_thread(over)

    async def stop(*tasks: asyncio.Task) -> None:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)

    with shown() as recent:
        asyncio.run(scenario())
