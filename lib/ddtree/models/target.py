"""A Hugging Face causal LM as the target: one pass scores a whole tree; only the accepted path keeps its KV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ddtree.commit import Commit
from ddtree.models.kv_cache import RowCache
from ddtree.retrieve import tree_attention_mask, tree_positions
from ddtree.tree import DraftTree

SHARED_KEYS = "sdpa_shared_keys"  # for CPUs: on CUDA a mask with shared keys takes the slow math path


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [bs, heads, n, d], key and value [bs, kv_heads, keys, d], additive mask; returns [bs, n, heads, d]."""
    is_causal = attention_mask is None and query.shape[2] > 1 and getattr(module, "is_causal", True)
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, is_causal=is_causal, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(SHARED_KEYS, attend)
AttentionMaskInterface.register(SHARED_KEYS, sdpa_mask)  # whoever gives no mask gets the one sdpa would get


def encode_message(tokenizer: Any, message: str) -> list[int]:
    """Token ids, ready for an answer, through the tokenizer's chat template if it has one."""
    if tokenizer.chat_template is None:
        return list(tokenizer(message)["input_ids"])
    turns = [{"role": "user", "content": message}]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])


class Target:
    """The model, its tokenizer, and the layers whose outputs the drafter reads.

    Raises ValueError for a model whose cache cannot be compacted by a row gather (sliding-window, recurrent or
    chunked attention layers).
    """

    def __init__(self, model: Any, tokenizer: Any, *, eos_ids: Sequence[int], feature_layers: Sequence[int] = ()):
        refuse_uncompactable_cache(model.config)
        layers = model.config.num_hidden_layers
        if any(not 0 <= layer < layers for layer in feature_layers):
            raise ValueError(f"feature layers are {list(feature_layers)}; the target has layers 0..{layers - 1}.")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(eos_ids)
        self._feature_layers = list(feature_layers)
        self._captured: dict[int, Tensor] = {}
        for layer in self._feature_layers:
            self._decoder.layers[layer].register_forward_hook(self._capture(layer))

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def vocab_size(self) -> int:
        return self.output_head.out_features

    @property
    def embedding(self) -> Any:
        return self.model.get_input_embeddings()

    @property
    def output_head(self) -> Any:
        return self.model.get_output_embeddings()

    @property
    def _decoder(self) -> Any:
        return self.model.get_decoder()

    def encode(self, message: str) -> list[int]:
        """Token ids of one user message, ready for an answer, through the model's chat template if it has one."""
        return encode_message(self.tokenizer, message)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def open(self, prompts: Sequence[Sequence[int]], *, room: int) -> TargetSession:
        """Prefill all but the last token of each prompt; `room` is how many tokens may follow a prompt."""
        return TargetSession(self, prompts, room)

    def _capture(self, layer: int) -> Any:
        def hook(_module: nn.Module, _args: tuple, output: Any) -> None:
            self._captured[layer] = output[0] if isinstance(output, tuple) else output

        return hook

    def captured(self) -> list[Tensor]:
        """Outputs of the feature layers in the last pass, each [bs, n, hidden]."""
        return [self._captured[layer] for layer in self._feature_layers]


