"""The worker's round over toy slots: greedy text and caches as one by one, whatever the tree, slots and neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_sglang as toy
from scipy.stats import chisquare
from toy_server import ALL, one_by_one, over_toys, request, sampling_info, started
from wording import names


@pytest.fixture
def worker_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    yield over_toys(monkeypatch)
    toy.forget()


def served(worker: Any, reqs: list[Any], rows: list[int], tokens: int) -> tuple[list[list[int]], torch.Tensor, Any]:
    """Text of each request until all have `tokens`; final prefix lengths and the last result."""
    indices = torch.tensor(rows)
    batch = SimpleNamespace(
        forward_mode=toy.Mode.EXTEND, is_extend_in_batch=False, reqs=reqs, req_pool_indices=indices,
        seq_lens=torch.tensor([len(req.origin_input_ids) for req in reqs]), sampling_info=sampling_info(reqs),
    )  # fmt: skip
    result = worker.forward_batch_generation(batch)
    texts = [[int(token)] for token in result.next_token_ids]
    while min(map(len, texts)) < tokens:
        published: list[torch.Tensor] = []
        lens = result.new_seq_lens
        batch = SimpleNamespace(
            forward_mode=toy.Mode.DECODE, is_extend_in_batch=False, reqs=reqs, req_pool_indices=indices, seq_lens=lens,
            seq_lens_cpu=None, seq_lens_sum=None, spec_info=result.next_draft_input, sampling_info=sampling_info(reqs),
        )  # fmt: skip
        batch.spec_info.reserved_seq_lens_cpu = lens + 2 * worker.width
        result = worker.forward_batch_generation(batch, published.append)
        assert torch.equal(published[0], result.new_seq_lens)
        stride = result.speculative_num_draft_tokens
        assert stride == toy.BLOCK
        assert len(result.next_token_ids) == stride * len(reqs)
        for text, row, count in zip(texts, result.next_token_ids.view(-1, stride), result.accept_lens, strict=True):
            text += row[: int(count)].tolist()
    return texts, result.new_seq_lens, result


@pytest.mark.parametrize(("width", "cap"), [(4, 1), (5, 2), (9, 3), (17, 4)])
def test_greedy_text_and_both_caches_are_those_of_one_by_one(
    worker_module: Any, monkeypatch: pytest.MonkeyPatch, width: int, cap: int
) -> None:
    worker = started(worker_module, monkeypatch, width, cap)
    prompts, rows = [[1, 2, 3], [4, 0, 5, 5, 1], [2]], [2, 0, 1]
    texts, lens, _ = served(worker, [request(ids) for ids in prompts], rows, 20)
    runner = worker.model_runner
    for ids, text, row, length in zip(prompts, texts, rows, lens.tolist(), strict=True):
        assert text == one_by_one(runner, ids, len(text))
        whole, place = torch.tensor([*ids, *text])[:length], torch.arange(length)
        slots = runner.req_to_token_pool.req_to_token[row, :length]
        keys = runner.key(whole, place)
        assert torch.equal(runner.token_to_kv_pool.k_buffer[0][slots], keys)
        assert torch.equal(runner.token_to_kv_pool.v_buffer[0][slots], -keys)
        hidden = keys.cumsum(0) * (1 + place % 3)[:, None]
        assert torch.equal(worker.draft_model_runner.cache[slots], hidden)


def test_the_token_of_an_aborted_request_can_be_looked_up(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that ends at non-finite logits has -1 for its final token, and an embedding has no such row."""
    worker = started(worker_module, monkeypatch, 5, 2)
    sample = worker.tree_sampler.sample

    def stopped(*args: Any) -> Any:
        result, _ = sample(*args)
        return replace(result, predict=torch.full_like(result.predict, -1)), None

    monkeypatch.setattr(worker, "tree_sampler", SimpleNamespace(sample=stopped))
    texts, _, last = served(worker, [request([1, 2, 3]), request([4])], [0, 1], 2)
    assert all(token == 0 for text in texts for token in text)
    assert last.next_draft_input.bonus_tokens.tolist() == [0, 0]


