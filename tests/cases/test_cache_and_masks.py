"""Published failures of caches, masks and numerics in transformers, each on its own numbers."""

import itertools
from pathlib import Path

import pytest
import torch
from ddtree.commit import Commit, plan_commit
from ddtree.decode import generate
from ddtree.models import zoo
from ddtree.models.kv_cache import RowCache
from ddtree.models.target import Target, TargetSession
from ddtree.models.zoo import load_pair
from ddtree.retrieve import compile_retrieve, tree_attention_mask
from ddtree.sampling import SamplingParams
from ddtree.tree import DraftTree
from ddtree.verify import verify_tree_greedy
from loops import for_each
from tiny import SIZES, DigitTokenizer, tiny_drafter, tiny_target
from torch import Tensor
from transformers import (
    Gemma3TextConfig,
    GptOssConfig,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MistralConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    T5Config,
)
from wording import names

NEAR = {"rtol": 0.0, "atol": 1e-5}


def accept(session: TargetSession, tree: DraftTree, path: list[int]) -> Commit:
    """A plan that keeps exactly `path` of a one-row tree."""
    argmax = torch.full(tree.tokens.shape, -1)
    for node, child in itertools.pairwise(path):
        argmax[0, node] = tree.tokens[0, child]
    commit = plan_commit(tree, verify_tree_greedy(tree, compile_retrieve(tree), argmax), session.prefix_len)
    assert commit.path[0, : int(commit.lengths[0])].tolist() == path
    return commit


def chain(tokens: list[int]) -> DraftTree:
    return DraftTree.from_parents(
        [tokens], [list(range(-1, len(tokens) - 1))], [[-float(i) for i in range(len(tokens))]]
    )


def test_b01_seven_of_nine_tokens_are_kept_without_crop() -> None:
    cache = RowCache(1, 1, 12, torch.device("cpu"))
    rows = torch.arange(9.0).reshape(1, 1, 9, 1)
    cache.update(rows, rows, 0)
    cache.keep(torch.arange(7)[None], torch.tensor([7]))
    assert cache.get_seq_length() == 7
    assert cache.row(0)[0, 0, 0, :, 0].tolist() == list(range(7))
    for argument in (7, -2, 0):
        with pytest.raises(NotImplementedError, match=names("RowCache")):
            cache.crop(argument)
    assert cache.get_seq_length() == 7


UNSUPPORTED: dict[str, tuple[PreTrainedConfig, str]] = {
    "b02 sliding window": (MistralConfig(sliding_window=8), "sliding"),
    "b02 sliding layers among full ones": (Gemma3TextConfig(), "sliding"),
    "b02 sliding layers with sinks": (GptOssConfig(), "sliding"),
    "b02 chunked layers": (Llama4TextConfig(), "chunked"),
    "b07 recurrent": (MambaConfig(), "mamba"),
    "b07 hybrid": (Qwen3NextConfig(), "qwen3_next"),
    "encoder and decoder": (T5Config(), "t5"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_b02_b07_target_is_refused_from_its_config_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, reason = UNSUPPORTED[name]
    config.save_pretrained(tmp_path / "target")
    drafter = tmp_path / "drafter"
    drafter.mkdir()
    (drafter / "config.json").write_text("{}")

    def unreachable(*_arguments: object) -> None:
        raise AssertionError("weights must not be loaded")

    monkeypatch.setattr(zoo, "_load_models", unreachable)
    with pytest.raises(ValueError, match=reason):
        load_pair(str(tmp_path / "target"), str(drafter), dtype="float32")


def test_config_of_no_known_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "of my own"}')
    with pytest.raises(ValueError, match=names("config.json")):
        load_pair(str(tmp_path), str(tmp_path), dtype="float32")


def test_auto_drafter_of_an_unknown_target_fetches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_arguments: object) -> None:
        raise AssertionError("no target must be fetched")

    monkeypatch.setattr(zoo, "fetch", unreachable)
    with pytest.raises(ValueError, match=names("drafter auto")):
        load_pair("org/name", dtype="float32")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_b04_mask_of_five_nodes_hides_what_it_should(attention: str) -> None:
    """Each node scores as the last token of its own lineage; a 1/0 mask, added, would hide nothing."""
    target = tiny_target(attention=attention)
    tree = DraftTree.from_parents([[7, 1, 2, 3, 4]], [[-1, 0, 0, 1, 2]], [[0.0, -1.0, -2.0, -3.0, -4.0]])
    scores = target.open([[5, 6, 7]], room=8).verify(tree)[0]
    for node, text in enumerate([[5, 6, 7], [5, 6, 7, 1], [5, 6, 7, 2], [5, 6, 7, 1, 3], [5, 6, 7, 2, 4]]):
        with torch.inference_mode():
            right = target.model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1]
        torch.testing.assert_close(scores[node], right, **NEAR)
    mask = tree_attention_mask(tree, torch.tensor([2]), key_len=7, dtype=torch.float32)
    assert mask.unique().tolist() == [torch.finfo(torch.float32).min, 0.0]


