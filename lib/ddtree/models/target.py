"""Run a Hugging Face causal LM as the target: one pass scores a whole tree; only the accepted path keeps its KV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    """Attention whose query heads share keys without copies of them.

    query [bs, heads, n, d], key and value [bs, kv_heads, keys, d], additive mask; returns [bs, n, heads, d].
    """
    is_causal = attention_mask is None and query.shape[2] > 1 and getattr(module, "is_causal", True)
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, is_causal=is_causal, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(SHARED_KEYS, attend)
AttentionMaskInterface.register(SHARED_KEYS, sdpa_mask)  # a caller without a mask gets the one sdpa would get


def encode_chat(tokenizer: Any, message: str) -> list[int]:
    """Token ids of one user message, ready for an answer, through the tokenizer's chat template if it has one."""
    if tokenizer.chat_template is None:
        return list(tokenizer(message)["input_ids"])
    turns = [{"role": "user", "content": message}]
    return list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)["input_ids"])


class Target:
    """The model, its tokenizer, and the layers whose outputs are the drafter's features.

    Raises ValueError for a model whose cache cannot be compacted by a row gather (sliding-window, recurrent or
    chunked attention layers), and for feature layers that the model does not have.
    """

    def __init__(self, model: Any, tokenizer: Any, *, eos_ids: Sequence[int], feature_layers: Sequence[int] = ()):
        require_full_attention(model.config)
        layers = model.config.num_hidden_layers
        if any(not 0 <= layer < layers for layer in feature_layers):
            raise ValueError(f"feature layers are {list(feature_layers)}; the target has layers 0..{layers - 1}.")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(eos_ids)
        self.feature_layers = tuple(feature_layers)

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def embedding(self) -> Any:
        return self.model.get_input_embeddings()

    @property
    def output_head(self) -> Any:
        return self.model.get_output_embeddings()

    def encode(self, message: str) -> list[int]:
        """`encode_chat` with the model's own tokenizer."""
        return encode_chat(self.tokenizer, message)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""
        return self.tokenizer.decode(tokens, skip_special_tokens=True)

    def open(self, prompts: Sequence[Sequence[int]], *, room: int) -> TargetSession:
        """Prefill all but the last token of each prompt; `room` is how many tokens may follow a prompt."""
        return TargetSession(self, prompts, room)

    def score(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache
    ) -> tuple[Tensor, list[Tensor]]:
        """Logits [bs, n, V] of one pass over `tokens` (int64 [bs, n]), and each feature layer's output [bs, n, hidden].

        `mask` is additive, [bs, 1, n, keys]; the pass appends n rows to `cache`.
        """
        with self._feature_outputs() as outputs:
            logits = self._run(self.model, tokens, positions, mask, cache).logits
        return logits, outputs

    def prefill(self, tokens: Tensor, positions: Tensor, mask: Tensor, cache: RowCache) -> list[Tensor]:
        """`score` without the logits: only each feature layer's output."""
        with self._feature_outputs() as outputs:
            self._run(self.model.get_decoder(), tokens, positions, mask, cache)
        return outputs

    @staticmethod
    def _run(module: Any, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: RowCache) -> Any:
        return module(
            input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )

    @contextmanager
    def _feature_outputs(self) -> Iterator[list[Tensor]]:
        """Collect the feature layers' outputs of the pass run inside, in the order of `feature_layers`.

        Hooks are there during the pass only, so nothing is kept by the model, or hooked twice by a second Target.
        """
        outputs: list[Any] = [None] * len(self.feature_layers)
        layers = self.model.get_decoder().layers
        handles = [
            layers[layer].register_forward_hook(_store_output(outputs, place))
            for place, layer in enumerate(self.feature_layers)
        ]
        try:
            yield outputs
        finally:
            for handle in handles:
                handle.remove()


def _store_output(outputs: list[Any], place: int) -> Any:
    def hook(_module: nn.Module, _args: tuple, output: Any) -> None:
        outputs[place] = output[0] if isinstance(output, tuple) else output

    return hook


