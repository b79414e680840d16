"""`generate` on a GPU: few waits for the device a round, and the greedy text of autoregressive decoding."""

import warnings
from collections.abc import Sequence

import pytest
import torch
from ddtree.decode import STAGES, Generation, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams
from ddtree.verify import backend_report

pytest.importorskip("dflash", reason="the drafter's class comes with dflash")

from ddtree.workbook.bench.synthetic_models import random_pair

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

PROMPTS = [[1, 2, 3, 4, 5], [6, 7, 8]]
WAITS_A_ROUND = 3
FEW, MANY = 6, 16  # tokens


@pytest.fixture(scope="module")
def pair() -> Pair:
    return random_pair("tiny-shape", dtype=torch.float32, device="cuda")


def decode(pair: Pair, strategy: str, temperature: float, tokens: int, prompts: Sequence[object]) -> list[Generation]:
    return generate(
        pair.target,
        pair.drafter,
        prompts,  # type: ignore[arg-type]
        strategy=strategy,  # type: ignore[arg-type]
        sampling=SamplingParams(temperature, top_k=20 if temperature else 0),
        max_new_tokens=tokens,
        budget=8,
        topk_cap=4,
    )


def waits(pair: Pair, strategy: str, temperature: float, tokens: int, prompts: list[list[int]]) -> tuple[int, int]:
    """Waits for the device and rounds of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            answers = decode(pair, strategy, temperature, tokens, prompts)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found = [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]
    return len(found), max(len(answer.steps) for answer in answers)


@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=["bs 1", "bs 2"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("strategy", ["tree", "chain", "autoregressive"])
def test_a_round_waits_for_the_device_three_times_at_most(
    pair: Pair, strategy: str, temperature: float, prompts: list[list[int]]
) -> None:
    fused = next((status for status in backend_report("cuda") if status.name == "fused"), None)
    if fused is None or not fused.usable:
        pytest.skip(f"the other backends wait more often; fused: {fused.reason if fused else 'not in this version'}")
    decode(pair, strategy, temperature, MANY, prompts)  # makes the tables of each shape
    few, few_rounds = waits(pair, strategy, temperature, FEW, prompts)
    many, many_rounds = waits(pair, strategy, temperature, MANY, prompts)
    assert few > 0, "a round that is read at all waits once"
    assert many_rounds > few_rounds
    assert many - few <= WAITS_A_ROUND * (many_rounds - few_rounds)


@pytest.mark.parametrize("strategy", ["tree", "chain"])
def test_greedy_text_equals_one_by_one_decoding_in_float32(pair: Pair, strategy: str) -> None:
    one_by_one = [decode(pair, "autoregressive", 0.0, 24, [prompt])[0].tokens for prompt in PROMPTS]
    assert [answer.tokens for answer in decode(pair, strategy, 0.0, 24, PROMPTS)] == one_by_one


def test_every_stage_has_its_time(pair: Pair) -> None:
    (answer,) = decode(pair, "tree", 0.0, 8, PROMPTS[:1])
    for step in answer.steps:
        assert set(step.stage_ms) == set(STAGES)
        assert all(ms > 0 for ms in step.stage_ms.values())


@pytest.mark.model
def test_smollm2_greedy_text_equals_one_by_one_decoding(smollm2: object) -> None:
    from ddtree.models.zoo import load_pair

    real = load_pair("smollm2-135m", dtype="float32", device="cuda")
    prompts = ["Explain in three sentences why the sky is blue.", "Give me five tips for a job interview."]
    one_by_one = [decode(real, "autoregressive", 0.0, 48, [prompt])[0].tokens for prompt in prompts]
    trees = decode(real, "tree", 0.0, 48, prompts)
    assert [answer.tokens for answer in trees] == one_by_one
    assert sum(step.accepted for answer in trees for step in answer.steps) > 10