@for_each("seed", range(6))
def test_b05_blocks_of_16_and_single_tokens_agree_in_float32(seed: int) -> None:
    """Order of summation moves a float32 logit by some 1e-6, so the likeliest token differs at an exact tie alone."""
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=64, num_hidden_layers=4, tie_word_embeddings=False, **SIZES)
    target = Target(LlamaForCausalLM(config).float().eval(), DigitTokenizer(), eos_ids=[])
    text = torch.randint(64, (48,)).tolist()

    def logits_in_blocks_of(size: int) -> Tensor:
        session, found = target.open([text[:1]], room=64), []
        for start in range(0, 48, size):
            block = chain(text[start : start + size])
            found.append(session.verify(block)[0])
            session.commit(accept(session, block, list(range(size))))
        return torch.cat(found)

    blocks, singles = logits_in_blocks_of(16), logits_in_blocks_of(1)
    torch.testing.assert_close(blocks, singles, **NEAR)
    best, second = singles.topk(2).values.unbind(dim=-1)
    clear = best - second > 2 * NEAR["atol"]
    assert int(clear.sum()) >= 46, "ties are rare in float32"
    assert torch.equal(blocks.argmax(dim=-1)[clear], singles.argmax(dim=-1)[clear])


def test_b06_nothing_of_a_prompt_reaches_the_next() -> None:
    def fresh() -> tuple:
        target = tiny_target(8)
        return target, tiny_drafter(target)

    options = {"strategy": "tree", "sampling": SamplingParams(), "seed": 3, "max_new_tokens": 24}
    used = fresh()
    generate(*used, [[1 + i % 7 for i in range(40)]], **options)
    again, alone = generate(*used, [list(range(8))], **options)[0], generate(*fresh(), [list(range(8))], **options)[0]
    assert again.tokens == alone.tokens
    assert [step.accepted for step in again.steps] == [step.accepted for step in alone.steps], "drafts too"


def test_b07_features_and_keys_kept_are_those_of_nodes_0_and_2() -> None:
    target = tiny_target()
    tree = DraftTree.from_parents([[7, 1, 2, 3, 4]], [[-1, 0, 0, 0, 2]], [[0.0, -1.0, -2.0, -3.0, -4.0]])

    def kept(drafted: DraftTree, path: list[int]) -> tuple[Tensor, Tensor]:
        session = target.open([[5, 6, 7]], room=12)
        session.verify(drafted)
        features = session.commit(accept(session, drafted, path))
        return features[0, : len(path)], session.cache.row(0)

    features, keys = kept(tree, [0, 2])
    right_features, right_keys = kept(chain([7, 2]), [0, 1])
    torch.testing.assert_close(features, right_features, **NEAR)
    torch.testing.assert_close(keys, right_keys, **NEAR)
    for wrong in ([7, 1], [7, 4]):
        assert not torch.allclose(kept(chain(wrong), [0, 1])[0], features, atol=1e-3)
