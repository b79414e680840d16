"""JupyterLab as `make lab` starts it, with a browser on it: waits have deadlines, failures leave evidence."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
HOST = "127.0.0.1"
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WIDTH, HEIGHT = 1400, 1000  # of the page, pixels
FOREIGN_KERNEL = "SOMEBODY_ELSES_KERNEL"  # set in the environment of the kernel that must not be taken
POLL_S = 0.1
PATIENCE_S = 60  # for what takes a moment on idle cores
Found = TypeVar("Found")


def wait_until(condition: Callable[[], Found], seconds: float, what: str) -> Found:
    """The first true value of `condition`. Raises TimeoutError that names `what` and the last value seen.

    An element that the page replaces while `condition` reads it is one not seen yet.
    """

    def seen() -> Found | None:
        try:
            return condition()
        except StaleElementReferenceException:
            return None

    deadline = time.monotonic() + seconds
    while not (found := seen()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {seconds:g} s for {what}; last seen: {found!r}.")
        time.sleep(POLL_S)
    return found


# The server


@dataclass(frozen=True, slots=True)
class Server:
    """A running JupyterLab: its process and root, the page that it opened in the user's browser, and its log."""

    process: psutil.Process
    root: Path
    page: str
    log: Path

    def kernels(self) -> list[psutil.Process]:
        return [child for child in self.process.children() if _is_kernel(child)]


def _is_kernel(process: psutil.Process) -> bool:
    try:
        return "ipykernel_launcher" in process.cmdline()
    except psutil.Error:  # it has just ended
        return False


