"""The algorithm's tensors on a GPU equal those on the CPU, and "auto" takes the stock op there."""

import pytest
import torch
from ddtree.commit import plan_commit
from ddtree.retrieve import compile_retrieve, tree_attention_mask
from ddtree.sampling import SamplingParams, step_coins
from ddtree.tree import build_tree
from ddtree.verify import sample_tree, verify_tree_greedy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("budget", [0, 1, 16, 64])
@pytest.mark.parametrize("cap", [None, 4])
def test_trees_links_and_masks_equal_the_cpu(budget: int, cap: int | None) -> None:
    torch.manual_seed(budget)
    # Steps of 1/8 make ties exact on both devices, and the sums of log-probabilities far apart otherwise.
    logits, roots = (torch.randn(8, 7, 3000) * 24).round() / 8, torch.arange(8)
    here = build_tree(logits, roots, budget=budget, topk_cap=cap)
    there = build_tree(logits.cuda(), roots.cuda(), budget=budget, topk_cap=cap)
    torch.testing.assert_close(there.node_logws.cpu(), here.node_logws, atol=1e-5, rtol=1e-5)
    assert torch.equal(there.sizes.cpu(), here.sizes)
    moved = here.to("cuda")
    tables, moved_tables = compile_retrieve(here), compile_retrieve(moved)
    assert torch.equal(moved_tables.next_token.cpu(), tables.next_token)
    assert torch.equal(moved_tables.next_sibling.cpu(), tables.next_sibling)
    prefix = torch.arange(8) + 3
    mask = tree_attention_mask(here, prefix, key_len=20 + here.width, dtype=torch.bfloat16)
    on_gpu = tree_attention_mask(moved, prefix.cuda(), key_len=20 + here.width, dtype=torch.bfloat16)
    assert torch.equal(on_gpu.cpu(), mask)


def test_a_mixed_batch_goes_through_the_stock_op_and_commits_its_path() -> None:
    torch.manual_seed(1)
    tree = build_tree(torch.randn(32, 7, 500) * 3, torch.zeros(32, dtype=torch.int64), budget=16, topk_cap=4)
    logits = (torch.randn(32, 17, 500) * 3).bfloat16()
    sampling = [SamplingParams(temperature=(row % 4) / 3) for row in range(32)]
    coins = step_coins(range(32), [0] * 32, tree.width)
    reference = sample_tree(tree, compile_retrieve(tree), logits, sampling, *coins, backend="reference")
    moved = tree.to("cuda")
    tables = compile_retrieve(moved)
    on_gpu = [t.cuda() for t in coins]
    result = sample_tree(moved, tables, logits.cuda(), sampling, *on_gpu, backend="sgl")
    auto = sample_tree(moved, tables, logits.cuda(), sampling, *on_gpu)
    assert torch.equal(auto.predict, result.predict)
    assert torch.equal(result.accept_index.cpu(), reference.accept_index)
    assert torch.equal(result.predict.cpu(), reference.predict)
    greedy = verify_tree_greedy(moved, tables, logits.cuda().argmax(dim=-1))
    rows = [row for row in range(32) if sampling[row].greedy]
    assert torch.equal(greedy.accept_index[rows].cpu(), reference.accept_index[rows])
    commit = plan_commit(moved, result, torch.zeros(32, dtype=torch.int64, device="cuda"))
    assert torch.equal(commit.lengths.cpu(), reference.accept_count.long() + 1)