def test_trees_are_accepted_beyond_their_chain(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise nothing was moved and the test above proves little."""
    worker = started(worker_module, monkeypatch, 17, 4)
    moved = []
    plan = worker_module.plan_commit

    def watched(*args: Any) -> Any:
        commit = plan(*args)
        moved.append((commit.path > torch.arange(toy.BLOCK)).any())
        return commit

    monkeypatch.setattr(worker_module, "plan_commit", watched)
    served(worker, [request([1, 2, 3]), request([4, 0])], [0, 1], 20)
    assert sum(map(int, moved)) >= 3


def test_a_seeded_request_is_not_moved_by_neighbours(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = {"top_k": ALL, "sampling_seed": 11}
    worker = started(worker_module, monkeypatch, 9, 3)
    alone, *_ = served(worker, [request([1, 2, 3], **seeded)], [0], 16)
    worker = started(worker_module, monkeypatch, 9, 3)
    reqs = [request([5, 5], top_k=ALL), request([1, 2, 3], **seeded), request([0])]
    among, *_ = served(worker, reqs, [1, 2, 0], 16)
    assert among[1][:16] == alone[0][:16]
    assert among[2] == one_by_one(worker.model_runner, [0], len(among[2])), "a greedy neighbour stays greedy"
    other, *_ = served(worker, [request([1, 2, 3], top_k=ALL, sampling_seed=12)], [0], 16)
    assert other[0][:16] != alone[0][:16]


def test_min_p_and_bias_hold_at_every_token(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = started(worker_module, monkeypatch, 9, 3)
    # At min_p 1 only the likeliest token is left, whatever the coins.
    texts, *_ = served(worker, [request([1, 2, 3], top_k=ALL, min_p=1.0, sampling_seed=4)], [0], 16)
    assert texts[0] == one_by_one(worker.model_runner, [1, 2, 3], len(texts[0]))


def test_a_tree_narrower_than_the_block_does_not_start(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=names("3")):
        started(worker_module, monkeypatch, 3, 1)


def joint(runner: Any, prompt: list[int], temperature: float, tokens: int) -> dict[tuple[int, ...], float]:
    """The exact probability of each continuation."""
    distribution = {}
    for text in product(range(toy.VOCAB), repeat=tokens):
        mass = 1.0
        for n, token in enumerate(text):
            ids = torch.tensor([*prompt, *text[:n]])
            logits = runner.logits(runner.key(ids, torch.arange(len(ids))).sum(0))
            mass *= float((logits / temperature).softmax(0)[token])
        distribution[text] = mass
    return distribution


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_sampled_text_follows_the_targets_distribution(
    worker_module: Any, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """The first token is the prefill's, the next two a round's or two; unseeded requests, one stream each."""
    prompt, batch, counts = [1, 2, 3], 100, Counter()
    worker = started(worker_module, monkeypatch, 9, 3, requests=batch)
    for _ in range(15):
        reqs = [request(prompt, top_k=ALL, temperature=temperature) for _ in range(batch)]
        texts, *_ = served(worker, reqs, list(range(batch)), 3)
        counts.update(tuple(text[:3]) for text in texts)
    distribution = joint(worker.model_runner, prompt, temperature, 3)
    total = sum(counts.values())
    likely = [text for text, mass in distribution.items() if mass * total >= 5]
    found = [counts[text] for text in likely]
    wanted = [distribution[text] * total for text in likely]
    assert len(likely) > 15
    assert chisquare([*found, total - sum(found)], [*wanted, total - sum(wanted)]).pvalue > 1e-3


def test_graphs_of_another_width_are_an_error(worker_module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = started(worker_module, monkeypatch, 9, 3)
    worker.model_runner.decode_cuda_graph_runner = SimpleNamespace(captured_req_width=9)
    worker.draft_model_runner.decode_cuda_graph_runner = SimpleNamespace(captured_req_width=toy.BLOCK)
    worker.init_cuda_graphs()
    worker.model_runner.decode_cuda_graph_runner = SimpleNamespace(captured_req_width=toy.BLOCK)
    with pytest.raises(RuntimeError, match=names("verify graphs 4 9")):
        worker.init_cuda_graphs()