@contextlib.contextmanager
def make_lab(root: Path, folder: Path) -> Iterator[Server]:
    """`make lab` in `root`, with the programs beside this Python in place of those in .venv.

    Settings, signatures and sockets lie in `folder`, nothing in the user's own. A kernel "python3" of somebody else
    is installed for the user.
    """
    config, data, runtime = folder / "config", folder / "data", folder / "runtime"
    for each in (config, data, runtime):
        each.mkdir(parents=True)
    opened = folder / "opened"
    settings = {
        "ServerApp": {"ip": HOST, "port": _free_port(), "browser": _noting(opened), "allow_root": True},
        "IdentityProvider": {"token": secrets.token_hex(16)},
        "LabApp": {"expose_app_in_browser": True},
    }
    (config / "jupyter_lab_config.json").write_text(json.dumps(settings), encoding="utf-8")
    _ask_for_no_news(config)
    _install_foreign_kernel(data)
    environment = {name: value for name, value in os.environ.items() if name not in ("DDTREE_LIVE", "JPY_SESSION_NAME")}
    environment |= {
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(data),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    log = folder / "server.log"
    command = ["make", "lab", f"BIN={Path(sys.executable).parent}", "--old-file=.venv/ready"]
    with log.open("w", encoding="utf-8") as lines:
        make = psutil.Popen(command, cwd=root, env=environment, stdout=lines, stderr=subprocess.STDOUT)
    try:
        page = wait_until(lambda: _written(opened, make), 60, f"JupyterLab to open a browser (its log is {log})")
        (facts,) = [json.loads(path.read_text(encoding="utf-8")) for path in runtime.glob("jpserver-*.json")]
        yield Server(psutil.Process(facts["pid"]), Path(facts["root_dir"]), page, log)
    finally:
        _stop(make)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _ask_for_no_news(config: Path) -> None:
    folder = config / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    folder.mkdir(parents=True)
    choice = {"fetchNews": "false", "checkForUpdates": False}
    (folder / "notification.jupyterlab-settings").write_text(json.dumps(choice), encoding="utf-8")


def _install_foreign_kernel(data: Path) -> None:
    folder = data / "kernels" / "python3"
    folder.mkdir(parents=True)
    launch = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": launch, "display_name": "Another", "language": "python", "env": {FOREIGN_KERNEL: "1"}}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


def _noting(opened: Path) -> str:
    """A browser, as the server's settings name one, that notes the page it is asked for in `opened`."""
    script = opened.with_suffix(".sh")
    script.write_text(
        f'#!/bin/sh\nprintf %s "$1" > "{opened}.part" && mv "{opened}.part" "{opened}"\n', encoding="utf-8"
    )
    script.chmod(0o755)
    return f"{script} %s"


def _written(opened: Path, make: psutil.Popen) -> str:
    """The page once the server asked for it, "" before. Raises RuntimeError when the server has ended."""
    if make.poll() is not None:
        raise RuntimeError(f"`make lab` ended with status {make.returncode} before it opened a browser.")
    return opened.read_text(encoding="utf-8") if opened.is_file() else ""


def _stop(make: psutil.Popen) -> None:
    """Ask the server to end, which ends its kernels; end what is left."""
    family = make.children(recursive=True)
    for process in family:
        if "jupyter-lab" in " ".join(process.cmdline()):
            process.terminate()
    _, left = psutil.wait_procs([*family, make], timeout=15)
    for process in left:
        process.kill()


# The browser


@contextlib.contextmanager
def local_chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser that keeps its console and network events and finds no host but this one."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    resolver = f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {HOST}"
    for flag in [*FLAGS.split(), resolver, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield driver
    finally:
        driver.quit()


PANEL = """
const panel = [...(window.jupyterapp?.shell.widgets('main') ?? [])].find(each => each.context?.path === arguments[0]);
"""
STATE = (
    PANEL
    + """
if (!panel?.context.isReady || !panel.sessionContext.isReady) return null;
const cells = panel.content.widgets.map(cell => cell.model).filter(
    cell => cell.type === 'code' && cell.sharedModel.source.trim());
const outputs = cells.flatMap(cell => cell.outputs.toJSON());
return {
    kernel: panel.sessionContext.session?.kernel?.status ?? 'none',
    cells: cells.length,
    ran: cells.filter(cell => cell.executionCount !== null).length,
    errors: outputs.filter(output => output.output_type === 'error').map(error => `${error.ename}: ${error.evalue}`),
    warnings: outputs.filter(output => output.name === 'stderr').map(output => [output.text].flat().join('')),
    dirty: panel.context.model.dirty,
};
"""
)
TO_FRONT = (
    PANEL
    + """
window.jupyterapp.shell.activateById(panel.id);
return panel.isVisible && window.jupyterapp.shell.currentWidget === panel;
"""
)
COMMAND = """
const [name, options, done] = arguments;
window.jupyterapp.commands.execute(name, options).then(() => done(''), error => done(String(error)));
"""
FRONT = ".jp-NotebookPanel:not(.lm-mod-hidden)"
# A figure stands as a drawing, or in a notebook that was saved as its picture, until someone points at it.
FIGURES = f"""
const shown = element => element.offsetParent && element.getBoundingClientRect().height > 50;
const figures = [...document.querySelectorAll('{FRONT} .jp-RenderedPlotly')].filter(shown);
return figures.filter(figure => {{
    const picture = figure.querySelector('img.plot-img');
    return figure.querySelector('.main-svg .gtitle') || (shown(picture) && picture.naturalWidth > 50);
}});
"""


@dataclass(frozen=True, slots=True)
class Lab:
    """The browser on a server, and what was seen of its console and requests so far."""

    server: Server
    driver: webdriver.Chrome
    complaints: list[str] = field(default_factory=list)  # severe lines of the console
    asked: list[str] = field(default_factory=list)  # addresses

    def start(self) -> str:
        """Load the page that `make lab` opens; the path of the notebook it shows, once its kernel is idle."""
        self.driver.get(self.server.page)
        path = """const path = window.jupyterapp?.shell.currentWidget?.context?.path; return path ?? ''"""
        notebook = wait_until(lambda: self.driver.execute_script(path), 60, "JupyterLab's page with a notebook")
        self._wait_for_kernel(notebook)
        return notebook

    def open(self, notebook: str) -> None:
        """Show `notebook`, a path below the server's root, and wait for its kernel."""
        self.command("docmanager:open", path=notebook)
        self._wait_for_kernel(notebook)
        wait_until(lambda: self.driver.execute_script(TO_FRONT, notebook), PATIENCE_S, f"{notebook} to be in front")

    def close(self, notebook: str) -> None:
        """Save `notebook`, which is in front, end its kernel and close it."""
        self.save(notebook)
        kernels = len(self.server.kernels())
        self.command("notebook:shutdown-kernel")
        self.command("application:close")
        wait_until(lambda: len(self.server.kernels()) < kernels, 30, f"the kernel of {notebook} to end")
        self.listen()

    def save(self, notebook: str) -> None:
        wait_until(lambda: self._saved(notebook), PATIENCE_S, f"{notebook} to be saved")

    def _saved(self, notebook: str) -> bool:
        """Saves once more, since outputs that arrive late make a saved notebook dirty again."""
        self.command("docmanager:save")
        return not self.state(notebook)["dirty"]

    def run_all(self, notebook: str, seconds: float) -> dict[str, Any]:
        """Run every cell of `notebook`, which is in front; its state after the last, or after an error."""
        self.driver.execute_script("window.jupyterapp.commands.execute('runmenu:run-all')")  # not waited for
        wait_until(lambda: self._is_done(self.state(notebook)), seconds, f"all cells of {notebook} to have run")
        return self.state(notebook)

    def command(self, name: str, **options: Any) -> None:
        """Run one of JupyterLab's commands, as its menus do. Raises RuntimeError with the reason it was refused."""
        refusal = self.driver.execute_async_script(COMMAND, name, options)
        if refusal:
            raise RuntimeError(f"JupyterLab refused the command {name}: {refusal}")

    def state(self, notebook: str) -> dict[str, Any]:
        """Kernel status, cells with code, those that ran, errors, lines on stderr; empty until it is open."""
        return self.driver.execute_script(STATE, notebook) or {}

    def figures(self) -> list[WebElement]:
        """The figures of the notebook in front that can be seen."""
        return self.driver.execute_script(FIGURES)

    def wait_for_figures(self, count: int) -> list[WebElement]:
        wait_until(lambda: len(self.figures()) == count, 30, f"{count} figures to be drawn")
        return self.figures()

    def all(self, css: str) -> list[WebElement]:
        """What matches in the notebook in front."""
        return self.driver.find_elements(By.CSS_SELECTOR, f"{FRONT} {css}")

    def listen(self) -> None:
        """Take what the browser has logged since the last call."""
        severe = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        self.complaints.extend(severe)
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                self.asked.append(event["params"]["request"]["url"])
            elif event["method"] == "Network.webSocketCreated":
                self.asked.append(event["params"]["url"])

    @contextlib.contextmanager
    def evidence(self, folder: Path) -> Iterator[None]:
        """On a failure save picture and logs in `folder` and name them in the message."""
        try:
            yield
        except Exception as error:
            self.listen()
            picture, log = folder / "lab.png", folder / "browser.log"
            self.driver.save_screenshot(str(picture))
            log.write_text("\n".join(self.complaints), encoding="utf-8")
            error.add_note(f"Seen in the browser: {picture}; its console: {log}; the server's log: {self.server.log}")
            raise

    def _wait_for_kernel(self, notebook: str) -> None:
        idle = f"{notebook} to open and its kernel to be idle"
        wait_until(lambda: self.state(notebook).get("kernel") == "idle", 60, idle)

    @staticmethod
    def _is_done(state: dict[str, Any]) -> bool:
        return state["kernel"] == "idle" and (state["ran"] == state["cells"] or bool(state["errors"]))
