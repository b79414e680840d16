"""Published failures of sampled verification, each on its own numbers: here the right value comes out."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from ddtree.backends import sgl
from ddtree.commit import finish_step
from ddtree.decode import generate
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, step_coins, target_probs
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree, verify_tree, verify_tree_greedy
from ddtree.workbook.params import KernelParams, ParameterError
from oracles import distribution_by_cells, emitted, goodness_of_fit, repeated
from tiny import tiny_drafter, tiny_target
from torch import Tensor
from wording import names, tells

RAMP = [2.0, 1.5, 1.0, 0.5]
RAMP_PARTS = [4551, 2760, 1674, 1015]  # softmax of RAMP in ten-thousandths
HALF = torch.tensor([0.5])


def children_of_root(*children: int, vocab: int) -> DraftTree:
    """A root (the last token of the vocabulary) with these children, in this order."""
    weights = [-0.5 * (place + 1) for place in range(len(children))]
    return DraftTree.from_parents([[vocab - 1, *children]], [[-1] + [0] * len(children)], [[0.0, *weights]])


def token_after_root(tree: DraftTree, row: list[int], *, parts: int) -> list[Fraction]:
    """The exact distribution of the first token, every node's row being `row` in 1/parts."""
    distribution = [Fraction(0)] * len(row)
    for (accepted, final), mass in distribution_by_cells(
        tree, np.array([row] * tree.width), verify_tree, parts=parts
    ).items():
        distribution[(*accepted, final)[0]] += mass
    return distribution


def fractions(row: list[int], parts: int) -> list[Fraction]:
    return [Fraction(part, parts) for part in row]


@pytest.mark.parametrize(
    ("children", "row", "parts"),
    [
        pytest.param([0], [6, 4], 10, id="a01_argmax_draft_keeps_the_target_distribution"),
        pytest.param([0, 1], [4, 4, 2], 10, id="a02_tokens_outside_the_drafter_s_top_k_keep_their_share"),
        pytest.param([0], RAMP_PARTS, 10_000, id="a03_greedy_draft_at_temperature_1_is_no_bias"),
        pytest.param([0, 1], [5, 3, 2], 10, id="a05_one_coin_against_running_sums"),
        pytest.param([0], [5, 3, 2], 10, id="a06_one_node_for_a_token"),
        pytest.param([0], [5, 3, 2], 10, id="a07_after_a_rejection_the_rest_is_drawn_from"),
        pytest.param([0], [35, 40, 25], 100, id="a29_thresholds_are_1"),
    ],
)
def test_a_token_after_the_root_has_the_target_s_distribution(children: list[int], row: list[int], parts: int) -> None:
    tree = children_of_root(*children, vocab=len(row))
    assert token_after_root(tree, row, parts=parts) == fractions(row, parts)


def test_a02_draft_probabilities_are_not_read() -> None:
    """The drafter's raw and top-2 probabilities give one tree; the result is the same to the bit at every coin."""
    grid = (torch.arange(1000) + 0.5) / 1000
    results = []
    for draft in ([0.5, 0.3, 0.2], [0.625, 0.375, 0.0]):
        one = build_tree(torch.tensor([[draft]]).log(), torch.tensor([2]), budget=2)
        tree = repeated(one, len(grid))
        assert tree.tokens[0].tolist() == [2, 0, 1]
        probs = torch.tensor([0.4, 0.4, 0.2]).expand(len(grid), 3, 3)
        results.append(verify_tree(tree, compile_retrieve(tree), probs, grid[:, None].repeat(1, 3), grid.flip(0)))
    for name in ("predict", "accept_index", "accept_count"):
        assert torch.equal(getattr(results[0], name), getattr(results[1], name))


def test_a03_draw_and_compare_is_unbiased_too() -> None:
    """The rule of the report: draw from the target, accept the draft iff it was drawn, emit the draw either way."""
    np.testing.assert_allclose(target_probs(torch.tensor(RAMP), temperature=1.0), np.array(RAMP_PARTS) / 1e4, atol=5e-5)
    ours = token_after_root(children_of_root(0, vocab=4), RAMP_PARTS, parts=10_000)
    no_draft = token_after_root(children_of_root(vocab=4), RAMP_PARTS, parts=10_000)
    assert ours == no_draft


