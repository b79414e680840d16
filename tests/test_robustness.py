"""Whatever comes in, the right result or an error that names what is wrong: properties over trees, rows and coins.

Every property states its own number of cases, 5,000 together: those of `make test-all`. `make test` runs a fifth.
"""

import math
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

import fake_sgl_kernel
import numpy as np
import pytest
import torch
from ddtree.backends import reference, sgl
from ddtree.commit import plan_commit
from ddtree.retrieve import RetrieveTables, compile_retrieve, tree_attention_mask, tree_positions
from ddtree.sampling import NonFiniteLogitsError, SamplingParams, step_coins, target_probs
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import VerifyResult, sample_tree, verify_tree, verify_tree_greedy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import children_of, emitted, filtered64, heap_prefixes, log_softmax64, prefixes_of
from wording import names

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LARGEST = 1 - 2.0**-24  # the largest float32 below 1
SHARE = 1 if settings.get_current_profile_name() == "all" else 5

Lists = tuple[list[int], list[int], list[float]]


def cases(count: int) -> Callable[[Callable], Callable]:
    """`count` cases of a property, or a fifth of them, the same number on every machine."""
    return settings(max_examples=count // SHARE, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def stand_in() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "sgl_kernel", fake_sgl_kernel)
        yield


@st.composite
def tree_lists(draw: st.DrawFn, vocab: int, most: int = 7) -> Lists:
    """Tokens, parents and weights of one sound tree; siblings may weigh the same."""
    tokens, parents, weights = [draw(st.integers(0, vocab - 1))], [-1], [0.0]
    for _ in range(draw(st.integers(0, most - 1))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, vocab - 1))
        if (parent, token) not in set(zip(parents, tokens, strict=True)):
            tokens.append(token)
            parents.append(parent)
            weights.append(weights[parent] - draw(st.sampled_from([0.0, 0.5, 1.0])))
    return tokens, parents, weights


@st.composite
def trees(draw: st.DrawFn, vocab: int, rows: int = 1) -> DraftTree:
    lists = [draw(tree_lists(vocab)) for _ in range(rows)]
    tokens, parents, weights = zip(*lists, strict=True)
    return DraftTree.from_parents(tokens, parents, weights, width=max(map(len, tokens)) + draw(st.integers(0, 1)))


@st.composite
def sixteenth_rows(draw: st.DrawFn, nodes: int, vocab: int) -> np.ndarray:
    """Rows of whole sixteenths, many of them 0: float32 sums of them are exact."""
    picks = st.lists(st.integers(0, vocab - 1), min_size=16, max_size=16)
    return np.stack([np.bincount(draw(picks), minlength=vocab) for _ in range(nodes)])


def beside(value: float) -> list[float]:
    """A float32 and its two neighbours, those in [0, 1)."""
    middle = np.float32(value)
    near = [np.nextafter(middle, np.float32(0)), middle, np.nextafter(middle, np.float32(2))]
    return [float(x) for x in near if 0 <= x < 1]


def exact_walk(tree: DraftTree, rows: np.ndarray, coins: list[float], final: float) -> tuple[int, ...]:
    """The rule in exact fractions: what a one-row tree must emit."""
    node, out = 0, []
    while True:
        row = [Fraction(int(part), 16) for part in rows[node]]
        running, rejected = Fraction(0), set()
        for child in children_of(tree, 0, node):
            token = int(tree.tokens[0, child])
            running += row[token]
            if row[token] > 0 and Fraction(coins[node]) < running:
                break
            rejected.add(token)
        else:
            left = [Fraction(0) if token in rejected else p for token, p in enumerate(row)]
            left = left if sum(left) else row
            below = Fraction(0)
            for token, p in enumerate(left):
                below += p
                if below > Fraction(final) * sum(left):
                    return (*out, token)
        node = child
        out.append(token)


def boundaries(tree: DraftTree, rows: np.ndarray, node: int) -> list[float]:
    """0, the largest float32 below 1, and every running sum over the node's children with both neighbours."""
    parts = [int(rows[node][int(tree.tokens[0, child])]) for child in children_of(tree, 0, node)]
    return [0.0, LARGEST, *(x for total in np.cumsum(parts) for x in beside(total / 16))]


# Coins at and next to every boundary


