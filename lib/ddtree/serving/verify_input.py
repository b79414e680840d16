"""The verify's input in SGLang's terms: q nodes a request, positions by depth, and always a mask."""

from __future__ import annotations

from dataclasses import dataclass

from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from torch import Tensor

from ddtree.draft_tree import DraftTree
from ddtree.retrieve import tree_positions


@dataclass
class DDTreeVerifyInput(DFlashVerifyInput):
    """Nodes of one batch; `draft_token` is the flattened tree, root first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.custom_mask is None:
            raise ValueError("a tree's verify without a mask would let siblings see one another; give custom_mask.")

    @classmethod
    def of(cls, tree: DraftTree, prefix_len: Tensor, mask: Tensor) -> DDTreeVerifyInput:
        """`mask` uint8: where `write_tree_mask` wrote."""
        return cls(
            draft_token=tree.tokens.reshape(-1),
            positions=tree_positions(tree, prefix_len).reshape(-1),
            draft_token_num=tree.width,
            custom_mask=mask,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
