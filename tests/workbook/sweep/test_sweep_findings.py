"""What a sweep found, setting by setting, and figures for every setting and decoder that its controls offer."""

import json
from pathlib import Path

import plotly.graph_objects as go
import pytest
from ddtree.workbook.sweep.results import read_sweep
from ddtree.workbook.sweep.view import NOTHING_TO_SPLIT, SweepView, answer, cells_table, findings, points_table
from sweep_folder import FAILURE, cell_id, write_sweep
from wording import tells


def view_of(folder: Path) -> SweepView:
    return SweepView.of(read_sweep(folder), resamples=100, seed=0)


@pytest.fixture
def seeded(tmp_path: Path) -> SweepView:
    lost = [cell_id(0.0, "auto", 8, seed) for seed in (0, 1)] + [cell_id(1.0, "auto", 8, seed) for seed in (0, 1)]
    return view_of(write_sweep(tmp_path, (0.0, 1.0), (4, "auto"), (4, 8), (0, 1), not_run=lost, tokens=24))


def test_every_setting_has_its_findings_with_seeds_pooled(seeded: SweepView) -> None:
    found = findings(seeded)
    assert list(found["settings"]) == ["top-k cap 4", "top-k cap 8"]
    first, second = found["settings"].values()
    cells = {(point["temperature"], point["label"]): point["cells"] for point in first["points"]}
    assert cells == {
        (t, label): 2 if label.startswith("tree") else 4
        for t in (0.0, 1.0)
        for label in ("autoregressive", "chain", "tree 4", "tree auto")
    }
    assert set(first["auto"]) == {"0", "1"}
    assert second["auto"] == {}
    assert second["reference"] == "tree 4"
    assert {row["label"] for row in second["slowdown_parts"]} == {"autoregressive", "chain", "tree 4"}
    json.dumps(found, allow_nan=False)


def figures(view: SweepView, setting: str, decoder: str) -> list[go.Figure]:
    of_setting = (view.acceptance_map, view.speedup_map, view.budget_figure, view.cost_figure)
    of_decoder = (view.depth_figure, view.entropy_figure, view.slowdown_figure)
    return [draw(setting) for draw in of_setting] + [draw(setting, decoder) for draw in of_decoder]


def test_no_control_leads_to_an_error(seeded: SweepView) -> None:
    assert seeded.decoders == ["chain", "tree 4", "tree auto"]
    for setting in seeded.settings:
        for decoder in seeded.decoders:
            drawn = figures(seeded, setting, decoder)
            absent = decoder == "tree auto" and setting == "top-k cap 8"
            assert [len(figure.data) > 0 for figure in drawn] == [True] * 4 + [not absent] * 3
    nothing = seeded.depth_figure("top-k cap 8", "tree auto").layout.title.text
    assert tells(nothing, "auto")


def test_one_temperature_and_the_chosen_budget_alone_are_drawn_without_a_comparison(tmp_path: Path) -> None:
    view = view_of(write_sweep(tmp_path, (0.0,), ("auto",)))
    drawn = figures(view, "every run", "tree auto")
    assert [len(figure.data) > 0 for figure in drawn] == [True, True, False, True, True, True, False]
    assert answer(view, "every run") == NOTHING_TO_SPLIT
    assert findings(view)["settings"]["every run"]["best_budget"] == {}


def test_the_answer_names_the_control_of_the_same_runs(seeded: SweepView) -> None:
    said = answer(seeded, "top-k cap 4")
    assert tells(said, "T = 0 T = 1 tree")
    assert tells(said, "Autoregressive")
    assert "0.9" in said


def test_tables_say_what_became_of_each_cell_and_what_each_point_is(tmp_path: Path) -> None:
    gone = [cell_id(0.3, 4), cell_id(0.6, 4)]
    view = view_of(write_sweep(tmp_path, (0.0, 0.3, 0.6, 1.0), (4,), failed=[cell_id(1.0, 4)], not_run=gone))
    assert cells_table(view.sweep).data.to_numpy().tolist() == [
        ["measured", 1, "", ""],
        ["failed", 1, cell_id(1.0, 4), FAILURE],
        ["not run", 2, "", ""],
    ]
    points = points_table(view.points).data
    assert points["decoder"].tolist() == ["autoregressive", "chain", "tree 4"]
    assert points["speed-up"].iloc[0] == "1.00 (1.00 to 1.00)"
    assert "setting" not in points
