"""The command line and environment of one server; nothing in them depends on the machine but folders and ports."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ddtree.workbook.params import ServingParams
from ddtree.workbook.serving.folders import Models
from ddtree.workbook.serving.plan import Planned


def arguments(planned: Planned, params: ServingParams, models: Models, *, port: int, nccl_port: int) -> list[str]:
    """What follows the program. `params.server_arguments` come last, so they win; texts are split as a shell would."""
    given: dict[str, str | bool | int | float] = {
        "model_path": shlex.quote(str(models.target)),
        "host": "127.0.0.1",
        "port": port,
        "nccl_port": nccl_port,
        "tp_size": params.tp,
        "random_seed": params.seed % 2**31,
        "cuda_graph_bs_decode": " ".join(map(str, graph_sizes(params.batches))),
    }
    if planned.method != "plain":
        given |= {
            "speculative_algorithm": planned.method.upper(),
            "speculative_draft_model_path": shlex.quote(str(models.drafter)),
            "speculative_draft_attention_backend": "triton",
        }
    if planned.method == "dflash":
        given["speculative_num_draft_tokens"] = models.block_size
    return [part for name, value in (given | params.server_arguments).items() for part in _argument(name, value)]


def variables(planned: Planned, params: ServingParams) -> dict[str, str]:
    """DDTREE's settings, which SGLang's command line has no place for; none for other servers."""
    if planned.method != "ddtree":
        return {}
    return {
        "DDTREE_BUDGET": str(planned.budget),
        "DDTREE_TOPK_CAP": str(planned.topk_cap),
        "DDTREE_DRAFT_TEMPERATURE": str(params.draft_temperature),
    }


def graph_sizes(batches: Sequence[int]) -> list[int]:
    """Batches that decode under a CUDA graph: those asked, and powers of two below, for requests that end first."""
    powers = {2**power for power in range(max(batches).bit_length()) if 2**power <= max(batches)}
    return sorted(powers | set(batches))


def shown(program: Sequence[str], words: Sequence[str], environment: dict[str, str]) -> str:
    """The command as one types it, folders by their last name."""
    names = [f"{name}={value}" for name, value in environment.items()]
    plain = [Path(word).name if word.startswith("/") else word for word in (*names, *program, *words)]
    return shlex.join(plain)


def _argument(name: str, value: str | bool | int | float) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag] if value else []
    return [flag, *(shlex.split(value) if isinstance(value, str) else [str(value)])]