@cases(1000)
@given(data=st.data())
def test_coins_at_and_beside_every_boundary(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(2, 5))
    tree = data.draw(trees(vocab))
    rows = data.draw(sixteenth_rows(tree.width, vocab))
    coins = [data.draw(st.sampled_from(boundaries(tree, rows, node))) for node in range(tree.width)]
    ends = {x for node in range(tree.width) for part in np.cumsum(rows[node]) for x in beside(part / 16)}
    final = data.draw(st.sampled_from([0.0, LARGEST, *sorted(ends)]))
    probs, node_coins = torch.tensor(rows / 16).float()[None], torch.tensor([coins])
    result = verify_tree(tree, compile_retrieve(tree), probs, node_coins, torch.tensor([final]))
    assert emitted(result, tree.width) == [exact_walk(tree, rows, coins, final)]


@cases(300)
@given(data=st.data())
def test_stock_op_agrees_at_every_boundary_of_its_node_coins(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(2, 5))
    tree = data.draw(trees(vocab))
    rows = data.draw(sixteenth_rows(tree.width, vocab))
    coins = [data.draw(st.sampled_from(boundaries(tree, rows, node))) for node in range(tree.width)]
    final = data.draw(st.sampled_from([0.013, 0.29, 0.511, 0.77, 0.987]))  # between the sums of 16 or fewer parts
    probs, node_coins = torch.tensor(rows / 16).float()[None], torch.tensor([coins])
    result = VerifyResult(*sgl.verify(tree, compile_retrieve(tree), probs, node_coins, torch.tensor([final])))
    assert emitted(result, tree.width) == [exact_walk(tree, rows, coins, final)]


@cases(300)
@given(data=st.data())
def test_emitted_token_is_possible_in_float64_at_extreme_coins(data: st.DataObject) -> None:
    vocab = data.draw(st.integers(2, 6))
    tree = data.draw(trees(vocab))
    eighths = st.lists(st.integers(-40, 40), min_size=vocab, max_size=vocab)
    logits = [[x / 8 for x in data.draw(eighths)] for _ in range(tree.width)]
    sampling = SamplingParams(
        data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.5])),
        data.draw(st.integers(0, vocab + 2)),
        data.draw(st.sampled_from([0.3, 0.77, 1.0])),
        data.draw(st.sampled_from([0.0, 0.13])),
    )
    options = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    right = [filtered64(row, *options) for row in logits]
    assume(all(row.margin > 1e-5 for row in right))
    extreme = st.sampled_from([0.0, LARGEST, 0.5])
    coins = torch.tensor([[data.draw(extreme) for _ in range(tree.width)]])
    result = sample_tree(
        tree, compile_retrieve(tree), torch.tensor([logits]), sampling, coins, torch.tensor([data.draw(extreme)])
    )
    path = [flat for flat in result.accept_index[0].tolist() if flat >= 0]
    for node, token in zip(path, emitted(result, tree.width)[0], strict=True):
        assert right[node].probs[token] > 0


