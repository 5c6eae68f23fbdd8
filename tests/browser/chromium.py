"""What the tests ask a browser about a page."""

import json
from pathlib import Path

from selenium import webdriver


class Browser:
    """Opens pages and answers questions about them by script."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, *, width: int = 1440, fragment: str = "") -> None:
        """Load a page anew in a window of this width; below 600 as a telephone does."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get("about:blank")
        self.messages(), self.requested()
        self.driver.get(page.as_uri() + fragment)

    def ask(self, script: str, *arguments: object) -> object:
        return self.driver.execute_script(f"return {script}", *arguments)

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def texts(self, selector: str) -> list[str]:
        found = self.ask(
            "Array.from(document.querySelectorAll(arguments[0]), (e) => e.textContent.trim())", selector
        )
        assert isinstance(found, list)
        return found

    def messages(self) -> list[str]:
        """What the console said since the last question."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """Every address that the browser asked for since the last question."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def save(self, path: Path) -> None:
        path.write_bytes(self.driver.get_screenshot_as_png())
