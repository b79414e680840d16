"""The report is one file: this run's parameters on top, prose and outputs shown, code folded, nothing fetched."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from bs4 import BeautifulSoup, Tag
from ddtree.workbook.params import LiveParams, TreeParams
from ddtree.workbook.records import write_result, write_run
from ddtree.workbook.report.html import export, figure_view, last_states, without_requests
from ddtree.workbook.report.run_info import NotebookError, duration
from executed_notebook import PLOTLY, code, figure, printed, raised, save, shown
from run_folders import record, write_record
from wording import names, tells


def page(folder: Path, *cells: nbformat.NotebookNode | str) -> BeautifulSoup:
    path = export(save(folder, *cells), folder / "report.html")
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def one(soup: BeautifulSoup, selector: str) -> Tag:
    (found,) = soup.select(selector)
    return found


def facts(soup: BeautifulSoup) -> dict[str, str]:
    return {row.th.text: row.select_one(".value").text for row in soup.select("table.facts tr")}  # type: ignore


def test_plotly_is_embedded_once_for_figures_and_the_file_stays_small(tmp_path: Path) -> None:
    path = export(save(tmp_path, "# T", code("a", figure()), code("b", figure())), tmp_path / "report.html")
    html = path.read_text(encoding="utf-8")
    assert html.count("* plotly.js v") == 1
    assert 4 * 2**20 < path.stat().st_size < 6 * 2**20


def test_without_figures_plotly_is_left_out(tmp_path: Path) -> None:
    path = export(save(tmp_path, "# T", code("1", printed("one\n"))), tmp_path / "report.html")
    assert path.stat().st_size < 100_000


def test_cells_of_parameters_are_not_shown(tmp_path: Path) -> None:
    soup = page(
        tmp_path,
        "# T",
        code("budget = 16  # default\nseed: int = 0", tag="parameters"),
        code("# Parameters\nbudget = 99", tag="injected-parameters"),
        code("use(budget)"),
    )
    assert facts(soup) == {}, "without a run.json nothing is known"
    assert [block.text.strip() for block in soup.select("details.code .highlight")] == ["use(budget)"]


def test_title_moves_to_the_head_and_code_is_folded(tmp_path: Path) -> None:
    soup = page(tmp_path, "# The `tree`\n\nProse.", code("1 + 1", shown(plain="2")), "## Part")
    assert one(soup, "h1").text == "The tree"
    assert one(soup, "title").text == "The tree"
    assert not one(soup, "details.code").has_attr("open")
    assert one(soup, "pre.stream").text == "2"
    assert [prose.text.strip() for prose in soup.select(".prose")] == ["Prose.", "Part"]


def test_result_beside_the_notebook_fills_the_head(tmp_path: Path) -> None:
    params = TreeParams.from_mapping({"budget": 5, "seed": 3})
    write_result(tmp_path, notebook="01_tree", params=params, metrics={}, wall_s=75)
    soup = page(tmp_path, "# T", code("budget = 5", tag="parameters"))
    assert facts(soup)["budget"] == "5"
    assert facts(soup)["prompt"] == params.prompt
    assert facts(soup)["papermill"][0].isdigit()
    assert TreeParams.model_fields["budget"].description in one(soup, "header").text
    line = one(soup, ".facts-line").text
    assert "1 min 15 s" in line
    assert f"ddtree {facts(soup)['ddtree']}" in line
    assert "seed 3" in line


def test_run_that_ended_early_shows_its_parameters_and_machine(tmp_path: Path) -> None:
    write_run(tmp_path, notebook="01_tree", params=TreeParams(budget=5, seed=3), started_utc=datetime.now(UTC))
    soup = page(tmp_path, "# T", code("1/0", raised("ZeroDivisionError", "no")))
    assert facts(soup)["budget"] == "5"
    assert facts(soup)["papermill"][0].isdigit()
    assert facts(soup)["peak memory"] == "unknown"
    assert "seed 3" in one(soup, ".facts-line").text


def test_result_of_another_run_is_named_and_not_shown(tmp_path: Path) -> None:
    write_run(tmp_path, notebook="01_tree", params=TreeParams(budget=5), started_utc=datetime.now(UTC))
    earlier = datetime(2026, 1, 1, tzinfo=UTC)
    write_result(tmp_path, notebook="03_live", params=LiveParams(budget=6), metrics={}, wall_s=75, started_utc=earlier)
    soup = page(tmp_path, "# T")
    assert facts(soup)["budget"] == "5"
    assert tells(one(soup, ".banner").text, "result.json")
    assert "took" not in one(soup, ".facts-line").text


def test_without_known_defaults_nothing_is_called_one(tmp_path: Path) -> None:
    write_record(tmp_path, record("99_other", params={"model": "small", "budget": 99}))
    soup = page(tmp_path, "# T")
    assert [row.th.text for row in soup.select(".chosen tr")] == ["model"]  # type: ignore[union-attr]
    assert soup.select(".chosen p") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "JSON"),
        ("[]", "schema None"),
        ('{"schema": 1, "notebook": "01_tree"}', "environment: field required"),
    ],
)
def test_result_that_cannot_be_read_is_named_and_the_report_is_made(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "result.json").write_text(text)
    soup = page(tmp_path, "# T", code("budget = 5", tag="parameters"))
    assert facts(soup) == {}
    banner = one(soup, ".banner").text
    assert tells(banner, f"result.json {reason}")
    assert str(tmp_path) not in banner


def test_values_that_are_no_defaults_stand_openly(tmp_path: Path) -> None:
    params = LiveParams(model="small", budget=99, prompts=["b", "c", "d"], out_dir="outputs/y")
    write_result(tmp_path, notebook="03_live", params=params, metrics={}, wall_s=1)
    soup = page(tmp_path, "# T")
    shown = [[cell.text for cell in row.select("th, td")] for row in soup.select(".chosen tr")]
    assert shown == [
        ["model", "small", "default smollm2-135m"],
        ["prompts", "· b\n· c\nand 1 more", "default 3 texts"],
        ["budget", "99", "default 16"],
    ]
    assert tells(one(soup, ".chosen p").text, "default")
    drawer = {row.th.text: row.td.text for row in soup.select("details tr")}  # type: ignore[union-attr]
    assert drawer["out_dir"] == "outputs/y"
    assert drawer["prompts"] == "· b\n· c\n· d"
    assert set(LiveParams.defaults()) <= set(drawer)


def test_failed_run_shows_its_error_and_what_came_before(tmp_path: Path) -> None:
    mark = nbformat.v4.new_markdown_cell("papermill's mark", metadata={"tags": ["papermill-error-cell-tag"]})
    soup = page(
        tmp_path, mark, "# T", code("1", printed("before\n")), code("1/0", raised("ZeroDivisionError", "by <0>"))
    )
    assert "ZeroDivisionError: by <0>" in one(soup, ".banner.failed").text
    assert "ZeroDivisionError: by <0>" in one(soup, "#error").text
    assert "before" in one(soup, "pre.stream").text
    assert "papermill's mark" not in soup.text


def test_formulas_are_mathml_but_not_inside_code(tmp_path: Path) -> None:
    soup = page(
        tmp_path, "# T\n\n$p(x)$ and `$HOME$`\n\n$$\\frac{a}{b}$$\n\nFive \\$ and 6 \\$.\n\n```sh\necho $A $B\n```"
    )
    assert len(soup.select("math")) == 2
    assert len(soup.select('math[display="block"] mfrac')) == 1
    assert [found.text.strip() for found in soup.select(".prose code, .prose pre")] == ["$HOME$", "echo $A $B"]


def test_formula_that_cannot_be_set_is_shown_as_source(tmp_path: Path) -> None:
    soup = page(tmp_path, "# T\n\n$x_1_<2$ stays")
    assert one(soup, "code.tex").text == "x_1_<2"


def test_aligned_lines_are_rows(tmp_path: Path) -> None:
    soup = page(tmp_path, "# T\n\n$$\\begin{aligned} a &= b \\\\ c &= d \\end{aligned}$$")
    assert len(soup.select("math mtable mtr")) == 2


def test_latex_output_is_mathml(tmp_path: Path) -> None:
    soup = page(tmp_path, "# T", code("e", shown(latex="$\\displaystyle x^2$", plain="x**2")))
    assert len(soup.select("math msup")) == 1


def test_data_frame_is_a_table_in_its_own_scroll_box(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2]})
    soup = page(tmp_path, "# T", code("frame", shown(html=frame.to_html(), plain=str(frame))))
    assert len(soup.select(".scroll table.dataframe tbody tr")) == 2


def test_widget_without_a_twin_leaves_a_sentence(tmp_path: Path) -> None:
    soup = page(tmp_path, "# T", code("w", shown(widget={"model_id": "1"}, plain="VBox(children=())")))
    assert "no still picture" in one(soup, ".absent").text
    assert "VBox" not in soup.text


def test_widget_with_a_figure_is_the_figure(tmp_path: Path) -> None:
    both = figure("Twin")
    both.data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    soup = page(tmp_path, "# T", code("w", both))
    assert one(soup, "figcaption").text == "Twin"


def test_stream_pieces_are_joined_and_rewritten_lines_shown_last(tmp_path: Path) -> None:
    soup = page(tmp_path, "# T", code("go()", printed("1 of 2\r"), printed("2 of 2\rdone\n"), printed("w", "stderr")))
    assert [found.text.strip() for found in soup.select("pre.stream")] == ["done", "w"]
    assert last_states("a\rb\r\nc") == "b\nc"


def test_nothing_in_an_output_may_fetch(tmp_path: Path) -> None:
    hostile = (
        '<script src="https://x.example/a.js"></script><link href="//x.example/a.css" rel="stylesheet">'
        '<img alt="logo" src="https://x.example/a.png"><iframe src="https://x.example"></iframe>'
        '<style>@import "https://x.example/b.css"; p { background: url(https://x.example/c.png) }</style>'
    )
    soup = page(
        tmp_path,
        '# T\n\n![pic](https://x.example/d.png) <a href="https://y.example">follow</a>',
        code("h", shown(html=hostile)),
    )
    assert soup.select("script[src], link[href^='/'], iframe, img") == []
    assert not any("x.example" in style.text for style in soup.select("style"))
    assert len(soup.select("span.absent")) == 3
    assert one(soup, "a[href='https://y.example']").text == "follow"


def test_data_addresses_stay() -> None:
    html = '<img src="data:image/png;base64,AA"/><svg><use href="#a"></use></svg>'
    assert without_requests(html) == html


def test_local_picture_travels_inside(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    soup = page(tmp_path, "# T\n\n![a dot](dot.png)")
    assert one(soup, "img")["src"] == "data:image/png;base64,iVBORw=="


def test_script_cannot_be_closed_from_inside_a_figure() -> None:
    view = figure_view(
        {"data": [], "layout": {"title": {"text": "<b>x</b> </script><img src=a>"}, "xaxis": {"title": "</script>"}}}
    )
    assert "</script>" not in view.json
    assert json.loads(view.json)["layout"]["xaxis"]["title"] == "</script>"
    assert view.caption == "<b>x</b> &lt;/script&gt;&lt;img src=a&gt;"


def test_figures_with_columns_keep_room_for_each() -> None:
    layout = {"xaxis": {"domain": [0, 0.45]}, "xaxis2": {"domain": [0.55, 1]}, "xaxis3": {"domain": [0, 0.45]}}
    assert figure_view({"data": [], "layout": layout}).min_width == 600
    assert figure_view({"data": [], "layout": {"height": 300}})[2:4] == (300, 0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.42, "0.42 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7620, "2 h 7 min")],
)
def test_durations_are_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_too_heavy_report_is_written_and_names_what_weighs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heavy = figure("Very <b>many</b> points")
    heavy.data[PLOTLY]["data"][0]["x"] = ["x" * 100] * 15_000
    heavy.data[PLOTLY]["data"][0]["y"] = ["y" * 100] * 2_000
    notebook = save(tmp_path, "# T", code("a", figure("Small")), code("b", heavy), code("c", printed("z" * 400_000)))
    soup = BeautifulSoup(export(notebook, tmp_path / "report.html").read_text(encoding="utf-8"), "html.parser")
    sentence = one(soup, "header .banner").text
    assert re.search(r"7\.\d MB.* 6 MB", sentence)
    assert tells(sentence, "Very many points 1.8 MB 4 0.4 MB")
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'report.html'}: ")


def test_report_that_can_be_sent_says_nothing_of_its_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soup = page(tmp_path, "# T", code("a", figure()))
    assert soup.select(".banner") == []
    assert capsys.readouterr().err == ""


def test_file_that_is_no_notebook_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotebookError, match=names("absent.ipynb")):
        export(tmp_path / "absent.ipynb", tmp_path / "report.html")
    (tmp_path / "text.ipynb").write_text("hello")
    with pytest.raises(NotebookError, match=names("text.ipynb")):
        export(tmp_path / "text.ipynb", tmp_path / "report.html")
