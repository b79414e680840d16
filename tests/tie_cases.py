"""Verify calls whose coins lie on a border, by name, each with the tokens that the contract fixes.

Rows are in powers of two unless a case is about rounding, so sums are exact and one answer is right on any machine.
Where float32 and float64 sums part, the case says why and holds every answer that rounding can give.
"""

from dataclasses import dataclass

import torch
from ddtree.retrieve import RetrieveTables, compile_retrieve
from ddtree.tree import DraftTree
from ddtree.verify import VerifyResult
from oracles import Prefix, emitted
from torch import Tensor

VOCAB = 12
BELOW_ONE = 1 - 2**-24  # the float32 next below 1
SUBNORMAL = 2**-149  # the smallest float32 above 0
Row = dict[int, float]  # token -> probability, 0 elsewhere
ANY: Row = {0: 0.5, 11: 0.5}  # of a node whose row does not matter


@dataclass(frozen=True)
class TieCase:
    """One call on one tree. `tokens` are what it emits; more than one answer only with a reason, `why`."""

    name: str
    root: Row
    coin: float  # the root's
    final: float
    tokens: frozenset[Prefix]
    why: str = ""
    below: Row | None = None  # the row of every other node; ANY if not said
    below_coin: float = 0.5
    tree: str = "fork"

    def __post_init__(self) -> None:
        assert (len(self.tokens) > 1) == bool(self.why), "several answers need a reason, one needs none"

    def arguments(self) -> tuple[DraftTree, RetrieveTables, Tensor, Tensor, Tensor]:
        """What `verify_tree` takes."""
        tree = TREES[self.tree]
        probs = torch.zeros(1, tree.width, VOCAB)
        for node in range(tree.width):
            for token, p in (self.root if node == 0 else self.below or ANY).items():
                probs[0, node, token] = p
        coins = torch.full((1, tree.width), self.below_coin)
        coins[0, 0] = self.coin
        return tree, compile_retrieve(tree), probs, coins, torch.tensor([self.final])

    def check(self, result: VerifyResult) -> Prefix:
        """The tokens that `result` emits, once they are found to be right and to be marked on an accepted path."""
        tree = TREES[self.tree]
        (found,) = emitted(result, tree.width)
        assert found in self.tokens, f"{self.name}: {found} was emitted, right is {sorted(self.tokens)}. {self.why}"
        assert result.accept_count.tolist() == [len(found) - 1]
        assert (result.accept_index >= 0).sum().item() == len(found)
        assert (result.predict >= 0).sum().item() == len(found)
        return found


TREES = {
    # Root; children 3, then 5; below 3 a child 2.
    "fork": DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 1]], [[0.0, -0.5, -1.0, -0.9]]),
    # Children of one weight, which stand in the order of the array.
    "twins": DraftTree.from_parents([[9, 5, 3]], [[-1, 0, 0]], [[0.0, -0.7, -0.7]]),
    # The vocabulary's last id is a child.
    "last id": DraftTree.from_parents([[9, 11, 3]], [[-1, 0, 0]], [[0.0, -0.5, -1.0]]),
    "chain": DraftTree.from_parents([[9, 3, 3, 3]], [[-1, 0, 1, 2]], [[0.0, -0.5, -1.0, -1.5]]),
    "root": DraftTree.from_parents([[9]], [[-1]], [[0.0]]),
    "three": DraftTree.from_parents([[9, 3, 5, 2]], [[-1, 0, 0, 0]], [[0.0, -0.5, -1.0, -1.5]]),
}


def _one(name: str, root: Row, coin: float, final: float, *tokens: int, **more: object) -> TieCase:
    return TieCase(name, root, coin, final, frozenset([tokens]), **more)  # type: ignore[arg-type]


def _some(name: str, root: Row, coin: float, final: float, answers: list[Prefix], why: str, tree: str) -> TieCase:
    return TieCase(name, root, coin, final, frozenset(answers), why, tree=tree)


HALVES: Row = {3: 0.5, 5: 0.25, 6: 0.25}
TENTHS: Row = dict.fromkeys(range(10), 0.1)

