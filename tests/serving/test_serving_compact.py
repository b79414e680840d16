"""KV rows after compaction are those of the path, in place, with sources that are targets of later rows."""

import pytest
import torch
from ddtree.kernels.round_ops import compact, compact_on_device, row_moves
from interpreted import printed_by
from loops import for_each
from wording import names


def a_round(seed: int, bs: int = 6, q: int = 9, depth: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Slots in no order, and paths that ascend from the root, some of them the root alone."""
    rng = torch.Generator().manual_seed(seed)
    slots = torch.randperm(bs * q + 3, generator=rng)[: bs * q].view(bs, q)
    path = torch.full((bs, depth), -1)
    for b in range(bs):
        n = int(torch.randint(0, depth, (), generator=rng))
        path[b, : n + 1] = torch.cat(
            [torch.zeros(1).long(), torch.randperm(q - 1, generator=rng)[:n].sort().values + 1]
        )
    return slots, path


def fresh(buffer: torch.Tensor, slots: torch.Tensor, path: torch.Tensor) -> torch.Tensor:
    """Row by row from a copy."""
    right = buffer.clone()
    for b in range(len(path)):
        for k, node in enumerate(path[b].tolist()):
            if node >= 0:
                right[slots[b, k]] = buffer[slots[b, node]]
    return right


@for_each("seed", range(8))
def test_rows_are_those_of_a_fresh_gather(seed: int) -> None:
    slots, path = a_round(seed)
    buffers = [torch.randn(60, 2, 4), torch.randn(60, 2, 4)]
    right = [fresh(buffer, slots, path) for buffer in buffers]
    compact(buffers, slots, path)
    assert all(torch.equal(a, b) for a, b in zip(buffers, right, strict=True))


def test_padding_stays_where_it_is() -> None:
    slots, path = torch.tensor([[5, 3, 8, 1]]), torch.tensor([[0, 2, -1]])
    targets, sources = row_moves(slots, path)
    assert targets.tolist() == [[3, 8]]
    assert sources.tolist() == [[8, 8]]


def test_rows_of_no_whole_words_are_refused() -> None:
    pytest.importorskip("triton")
    with pytest.raises(ValueError, match=names("12")):
        compact_on_device(torch.zeros(2, dtype=torch.uint64), 12, *a_round(0))


def test_the_kernel_moves_the_same_rows() -> None:
    assert printed_by("compact_interpreted.py") == "equal in 4 rounds"