def test_a06_twin_siblings_are_refused_by_builder_and_verify() -> None:
    with pytest.raises(ValueError, match=names("node 2 token 0 node 0")):
        children_of_root(0, 0, vocab=3)
    sound = children_of_root(0, 1, vocab=3)
    twins = DraftTree(torch.tensor([[2, 0, 0]]), sound.parents, sound.depths, sound.node_logws, sound.sizes, 1)
    probs, coins = torch.tensor([0.5, 0.3, 0.2]).expand(1, 3, 3), torch.full((1, 3), 0.9)
    with pytest.raises(ValueError, match=names("1 2 token 0")):
        verify_tree(twins, compile_retrieve(twins), probs, coins, HALF)
    with pytest.raises(ValueError, match=names("token 0 node 0")):
        sample_tree(twins, compile_retrieve(twins), probs.log(), SamplingParams(), coins, HALF)
    logits = torch.tensor([[[0.5, 0.3, 0.2]]]).log()
    assert build_tree(logits, torch.tensor([2]), budget=9).tokens[0, :4].tolist() == [2, 0, 1, 2]


def test_a08_one_call_leaves_nothing_to_the_next(sgl_stand_in: None) -> None:
    """Call 1 rejects token 1; in call 2 token 0 is rejected, and token 1 keeps its 3 parts against token 2's 2."""
    probs = torch.tensor([0.5, 0.3, 0.2]).expand(1, 2, 3).contiguous()
    coins = torch.full((1, 2), 0.95)
    first, second = children_of_root(1, vocab=3), children_of_root(0, vocab=3)
    sgl.verify(first, compile_retrieve(first), probs, coins, HALF)
    finals = (torch.arange(100) + 0.5) / 100
    drawn = [int(sgl.verify(second, compile_retrieve(second), probs, coins, final[None])[0][0]) for final in finals]
    assert np.bincount(drawn, minlength=3).tolist() == [0, 60, 40]
    assert torch.equal(probs, torch.tensor([0.5, 0.3, 0.2]).expand(1, 2, 3))


def test_a09_the_stream_that_serves_requests_gives_the_intended_distribution() -> None:
    """131,072 rounds of one request's own coins; the report's shares, drawn as often, are rejected by the same test."""
    rounds, checked, distribution = 131_072, 2000, np.array([0.1, 0.6, 0.3])
    coins, finals = (drawn.flatten().numpy() for drawn in step_coins([5] * rounds, range(rounds), 1))
    emitted_tokens = np.where(coins < np.float32(0.6), 1, np.where(finals < 0.25, 0, 2))  # the rule for one child
    tree = repeated(children_of_root(1, vocab=3), checked)
    rows = torch.tensor(distribution, dtype=torch.float32).expand(checked, 2, 3)
    node_coins = torch.from_numpy(coins[:checked, None].repeat(2, axis=1))
    result = verify_tree(tree, compile_retrieve(tree), rows, node_coins, torch.tensor(finals[:checked]).float())
    assert result.predict.reshape(checked, 2)[:, 0].tolist() == emitted_tokens[:checked].tolist()
    assert goodness_of_fit(np.bincount(emitted_tokens, minlength=3), distribution) > 1e-3
    assert goodness_of_fit(np.array([0.1016, 0.6304, 0.2680]) * rounds, distribution) < 1e-9


def test_a10_sampling_does_not_fall_to_the_argmax() -> None:
    tree = repeated(children_of_root(vocab=2), 300)
    _, finals = step_coins([0] * 300, range(300), 1)
    logits = torch.tensor([0.55, 0.45]).log().expand(300, 1, 2)
    result = sample_tree(tree, compile_retrieve(tree), logits, SamplingParams(), torch.full((300, 1), 0.5), finals)
    assert set(result.predict.tolist()) == {0, 1}


def test_a13_top_1_gives_one_text_whatever_the_seed() -> None:
    target = tiny_target(8)
    pair, options = (target, tiny_drafter(target)), {"strategy": "tree", "max_new_tokens": 24}
    sampled = generate(*pair, [[5, 1, 3]] * 2, sampling=SamplingParams(1.0, top_k=1), seed=[1, 2], **options)
    greedy = generate(*pair, [[5, 1, 3]], sampling=SamplingParams(0.0), **options)[0]
    assert [one.tokens for one in sampled] == [greedy.tokens] * 2


