"""A limit in minutes: as many whole prompts as fit by a clock that only decoding moves, and a run that is complete."""

from pathlib import Path
from typing import Any

import pytest
from ddtree.models.zoo import Pair
from ddtree.workbook.live import measure as module
from ddtree.workbook.live.measure import measure, settings
from ddtree.workbook.params import LiveParams
from tiny_pair import tiny_pair
from wording import tells

PROMPTS = ["5 1 3", "6 2", "4", "3 3", "1 2", "7"]
VALUES: dict[str, Any] = {"temperatures": [0.0, 1.0], "budget": 4, "topk_cap": 2, "extra_budgets": []}
EACH = 6  # settings of a prompt
SECONDS = 2.0  # of each generation, warm-up included


@pytest.fixture(scope="module")
def pair() -> Pair:
    return tiny_pair(8)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    decode = module.decode

    def timed(*arguments: Any, **options: Any) -> Any:
        now[0] += SECONDS
        return decode(*arguments, **options)

    monkeypatch.setattr(module, "decode", timed)
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])


def measured(pair: Pair, record: Path, minutes: float) -> module.Measurements:
    params = LiveParams(prompts=PROMPTS, max_new_tokens=5, minutes=minutes, **VALUES)
    assert len(settings(params)) == EACH
    return measure(pair, params, record)


@pytest.mark.parametrize(
    ("minutes", "prompts"),
    [
        (0.0, 6),  # no limit
        (1.0, 4),  # 12 s of warm-up, then 12 s a prompt: the fourth ends at 60 s
        (0.99, 3),
        (0.1, 1),  # less than the warm-up takes: one prompt is measured all the same
        (10.0, 6),
    ],
)
def test_the_prompts_that_fit_are_measured_whole(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], minutes: float, prompts: int
) -> None:
    found = measured(pair, tmp_path / "generations.jsonl", minutes)
    assert (found.prompts_done, found.prompts_planned, found.stopped) == (prompts, len(PROMPTS), "")
    assert found.generations.groupby("prompt").size().to_dict() == dict.fromkeys(range(prompts), EACH)
    said = capsys.readouterr().out
    assert tells(said, f"{prompts} of 6 prompts {minutes:g} minutes") == (prompts < len(PROMPTS))
    assert tells(said, f"warming up {EACH} settings")


def test_the_first_lines_say_how_long_it_takes(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(pair, tmp_path / "generations.jsonl", 0.0)
    lines = capsys.readouterr().out.splitlines()
    # The warm-up decodes 12 tokens in 12 s, so 5 tokens are expected in 5.
    assert tells(lines[1], "a prompt 5 s, 6 30 s")
    assert tells(lines[2], "prompt 1 of 6 12 s 60 s left")


def test_a_longer_limit_continues_an_interrupted_record(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "generations.jsonl"
    with monkeypatch.context() as patch:
        append = module.LiveRecord.append

        def stopping(self: module.LiveRecord, row: dict[str, object]) -> None:
            append(self, row)
            if row["prompt"] == 1:
                raise KeyboardInterrupt

        patch.setattr(module.LiveRecord, "append", stopping)
        assert measured(pair, record, 1.0).prompts_done == 1
    found = measured(pair, record, 10.0)
    assert (found.prompts_done, len(found.generations)) == (6, 6 * EACH)
