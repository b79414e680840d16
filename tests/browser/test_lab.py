"""Every notebook in JupyterLab: its controls answer, it is saved whole, and no other host is asked.

One is run there; of the others the outputs of a run without JupyterLab are looked at, and they are run there by slow
tests.
"""

import ast
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pytest
from ddtree.workbook.params import PARAMS
from ddtree.workbook.paths import project_root
from ddtree.workbook.records import read_result
from executed import FIGURES, SERVED, TINY, Session
from lab_driver import (
    CHROMEDRIVER,
    CHROMIUM,
    FOREIGN_KERNEL,
    HOST,
    PATIENCE_S,
    Lab,
    local_chromium,
    make_lab,
    wait_until,
)
from nbformat.v4 import new_code_cell, new_notebook
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from serving_record import write_made_up
from sweep_folder import write_sweep
from wording import tells

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="chromium and chromedriver are not installed"),
]
SOURCES = {path.stem: path for path in sorted((project_root() / "notebooks").glob("*.ipynb"))}
WITH_CONTROLS = [stem for stem, path in SOURCES.items() if "explore(" in path.read_text(encoding="utf-8")]
ONE_THREAD = {"threads": 1}  # the browser and the server need a core as well
SETTINGS: dict[str, dict[str, Any]] = {
    **{stem: values | ONE_THREAD for stem, values in TINY.items()},
    "04_serving": {"recorded": "outputs/made-up-serving/result.json", "bootstrap": 200, **ONE_THREAD},
    "05_sweep": {"sweep_dir": "outputs/sweeps/made-up", "bootstrap": 200, **ONE_THREAD},
}
RUN_HERE = "01_tree"
RUN_S = 240  # the longest that a notebook may take
SHOTS = os.environ.get("DDTREE_SHOTS")  # a folder for pictures of every notebook, for eyes

ALLOWED = {
    "Could not restore the debugger state": "JupyterLab's debugger asks a kernel that is just being ended",
    "removeChild": "raised in JupyterLab's core, twice, on loaded cores after another failure; not traced further",
    "widget model not found": "the controls of a saved notebook are gone with their kernel; the figure is what is kept",
}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a user of the notebooks has, with small values typed into the cells of parameters."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("notebooks", "params"):
        shutil.copytree(project_root() / name, root / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy2(project_root() / name, root)
    write_made_up((root / SETTINGS["04_serving"]["recorded"]).parent, SERVED, jitter=0.05)
    write_sweep(root / SETTINGS["05_sweep"]["sweep_dir"], topk_caps=(2, 4), tokens=24)
    for stem in SOURCES:
        type_in(root / "notebooks" / f"{stem}.ipynb", SETTINGS.get(stem, {}))
    return root


def type_in(notebook: Path, values: dict[str, Any]) -> None:
    """Change values in the cell of parameters, as a user does. Raises ValueError for a name that is not there."""
    content = nbformat.read(notebook, as_version=4)
    (cell,) = [cell for cell in content.cells if "parameters" in cell.metadata.get("tags", [])]
    lines = cell.source.splitlines()
    places = {ast.unparse(line.target): line for line in ast.parse(cell.source).body if isinstance(line, ast.AnnAssign)}
    if unknown := values.keys() - places:
        raise ValueError(f"{notebook.name} has no parameter {', '.join(sorted(unknown))}.")
    for name in sorted(values, key=lambda name: -places[name].lineno):  # from below, so that places stay true
        place = places[name]
        typed = f"{name}: {ast.unparse(place.annotation)} = {values[name]!r}"
        lines[place.lineno - 1 : place.end_lineno] = [typed]
    cell.source = "\n".join(lines)
    nbformat.write(content, notebook)


@pytest.fixture(scope="session")
def started(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, str]]:
    """JupyterLab, and the notebook that it opened by itself, closed again."""
    folder = tmp_path_factory.mktemp("lab")
    with make_lab(checkout, folder) as server, local_chromium(folder / "profile") as driver:
        lab = Lab(server, driver)
        with lab.evidence(folder):
            first = lab.start()
            lab.close(first)
        yield lab, first


@pytest.fixture(scope="session")
def lab(started: tuple[Lab, str]) -> Lab:
    return started[0]


