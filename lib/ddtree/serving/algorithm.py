"""DDTREE as SGLang's scheduler sees it: of the DFLASH family, with the methods that the registry's base leaves out."""

from __future__ import annotations

import os
from typing import Any

from sglang.srt.speculative.spec_registry import CustomSpecAlgo

from ddtree.serving.arguments import refuse_arguments, refuse_block, refuse_model
from ddtree.serving.settings import Settings, verify_width

NAME = "DDTREE"


class DDTreeAlgorithm(CustomSpecAlgo):
    """Aux capture, the drafter's graph and KV reservations follow from the DFLASH family."""

    def is_dflash(self) -> bool:
        return True

    def is_dflash_family(self) -> bool:
        return True

    def supports_target_verify_for_draft(self) -> bool:
        return True

    # The scheduler calls these three of every algorithm; the base class lacks them and the registry does not look.

    def need_topk(self) -> bool:
        return False

    def carries_draft_hidden_states(self) -> bool:
        return False

    def create_future_map(
        self,
        device: Any,
        req_to_token_pool: Any,
        needs_cpu_seq_lens: bool = True,
        needs_confidence_relay: bool = False,
    ) -> Any:
        from sglang.srt.managers.overlap_utils import FutureMap

        return FutureMap(device, self, req_to_token_pool, needs_cpu_seq_lens, needs_confidence_relay)

    def handle_server_args(self, server_args: Any) -> None:
        """Refuse what is not served, before any model is loaded, and set the verify width to budget + 1."""
        from sglang.srt.arg_groups.overrides import attention_backends_of, resolved_view
        from sglang.srt.arg_groups.speculative_hook import _handle_dflash

        view = resolved_view(server_args)
        refuse_arguments(view, attention_backends_of(view))
        refuse_model(server_args.get_model_config())
        width = verify_width(
            Settings.from_environment(os.environ), os.environ, server_args.speculative_num_draft_tokens
        )
        refuse_block(draft_block(server_args), width, server_args.speculative_draft_model_path)
        server_args.speculative_num_draft_tokens = width
        _handle_dflash(server_args)


def draft_block(server_args: Any) -> int | None:
    """The drafter's own block size, read from its config; the verify width says nothing of it."""
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(
        server_args.speculative_draft_model_path,
        trust_remote_code=False,  # a DFlash config is data
        revision=server_args.speculative_draft_model_revision,
    )
    block: int | None = parse_dflash_draft_config(draft_hf_config=config).resolve_block_size(default=None)
    return block


def create_worker(server_args: Any) -> type:
    """The worker's class, imported in the process that runs it."""
    from ddtree.serving.worker import DDTreeWorker

    return DDTreeWorker
