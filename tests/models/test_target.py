"""A tree pass scores each node as a plain pass over its path would, and a commit leaves what a fresh prefill leaves."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from ddtree.commit import Commit
from ddtree.models.target import Target, TargetSession, require_full_attention
from ddtree.tree import DraftTree
from oracles import lineage, random_lists
from tiny import FEATURE_LAYERS, HIDDEN, DigitTokenizer, tiny_llama, tiny_target
from torch import Tensor
from transformers import GemmaConfig, LlamaConfig, MistralConfig
from wording import names

PROMPTS = [[5, 9, 33, 2, 17], [60], [1, 2, 3, 4, 5, 6, 7, 8, 9]]
NEAR = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(autouse=True)
def _no_gradients() -> object:
    with torch.inference_mode():
        yield


def trees_on(rng: np.random.Generator, roots: Sequence[int], nodes: int) -> DraftTree:
    """Random trees of `nodes` or fewer nodes below the given roots."""
    tokens, parents, weights = zip(
        *(random_lists(rng, int(rng.integers(2, nodes + 1)), 64) for _ in roots), strict=True
    )
    rooted = [[root, *row[1:]] for root, row in zip(roots, tokens, strict=True)]
    return DraftTree.from_parents(rooted, parents, weights, width=nodes)


def commit_to(tree: DraftTree, ends: Sequence[int], finals: Sequence[int], prefix_len: Tensor) -> Commit:
    """The commit of the path down to `ends[b]`, followed by the token `finals[b]`."""
    paths = [lineage(tree.parents[b].tolist(), end) for b, end in enumerate(ends)]
    width = tree.max_depth + 1
    tokens = [[*tree.tokens[b, path[1:]].tolist(), finals[b]] for b, path in enumerate(paths)]
    lengths = torch.tensor([len(path) for path in paths])
    padded = [torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows]) for rows in (paths, tokens)]
    return Commit(padded[0], lengths, padded[1], torch.tensor(finals), prefix_len + lengths)


def plain_logits(target: Target, tokens: Sequence[int]) -> Tensor:
    return target.model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]


def assert_scores_are_plain(target: Target, session: TargetSession, tree: DraftTree, texts: list[list[int]]) -> None:
    """`texts[b]` ends in the root of row b."""
    logits = session.verify(tree)
    assert logits.shape == (*tree.tokens.shape, 64)
    assert logits.isfinite().all(), "padding too"
    for b, text in enumerate(texts):
        for node in range(int(tree.sizes[b])):
            path = tree.tokens[b, lineage(tree.parents[b].tolist(), node)[1:]].tolist()
            torch.testing.assert_close(logits[b, node], plain_logits(target, [*text, *path])[-1], **NEAR)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("prompts", [PROMPTS, PROMPTS[:1], PROMPTS[1:2]], ids=["batch", "one", "one token"])
def test_tree_pass_and_commit_equal_plain_passes_round_after_round(attention: str, prompts: list[list[int]]) -> None:
    rng = np.random.default_rng(len(prompts))
    target = tiny_target(attention=attention)
    session = target.open(prompts, room=60)
    texts = [list(prompt) for prompt in prompts]
    for _ in range(3):
        tree = trees_on(rng, [text[-1] for text in texts], nodes=9)
        assert_scores_are_plain(target, session, tree, texts)
        ends = [int(rng.integers(int(size))) for size in tree.sizes]
        finals = rng.integers(64, size=len(texts)).tolist()
        commit = commit_to(tree, ends, finals, session.prefix_len)
        before = session.prefix_len.tolist()
        features = session.commit(commit)
        for b, text in enumerate(texts):
            text += commit.tokens[b, : commit.lengths[b]].tolist()
        assert session.prefix_len.tolist() == commit.new_len.tolist() == [len(text) - 1 for text in texts]
        for b, text in enumerate(texts):
            fresh = target.open([text], room=1)
            torch.testing.assert_close(session.cache.row(b), fresh.cache.row(0), **NEAR)
            new = fresh.prompt_features[0, before[b] :]
            torch.testing.assert_close(features[b, : commit.lengths[b]], new, **NEAR)


def test_prompt_features_are_outputs_of_the_layers_named() -> None:
    target = tiny_target()
    layers = target.model.model.layers
    seen: dict[int, Tensor] = {}
    hooks = [
        layer.register_forward_hook(
            lambda _m, _a, out, i=i: seen.update({i: out[0] if isinstance(out, tuple) else out})
        )
        for i, layer in enumerate(layers)
    ]
    session = target.open(PROMPTS, room=10)
    found, lengths = session.prompt_features, session.prompt_lengths
    assert found.shape == (3, 8, len(FEATURE_LAYERS) * HIDDEN)
    assert lengths.tolist() == session.prefix_len.tolist() == [4, 0, 8]
    for b, prompt in enumerate(PROMPTS):
        if len(prompt) > 1:
            plain_logits(target, prompt[:-1])
            right = torch.cat([seen[layer] for layer in FEATURE_LAYERS], dim=-1)[0]
            torch.testing.assert_close(found[b, : lengths[b]], right, **NEAR)
    for hook in hooks:
        hook.remove()


def test_a_pass_leaves_no_hook_and_two_targets_share_a_model() -> None:
    model = tiny_llama()
    one, other = (Target(model, DigitTokenizer(), eos_ids=[], feature_layers=layers) for layers in ((1, 0), (0,)))
    features = [target.open(PROMPTS, room=10).prompt_features for target in (one, other)]
    torch.testing.assert_close(features[0][..., HIDDEN:], features[1], **NEAR)
    assert not any(layer._forward_hooks for layer in model.model.layers)
    session = one.open(PROMPTS[:1], room=1)
    with pytest.raises(ValueError, match="room for"):
        session.verify(trees_on(np.random.default_rng(0), [17], nodes=9))
    assert not any(layer._forward_hooks for layer in model.model.layers), "nor does a pass that fails"


def test_positions_follow_depth_not_index() -> None:
    """Siblings share a position, so moving a subtree in the arrays must not change its scores."""
    target = tiny_target()
    one = DraftTree.from_parents([[7, 1, 2, 3]], [[-1, 0, 0, 1]], [[0.0, -1.0, -2.0, -3.0]])
    other = DraftTree.from_parents([[7, 2, 1, 3]], [[-1, 0, 0, 2]], [[0.0, -2.0, -1.0, -3.0]])
    scores = [target.open([[4, 5, 7]], room=8).verify(tree)[0] for tree in (one, other)]
    torch.testing.assert_close(scores[0], scores[1][[0, 2, 1, 3]], **NEAR)


def test_selected_rows_go_on_as_they_were() -> None:
    rng = np.random.default_rng(5)
    target = tiny_target()
    session = target.open(PROMPTS, room=40)
    session.select(torch.tensor([0, 2]))
    texts = [PROMPTS[0], PROMPTS[2]]
    assert_scores_are_plain(target, session, trees_on(rng, [17, 9], nodes=6), texts)
    session.select(torch.tensor([0]))
    assert_scores_are_plain(target, session, trees_on(rng, [17], nodes=6), texts[:1])


def test_pass_without_a_mask_is_the_plain_next_token() -> None:
    target = tiny_target()
    session = target.open(PROMPTS[:1], room=4)
    root = DraftTree.from_parents([[17]], [[-1]], [[0.0]])
    torch.testing.assert_close(session.verify(root)[0, 0], plain_logits(target, PROMPTS[0])[-1], **NEAR)


def test_target_without_feature_layers_gives_features_of_width_zero() -> None:
    session = tiny_target(features=False).open(PROMPTS, room=10)
    assert session.prompt_features.shape == (3, 8, 0)
    tree = DraftTree.from_parents([[17], [60], [9]], [[-1]] * 3, [[0.0]] * 3)
    session.verify(tree)
    assert session.commit(commit_to(tree, [0, 0, 0], [1, 2, 3], session.prefix_len)).shape == (3, 1, 0)


def test_text_beyond_the_models_positions_is_refused() -> None:
    with pytest.raises(ValueError, match=names("9 300 309 256")):
        tiny_target().open(PROMPTS, room=300)


def test_tree_beyond_the_room_asked_for_is_refused() -> None:
    session = tiny_target().open(PROMPTS[:1], room=3)
    tree = trees_on(np.random.default_rng(0), [17], nodes=9)
    with pytest.raises(ValueError, match=names("8")):
        session.verify(tree)


def test_feature_layer_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=names("[0, 2] 0..1")):
        Target(tiny_llama(), DigitTokenizer(), eos_ids=[], feature_layers=[0, 2])


@pytest.mark.parametrize("kind", ["sliding_attention", "linear_attention", "chunked_attention"])
def test_model_whose_cache_cannot_be_gathered_is_refused(kind: str) -> None:
    model = tiny_llama()
    model.config.layer_types = ["full_attention", kind]
    with pytest.raises(ValueError, match=kind):
        Target(model, DigitTokenizer(), eos_ids=[])


def test_sliding_window_model_is_refused_whether_or_not_it_lists_layers() -> None:
    require_full_attention(LlamaConfig())
    require_full_attention(GemmaConfig())
    require_full_attention(MistralConfig(sliding_window=None))
    with pytest.raises(ValueError, match="sliding"):
        require_full_attention(MistralConfig(sliding_window=8))


class ChatTokenizer(DigitTokenizer):
    chat_template = "set"

    def apply_chat_template(
        self, turns: list[dict[str, str]], *, add_generation_prompt: bool, return_dict: bool
    ) -> dict[str, list[int]]:
        assert add_generation_prompt
        assert return_dict
        assert [turn["role"] for turn in turns] == ["user"]
        return {"input_ids": [63, *self(turns[0]["content"])["input_ids"], 62]}


def test_message_goes_through_the_chat_template_if_there_is_one() -> None:
    model = tiny_llama()
    assert Target(model, DigitTokenizer(), eos_ids=[]).encode("4 5") == [4, 5]
    assert Target(model, ChatTokenizer(), eos_ids=[]).encode("4 5") == [63, 4, 5, 62]