@dataclass(frozen=True, slots=True)
class Ran:
    """A notebook in front of the browser, after Run All or as it was executed elsewhere."""

    lab: Lab
    stem: str
    path: str  # below the server's root
    state: dict[str, Any]

    @property
    def file(self) -> Path:
        return self.lab.server.root / self.path

    def problems(self) -> list[str]:
        """Errors shown under controls."""
        return [box.text for box in self.lab.all(".widget-html pre")]


@pytest.fixture(scope="module")
def ran(
    request: pytest.FixtureRequest, lab: Lab, smollm2: Path, session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ran]:
    stem, run_here = request.param
    missing = f"notebooks/{stem}.ipynb needs an entry in TINY and FIGURES of tests/executed.py"
    assert stem in SETTINGS and stem in FIGURES, missing  # noqa: PT018
    path = f"notebooks/{stem}.ipynb"
    if not run_here:
        path = f"notebooks/{stem}_executed.ipynb"
        shutil.copy(session.notebook(stem).outcome.executed, lab.server.root / path)
    try:
        with lab.evidence(tmp_path_factory.mktemp(stem)):
            lab.open(path)
            state = lab.run_all(path, RUN_S) if run_here else lab.state(path)
        if SHOTS:
            photograph(lab, stem, Path(SHOTS))
        yield Ran(lab, stem, path, state)
    finally:
        lab.close(path)


def of_notebooks(stems: Iterable[str], *, executed_elsewhere: bool) -> pytest.MarkDecorator:
    """Every one of `stems` as it is after a run in JupyterLab, which is slow for all but one."""
    run_here = [
        pytest.param((stem, True), id=stem, marks=[] if stem == RUN_HERE else pytest.mark.slow) for stem in stems
    ]
    elsewhere = [pytest.param((stem, False), id=f"{stem} executed") for stem in stems if stem != RUN_HERE]
    return pytest.mark.parametrize("ran", run_here + elsewhere * executed_elsewhere, indirect=True, scope="module")


shown_notebooks = of_notebooks(SOURCES, executed_elsewhere=True)
notebooks_run_here = of_notebooks(SOURCES, executed_elsewhere=False)
notebooks_with_controls = of_notebooks(WITH_CONTROLS, executed_elsewhere=False)
only_the_tree = of_notebooks([RUN_HERE], executed_elsewhere=False)


# What `make lab` opens


def test_make_lab_shows_the_live_notebook_of_this_project(started: tuple[Lab, str], checkout: Path) -> None:
    lab, first = started
    assert lab.server.root == checkout
    assert first == "notebooks/03_live.ipynb"


# Every notebook


