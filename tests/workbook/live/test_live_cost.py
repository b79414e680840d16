"""The cost of a round beside a record: measured once and read back as it was, or refused by the file's name."""

import json
from pathlib import Path

import pytest
from ddtree.adaptive_budget import RoundCost
from ddtree.workbook.live.record import LiveRecord
from ddtree.workbook.records import RecordError
from wording import names

COST = RoundCost((0, 2), (10.0, 12.5), baseline_ms=8.25)


def never() -> RoundCost:
    raise AssertionError("measured again")


def test_cost_is_measured_once(tmp_path: Path) -> None:
    record = LiveRecord(tmp_path / "generations.jsonl", {})
    assert record.round_cost(lambda: COST) == COST
    assert record.round_cost(never) == COST


@pytest.mark.parametrize("alone", [{}, {"baseline_ms": None}, {"baseline_ms": 0.0}])
def test_cost_without_a_round_alone_is_told_apart(tmp_path: Path, alone: dict[str, object]) -> None:
    """As a version wrote it that always drafted."""
    file = tmp_path / "generations.cost.json"
    file.write_text(json.dumps({"budgets": [0, 2], "ms": [10.0, 12.5], **alone}), encoding="utf-8")
    with pytest.raises(RecordError, match=names("generations.cost.json")):
        LiveRecord(tmp_path / "generations.jsonl", {}).round_cost(never)