class TargetSession:
    """One batch in progress: committed KV of each row, and the features of the last tree pass."""

    def __init__(self, target: Target, prompts: Sequence[Sequence[int]], room: int) -> None:
        longest = max(len(prompt) for prompt in prompts)
        limit = getattr(target.model.config, "max_position_embeddings", None)
        if limit is not None and longest + room > limit:
            raise ValueError(
                f"a prompt of {longest} tokens and {room} more need {longest + room} positions; the model has {limit}."
            )
        _check_token_ids(prompts, target.embedding.num_embeddings)
        self._target = target
        self.cache = RowCache(target.model.config.num_hidden_layers, len(prompts), longest + room, target.device)
        self._hidden: list[Tensor] = []  # [bs, q, hidden] of each feature layer in the last tree pass
        self.prompt_features, self.prompt_lengths = self._prefill(prompts)

    @property
    def prefix_len(self) -> Tensor:
        """int64 [bs]: tokens of each row whose KV is committed."""
        return self.cache.lengths

    def mask(self, tree: DraftTree) -> Tensor | None:
        """The additive mask of a pass over `tree`, or None for one row of one node, which attends to every key."""
        if tree.batch_size == 1 and tree.width == 1:
            return None
        key_len = self.cache.longest + tree.width
        return tree_attention_mask(tree, self.prefix_len, key_len=key_len, dtype=self._target.model.dtype)

    @torch.inference_mode()
    def verify(self, tree: DraftTree, mask: Tensor | None = None) -> Tensor:
        """Score every node in one pass: logits [bs, q, V]; row i is the distribution of node i's children.

        `mask` is what `mask(tree)` gives, for a caller that times it separately.
        """
        mask = self.mask(tree) if mask is None else mask
        logits, self._hidden = self._target.score(tree.tokens, tree_positions(tree, self.prefix_len), mask, self.cache)
        return logits

    @torch.inference_mode()
    def commit(self, commit: Commit, lengths: Sequence[int] | None = None) -> Tensor:
        """Keep KV of the accepted path, in place; returns features [bs, max_depth+1, F] of its nodes (padding: root).

        `lengths` is the host's copy of `commit.lengths`; without it the device is waited for. Without feature layers
        the result has F = 0.
        """
        self.cache.keep(commit.path, commit.lengths, lengths)
        path = commit.path.clamp(min=0)
        if not self._target.feature_layers:
            return torch.zeros(*path.shape, 0, device=path.device)
        rows = [hidden.gather(1, path[:, :, None].expand(-1, -1, hidden.shape[-1])) for hidden in self._hidden]
        return torch.cat(rows, dim=-1)

    def select(self, rows: Tensor) -> None:
        """Keep only these batch rows (int64 [n])."""
        self.cache.select(rows)

    @torch.inference_mode()
    def _prefill(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Features [bs, L, F] of all but each prompt's last token, and how many of them are real: int64 [bs].

        The last token is left out because it becomes the first tree's root, whose KV the verify pass writes.
        """
        target = self._target
        device, dtype = target.device, target.model.dtype
        counts = [len(prompt) - 1 for prompt in prompts]
        bs, n = len(prompts), max(counts)
        lengths = torch.tensor(counts, device=device)
        if n == 0:
            width = len(target.feature_layers) * target.model.config.hidden_size
            return torch.zeros(bs, 0, width, dtype=dtype, device=device), lengths
        padded = [[*prompt[:-1], *[0] * (n - count)] for prompt, count in zip(prompts, counts, strict=True)]
        causal = torch.full((n, n), torch.finfo(dtype).min, dtype=dtype, device=device).triu(diagonal=1)
        outputs = target.prefill(
            torch.tensor(padded, device=device),
            torch.arange(n, device=device).expand(bs, n),
            causal.expand(bs, 1, n, n),  # padding comes after a prompt's own tokens, so they do not attend to it
            self.cache,
        )
        self.cache.advance(lengths)
        return torch.cat(outputs, dim=-1) if outputs else torch.zeros(bs, n, 0), lengths


def _check_token_ids(prompts: Sequence[Sequence[int]], vocab: int) -> None:
    """Raises ValueError for an id without a row in the embedding: on a GPU an assertion would end the process."""
    for number, prompt in enumerate(prompts):
        for place, token in enumerate(prompt):
            if not 0 <= token < vocab:
                raise ValueError(
                    f"prompt {number} has token {token} at place {place}; the target has ids 0..{vocab - 1}."
                )


def require_full_attention(config: Any) -> None:
    """Raises ValueError unless every layer is full attention, whose KV rows can be gathered one by one.

    Reads the config only, so a caller can check it before weights load.
    """
    if _is_recurrent(config):
        raise ValueError(
            f"the target is of the recurrent kind {config.model_type}; its state cannot be rolled back to the accepted "
            "path, and a tree is committed by gathering KV rows. Use a full-attention model."
        )
    kinds = set(getattr(config, "layer_types", None) or [_kind_of_every_layer(config)])
    if kinds != {"full_attention"}:
        raise ValueError(
            f"the target has layers of kind {sorted(kinds - {'full_attention'})}; a tree is committed by gathering KV "
            "rows, which sliding-window, chunked and recurrent layers do not allow. Use a full-attention model."
        )


def _is_recurrent(config: Any) -> bool:
    """Whether transformers marks the model's class as one whose state cannot be rolled back."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return bool(getattr(model_class, "_is_stateful", False))


def _kind_of_every_layer(config: Any) -> str:
    """The kind that transformers' own cache assumes for a config without `layer_types`."""
    if getattr(config, "sliding_window", None) is not None:
        return "sliding_attention"
    if getattr(config, "attention_chunk_size", None) is not None:
        return "chunked_attention"
    return "full_attention"