@cases(100)
@given(bad=st.one_of(st.floats(width=32, max_value=-(2.0**-100)), st.floats(width=32, min_value=1), st.just(math.nan)))
def test_coin_outside_zero_to_one_is_refused(bad: float) -> None:
    tree = DraftTree.from_parents([[0, 1]], [[-1, 0]], [[0.0, -1.0]])
    rows, tables = torch.full((1, 2, 2), 0.5), compile_retrieve(tree)
    with pytest.raises(ValueError, match=names("coins torch.float32")):
        verify_tree(tree, tables, rows, torch.tensor([[0.5, bad]]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match=names("final_coins torch.float32")):
        verify_tree(tree, tables, rows, torch.full((1, 2), 0.5), torch.tensor([bad]))


# Rows


@cases(300)
@given(
    data=st.data(),
    factor=st.one_of(st.floats(0, 0.998), st.floats(1.002, 1e30), st.sampled_from([math.nan, math.inf, -1.0])),
)
def test_row_that_is_no_distribution_is_located(data: st.DataObject, factor: float) -> None:
    tree = data.draw(trees(4, rows=2))
    tables, coins = compile_retrieve(tree), torch.full((2, tree.width), 0.5)
    request = data.draw(st.integers(0, 1))
    node = data.draw(st.integers(0, int(tree.sizes[request]) - 1))
    probs = torch.full((2, tree.width, 4), 0.25)
    finals = torch.tensor([0.5, 0.5])
    where = f"probs request {request} node {node}"
    probs[request, node] *= factor
    with pytest.raises(ValueError, match=names(where)):
        verify_tree(tree, tables, probs, coins, finals)
    probs[request, node] = torch.tensor([0.5, -0.1, 0.3, 0.3])
    with pytest.raises(ValueError, match=names(f"{where} 1 -0.1")):
        verify_tree(tree, tables, probs, coins, finals)
    probs[request, node] = 0.25 * (1 + data.draw(st.floats(-9e-4, 9e-4)))
    verify_tree(tree, tables, probs, coins, finals)


@cases(300)
@given(data=st.data(), poison=st.sampled_from([math.nan, math.inf]), temperature=st.sampled_from([0.0, 1e-6, 0.7]))
def test_non_finite_logits_are_named_or_never_read(data: st.DataObject, poison: float, temperature: float) -> None:
    vocab = data.draw(st.integers(2, 5))
    tree = data.draw(trees(vocab, rows=2))
    tables = compile_retrieve(tree)
    seed = data.draw(st.integers(0, 2**32))
    logits = torch.randn(2, tree.width, vocab, generator=torch.Generator().manual_seed(seed))
    coins, finals = step_coins([seed, seed + 1], [0, 0], tree.width)
    sampling = SamplingParams(temperature)
    clean = sample_tree(tree, tables, logits, sampling, coins, finals)
    request, node = data.draw(st.integers(0, 1)), data.draw(st.integers(0, tree.width - 1))
    logits[request, node, data.draw(st.integers(0, vocab - 1))] = poison
    where = f"request {request} node {node}"
    with pytest.raises(NonFiniteLogitsError, match=names(where)):
        target_probs(logits, temperature=temperature)
    if request * tree.width + node in clean.accept_index.tolist()[request]:
        with pytest.raises(NonFiniteLogitsError, match=names(where)):
            sample_tree(tree, tables, logits, sampling, coins, finals)
    else:
        assert emitted(sample_tree(tree, tables, logits, sampling, coins, finals), tree.width) == emitted(
            clean, tree.width
        )


@cases(300)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), tail=st.integers(1, 70))
def test_padded_vocabulary_changes_no_probability_and_is_never_emitted(
    data: st.DataObject, dtype: torch.dtype, tail: int
) -> None:
    vocab = data.draw(st.integers(2, 5))
    tree = data.draw(trees(vocab))
    seed = data.draw(st.integers(0, 2**32))
    logits = torch.randn(1, tree.width, vocab, generator=torch.Generator().manual_seed(seed)).to(dtype)
    padded = torch.nn.functional.pad(logits, (0, tail), value=-math.inf)
    filters = {
        "temperature": data.draw(st.sampled_from([0.0, 0.8, 50.0])),
        "top_k": data.draw(st.sampled_from([0, 2, vocab + 3])),
        "top_p": data.draw(st.sampled_from([0.8, 1.0])),
    }
    probs, plain = target_probs(padded, **filters), target_probs(logits, **filters)
    assert (probs[..., vocab:] == 0).all()
    torch.testing.assert_close(probs[..., :vocab], plain, rtol=0, atol=1e-6)
    coins, finals = torch.full((1, tree.width), LARGEST), torch.tensor([LARGEST])
    for run in (reference.verify, sgl.verify):
        result = VerifyResult(*run(tree, compile_retrieve(tree), probs, coins, finals))
        assert max(emitted(result, tree.width)[0]) < vocab
    if vocab > 1:
        drafted = build_tree(padded, torch.tensor([0]), budget=12)
        assert int(drafted.tokens.max()) < vocab


@cases(300)
@given(data=st.data(), dtype=st.sampled_from(FLOATS))
def test_narrow_floats_and_strides_give_what_float32_copies_give(data: st.DataObject, dtype: torch.dtype) -> None:
    vocab = data.draw(st.integers(2, 6))
    tree = data.draw(trees(vocab, rows=2))
    tables = compile_retrieve(tree)
    seed = data.draw(st.integers(0, 2**32))
    strided = torch.randn(vocab, tree.width, 4, generator=torch.Generator().manual_seed(seed)).to(dtype)
    logits = strided.permute(2, 1, 0)[::2]
    coins = torch.rand(2, 2 * tree.width, generator=torch.Generator().manual_seed(seed + 1))[:, ::2]
    finals = torch.rand(4, generator=torch.Generator().manual_seed(seed + 2))[::2]
    sampling = SamplingParams(data.draw(st.sampled_from([0.0, 0.7])), top_k=data.draw(st.integers(0, 3)), top_p=0.9)
    found = sample_tree(tree, tables, logits, sampling, coins, finals)
    copy = logits.float().contiguous().clone()
    right = sample_tree(tree, tables, copy, sampling, coins.contiguous(), finals.contiguous())
    assert emitted(found, tree.width) == emitted(right, tree.width)
    args = {"budget": data.draw(st.integers(0, 9)), "topk_cap": data.draw(st.sampled_from([None, 1, 2]))}
    drafted, again = (
        build_tree(logits, torch.tensor([1, 0]).int(), **args),
        build_tree(copy, torch.tensor([1, 0]), **args),
    )
    for name in ("tokens", "parents", "depths", "node_logws", "sizes"):
        assert torch.equal(getattr(drafted, name), getattr(again, name))


