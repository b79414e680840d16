"""Print a report to PDF with headless Chromium and a temporary profile."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "CHROME"
TIME_LIMIT_S = 180
FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",  # containers give that folder 64 MB
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-unsafe-swiftshader",  # three-dimensional figures without a graphics card
    "--blink-settings=preferredColorScheme=1",  # light
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",  # headings as bookmarks
)


class PdfError(RuntimeError):
    """There is no browser, or it printed nothing; the message says which and what to do."""


def find_browser(named: str | None = None) -> str:
    """The path of a Chromium: `named`, else what the variable CHROME names, else what PATH has. Raises PdfError."""
    for origin, name in (("--browser", named), (f"the variable {VARIABLE}", os.environ.get(VARIABLE))):
        if name:
            found = shutil.which(name)
            if not found:
                raise PdfError(f"The browser {name} of {origin} cannot be started; give the path of a program.")
            return found
    for name in NAMES:
        if found := shutil.which(name):
            return found
    raise PdfError(
        f"A PDF needs Chromium or Chrome, and none of {', '.join(NAMES)} is on PATH; "
        f"install one, or name it by --browser or the variable {VARIABLE}."
    )


def print_pdf(html: Path, pdf: Path, browser: str) -> Path:
    """Print the report `html` to `pdf`, whole or not at all, and return its path. Raises PdfError.

    The report draws its figures while it loads, and again at the width of the paper before it is printed.
    """
    with tempfile.TemporaryDirectory(prefix="ddtree-pdf-", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "report.pdf"
        command = [browser, *FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []  # the sandbox refuses root, as in most containers
        command.append(html.resolve().as_uri())
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIME_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            late = f"{browser} did not print {html} within {TIME_LIMIT_S} s; is the machine very busy?"
            raise PdfError(late) from error
        except OSError as error:
            raise PdfError(f"{browser} cannot be started: {error.strerror}.") from error
        if done.returncode or not printed.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise PdfError(f"{browser} did not print {html} (exit code {done.returncode}): {last}")
        partial = pdf.with_name(f".{pdf.name}.partial")  # the temporary folder may be on another disk
        try:
            shutil.copyfile(printed, partial)
            partial.replace(pdf)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise PdfError(f"Nothing can be written to {pdf.parent}: {error.strerror}.") from error
    return pdf
