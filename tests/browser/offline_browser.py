"""A headless Chromium without a network, which notes every request, as wide and as dark as a test asks."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
PHONE = 600  # pixels; a narrower window is a telephone's

NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="chromium and chromedriver are not installed"),
]


def offline_driver() -> Iterator[webdriver.Chrome]:
    """For a fixture to yield from."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        yield driver
        driver.quit()


def open_page(driver: webdriver.Chrome, page: Path, *, width: int, scheme: str = "light") -> None:
    """Open `page` at `width` pixels, as a telephone where that is narrow, in the colour scheme "light" or "dark"."""
    phone = width < PHONE
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})
    prefer(driver, scheme)
    driver.get(page.as_uri())


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """Change the reader's colour scheme under the open page."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def assert_no_sideways_scroll(driver: webdriver.Chrome, width: int) -> None:
    needed, given = driver.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert needed == given <= width  # a telephone's page grows with its content, so both matter


def assert_asked_for_nothing(driver: webdriver.Chrome, page: Path) -> None:
    """Since the last call no request but for `page` itself left, and no script complained."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert page.as_uri() in asked
    assert [address for address in asked if not address.startswith((page.as_uri(), "data:", "blob:"))] == []
    assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def luminance(colour: str) -> float:
    """Mean channel, 0 to 1, of a computed "rgb(r, g, b)"."""
    channels = colour.partition("(")[2].rstrip(")").split(",")[:3]
    return sum(float(channel) for channel in channels) / 3 / 255
