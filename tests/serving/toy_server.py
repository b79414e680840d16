"""A toy of the scheduler: requests arrive, join the running batch, end a round late, and leave their row to others."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_sglang as toy
from ddtree.kernels.round_ops import compact, write_tree_mask
from ddtree.sampling import step_coins
from torch import Tensor

ALL = 1 << 30


def coins_on_cpu(seeds: Tensor, prefix_len: Tensor, width: int) -> tuple[Tensor, Tensor]:
    return step_coins(seeds.tolist(), prefix_len.tolist(), width)


def over_toys(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The worker's module, imported over the stand-ins."""
    toy.install(monkeypatch)
    module = importlib.import_module("ddtree.serving.worker")
    monkeypatch.setattr(module, "draft_block", lambda _: toy.BLOCK)
    monkeypatch.setattr(module, "choose_backend", lambda *_: "reference")
    monkeypatch.setattr(module, "coins_on_device", coins_on_cpu)
    monkeypatch.setattr(module, "write_tree_mask_on_device", write_tree_mask)
    return module


def started(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    cap: int,
    requests: int = 3,
    graphs: tuple[int, ...] = (),
) -> Any:
    """A worker over fresh slots; `graphs` are the batch sizes captured, none for eager."""
    monkeypatch.setenv("DDTREE_TOPK_CAP", str(cap))
    decode = SimpleNamespace(backend="full" if graphs else "disabled", bs=list(graphs) or [1])
    arguments = toy.Arguments(
        speculative_num_draft_tokens=width, speculative_draft_model_path="toy", random_seed=3,
        cuda_graph_config=SimpleNamespace(decode=decode),
    )  # fmt: skip
    target = toy.TargetWorker(requests=requests, graphs=graphs)
    worker = module.DDTreeWorker(arguments, 0, None, 0, target)
    # What was not made yet is None: as the scheduler does it, each step for the target and then for the worker.
    for step in ("alloc_memory_pool", "init_attention_backends", "init_cuda_graphs"):
        for one in (target.model_runner, worker):
            getattr(one, step)()
    pool = worker.model_runner.token_to_kv_pool

    def on_cpu(pointers: Any, row_bytes: int, slots: Tensor, path: Tensor) -> None:
        assert row_bytes == toy.HIDDEN * 8
        compact([*pool.k_buffer, *pool.v_buffer], slots, path)

    monkeypatch.setattr(module, "compact_on_device", on_cpu)
    return worker


def request(ids: list[int], **sampling: Any) -> Any:
    parameters = {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0, "sampling_seed": None, **sampling}
    return SimpleNamespace(origin_input_ids=ids, sampling_params=SimpleNamespace(**parameters), finished=lambda: False)


def sampling_info(reqs: list[Any]) -> Any:
    def column(name: str, dtype: torch.dtype) -> Tensor:
        return torch.tensor([getattr(req.sampling_params, name) for req in reqs], dtype=dtype)

    return SimpleNamespace(
        temperatures=column("temperature", torch.float32)[:, None], top_ks=column("top_k", torch.int32),
        top_ps=column("top_p", torch.float32), min_ps=column("min_p", torch.float32), logit_bias=None,
        is_all_greedy=all(req.sampling_params.top_k == 1 for req in reqs), apply_logits_bias=lambda _: None,
    )  # fmt: skip


def one_by_one(runner: Any, ids: list[int], tokens: int) -> list[int]:
    text = list(ids)
    for _ in range(tokens):
        keys = runner.key(torch.tensor(text), torch.arange(len(text)))
        text.append(int(runner.logits(keys.sum(0)).argmax()))
    return text[len(ids) :]


@dataclass
class Job:
    """A request that comes at round `arrives` and leaves with `tokens` tokens."""

    ids: list[int]
    tokens: int
    arrives: int = 0
    sampling: dict[str, Any] = field(default_factory=dict)


@dataclass
class Running:
    job: Job
    request: Any
    row: int
    text: list[int]
    ended: bool = False  # noticed a round later, as when rounds overlap


