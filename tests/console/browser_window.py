"""Somebody in front of the browser: signs in, finds a page, and counts the clicks."""

from dataclasses import dataclass, field
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, FrameLocator, Locator, Page, expect

from tests.console.running_stack import PIPELINE, RunningStack

PATIENCE_MS = 180_000
"""For one answer; the machine may be busy."""
WIDE = (1280, 800)
TALL = (1280, 1240)
WIDEST = (2560, 1300)
NARROW = (390, 844)
Theme = Literal["light", "dark"]
expect.set_options(timeout=PATIENCE_MS)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass
class BrowserWindow:
    """A browser window of one user."""

    running: RunningStack
    page: Page
    clicks: int = 0
    problems: list[str] = field(default_factory=list)
    """What the browser has complained about: errors of scripts, what the page's policy forbids."""
    refusals: bool = False
    """Whether the test has Airflow refuse something, which the browser logs as an error, too."""

    def __post_init__(self) -> None:
        def heard(message: ConsoleMessage) -> None:
            if message.type == "error" and "/tally/" in str(message.location):
                self.problems.append(message.text)

        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", heard)

    @property
    def unexpected(self) -> list[str]:
        """What no test provokes."""
        refused = "Failed to load resource: the server responded with a status of 4"
        return [p for p in self.problems if not (self.refusals and p.startswith(refused))]

    def open(self, path: str) -> Page:
        """Open a page of the pipeline by itself, and wait until Kafka was asked."""
        return self.open_address(f"pipelines/{PIPELINE}/{path}")

    def open_address(self, address: str) -> Page:
        """Open any page of the console in the same way."""
        self.page.goto(f"{self.running.airflow.address}/tally/{address}")
        self.page.wait_for_function("() => !document.body.innerText.includes('being asked')")
        return self.page

    def open_from_airflow(self) -> FrameLocator:
        """Open the console where a user begins: from Airflow's home, by its navigation."""
        self.page.goto(self.running.airflow.address)
        self.click(self.page.get_by_role("button", name="Browse"))
        self.click(self.page.get_by_role("menuitem", name="Tally"))
        expect(self.framed.locator("h1")).to_have_text(PIPELINE)
        return self.framed

    def click(self, target: Locator, **how: Any) -> None:
        """Click, as a person does; each one counts."""
        self.clicks += 1
        target.click(**how)

    def brush(self, plot: Locator, begin: float, end: float) -> None:
        """Drag over a part of a chart, as a person does; it counts as a click."""
        plot.hover()
        box = plot.bounding_box()
        assert box is not None
        self.clicks += 1
        y = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + box["width"] * begin, y)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + box["width"] * end, y, steps=5)
        self.page.mouse.up()

    @property
    def framed(self) -> FrameLocator:
        """The console within Airflow's page."""
        return self.page.frame_locator("iframe")

    def complaints(self) -> list[str]:
        """What axe finds serious or moderate, or worse; with the place."""
        options: dict[str, Any] = {"runOnly": {"type": "tag", "values": TAGS}}
        found = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{one['impact']} {one['id']}: {node['html'][:200]}"
            for one in found
            if one["impact"] != "minor"
            for node in one["nodes"]
        ]


def signed_in(browser: Browser, running: RunningStack, user: str) -> Any:
    """What the browser keeps of a user who has signed in."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(f"{running.airflow.address}/auth/login")
    page.locator('input[name="username"]').fill(user)
    page.locator('input[name="password"]').fill(running.password(user))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "login" not in url)
    state = context.storage_state()
    context.close()
    return state


def new_window(
    browser: Browser, running: RunningStack, state: Any, size: tuple[int, int], theme: Theme
) -> BrowserWindow:
    """A new window of somebody who is signed in."""
    context = browser.new_context(
        storage_state=state,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,
        locale="en-GB",
        timezone_id="UTC",
    )
    context.set_default_timeout(PATIENCE_MS)
    return BrowserWindow(running=running, page=context.new_page())
