"""Programs beside Python that some commands and tests use: a browser that prints PDF files, and its driver."""

import shutil
from collections.abc import Mapping

from ddtree.workbook.doctor.finding import Finding

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DEBIAN = "apt-get install chromium chromium-driver"


def on_path() -> dict[str, str]:
    """Where each of the browsers and the driver is, those that are."""
    return {name: place for name in (*BROWSERS, "chromedriver") if (place := shutil.which(name))}


def examine_browser(found: Mapping[str, str]) -> Finding:
    browser = next((found[name] for name in BROWSERS if name in found), None)
    if browser is None:
        return Finding("browser", "warning", "no Chromium or Chrome: PDF files and browser tests need one", DEBIAN)
    if "chromedriver" not in found:
        return Finding("browser", "warning", f"{browser} for PDF files; browser tests need chromedriver too", DEBIAN)
    return Finding("browser", "ok", f"{browser}, {found['chromedriver']}")