@pytest.mark.model
@notebooks_run_here
def test_runs_whole_and_writes_its_record(ran: Ran, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        assert ran.state["errors"] == []
        assert ran.state["warnings"] == []
        assert ran.state["ran"] == ran.state["cells"] > 3
        params = PARAMS[ran.stem].from_mapping(SETTINGS[ran.stem])
        record = read_result(ran.lab.server.root / params.out_dir / "result.json")
        assert record["notebook"] == ran.stem
        assert record["params"] == params.to_plain()


@pytest.mark.model
@shown_notebooks
def test_kernel_is_this_python_whatever_the_user_has_installed(ran: Ran) -> None:
    (kernel,) = ran.lab.server.kernels()
    assert Path(kernel.cmdline()[0]).parent == Path(sys.executable).parent
    assert FOREIGN_KERNEL not in kernel.environ()


@pytest.mark.model
@shown_notebooks
def test_every_figure_is_drawn_and_fits_the_page(ran: Ran, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        figures = ran.lab.wait_for_figures(FIGURES[ran.stem])
        assert len(figures) >= 1
        for figure in figures:
            needed, given = ran.lab.driver.execute_script(
                "const output = arguments[0].closest('.jp-OutputArea-output'); "
                "return [output.scrollWidth, output.clientWidth]",
                figure,
            )
            assert needed <= given, f"a figure needs {needed} pixels, the page has {given}"


@pytest.mark.model
@shown_notebooks
@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_titles_stand_out_from_the_page_in_both_themes(ran: Ran, theme: str, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        ran.lab.wait_for_figures(FIGURES[ran.stem])
        ran.lab.command("apputils:change-theme", theme=theme)
        worn = f"return document.body.dataset.jpThemeName === '{theme}'"
        wait_until(lambda: ran.lab.driver.execute_script(worn), PATIENCE_S, f"the theme {theme}")
        paper = ran.lab.driver.execute_script(
            "return getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor"
        )
        for title in ran.lab.all(".jp-RenderedPlotly .gtitle"):
            assert contrast(title.value_of_css_property("fill"), paper) > 4


@pytest.mark.model
@notebooks_with_controls
def test_every_control_redraws_its_figure_without_an_error(ran: Ran, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        ran.lab.wait_for_figures(FIGURES[ran.stem])
        changed = 0
        for control in [*ran.lab.all(".widget-slider .noUi-handle"), *ran.lab.all(".widget-dropdown select")]:
            before = figure_of(control)
            if not change(control):
                continue
            wait_until(lambda c=control, b=before: figure_of(c) not in (None, b), 30, "the figure to be drawn anew")
            ran.lab.wait_for_figures(FIGURES[ran.stem])
            assert ran.problems() == []
            changed += 1
        assert changed


def figure_of(control: WebElement) -> WebElement | None:
    """The figure under a control."""
    find = "return arguments[0].closest('.ddtree-live').querySelector('.jp-RenderedPlotly')"
    return control.parent.execute_script(find, control)


def change(control: WebElement) -> bool:
    """Give a slider or a dropdown another value; False when it has a single one."""
    if control.tag_name == "select":
        chosen, options = (int(control.get_property(name)) for name in ("selectedIndex", "length"))
        if options > 1:
            Select(control).select_by_index((chosen + 1) % options)
        return options > 1
    last = control.get_attribute("aria-valuenow") == control.get_attribute("aria-valuemax")
    control.send_keys(Keys.ARROW_LEFT if last else Keys.ARROW_RIGHT)
    return True


@pytest.mark.model
@shown_notebooks
def test_saved_notebook_shows_its_figures_to_a_stranger_without_running(ran: Ran, tmp_path: Path) -> None:
    """A copy that differs by a word is signed by nobody, as one that came by mail."""
    lab = ran.lab
    with lab.evidence(tmp_path):
        lab.wait_for_figures(FIGURES[ran.stem])
        lab.save(ran.path)
        notebook = nbformat.read(ran.file, as_version=4)
        notebook.cells[0].source += "\n\nBy mail."
        copy = ran.path.replace(".ipynb", "_by_mail.ipynb")
        nbformat.write(notebook, lab.server.root / copy)
        lab.open(copy)
        try:
            lab.wait_for_figures(FIGURES[ran.stem])
        finally:
            lab.close(copy)


# The sliders of the tree


@dataclass(frozen=True, slots=True)
class Node:
    depth: int
    parent: int | str  # "none" at the root
    probability: float  # after its parent


@dataclass(frozen=True, slots=True)
class Tree:
    """What the figure with sliders shows."""

    title: str
    circles: int
    nodes: list[Node]

    @property
    def most_children(self) -> int:
        return max(Counter(node.parent for node in self.nodes if node.depth).values(), default=0)

    @property
    def root_odds(self) -> float:
        """Log-odds of the root's likeliest child against its second."""
        first, second, *_ = sorted((node.probability for node in self.nodes if node.depth == 1), reverse=True)
        return math.log(first / second)


SHOWN_TREE = """
const plot = document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden) .widget-output .js-plotly-plot');
return plot?.querySelector('.gtitle') && {
    title: plot.querySelector('.gtitle').textContent,
    circles: plot.querySelectorAll('.scatterlayer .point').length,
    nodes: plot.data.flatMap(trace => trace.customdata ?? []),
};
"""
LAST_FIGURE = """
return [...document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .js-plotly-plot')].at(-1).data.flatMap(
    trace => trace.customdata ?? []);
"""


def shown_tree(lab: Lab) -> Tree | None:
    shown = lab.driver.execute_script(SHOWN_TREE)
    if not shown:
        return None
    return Tree(shown["title"], shown["circles"], nodes_of(shown["nodes"]))


def nodes_of(customdata: list[list[Any]]) -> list[Node]:
    """What a figure of a tree shows when a node is pointed at."""
    return [Node(depth, parent, after) for _, _, _, depth, parent, _, after in customdata]


def slide(lab: Lab, name: str, value: float) -> None:
    """Move the slider `name` to the readout `value` with the keyboard."""
    (slider,) = [slider for slider in lab.all(".widget-slider") if slider.text.startswith(name)]
    handle = slider.find_element("css selector", ".noUi-handle")
    readout = slider.find_element("css selector", ".widget-readout")
    for _ in range(100):
        found = float(readout.text)
        if math.isclose(found, value):
            return
        handle.send_keys(Keys.ARROW_RIGHT if found < value else Keys.ARROW_LEFT)
    raise AssertionError(f"the slider {name} shows {readout.text} and does not go to {value}")


def tree_where(lab: Lab, wanted: Callable[[Tree], bool], what: str) -> Tree:
    """The tree shown once it is as `wanted`."""

    def found() -> Tree | None:
        tree = shown_tree(lab)
        return tree if tree and wanted(tree) else None

    try:
        return wait_until(found, PATIENCE_S, what)
    except TimeoutError as error:
        error.add_note(f"shown: {shown_tree(lab)}")
        raise


def odds_at_draft_temperature_1(lab: Lab) -> float:
    """From the last figure of the notebook, which no slider moves."""
    return Tree("", 0, nodes_of(lab.driver.execute_script(LAST_FIGURE))).root_odds


@pytest.fixture
def at_rest(ran: Ran, tmp_path: Path) -> Tree:
    """What is shown with the sliders at budget 12, cap 4 and both temperatures 1."""
    lab = ran.lab
    with lab.evidence(tmp_path):
        odds = odds_at_draft_temperature_1(lab)
        for name, value in (("budget", 12), ("top-k cap", 4), ("target T", 1.0), ("draft T", 1.0)):
            slide(lab, name, value)
        return tree_where(lab, lambda tree: is_at_rest(tree, odds), "budget 12, cap 4, both temperatures 1")


def is_at_rest(tree: Tree, odds: float) -> bool:
    drawn = tree.most_children == 4 and math.isclose(tree.root_odds, odds, rel_tol=1e-3)
    return drawn and tells(tree.title, "12 T = 1")


@pytest.mark.model
@only_the_tree
@pytest.mark.parametrize("budget", [0, 5, 16])
def test_budget_is_the_number_of_nodes_beside_the_root(ran: Ran, at_rest: Tree, budget: int, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        slide(ran.lab, "budget", budget)
        tree = tree_where(ran.lab, lambda tree: tree.circles == budget + 1, f"{budget + 1} nodes")
        assert len(tree.nodes) == budget + 1
        assert tells(tree.title, f"{budget} T = 1")
        assert ran.problems() == []


@pytest.mark.model
@only_the_tree
@pytest.mark.parametrize(("cap", "drafts"), [(1, 7), (2, 12)], ids=["cap 1 is a chain", "cap 2"])
def test_cap_bounds_the_children_of_a_node(ran: Ran, at_rest: Tree, cap: int, drafts: int, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        slide(ran.lab, "top-k cap", cap)
        tree = tree_where(ran.lab, lambda tree: tree.most_children == cap, f"cap {cap}")
        assert tree.circles == drafts + 1
        assert ran.problems() == []


@pytest.mark.model
@only_the_tree
@pytest.mark.parametrize("temperature", [0, 1.4])
def test_target_temperature_is_the_one_of_the_walk(ran: Ran, at_rest: Tree, temperature: float, tmp_path: Path) -> None:
    with ran.lab.evidence(tmp_path):
        slide(ran.lab, "target T", temperature)
        asked = f"T = {temperature:g}"
        tree = tree_where(ran.lab, lambda tree: tells(tree.title, asked), asked)
        assert Counter(tree.nodes) == Counter(at_rest.nodes), "the tree is the drafter's"
        assert ran.problems() == []


@pytest.mark.model
@only_the_tree
@pytest.mark.parametrize("temperature", [0.8, 1.6])
def test_draft_temperature_divides_the_drafters_log_odds(
    ran: Ran, at_rest: Tree, temperature: float, tmp_path: Path
) -> None:
    expected = at_rest.root_odds / temperature
    with ran.lab.evidence(tmp_path):
        slide(ran.lab, "draft T", temperature)
        divided = f"log-odds {expected:.3f}"
        tree = tree_where(ran.lab, lambda tree: math.isclose(tree.root_odds, expected, rel_tol=1e-3), divided)
        assert tree.circles == 13
        assert ran.problems() == []


# Without a model


CONTROLS = """
import ipywidgets as widgets
import plotly.graph_objects as go
from ddtree.workbook.explore import explore

def draw(height, kind):
    if height > 2:
        raise ValueError("too <high>")
    return go.Figure(go.Bar(y=[height]), layout_title_text=f"{kind} of height {height}")
"""
EXPLORE = """
explore(draw, height=widgets.IntSlider(1, 0, 3, description="height"), kind=widgets.Dropdown(options=["bar", "column"]))
"""
STILL = """
import os
os.environ["DDTREE_LIVE"] = "0"
"""


@pytest.fixture
def controls(lab: Lab) -> Iterator[str]:
    """A notebook with a figure that cannot be drawn above 2, live and then still, run."""
    path = "notebooks/controls.ipynb"
    cells = [new_code_cell(source.strip()) for source in (CONTROLS, EXPLORE, STILL + EXPLORE)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), lab.server.root / path)
    lab.open(path)
    lab.run_all(path, RUN_S)
    yield path
    lab.close(path)


def titles(lab: Lab) -> list[str]:
    return [title.text for title in lab.all(".jp-RenderedPlotly .gtitle") if title.is_displayed()]


def test_error_of_a_drawing_is_shown_until_the_next_success(lab: Lab, controls: str, tmp_path: Path) -> None:
    def wait_for(*expected: str) -> None:
        wait_until(lambda: titles(lab) == list(expected), PATIENCE_S, f"the titles {expected}")

    with lab.evidence(tmp_path):
        wait_for("bar of height 1", "bar of height 1")  # live, and still under DDTREE_LIVE=0
        assert len(lab.all(".widget-slider")) == len(lab.all(".widget-dropdown")) == 1
        slide(lab, "height", 3)
        shown = wait_until(
            lambda: [error.text for error in lab.all(".widget-html pre")], PATIENCE_S, "the error to be shown"
        )
        assert "ValueError: too <high>" in shown[0]
        slide(lab, "height", 2)
        wait_for("bar of height 2", "bar of height 1")
        wait_until(lambda: not lab.all(".widget-html pre"), PATIENCE_S, "the error to go")
        change(lab.all(".widget-dropdown select")[0])
        wait_for("column of height 2", "bar of height 1")


# Everything above


def test_console_is_quiet_and_no_other_host_is_asked(lab: Lab) -> None:
    lab.listen()
    assert [line for line in lab.complaints if not any(known in line for known in ALLOWED)] == []
    own = ("chrome:", "data:", "blob:", "file:")
    asked = [address for address in lab.asked if not address.startswith(own)]
    assert any("/api/contents/notebooks" in address for address in asked)
    assert {urlsplit(address).hostname for address in asked} == {HOST}


# Looking


def photograph(lab: Lab, stem: str, folder: Path) -> None:
    """Pictures of every figure and table of the notebook in front, on both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    lab.wait_for_figures(FIGURES[stem])
    for theme in ("Dark", "Light"):
        lab.command("apputils:change-theme", theme=f"JupyterLab {theme}")
        for number, output in enumerate(lab.all(".jp-CodeCell .jp-Cell-outputWrapper")):
            for _ in range(3):  # cells above grow as they come into sight
                lab.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", output)
                time.sleep(0.15)
            lab.driver.save_screenshot(str(folder / f"{stem}_{theme}_{number:02d}.png"))


def contrast(ink: str, paper: str) -> float:
    """WCAG's contrast ratio, 1 to 21, of two computed colours."""
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [float(channel) / 255 for channel in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