# Trees


@cases(600)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), cap=st.sampled_from([None, 1, 2, 9]))
def test_built_tree_is_the_heap_s_whatever_the_logits_hold(
    data: st.DataObject, dtype: torch.dtype, cap: int | None
) -> None:
    """Ties, -inf, NaN and +inf; budgets of 0, 1 and more than there are prefixes."""
    depth, vocab = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 5))
    value = st.sampled_from([0.0, 1.0, 2.5, -3.0, -math.inf] * 4 + [math.nan, math.inf])
    logits = torch.tensor([[[data.draw(value) for _ in range(vocab)] for _ in range(depth)]]).reshape(1, depth, vocab)
    logits = logits.to(dtype)
    budget = data.draw(st.sampled_from([0, 1, 2, 7, 1000]))
    tree = build_tree(logits, torch.tensor([0], dtype=torch.int32), budget=budget, topk_cap=cap)
    lost = [d for d in range(depth) if not logits[0, d].float().amax().isfinite()]
    usable = logits[0, : lost[0] if lost else depth].float().numpy()
    right = heap_prefixes(log_softmax64(usable), budget, cap) if len(usable) else []
    found = prefixes_of(tree, 0)
    assert len(found) == len(set(found)) == len(right) == int(tree.sizes[0]) - 1
    assert all(prefix[:-1] in {(), *found[:place]} for place, prefix in enumerate(found)), "a parent stands before"
    weights = tree.node_logws[0, 1 : len(found) + 1].tolist()
    np.testing.assert_allclose(weights, [weight for _, weight in right], atol=1e-5)
    for prefix, weight in zip(found, weights, strict=True):
        own = sum(log_softmax64(usable)[place, token] for place, token in enumerate(prefix))
        assert math.isclose(own, weight, abs_tol=1e-5)


@cases(600)
@given(
    tokens=st.lists(st.integers(-1, 2), min_size=1, max_size=6),
    data=st.data(),
)
def test_hand_written_tree_is_sound_or_refused(tokens: list[int], data: st.DataObject) -> None:
    """Cycles, orphans, parents after children, twins and negative ids: refused if and only if there are any."""
    n = len(tokens)
    parents = [data.draw(st.sampled_from([-1] * 9 + [0]))]
    parents += [data.draw(st.sampled_from([*range(-1, n + 1), *[0] * n, place - 1])) for place in range(1, n)]
    pairs = list(zip(parents[1:], tokens[1:], strict=True))
    sound = (
        parents[0] == -1
        and all(0 <= parent < place for place, parent in enumerate(parents[1:], start=1))
        and len(set(pairs)) == len(pairs)
        and min(tokens[1:], default=0) >= 0
    )
    weights = [-float(place) for place in range(n)]
    if sound:
        tree = DraftTree.from_parents([tokens], [parents], [weights])
        assert [len(prefix) for prefix in prefixes_of(tree, 0)] == tree.depths[0, 1:].tolist()
    else:
        with pytest.raises(ValueError, match=names("row 0 node")):
            DraftTree.from_parents([tokens], [parents], [weights])


@cases(600)
@given(data=st.data())
def test_broken_link_is_refused_and_no_walk_goes_round(data: st.DataObject) -> None:
    """Any one link pointed anywhere: cut short it drops drafts, pointed elsewhere it is named."""
    tree = data.draw(trees(5, rows=2))
    tables = compile_retrieve(tree)
    links = {"next_token": tables.next_token.clone(), "next_sibling": tables.next_sibling.clone()}
    name = data.draw(st.sampled_from(sorted(links)))
    request, node = data.draw(st.integers(0, 1)), data.draw(st.integers(0, tree.width - 1))
    old, new = int(links[name][request, node]), data.draw(st.integers(-2, tree.width + 1))
    links[name][request, node] = new
    broken = RetrieveTables(tables.index, **links)
    probs, coins = torch.full((2, tree.width, 5), 0.2), torch.full((2, tree.width), LARGEST)
    finals = torch.tensor([0.5, 0.5])
    if new in (old, -1):
        verify_tree(tree, broken, probs, coins, finals)
    else:
        with pytest.raises(ValueError, match=rf"request {request}\b.*tables\.next_\w+.*node \d+"):
            verify_tree(tree, broken, probs, coins, finals)


