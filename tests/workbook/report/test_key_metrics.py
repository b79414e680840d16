"""The numbers an index shows are those of the best setting of each temperature, or of the laws, or the first there."""

from typing import Any

from ddtree.workbook.report.key_metrics import KeyMetrics, key_metrics_of
from ddtree.workbook.report.run_info import RunRecord
from run_folders import record, setting
from wording import tells


def of(notebook: str, **metrics: Any) -> KeyMetrics:
    return key_metrics_of(RunRecord.model_validate(record(notebook, metrics=metrics)))


def test_live_shows_the_best_drafted_setting_of_each_temperature() -> None:
    found = of(
        "03_live",
        summary=[
            setting(1.0, "autoregressive", 1.0, 1.0),
            setting(1.0, "chain", 0.9, 1.5),
            setting(1.0, "tree 4/4", 0.95, 1.7),
            setting(0.0, "autoregressive", 1.0, 1.0),
            setting(0.0, "chain", 1.52, 2.1),
            setting(0.0, "tree 16/4", 1.4, 2.6),
        ],
    )
    assert found.lines == ("T=0: 1.52× (1.42 to 1.62) chain", "T=1: 0.95× (0.85 to 1.05) tree 4/4")
    assert found.acceptance == ("T=0: 2.10", "T=1: 1.70")
    assert (found.sort_by, found.best_acceptance) == (1.52, 2.1)


def test_live_of_one_by_one_decoding_alone_has_no_speedup() -> None:
    assert of("03_live", summary=[setting(0.0, "autoregressive", 1.0, 1.0)]) == KeyMetrics()


def best(**changes: Any) -> dict[str, Any]:
    """One row of the best budgets of 04_serving."""
    ratio = {"over_dflash": 1.25, "over_dflash_lo": 1.2, "over_dflash_hi": 1.3}
    return {"extra_layers": 0, "batch": 1, "temperature": 0.0, "name": "ddtree-16"} | ratio | changes


def test_serving_shows_the_tree_over_the_chain_at_the_least_cost_and_batch() -> None:
    rows = [best(temperature=1.0, over_dflash=1.5, name="ddtree-32"), best(), best(batch=8), best(extra_layers=130)]
    found = of("04_serving", best=rows)
    assert found.lines == (
        "T=0: 1.25× DFLASH (1.20 to 1.30) ddtree-16",
        "T=1: 1.50× DFLASH (1.20 to 1.30) ddtree-32",
    )
    assert found.sort_by == 1.5
    (line,) = of("04_serving", best=[best(extra_layers=130)]).lines
    assert line.endswith("(emulated cost)")
    assert of("04_serving", best=[]) == KeyMetrics()


def test_kernel_shows_its_laws() -> None:
    laws = {"tested": 144, "rejected": 2, "controls_run": 5, "controls_rejected": 5, "rows": []}
    found = of("02_kernel", walk_equals_backend=True, laws=laws)
    assert tells(found.lines[0], "2 144")
    assert tells(found.lines[1], "5 5")
    assert (len(found.lines), found.sort_by) == (2, 2.0)


def test_kernel_without_laws_and_live_of_another_form_show_what_they_have() -> None:
    assert tells(of("02_kernel", walk_equals_backend=True).lines, "yes")
    assert of("03_live", summary=[{"label": "x"}], tokens=7).lines == ("tokens 7",)


def test_other_notebooks_show_their_first_numbers() -> None:
    found = of(
        "07_speed",
        pair={"block_size": 8},
        stock={"tokens_per_s": 88.125, "equal": False},
        tokens_per_s=123.456,
        engine="sglang",
        note="x" * 61,
        rows=[1, 2],
    )
    assert found.lines == ("tokens per s 123.5", "engine sglang", "stock tokens per s 88.12", "stock equal no")
    assert found.sort_by == 123.456
