"""The stock op behind its wrapper: the reference's tokens, edges included, on a stand-in with the op's own traps."""

import sys

import fake_sgl_kernel
import numpy as np
import pytest
import torch
from ddtree.backends import reference, registry, sgl
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import target_probs
from ddtree.tree import DraftTree, build_tree
from ddtree.verify import BackendUnavailableError, backend_report, verify_tree
from loops import for_each
from oracles import random_trees
from torch import Tensor
from wording import names, tells

FORK = DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]])


@pytest.fixture
def op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sgl_kernel", fake_sgl_kernel)


def both(tree: DraftTree, probs: Tensor, coins: Tensor, finals: Tensor) -> list[list]:
    """The wrapper's answer, once the reference's is found to be the same."""
    tables = compile_retrieve(tree)
    right = [part.tolist() for part in reference.verify(tree, tables, probs, coins, finals)]
    found = [part.tolist() for part in sgl.verify(tree, tables, probs, coins, finals)]
    assert found == right
    return found


def fork_case(root: dict[int, float], coins: list[float], final: float) -> list[list]:
    probs = torch.full((1, 4, 10), 0.1)
    probs[0, 0] = 0
    for token, p in root.items():
        probs[0, 0, token] = p
    return both(FORK, probs, torch.tensor([coins]), torch.tensor([final]))


def call_the_op(root: dict[int, float], coin: float) -> tuple[int, int]:
    """(first token, accepted drafts) of the op alone on the fork."""
    probs = torch.full((1, 4, 10), 0.1)
    probs[0, 0] = 0
    for token, p in root.items():
        probs[0, 0, token] = p
    tables = compile_retrieve(FORK)
    predicts, index, count = (torch.full(shape, -1, dtype=torch.int32) for shape in ((4,), (1, 3), (1,)))
    fake_sgl_kernel.tree_speculative_sampling_target_only(
        predicts,
        index,
        count,
        FORK.tokens,
        tables.index,
        tables.next_token,
        tables.next_sibling,
        torch.tensor([[coin, 0.5, 0.5, 0.5]]),
        torch.tensor([0.5]),
        probs,
        torch.zeros_like(probs),
    )
    return int(predicts[0]), int(count[0])


def test_stand_in_has_the_traps_that_were_measured() -> None:
    assert call_the_op({0: 0.5, 5: 0.3, 6: 0.2}, 0.0)[0] == 3
    assert call_the_op({3: 0.6, 5: 0.399999}, 0.9999999) == (9, 0)
    assert call_the_op({3: torch.nan}, 0.5) == (9, 0)


@pytest.mark.usefixtures("op")
@for_each("seed", range(6))
def test_random_trees_give_the_reference_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bs, vocab = 40, 4
    tree = random_trees(rng, bs, most_nodes=14, vocab=vocab, spare=seed % 2)
    logits = torch.tensor(rng.normal(size=(bs, tree.width, vocab)) * 2, dtype=torch.float32)
    probs = target_probs(logits, temperature=1.0, top_k=[1 + b % 4 for b in range(bs)])
    coins, finals = (torch.tensor(rng.random(shape), dtype=torch.float32) for shape in ((bs, tree.width), bs))
    assert max(both(tree, probs, coins, finals)[2]) > 1


@pytest.mark.usefixtures("op")
@for_each("seed", range(4))
def test_coins_on_the_running_sums_agree_too(seed: int) -> None:
    """Rows and coins in eighths: most coins are ties, zero included, and float32 sums are exact."""
    rng = np.random.default_rng(seed)
    tree = random_trees(rng, 40, most_nodes=8, vocab=4)
    parts = rng.multinomial(8, [0.25] * 4, size=(40, tree.width))
    coins, finals = (torch.tensor(rng.integers(8, size=shape) / 8).float() for shape in ((40, tree.width), 40))
    both(tree, torch.tensor(parts / 8).float(), coins, finals)


@pytest.mark.usefixtures("op")
def test_measured_cases() -> None:
    root = {3: 0.5, 5: 0.3, 6: 0.2}
    assert fork_case(root, [0.7, 0.5, 0.3, 0.9], 0.55)[1] == [[0, 2, -1]]
    assert fork_case(root, [0.9, 0.5, 0.3, 0.9], 0.55)[0] == [6, -1, -1, -1]


@pytest.mark.usefixtures("op")
def test_coin_of_zero_passes_over_a_child_of_probability_zero() -> None:
    assert fork_case({0: 0.5, 5: 0.3, 6: 0.2}, [0.0, 0.5, 0.5, 0.5], 0.55)[1] == [[0, 2, -1]]


@pytest.mark.usefixtures("op")
@pytest.mark.parametrize("final", [0.0, 0.3, 0.8, 0.99999994])
@pytest.mark.parametrize(
    "root", [{3: 0.6, 5: 0.399999}, {5: 0.6, 3: 0.399999}, {3: 0.999999}], ids=["3 first", "5 first", "3 alone"]
)
def test_exhausted_rest_draws_from_the_row(root: dict[int, float], final: float) -> None:
    predict, _, count = fork_case(root, [0.9999999, 0.5, 0.5, 0.5], final)
    assert count == [0]
    assert predict[0] in root