@pytest.mark.parametrize("row", [[torch.nan] * 5, [0.0, 1.0, torch.inf, 0.0, 0.0]], ids=["all NaN", "one +inf"])
def test_a16_row_that_is_not_finite_becomes_no_token(row: list[float]) -> None:
    tree = children_of_root(0, vocab=5)
    tables, coins = compile_retrieve(tree), torch.full((1, 2), 0.3)
    logits = torch.tensor([[row, [0.0] * 5]])
    for temperature in (0.0, 1e-6, 1.0):
        with pytest.raises(NonFiniteLogitsError, match=names("request 0 node 0")):
            sample_tree(tree, tables, logits, SamplingParams(temperature), coins, HALF)
        with pytest.raises(NonFiniteLogitsError, match=names("request 0 node 0")):
            target_probs(logits, temperature=temperature)
    with pytest.raises(ValueError, match=names("request 0 node 0")):
        verify_tree(tree, tables, logits.softmax(dim=-1), coins, HALF)


def test_a17_a_request_s_text_is_its_own_seed_s() -> None:
    target = tiny_target(8)
    pair = (target, tiny_drafter(target))

    def texts(seeds: list[int | None], temperatures: list[float]) -> list[list[int]]:
        sampling = [SamplingParams(temperature) for temperature in temperatures]
        prompts = [[5, 1, 3]] * len(seeds)
        done = generate(*pair, prompts, strategy="tree", sampling=sampling, seed=seeds, max_new_tokens=24)
        return [one.tokens for one in done]

    alone = texts([42], [1.0])[0]
    assert texts([42, None], [1.0, 1.0])[0] == alone
    assert texts([42, 7], [1.0, 1.0])[0] == alone
    assert texts([7, 42], [0.0, 1.0])[1] == alone, "a greedy neighbour shifts no coin"
    assert len(set(map(tuple, texts([None] * 8, [1.0] * 8)))) > 1
    coins, finals = step_coins([42, 42], [3, 4], 4)
    assert len(coins.unique()) == 8
    assert finals[0] != finals[1]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("frequency_penalty", "node"),  # a18
        ("presence_penalty", "node"),
        ("repetition_penalty", "node"),
        ("grammar", "branch"),  # a19
        ("logprobs", "log-probabilities"),
        ("threshold_single", "1"),  # a29
        ("threshold_acc", "1"),
        ("sliding_window", "cache"),  # b02
        ("cache_implementation", "cache"),  # b03
        ("page_size", "cache"),
        ("draft_depth", "block size - 1"),  # a24
        ("num_speculative_tokens", "block size - 1"),
    ],
)
def test_a18_a19_a29_unsupported_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ParameterError) as caught:
        KernelParams.from_mapping({name: 1})
    (problem,) = caught.value.problems
    assert tells(problem, f"'{name}' {reason}")
    with pytest.raises(TypeError, match=name):
        SamplingParams(**{name: 1})


def test_a20_id_beyond_the_vocabulary_reads_no_neighbour_s_row() -> None:
    tree = DraftTree.from_parents([[0, 5]], [[-1, 0]], [[0.0, -0.1]])
    rows = torch.tensor([[[0.1, 0.2, 0.7, 0.0], [0.0, 0.9, 0.1, 0.0]]])
    tables, coins = compile_retrieve(tree), torch.full((1, 2), 0.5)
    message = "request 0 node 1 token 5 4"
    with pytest.raises(ValueError, match=names(message)):
        verify_tree(tree, tables, rows, coins, HALF)
    with pytest.raises(ValueError, match=names(message)):
        sample_tree(tree, tables, rows.log(), SamplingParams(), coins, HALF)


def test_a20_prompt_and_mask_ids_beyond_the_vocabulary_are_named() -> None:
    target = tiny_target(8)
    with pytest.raises(ValueError, match=names("prompt 1 token 8 2 0..7")):
        target.open([[1, 2], [3, 4, 8]], room=4)
    with pytest.raises(ValueError, match=names("mask_token_id 8 0..7")):
        tiny_drafter(target, mask_token_id=8)


