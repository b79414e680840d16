"""Programs beside Python that some commands and tests use: a browser that prints PDF files, and its driver."""

import shutil

from ddtree.workbook.doctor.finding import Finding
from ddtree.workbook.report.pdf import PdfError, find_browser

DEBIAN = "apt-get install chromium chromium-driver"


def examine_browser() -> Finding:
    """The browser that `ddtree report --pdf` would take."""
    try:
        browser = find_browser()
    except PdfError as error:
        return Finding("browser", "warning", f"none, so no PDF and no browser tests: {error}", DEBIAN)
    driver = shutil.which("chromedriver")
    if driver is None:
        return Finding("browser", "warning", f"{browser} for PDF files; browser tests need chromedriver too", DEBIAN)
    return Finding("browser", "ok", f"{browser}, {driver}")
