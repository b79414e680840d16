"""Slow references, independent of the library: trees by heap, rows in float64, distributions by enumeration."""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult
from scipy import stats

Prefix = tuple[int, ...]
Distribution = dict[tuple[Prefix, int], Fraction]  # (accepted tokens, final token) -> probability
Verify = Callable[[DraftTree, RetrieveTables, torch.Tensor, torch.Tensor, torch.Tensor], VerifyResult]


# Trees


def log_softmax64(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    peak = scaled.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return scaled - peak - np.log(np.exp(scaled - peak).sum(axis=-1, keepdims=True))


def heap_prefixes(log_probs: np.ndarray, budget: int, cap: int | None = None) -> list[tuple[Prefix, float]]:
    """The best prefixes of [depth, V] log-probabilities: pop the best, push its next sibling and its first child."""
    depth, vocab = log_probs.shape
    ranked = np.argsort(-log_probs, axis=1, kind="stable")
    widest = vocab if cap is None else min(cap, vocab)
    heap: list[tuple[float, tuple[int, ...]]] = []

    def weight(ranks: tuple[int, ...]) -> float:
        return sum(float(log_probs[d, ranked[d, r]]) for d, r in enumerate(ranks))

    def push(ranks: tuple[int, ...]) -> None:
        if len(ranks) <= depth and ranks[-1] < widest and weight(ranks) > -math.inf:
            heapq.heappush(heap, (-weight(ranks), ranks))

    push((0,))
    found: list[tuple[Prefix, float]] = []
    while heap and len(found) < budget:
        negative, ranks = heapq.heappop(heap)
        found.append((tuple(int(ranked[d, r]) for d, r in enumerate(ranks)), -negative))
        push((*ranks[:-1], ranks[-1] + 1))
        push((*ranks, 0))
    return found


def prefixes_of(tree: DraftTree, row: int) -> list[Prefix]:
    """The tokens on the way from the root (left out) to each drafted node, in array order."""
    tokens, parents = tree.tokens[row].tolist(), tree.parents[row].tolist()
    prefixes: list[Prefix] = [()]
    for node in range(1, int(tree.sizes[row])):
        prefixes.append((*prefixes[parents[node]], tokens[node]))
    return prefixes[1:]


def lineage(parents: Sequence[int], node: int) -> list[int]:
    """The node and its ancestors, root first."""
    line = [node]
    while parents[line[0]] != -1:
        line.insert(0, parents[line[0]])
    return line


def children_of(tree: DraftTree, row: int, node: int) -> list[int]:
    """Children, heaviest first, equal weights in array order."""
    weights = tree.node_logws[row].tolist()
    found = [i for i in range(1, int(tree.sizes[row])) if int(tree.parents[row, i]) == node]
    return sorted(found, key=lambda i: (-weights[i], i))


def random_lists(rng: np.random.Generator, nodes: int, vocab: int) -> tuple[list[int], list[int], list[float]]:
    """Tokens, parents and weights of a random tree whose siblings stand in no particular order."""
    tokens, parents, weights = [int(rng.integers(vocab))], [-1], [0.0]
    taken: dict[int, set[int]] = defaultdict(set)
    while len(tokens) < nodes:
        parent, token = int(rng.integers(len(tokens))), int(rng.integers(vocab))
        if token not in taken[parent]:
            taken[parent].add(token)
            tokens.append(token)
            parents.append(parent)
            weights.append(weights[parent] - float(rng.exponential()))
    return tokens, parents, weights


def random_trees(rng: np.random.Generator, rows: int, most_nodes: int, vocab: int, spare: int = 0) -> DraftTree:
    """A ragged batch of random trees, padded by at least `spare` slots."""
    lists = [random_lists(rng, int(rng.integers(1, most_nodes + 1)), vocab) for _ in range(rows)]
    tokens, parents, weights = zip(*lists, strict=True)
    return DraftTree.from_parents(tokens, parents, weights, width=max(map(len, tokens)) + spare)


def repeated(tree: DraftTree, times: int) -> DraftTree:
    """A tree of one row as a batch of `times` equal rows."""
    parts = (tree.tokens, tree.parents, tree.depths, tree.node_logws, tree.sizes)
    return DraftTree(*(part.repeat(times, *[1] * (part.ndim - 1)) for part in parts), max_depth=tree.max_depth)


# Probabilities


@dataclass(frozen=True)
class Filtered:
    probs: np.ndarray  # float64 [V]
    margin: float  # distance of the nearest token to a top-p or min-p threshold


def filtered64(logits: Sequence[float], temperature: float, top_k: int, top_p: float, min_p: float) -> Filtered:
    """One row of temperature, top-k, top-p and min-p, token by token in float64."""
    ids = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature < 1e-5:
        return Filtered(np.eye(len(logits))[ids[0]], math.inf)
    kept = ids[: top_k or None]
    mass = {i: math.exp((logits[i] - logits[ids[0]]) / temperature) for i in kept}
    total = sum(mass.values())
    mass = {i: m / total for i, m in mass.items()}
    margin = math.inf
    if top_p < 1:
        before, inside = 0.0, {}
        for i in kept:
            margin = min(margin, abs(before - top_p))
            if before < top_p:
                inside[i] = mass[i]
            before += mass[i]
        mass = {i: m / sum(inside.values()) for i, m in inside.items()}
    if min_p > 0:
        floor = min_p * max(mass.values())
        margin = min([margin, *(abs(m - floor) for m in mass.values() if m != floor)])
        mass = {i: m for i, m in mass.items() if m >= floor}
        mass = {i: m / sum(mass.values()) for i, m in mass.items()}
    probs = np.zeros(len(logits))
    for i, m in mass.items():
        probs[i] = m
    return Filtered(probs, margin)


# Distributions


def sixteenths(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    """Random rows of whole sixteenths, many of them 0, so that float32 sums are exact."""
    parts = np.zeros((rows, vocab), dtype=np.int64)
    for row in parts:
        support = rng.choice(vocab, size=int(rng.integers(1, vocab + 1)), replace=False)
        for token in rng.choice(support, size=16):
            row[token] += 1
    return parts


def right_distribution(tree: DraftTree, sixteenth_rows: np.ndarray, *, parts: int = 16) -> Distribution:
    """Outcomes of a one-row tree when the token after every node is distributed as that node's row (in 1/parts)."""
    tokens, distribution = tree.tokens[0].tolist(), {}

    def descend(node: int, prefix: Prefix, mass: Fraction) -> None:
        child_of = {tokens[child]: child for child in children_of(tree, 0, node)}
        for token, part in enumerate(sixteenth_rows[node].tolist()):
            share = mass * Fraction(part, parts)
            if share and token in child_of:
                descend(child_of[token], (*prefix, token), share)
            elif share:
                distribution[prefix, token] = share

    descend(0, (), Fraction(1))
    return distribution


def distribution_by_cells(
    tree: DraftTree, sixteenth_rows: np.ndarray, verify: Verify, *, parts: int = 16
) -> Distribution:
    """The distribution of a one-row tree under `verify`, integrated exactly over its coins.

    The result is constant between running sums of child probabilities (one coin a node) and between the
    normalised running sums of what the children leave over (the final coin): one call in the middle of each
    cell, weighted by the cell's size, is the integral.
    """
    q = tree.width
    cuts = []
    finals: set[Fraction] = set()
    for node in range(q):
        row = [Fraction(part, parts) for part in sixteenth_rows[node].tolist()]
        children = [int(tree.tokens[0, child]) for child in children_of(tree, 0, node)]
        cuts.append(set(itertools.accumulate(row[token] for token in children)))
        left = [0 if token in children else p for token, p in enumerate(row)]
        left = left if sum(left) else row
        finals |= {c / sum(left) for c in itertools.accumulate(left)}
    axes = [_cells(cut) for cut in (*cuts, finals)]
    cells = list(itertools.product(*axes))
    coins = torch.tensor([[float(middle) for middle, _ in cell] for cell in cells], dtype=torch.float32)
    rows = torch.tensor(sixteenth_rows / parts, dtype=torch.float32)
    batch = repeated(tree, len(cells))
    result = verify(
        batch,
        compile_retrieve(batch),
        rows.expand(len(cells), -1, -1).contiguous(),
        coins[:, :q].contiguous(),
        coins[:, q].contiguous(),
    )
    distribution: Distribution = defaultdict(Fraction)
    for outcome, cell in zip(emitted(result, q), cells, strict=True):
        distribution[outcome[:-1], outcome[-1]] += math.prod((width for _, width in cell), start=Fraction(1))
    return dict(distribution)


def _cells(cuts: set[Fraction]) -> list[tuple[Fraction, Fraction]]:
    edges = sorted({Fraction(0), Fraction(1), *cuts})
    return [((low + high) / 2, high - low) for low, high in itertools.pairwise(edges)]


def emitted(result: VerifyResult, width: int) -> list[Prefix]:
    """Each row's tokens, accepted drafts then the final one, read off the raw result."""
    predict = result.predict.reshape(-1, width).tolist()
    index = result.accept_index.tolist()
    counts = result.accept_count.tolist()
    return [tuple(predict[b][flat - b * width] for flat in index[b][: counts[b] + 1]) for b in range(len(counts))]


def goodness_of_fit(counts: np.ndarray, probs: np.ndarray) -> float:
    """p-value of Pearson's chi-square; cells expected below 5 are pooled, and a count where p = 0 gives 0."""
    counts, probs = np.asarray(counts, dtype=float), np.asarray(probs, dtype=float)
    if counts[probs == 0].any():
        return 0.0
    counts, expected = counts[probs > 0], probs[probs > 0] / probs.sum() * counts.sum()
    small = expected < 5
    if small.any():
        counts = np.append(counts[~small], counts[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    if len(counts) == 1:
        return 1.0
    return float(stats.chisquare(counts, expected).pvalue)
