"""Shapes of real pairs: sizes as published, features the drafter can read, and a tiny one that decodes."""

import pytest
import torch
from ddtree.decode import generate
from ddtree.sampling import SamplingParams
from ddtree.workbook.bench.synthetic_models import SHAPES, drafter_config, random_pair, target_config
from dflash.model import DFlashDraftModel, build_target_layer_ids
from transformers import Qwen3ForCausalLM
from wording import names

BILLIONS = {"qwen3-8b-shape": (8.19, 1.05), "qwen3-4b-shape": (4.02, 0.54)}  # parameters of the target, the drafter


def parameters(model: torch.nn.Module) -> float:
    return sum(p.numel() for p in model.parameters()) / 1e9


@pytest.mark.parametrize("name", BILLIONS)
def test_sizes_are_those_of_the_models(name: str) -> None:
    target, drafter = BILLIONS[name]
    with torch.device("meta"):
        assert parameters(Qwen3ForCausalLM(target_config(SHAPES[name]))) == pytest.approx(target, abs=0.01)
        assert parameters(DFlashDraftModel(drafter_config(SHAPES[name]))) == pytest.approx(drafter, abs=0.01)


@pytest.mark.parametrize("name", BILLIONS)
def test_the_drafter_reads_the_layers_that_dflash_would_choose(name: str) -> None:
    shape = SHAPES[name]
    assert list(shape.feature_layers) == build_target_layer_ids(shape.layers, shape.drafter_layers)
    assert shape.block_size == 16


def test_the_tiny_shape_decodes_as_one_by_one() -> None:
    pair = random_pair("tiny-shape", dtype=torch.float32, device="cpu")
    assert pair.facts["dtype"] == "float32"
    texts = [
        generate(
            pair.target,
            pair.drafter,
            [[1, 2, 3], [4, 5]],
            strategy=strategy,
            sampling=SamplingParams(0.0),
            max_new_tokens=8,
            budget=6,
        )
        for strategy in ("autoregressive", "tree")
    ]
    assert [answer.tokens for answer in texts[0]] == [answer.tokens for answer in texts[1]]
    assert pair.target.decode([3, 14]) == "3 14"


def test_weights_are_made_in_the_dtype_asked_for_and_nothing_else_changes() -> None:
    pair = random_pair("tiny-shape", dtype=torch.bfloat16, device="cpu")
    assert {p.dtype for model in (pair.target.model, pair.drafter.model) for p in model.parameters()} == {
        torch.bfloat16
    }
    assert torch.get_default_dtype() == torch.float32


def test_an_unknown_shape_is_named() -> None:
    with pytest.raises(ValueError, match=names("shape qwen3-1b-shape")):
        random_pair("qwen3-1b-shape", dtype=torch.float32, device="cpu")