def test_a21_links_of_another_tree_are_refused() -> None:
    tokens, weights = [[9, 1, 2, 3, 4]], [[0.0, -1.2, -0.3, -2.0, -0.5]]
    tree = DraftTree.from_parents(tokens, [[-1, 0, 0, 0, 2]], weights)
    other = DraftTree.from_parents(tokens, [[-1, 0, 0, 0, 1]], weights)
    rows, coins = torch.full((1, 5, 10), 0.1), torch.full((1, 5), 0.5)
    with pytest.raises(ValueError, match=names("link")):
        verify_tree(tree, compile_retrieve(other), rows, coins, HALF)


def test_a24_block_of_16_drafts_15() -> None:
    target = tiny_target(8)
    drafter = tiny_drafter(target, block_size=16)
    assert drafter.depth == 15
    session = drafter.open(torch.zeros(1, 2, 64), torch.tensor([2]), room=40)
    assert session.draft(torch.tensor([3]), 15).shape == (1, 15, 8)
    with pytest.raises(ValueError, match=names("depth 16 16 15")):
        session.draft(torch.tensor([3]), 16)


def test_a25_block_is_the_seed_and_then_masks() -> None:
    target = tiny_target(100)
    drafter = tiny_drafter(target, block_size=4, mask_token_id=99)
    seen: list[Tensor] = []
    target.embedding.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    drafter.open(torch.zeros(1, 2, 64), torch.tensor([2]), room=8).draft(torch.tensor([7]), 3)
    assert seen[0].tolist() == [[7, 99, 99, 99]]


def test_a26_narrow_integers_are_named_and_outputs_are_the_op_s(sgl_stand_in: None) -> None:
    sound = children_of_root(0, vocab=3)
    parts = (sound.tokens, sound.parents, sound.depths, sound.node_logws, sound.sizes)
    with pytest.raises(ValueError, match=names("DraftTree.tokens torch.int32 [1, 2] torch.int64 [1, 2]")):
        DraftTree(parts[0].int(), *parts[1:], max_depth=1)
    tables = compile_retrieve(sound)
    with pytest.raises(ValueError, match=names("RetrieveTables.next_token torch.int32")):
        RetrieveTables(tables.index, tables.next_token.int(), tables.next_sibling)
    with pytest.raises(ValueError, match=names("probs torch.bfloat16")):
        verify_tree(sound, tables, torch.full((1, 2, 3), 1 / 3).bfloat16(), torch.full((1, 2), 0.5), HALF)
    strided = torch.full((1, 2, 6), 1 / 3)[..., ::2]
    predict, index, count = sgl.verify(sound, tables, strided, torch.full((1, 2), 0.9), HALF)
    assert all(part.dtype == torch.int32 and part.is_contiguous() for part in (predict, index, count))
    assert (predict.shape, index.shape) == ((2,), (1, 2))


def test_a28_row_of_a_node_decides_on_its_children() -> None:
    tree = DraftTree.from_parents([[3, 1]], [[-1, 0]], [[0.0, -0.1]])
    tables = compile_retrieve(tree)
    logits = torch.zeros(1, 2, 10)
    logits[0, 0, 9] = logits[0, 1, 1] = 5.0  # row 1 would have liked the draft
    greedy = verify_tree_greedy(tree, tables, logits.argmax(dim=-1))
    sampled = sample_tree(tree, tables, logits, SamplingParams(0.0), torch.full((1, 2), 0.5), HALF)

    def tokens(result: VerifyResult) -> list[tuple[int, ...]]:
        return emitted(result, 2)

    assert tokens(greedy) == tokens(sampled) == [(9,)]
    assert greedy.accept_count.tolist() == sampled.accept_count.tolist() == [0]


def test_a30_tokens_after_the_end_are_not_counted() -> None:
    assert finish_step([4, 5, 6, 7, 8, 9], eos_ids={6}, remaining=100) == ([4, 5, 6], "eos")
    assert finish_step([4, 5, 6, 7, 8, 9], eos_ids={2}, remaining=3) == ([4, 5, 6], "length")
