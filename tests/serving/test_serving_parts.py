"""The small parts of a round: the sampler, seeds, non-finite logits, and the drafter's buffers."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from ddtree.commit import plan_commit
from ddtree.retrieve import compile_retrieve
from ddtree.sampling import SamplingParams
from ddtree.serving import sampler
from ddtree.serving.sampler import (
    TOP_K_ALL,
    NonFiniteMonitor,
    RequestSeeds,
    TreeSampler,
    choose_backend,
    root_only_tree,
    sampling_params,
    sampling_tensors,
)
from ddtree.serving.tree_drafter import TreeDrafter
from ddtree.tree import build_tree
from ddtree.verify import BackendStatus, BackendUnavailableError
from wording import names


def report(monkeypatch: pytest.MonkeyPatch, **usable: bool) -> None:
    statuses = [BackendStatus(name, fit, f"{name} reason") for name, fit in usable.items()]
    monkeypatch.setattr(sampler, "backend_report", lambda _: statuses)


def test_auto_takes_the_best_that_proved_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, fused=True, sgl=True, reference=True)
    assert choose_backend("auto", "cuda") == "fused"
    report(monkeypatch, fused=False, sgl=True, reference=True)
    assert choose_backend("auto", "cuda") == "sgl"
    assert choose_backend("reference", "cuda") == "reference", "slow, so only by name"


def test_a_server_that_cannot_sample_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    report(monkeypatch, fused=False, sgl=False, reference=True)
    with pytest.raises(BackendUnavailableError, match=names("fused reason")):
        choose_backend("auto", "cuda")
    with pytest.raises(BackendUnavailableError, match=names("sgl")):
        choose_backend("sgl", "cuda")


def test_sglang_names_of_parameters_are_the_librarys() -> None:
    greedy = SimpleNamespace(temperature=1.0, top_k=1, top_p=1.0, min_p=0.0)
    drawn = SimpleNamespace(temperature=0.6, top_k=TOP_K_ALL, top_p=0.9, min_p=0.05)
    cut = SimpleNamespace(temperature=1.3, top_k=20, top_p=1.0, min_p=0.0)
    wanted = [SamplingParams(0.0, 1, 1.0, 0.0), SamplingParams(0.6, 0, 0.9, 0.05), SamplingParams(1.3, 20, 1.0, 0.0)]
    assert sampling_params([greedy, drawn, cut]) == wanted
    tensors = sampling_tensors(
        SimpleNamespace(
            temperatures=torch.tensor([[1.0], [0.6], [1.3]]), top_ks=torch.tensor([1, TOP_K_ALL, 20]).int(),
            top_ps=torch.tensor([1.0, 0.9, 1.0]), min_ps=torch.tensor([0.0, 0.05, 0.0]),
        )
    )  # fmt: skip
    assert tensors.temperature.tolist() == pytest.approx([0.0, 0.6, 1.3])
    assert tensors.top_k.tolist() == [1, 0, 20]


def test_a_request_with_non_finite_logits_has_no_final_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build_tree(torch.randn(2, 3, 9), torch.tensor([4, 5]), budget=5)
    tables = compile_retrieve(tree)

    def stopped(*_: Any) -> tuple[torch.Tensor, ...]:
        index = torch.full((2, 4), -1, dtype=torch.int32)
        index[:, 0] = torch.tensor([0, 6])
        predict = torch.full((12,), -1, dtype=torch.int32)
        predict[0] = 7
        return predict, index, torch.zeros(2, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)

    monkeypatch.setattr(sampler.fused, "sample", stopped)
    sampling = SimpleNamespace(
        temperatures=torch.ones(2, 1), top_ks=torch.full((2,), TOP_K_ALL, dtype=torch.int32), top_ps=torch.ones(2),
        min_ps=torch.zeros(2), is_all_greedy=False,
    )  # fmt: skip
    result, status = TreeSampler("fused").sample(
        tree, tables, torch.zeros(2, 6, 9), sampling, [], (torch.ones(2, 6),) * 2
    )
    assert status is not None
    assert plan_commit(tree, result, torch.tensor([3, 3])).next_root.tolist() == [7, -1]


def request(seed: int | None = None) -> Any:
    return SimpleNamespace(sampling_params=SimpleNamespace(sampling_seed=seed), finished=lambda: False, to_finish=None)


def test_a_request_keeps_its_seed() -> None:
    seeds, own, other = RequestSeeds(1), request(7), request()
    first = seeds.of([own, other], "cpu")
    assert first[0] == 7
    again = seeds.of([other, request(), own], "cpu")
    assert again[0] == first[1]
    assert again[2] == 7
    assert again[1] not in first
    assert seeds.of([request(2**63 + 1)], "cpu")[0] == -(2**63) + 1


def test_unseeded_requests_follow_the_engines_seed() -> None:
    def drawn(engine: int) -> list[int]:
        seeds = RequestSeeds(engine)
        return [int(seeds.of([request()], "cpu")) for _ in range(3)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1))) == 3


def test_seeds_are_uploaded_when_the_batch_changes() -> None:
    seeds, batch = RequestSeeds(1), [request(), request()]
    assert seeds.of(batch, "cpu") is seeds.of(batch, "cpu")
    assert seeds.of(batch[:1], "cpu").tolist() == seeds.of(batch, "cpu").tolist()[:1]


def test_non_finite_logits_abort_their_own_request(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = ModuleType("sglang.srt.managers.schedule_batch")
    batch.FINISH_ABORT = lambda *told: told  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang.srt.managers.schedule_batch", batch)
    for parent in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monitor, finite, nonfinite, over = NonFiniteMonitor(), request(), request(), request()
    over.finished = lambda: True
    monitor.record(torch.tensor([0, 3, 1], dtype=torch.int32), [finite, nonfinite, over])
    monitor.abort_reported()
    assert finite.to_finish is None
    assert over.to_finish is None
    assert "node 2" in nonfinite.to_finish[0]
    assert not monitor.in_flight


def drafter() -> TreeDrafter:
    head = torch.randn(11, 6, generator=torch.Generator().manual_seed(1))
    return TreeDrafter(head, block=4, budget=7, topk_cap=3, temperature=0.8)


def test_the_drafter_builds_the_librarys_tree_from_rows_behind_the_root() -> None:
    made, hidden, roots = drafter(), torch.randn(2 * 4, 6), torch.tensor([3, 9])
    logits = hidden.view(2, 4, 6)[:, 1:] @ made.head.T
    tree = build_tree(logits, roots, budget=7, topk_cap=3, draft_temperature=0.8)
    drafted = made.draft(hidden, roots)
    assert torch.equal(drafted.tree.tokens, tree.tokens)
    assert torch.equal(drafted.tree.parents, tree.parents)
    assert drafted.tree.max_depth == 3


def test_buffers_hold_the_last_batch_and_are_read_at_any_size() -> None:
    made, hidden, ids = drafter(), torch.randn(3 * 4, 6), torch.randint(0, 11, (3 * 4,))
    made.reserve(5)
    made(hidden, ids)
    wanted = made.draft(hidden, ids.view(3, 4)[:, 0])
    found = made.read(2)
    assert torch.equal(found.tree.tokens, wanted.tree.tokens[:2])
    assert torch.equal(found.visible, wanted.visible[:2])
    assert torch.equal(found.tables.next_sibling, wanted.tables.next_sibling[:2])
    assert found.tables.index.tolist() == [list(range(8)), list(range(8, 16))]
    with pytest.raises(RuntimeError, match="reserve"):
        drafter()(hidden, ids)


def test_a_root_only_tree_has_one_node() -> None:
    tree, tables = root_only_tree(3, torch.device("cpu"))
    assert tree.tokens.shape == (3, 1)
    assert tree.max_depth == 0
    assert tables.next_token.tolist() == [[-1]] * 3
    assert tables.index.tolist() == [[0], [1], [2]]
