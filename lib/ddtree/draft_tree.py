"""A batch of draft trees, a parent before its children, padded to one width; what is no tree is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class DraftTree:
    """A batch of draft trees, padded to one width q = budget + 1.

    Node 0 is the root: the last committed token, whose KV is not yet in the cache. Slots from
    `sizes[b]` on are padding: token 0, parent -1, depth 0, log-weight -inf; nothing links to them.
    """

    tokens: Tensor  # int64 [bs, q]
    parents: Tensor  # int64 [bs, q], local; -1 at the root and at padding
    depths: Tensor  # int64 [bs, q], 0 at the root
    node_logws: Tensor  # float32 [bs, q], cumulative draft log-probability in nats, 0 at the root
    sizes: Tensor  # int64 [bs], nodes of each tree, root included
    max_depth: int  # no node lies deeper; a walk accepts at most this many drafts

    def __post_init__(self) -> None:
        """Raises ValueError for a tensor of another dtype or shape; a kernel would read it as something else."""
        if self.tokens.ndim != 2:
            raise ValueError(f"DraftTree.tokens has shape {list(self.tokens.shape)}; it must be [bs, q].")
        long, (bs, q) = torch.int64, self.tokens.shape
        for name, tensor, dtype, shape in (
            ("tokens", self.tokens, long, (bs, q)),
            ("parents", self.parents, long, (bs, q)),
            ("depths", self.depths, long, (bs, q)),
            ("node_logws", self.node_logws, torch.float32, (bs, q)),
            ("sizes", self.sizes, long, (bs,)),
        ):
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(
                    f"DraftTree.{name} is {tensor.dtype} {list(tensor.shape)}; it must be {dtype} {list(shape)}."
                )

    @property
    def batch_size(self) -> int:
        return self.tokens.shape[0]

    @property
    def width(self) -> int:
        return self.tokens.shape[1]

    @classmethod
    def from_parents(
        cls,
        tokens: Sequence[Sequence[int]],
        parents: Sequence[Sequence[int]],
        node_logws: Sequence[Sequence[float]],
        width: int | None = None,
    ) -> DraftTree:
        """A tree written by hand: one list per row, ragged rows padded to `width` (default: the widest row).

        Raises ValueError, naming row and node, for rows of different length, a parent that does not stand
        before its child (which also rules out cycles), two siblings with one token, or a width too small.
        """
        if not len(tokens) == len(parents) == len(node_logws):
            raise ValueError(
                f"from_parents needs as many rows of tokens, parents and node_logws; found {len(tokens)}, "
                f"{len(parents)} and {len(node_logws)}."
            )
        depths = [
            _checked_depths(row, *lists) for row, lists in enumerate(zip(tokens, parents, node_logws, strict=True))
        ]
        widest = max((len(row) for row in tokens), default=1)
        width = widest if width is None else width
        if width < widest:
            raise ValueError(f"width is {width}, but the largest tree has {widest} nodes; give at least that.")

        def padded(rows: Sequence[Sequence[float]], fill: float, dtype: torch.dtype) -> Tensor:
            full = [[*row, *[fill] * (width - len(row))] for row in rows]
            return torch.tensor(full, dtype=dtype).reshape(len(rows), width)

        return cls(
            tokens=padded(tokens, 0, torch.int64),
            parents=padded(parents, -1, torch.int64),
            depths=padded(depths, 0, torch.int64),
            node_logws=padded(node_logws, -torch.inf, torch.float32),
            sizes=torch.tensor([len(row) for row in tokens], dtype=torch.int64),
            max_depth=max((max(row) for row in depths), default=0),
        )

    def cut(self, sizes: Tensor) -> DraftTree:
        """The first `sizes[b]` nodes (int64 [bs], root included) of each tree, padded to the largest of them.

        A parent stands before its children, so what is left is a tree: the one that a smaller budget would have built.
        """
        sizes = torch.minimum(sizes.clamp(min=1), self.sizes)
        width = int(sizes.max())
        gone = torch.arange(width, device=sizes.device) >= sizes[:, None]
        return DraftTree(
            tokens=self.tokens[:, :width].masked_fill(gone, 0),
            parents=self.parents[:, :width].masked_fill(gone, -1),
            depths=self.depths[:, :width].masked_fill(gone, 0),
            node_logws=self.node_logws[:, :width].masked_fill(gone, -torch.inf),
            sizes=sizes,
            max_depth=min(self.max_depth, width - 1),
        )

    def to(self, device: torch.device | str) -> DraftTree:
        """The same trees on another device."""
        return DraftTree(
            tokens=self.tokens.to(device),
            parents=self.parents.to(device),
            depths=self.depths.to(device),
            node_logws=self.node_logws.to(device),
            sizes=self.sizes.to(device),
            max_depth=self.max_depth,
        )


def _checked_depths(row: int, tokens: Sequence[int], parents: Sequence[int], node_logws: Sequence[float]) -> list[int]:
    if not len(tokens) == len(parents) == len(node_logws) or not tokens:
        raise ValueError(
            f"row {row} needs the same number of tokens, parents and node_logws, and at least a root; found "
            f"{len(tokens)}, {len(parents)} and {len(node_logws)}."
        )
    if parents[0] != -1:
        raise ValueError(f"row {row}: node 0 is the root, so its parent must be -1; found {parents[0]}.")
    depths = [0]
    seen: set[tuple[int, int]] = set()
    for node, (token, parent) in enumerate(zip(tokens[1:], parents[1:], strict=True), start=1):
        if not 0 <= parent < node:
            raise ValueError(
                f"row {row}: node {node} has parent {parent}, but a parent stands before its child, so it must "
                f"be in 0..{node - 1}."
            )
        if token < 0:
            raise ValueError(f"row {row}: node {node} has token {token}; a token id is at least 0.")
        if (parent, token) in seen:
            raise ValueError(
                f"row {row}: node {node} repeats token {token} among the children of node {parent}; siblings "
                "must differ, or that token's probability would count twice."
            )
        seen.add((parent, token))
        depths.append(depths[parent] + 1)
    return depths