class Server:
    """Rows of the slot table are given to whoever comes next; lengths and next roots are relayed by row."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        table = worker.model_runner.req_to_token_pool.req_to_token
        self.free = list(range(1, len(table)))  # row 0 is what padding reads
        self.lens = torch.zeros(len(table), dtype=torch.int64)
        self.roots = torch.zeros(len(table), dtype=torch.int64)
        self.sizes: set[int] = set()

    def serve(self, jobs: list[Job]) -> list[list[int]]:
        """The jobs' texts. Those that come take turns with those that run, and prefill goes first."""
        waiting, running, texts, round_number = list(enumerate(jobs)), [], [[0]] * len(jobs), 0
        place: dict[int, int] = {}
        while waiting or running:
            due = [entry for entry in waiting if entry[1].arrives <= round_number][: len(self.free)]
            if due:
                waiting = [entry for entry in waiting if entry not in due]
                new = [self._admitted(job) for _, job in due]
                place |= {id(one): n for one, (n, _) in zip(new, due, strict=True)}
                self._prefill(new)
                running += new
            elif running:
                leaving = [one for one in running if one.ended]
                self._round(running)
                for one in leaving:
                    texts[place[id(one)]] = one.text[: one.job.tokens]
                    self.free.append(one.row)
                running = [one for one in running if one not in leaving]
            round_number += 1
        return texts

    def _admitted(self, job: Job) -> Running:
        return Running(job, request(job.ids, **job.sampling), self.free.pop(), [])

    def _batch(self, those: list[Running], mode: toy.Mode, **more: Any) -> Any:
        reqs = [one.request for one in those]
        return SimpleNamespace(
            forward_mode=mode, is_extend_in_batch=False, reqs=reqs, sampling_info=sampling_info(reqs),
            req_pool_indices=torch.tensor([one.row for one in those]), **more,
        )  # fmt: skip

    def _prefill(self, those: list[Running]) -> None:
        lens = torch.tensor([len(one.job.ids) for one in those])
        batch = self._batch(those, toy.Mode.EXTEND, seq_lens=lens)
        result = self.worker.forward_batch_generation(batch)
        self._relay(batch.req_pool_indices, result)
        for one, token in zip(those, result.next_token_ids.tolist(), strict=True):
            one.text.append(token)
            one.ended = one.job.tokens <= 1

    def _round(self, those: list[Running]) -> None:
        rows = torch.tensor([one.row for one in those])
        lens = self.lens[rows]
        spec = toy.DraftInput(self.roots[rows], lens, reserved_seq_lens_cpu=lens + 2 * self.worker.width)
        batch = self._batch(those, toy.Mode.DECODE, seq_lens=lens, seq_lens_cpu=None, seq_lens_sum=None, spec_info=spec)
        result = self.worker.forward_batch_generation(batch)
        self._relay(rows, result)
        self.sizes.add(len(those))
        emitted = result.next_token_ids.view(len(those), result.speculative_num_draft_tokens).tolist()
        for one, tokens, count in zip(those, emitted, result.accept_lens.tolist(), strict=True):
            one.text += tokens[:count]
            one.ended = len(one.text) >= one.job.tokens

    def _relay(self, rows: Tensor, result: Any) -> None:
        self.lens[rows] = result.next_draft_input.new_seq_lens
        self.roots[rows] = result.next_draft_input.bonus_tokens


def jobs_of_all_kinds(many: int, seed: int = 5) -> list[Job]:
    """Greedy and sampled, filtered and not, short and long, in no order."""
    rng = torch.Generator().manual_seed(seed)

    def drawn(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=rng))

    kinds = ({}, {"top_k": ALL}, {"top_k": 3, "temperature": 1.3}, {"top_k": ALL, "top_p": 0.8, "min_p": 0.05})
    return [
        Job(
            ids=[drawn(0, toy.VOCAB) for _ in range(drawn(1, 7))],
            tokens=drawn(1, 20),
            arrives=drawn(0, 2 * many),
            sampling={**kinds[n % 4], "sampling_seed": 100 + n},
        )
        for n in range(many)
    ]