class TargetSession:
    """One batch in progress: committed KV of each row, and the features the drafter has not read yet."""

    def __init__(self, target: Target, prompts: Sequence[Sequence[int]], room: int) -> None:
        longest = max(len(prompt) for prompt in prompts)
        limit = getattr(target.model.config, "max_position_embeddings", None)
        if limit is not None and longest + room > limit:
            raise ValueError(
                f"a prompt of {longest} tokens and {room} more need {longest + room} positions; the model has {limit}."
            )
        _refuse_foreign_ids(prompts, target.embedding.num_embeddings)
        self._target = target
        self.cache = RowCache(target.model.config.num_hidden_layers, len(prompts), longest + room, target.device)
        self._hidden: list[Tensor] = []  # [bs, q, hidden] of each feature layer in the last tree pass
        self.prompt_features, self.prompt_lengths = self._prefill(prompts)

    @property
    def prefix_len(self) -> Tensor:
        """int64 [bs]: tokens of each row whose KV is committed."""
        return self.cache.lengths

    def mask(self, tree: DraftTree) -> Tensor | None:
        """The additive mask of a pass over `tree`, or None for one row of one node, which sees everything."""
        if tree.batch_size == 1 and tree.width == 1:
            return None
        key_len = self.cache.longest + tree.width
        return tree_attention_mask(tree, self.prefix_len, key_len=key_len, dtype=self._target.model.dtype)

    @torch.inference_mode()
    def verify(self, tree: DraftTree, mask: Tensor | None = None) -> Tensor:
        """Score every node in one pass: logits [bs, q, V]; row i judges the children of node i.

        `mask` is what `mask(tree)` gives, for a caller that wants to time it apart.
        """
        mask = self.mask(tree) if mask is None else mask
        positions = tree_positions(tree, self.prefix_len)
        logits = self._target.model(
            input_ids=tree.tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        ).logits
        self._hidden = self._target.captured()  # another session may run a pass before this one commits
        return logits

    @torch.inference_mode()
    def commit(self, commit: Commit, lengths: Sequence[int] | None = None) -> Tensor:
        """Keep KV of the accepted path, in place; returns features [bs, max_depth+1, F] of its nodes (padding: root).

        `lengths` is the host's copy of `commit.lengths`; without it the device is waited for. Without feature layers
        the result has F = 0.
        """
        self.cache.keep(commit.path, commit.lengths, lengths)
        path = commit.path.clamp(min=0)
        if not self._target._feature_layers:
            return torch.zeros(*path.shape, 0, device=path.device)
        rows = [hidden.gather(1, path[:, :, None].expand(-1, -1, hidden.shape[-1])) for hidden in self._hidden]
        return torch.cat(rows, dim=-1)

    def select(self, rows: Tensor) -> None:
        """Go on with these batch rows alone (int64 [n])."""
        self.cache.select(rows)

    @torch.inference_mode()
    def _prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Features [bs, L, F] of all but each prompt's last token, and how many of them are real: int64 [bs].

        The last token is left out because it becomes the first tree's root, whose KV the verify pass writes.
        """
        target = self._target
        counts = [len(prompt) - 1 for prompt in prompts]
        n = max(counts)
        lengths = torch.tensor(counts, device=target.device)
        if n == 0:
            hidden = len(target._feature_layers) * target.model.config.hidden_size
            return torch.zeros(len(prompts), 0, hidden, dtype=target.model.dtype, device=target.device), lengths
        padded = [[*prompt[:-1], *[0] * (n - count)] for prompt, count in zip(prompts, counts, strict=True)]
        steps = torch.arange(n, device=target.device)
        blocked = torch.full(
            (n, n), torch.finfo(target.model.dtype).min, dtype=target.model.dtype, device=target.device
        )
        target._decoder(
            input_ids=torch.tensor(padded, device=target.device),
            attention_mask=blocked.triu(diagonal=1).expand(len(prompts), 1, n, n),  # padding stands after what is real
            position_ids=steps.expand(len(prompts), n),
            past_key_values=self.cache,
            use_cache=True,
        )
        self.cache.advance(lengths)
        features = torch.cat(target.captured(), dim=-1) if target._feature_layers else torch.zeros(len(prompts), n, 0)
        return features, lengths


def _refuse_foreign_ids(prompts: Sequence[Sequence[int]], vocab: int) -> None:
    """ValueError for an id the embedding has no row for: a GPU would end in an assertion that ends the process."""
    for number, prompt in enumerate(prompts):
        for place, token in enumerate(prompt):
            if not 0 <= token < vocab:
                raise ValueError(
                    f"prompt {number} has token {token} at place {place}; the target has ids 0..{vocab - 1}."
                )


def refuse_uncompactable_cache(config: Any) -> None:
    """ValueError unless every layer is full attention, whose KV rows can be gathered one by one.

    A config is enough: nothing here needs weights.
    """
    if _is_recurrent(config):
        raise ValueError(
            f"the target is of the recurrent kind {config.model_type}; its state cannot be taken back to the accepted "
            "path, and a tree is committed by gathering KV rows. Use a full-attention model."
        )
    kinds = set(getattr(config, "layer_types", None) or [_kind_of_every_layer(config)])
    if kinds != {"full_attention"}:
        raise ValueError(
            f"the target has layers of kind {sorted(kinds - {'full_attention'})}; a tree is committed by gathering KV "
            "rows, which sliding-window, chunked and recurrent layers do not allow. Use a full-attention model."
        )


def _is_recurrent(config: Any) -> bool:
    """Whether transformers itself says that this model's state cannot be rolled back."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return bool(getattr(model_class, "_is_stateful", False))


def _kind_of_every_layer(config: Any) -> str:
    """What transformers' own cache assumes of a config that does not list its layers."""
    if getattr(config, "sliding_window", None) is not None:
        return "sliding_attention"
    if getattr(config, "attention_chunk_size", None) is not None:
        return "chunked_attention"
    return "full_attention"