def test_cycle_of_siblings_ends_the_cheap_path_too() -> None:
    tree = DraftTree.from_parents([[0, 1, 2]], [[-1, 0, 0]], [[0.0, -1.0, -2.0]])
    round_and_round = RetrieveTables(torch.tensor([[0, 1, 2]]), torch.tensor([[1, -1, -1]]), torch.tensor([[-1, 2, 1]]))
    coins, finals = torch.full((1, 3), 0.99), torch.tensor([0.5])
    with pytest.raises(ValueError, match=names("token 1 node 0")):
        sample_tree(tree, round_and_round, torch.zeros(1, 3, 9), SamplingParams(), coins, finals)


@cases(300)
@given(data=st.data(), vocab=st.integers(2, 5))
def test_id_outside_the_vocabulary_is_located(data: st.DataObject, vocab: int) -> None:
    tree = data.draw(trees(vocab, rows=2))
    request, node = data.draw(st.integers(0, 1)), data.draw(st.integers(0, tree.width - 1))
    bad = data.draw(st.sampled_from([-1, vocab, vocab + 1, 2**31, 2**40]))
    tree.tokens[request, node] = bad
    tables, coins = compile_retrieve(tree), torch.full((2, tree.width), 0.5)
    rows, finals = torch.full((2, tree.width, vocab), 1 / vocab), torch.tensor([0.5, 0.5])
    message = f"request {request} node {node} token {bad} {vocab}"
    with pytest.raises(ValueError, match=names(message)):
        verify_tree(tree, tables, rows, coins, finals)
    with pytest.raises(ValueError, match=names(message)):
        sample_tree(tree, tables, rows.log(), SamplingParams(), coins, finals)


# Integers and empty batches


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_narrow_integers_are_widened_or_named(dtype: torch.dtype) -> None:
    tree = build_tree(torch.tensor([[[0.0, 2.0, 1.0]]]), torch.tensor([2]).to(dtype), budget=2)
    assert (tree.tokens.dtype, tree.tokens.tolist()) == (torch.int64, [[2, 1, 2]])
    tables = compile_retrieve(tree)
    argmax = torch.tensor([[1, 0, 0]])
    narrow, wide = (verify_tree_greedy(tree, tables, each) for each in (argmax.to(dtype), argmax))
    assert emitted(narrow, 3) == emitted(wide, 3) == [(1, 0)]
    assert tree_positions(tree, torch.tensor([4]).to(dtype)).tolist() == [[4, 5, 5]]
    commit = plan_commit(tree, narrow, torch.tensor([4]).to(dtype))
    assert (commit.new_len.tolist(), commit.new_len.dtype) == ([6], torch.int64)
    for name in ("tokens", "parents", "depths", "sizes"):
        parts = {each: getattr(tree, each) for each in ("tokens", "parents", "depths", "node_logws", "sizes")}
        parts[name] = parts[name].to(dtype)
        if dtype == torch.int64:
            DraftTree(**parts, max_depth=1)
        else:
            with pytest.raises(ValueError, match=names(f"DraftTree.{name} {dtype}")):
                DraftTree(**parts, max_depth=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_token_ids_that_are_no_integers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=names(f"root_tokens {dtype}")):
        build_tree(torch.zeros(1, 1, 3), torch.tensor([1]).to(dtype), budget=1)


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_batch_of_none_goes_through_every_stage(budget: int) -> None:
    tree = build_tree(torch.zeros(0, 3, 7), torch.zeros(0, dtype=torch.int64), budget=budget)
    q, tables = budget + 1, compile_retrieve(tree)
    none = torch.zeros(0, dtype=torch.int64)
    logits, (coins, finals) = torch.zeros(0, q, 7), step_coins([], [], q)
    assert tables.next_token.shape == (0, q)
    assert tree_attention_mask(tree, none, key_len=9, dtype=torch.float32).shape == (0, 1, q, 9)
    probs = target_probs(logits, temperature=[], top_k=3, top_p=0.5, min_p=0.1)
    assert probs.shape == (0, q, 7)
    for result in (
        verify_tree(tree, tables, probs, coins, finals),
        sample_tree(tree, tables, logits, [], coins, finals),
        VerifyResult(*sgl.verify(tree, tables, probs, coins, finals)),
        verify_tree_greedy(tree, tables, torch.zeros(0, q, dtype=torch.int64)),
    ):
        assert (result.predict.numel(), result.accept_count.numel()) == (0, 0)
        commit = plan_commit(tree, result, none)
        assert commit.new_len.shape == commit.next_root.shape == (0,)