@pytest.mark.usefixtures("op")
@pytest.mark.parametrize("final", [0.0, 0.3, 0.8, 0.99999994])
def test_exhausted_rest_is_seen_when_the_last_id_is_a_child(final: float) -> None:
    """The op then emits V-1, which is possible by its row but was rejected a moment before."""
    tree = DraftTree.from_parents([[0, 0, 2]], [[-1, 0, 0]], [[0.0, -0.5, -1.0]])
    probs = torch.tensor([[[0.6, 0.0, 0.399999], [1.0, 0, 0], [1.0, 0, 0]]])
    predict, _, _ = both(tree, probs, torch.tensor([[0.9999999, 0.5, 0.5]]), torch.tensor([final]))
    assert predict[0] == (0 if final < 0.6 else 2)


@pytest.mark.usefixtures("op")
def test_arguments_are_left_as_they_were_and_may_be_strided() -> None:
    rng = np.random.default_rng(0)
    tree = random_trees(rng, 5, most_nodes=6, vocab=4)
    wide = target_probs(torch.tensor(rng.normal(size=(5, tree.width, 8))), temperature=1.0)
    probs = wide[..., ::2] / wide[..., ::2].sum(-1, keepdim=True)
    strided = torch.empty(5, tree.width, 8)[..., ::2].copy_(probs)
    coins = torch.rand(tree.width, 5, generator=torch.Generator().manual_seed(0)).T
    kept = [strided.clone(), coins.clone()]
    both(tree, strided, coins, torch.full((5,), 0.4))
    assert torch.equal(strided, kept[0])
    assert torch.equal(coins, kept[1])


@pytest.mark.usefixtures("op")
def test_empty_batch_does_not_reach_the_op() -> None:
    tree = build_tree(torch.zeros(0, 2, 4), torch.zeros(0, dtype=torch.int64), budget=3)
    result = sgl.verify(tree, compile_retrieve(tree), torch.zeros(0, 4, 4), torch.zeros(0, 4), torch.zeros(0))
    assert [part.tolist() for part in result] == [[], [], []]


@pytest.mark.usefixtures("op")
def test_batch_beyond_the_offsets_of_the_op_is_refused() -> None:
    tree = DraftTree.from_parents([[0, 0]] * 64, [[-1, 0]] * 64, [[0.0, -1.0]] * 64)
    probs = torch.zeros(1).expand(64, 2, 2**25)
    with pytest.raises(ValueError, match=names("q V 4294967296")):
        sgl.verify(tree, compile_retrieve(tree), probs, torch.zeros(64, 2), torch.zeros(64))


def test_asked_for_by_name_on_a_cpu_it_is_an_error_that_names_the_reason() -> None:
    probs = torch.full((1, 4, 10), 0.1)
    coins, finals = torch.full((1, 4), 0.5), torch.tensor([0.5])
    with pytest.raises(BackendUnavailableError, match=names("sgl CUDA cpu")):
        verify_tree(FORK, compile_retrieve(FORK), probs, coins, finals, backend="sgl")
    by_itself = verify_tree(FORK, compile_retrieve(FORK), probs, coins, finals, backend="auto")
    by_name = verify_tree(FORK, compile_retrieve(FORK), probs, coins, finals, backend="reference")
    assert by_itself.predict.tolist() == by_name.predict.tolist()


def test_missing_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "sglang-kernel 0.4.5" in str(sgl.missing("cuda"))


@pytest.mark.usefixtures("op")
class TestProof:
    """An op that could be tried is used only if its self-test gave the reference's tokens."""

    @pytest.fixture(autouse=True)
    def _tried_afresh(self, monkeypatch: pytest.MonkeyPatch) -> object:
        monkeypatch.setattr(sgl, "missing", lambda device_type: None)
        registry.self_test.cache_clear()
        yield
        registry.self_test.cache_clear()

    def status(self) -> registry.BackendStatus:
        return next(status for status in backend_report("cpu") if status.name == "sgl")

    def test_right_op_is_usable(self) -> None:
        status = self.status()
        assert (status.name, status.usable) == ("sgl", True)
        assert tells(status.reason, "reference")

    def test_op_that_raises_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(**_arguments: object) -> None:
            raise RuntimeError("no kernel image is available")

        monkeypatch.setattr(fake_sgl_kernel, "tree_speculative_sampling_target_only", broken)
        assert not self.status().usable
        assert "RuntimeError: no kernel image" in self.status().reason

    def test_op_that_gives_other_tokens_is_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        right = fake_sgl_kernel.tree_speculative_sampling_target_only

        def off_by_one(predicts: Tensor, **arguments: object) -> None:
            right(predicts=predicts, **arguments)
            predicts -= 1

        monkeypatch.setattr(fake_sgl_kernel, "tree_speculative_sampling_target_only", off_by_one)
        assert not self.status().usable
        assert tells(self.status().reason, "reference")
        assert registry.resolve("auto", torch.device("cpu")) == "reference"