TIE_CASES = (
    _one("coin on the first running sum", HALVES, 0.5, 0.25, 5, 0),
    _one("coin next below the first running sum", HALVES, 0.5 - 2**-25, 0.25, 3, 0),
    _one("coin on the last running sum", HALVES, 0.75, 0.25, 6),
    _one("coin next below the last running sum", HALVES, 0.75 - 2**-24, 0.25, 5, 0),
    _one("coin 0", HALVES, 0.0, 0.25, 3, 0),
    _one("coin 0, first child of probability 0", {0: 0.5, 5: 0.25, 6: 0.25}, 0.0, 0.25, 5, 0),
    _one("coin 0, every child of probability 0", {0: 0.5, 6: 0.5}, 0.0, 0.5, 6),
    _one("smallest coin above 0, first child of probability 0", {0: 0.5, 5: 0.5}, SUBNORMAL, 0.25, 5, 0),
    _one("smallest coin above 0", HALVES, SUBNORMAL, 0.25, 3, 0),
    _one("first child of probability 0, coin on the second's sum", {0: 0.5, 5: 0.5}, 0.5, 0.25, 0),
    _one("coin next below 1, children hold everything", {3: 0.5, 5: 0.5}, BELOW_ONE, 0.25, 5, 0),
    _one("coin next below 1, children hold almost everything", {3: 0.5, 5: 0.5 - 2**-10, 7: 2**-10}, BELOW_ONE, 0.5, 7),
    _one("children exhaust the support by rounding, low coin", {3: 0.6, 5: 0.399999}, BELOW_ONE, 0.3, 3),
    _one("children exhaust the support by rounding, high coin", {3: 0.6, 5: 0.399999}, BELOW_ONE, 0.8, 5),
    _one("one child exhausts the support by rounding", {3: 0.999999}, BELOW_ONE, BELOW_ONE, 3),
    _one("final coin 0", HALVES, 0.75, 0.0, 6),
    _one("final coin 0 skips ids of probability 0", {4: 0.5, 8: 0.5}, 0.5, 0.0, 4),
    _one("final coin on a border of the sums", {4: 0.5, 8: 0.5}, 0.5, 0.5, 8),
    _one("final coin next below a border", {4: 0.5, 8: 0.5}, 0.5, 0.5 - 2**-25, 4),
    _one("final coin on a border, children removed", {3: 0.5, 4: 0.125, 6: 0.125, 8: 0.25}, 0.5, 0.25, 6),
    _one("final coin next below 1 skips the last ids, which are impossible", {4: 0.5, 8: 0.5}, 0.5, BELOW_ONE, 8),
    _one("one-hot row on a child, coin 0", {3: 1.0}, 0.0, 0.25, 3, 0),
    _one("one-hot row on a child, coin next below 1", {3: 1.0}, BELOW_ONE, 0.25, 3, 0),
    _one("one-hot row on the second child, coin 0", {5: 1.0}, 0.0, 0.25, 5, 0),
    _one("one-hot row on no child, coin 0", {7: 1.0}, 0.0, BELOW_ONE, 7),
    _one("one-hot rows to the deepest leaf", {3: 1.0}, 0.5, 0.25, 3, 2, 2, below={2: 1.0}),
    _one("equal siblings, coin 0", {3: 0.25, 5: 0.25, 7: 0.5}, 0.0, 0.25, 5, 0, tree="twins"),
    _one("equal siblings, coin on the first's sum", {3: 0.25, 5: 0.25, 7: 0.5}, 0.25, 0.25, 3, 0, tree="twins"),
    _one("equal siblings, coin on the second's sum", {3: 0.25, 5: 0.25, 7: 0.5}, 0.5, 0.25, 7, tree="twins"),
    _one("last id is a rejected child", {11: 0.25, 3: 0.25, 7: 0.5}, 0.5, BELOW_ONE, 7, tree="last id"),
    _one("last id is an accepted child", {11: 0.25, 3: 0.25, 7: 0.5}, 0.0, 0.25, 11, 0, tree="last id"),
    _one("last id is a child, support exhausted", {11: 0.399999, 3: 0.6}, BELOW_ONE, 0.3, 3, tree="last id"),
    _one("last id is a child of probability 0, support exhausted", {3: 0.999999}, BELOW_ONE, 0.3, 3, tree="last id"),
    _one("last id is what is left", {3: 0.5, 5: 0.25, 11: 0.25}, 0.75, BELOW_ONE, 11),
    _one("leaf at full depth, final coin 0", {3: 1.0}, 0.5, 0.0, 3, 3, 3, 3, below={3: 0.75, 4: 0.25}, tree="chain"),
    _one("leaf at full depth, on a border", {3: 1.0}, 0.5, 0.75, 3, 3, 3, 4, below={3: 0.75, 4: 0.25}, tree="chain"),
    _one(
        "coin of a deeper node on its sum",
        {3: 1.0},
        0.5,
        0.0,
        3,
        4,
        below={3: 0.75, 4: 0.25},
        below_coin=0.75,
        tree="chain",
    ),
    _one("root alone, final coin 0", {4: 0.5, 8: 0.5}, 0.5, 0.0, 4, tree="root"),
    _one("root alone, on a border", {4: 0.5, 8: 0.5}, 0.0, 0.5, 8, tree="root"),
    _one("coin on a running sum that float32 rounds", {3: 0.1, 5: 0.1, 2: 0.1, 7: 0.7}, 0.3, 0.5, 7, tree="three"),
    _some(
        "final coin near a border of sums that float32 rounds",
        TENTHS,
        0.5,
        0.7,
        [(6,), (7,)],
        "0.7 of ten tenths: in float64 the seventh sum lies above the coin's share or below it by 1e-8, in float32 by "
        "an ulp that depends on the order of summation.",
        "root",
    ),
    _some(
        "child whose probability is subnormal, coin 0",
        {3: 2**-140, 6: 1.0},
        0.0,
        0.5,
        [(3, 11), (6,)],
        "A GPU may flush a probability below 2^-126 to 0; the reference takes the child.",
        "fork",
    ),
)
