"""One group of servers as the measurement gets it: started over deepened folders, or attached to by URL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddtree.workbook.machine import git_revision
from ddtree.workbook.params import ServingParams
from ddtree.workbook.serving.ask import Server
from ddtree.workbook.serving.command import arguments, shown, variables
from ddtree.workbook.serving.folders import layers_of, models
from ddtree.workbook.serving.launch import Launch, Running, attached, free_ports, started
from ddtree.workbook.serving.plan import Planned, planned

Rows = list[dict[str, Any]]


@contextlib.contextmanager
def group(
    params: ServingParams,
    extra_layers: int,
    folders: tuple[Path, Path],
    logs: Path,
    program: Sequence[str],
    say: Callable[[str], object],
) -> Iterator[tuple[list[Server], Rows]]:
    """The group's servers, and their rows of the record."""
    plans = planned(params, extra_layers)
    if params.urls:
        layers = layers_of(folders[0]) + extra_layers
        with attached(params.urls, timeout_s=params.start_timeout_s) as running:
            yield _servers(plans, running, layers, {}, attached_to=params.urls)
        return
    with models(*folders, extra_layers) as pair:
        ports = free_ports(2 * len(plans))
        launches, commands = [], {}
        for plan, port, nccl_port in zip(plans, ports[::2], ports[1::2], strict=True):
            words = arguments(plan, params, pair, port=port, nccl_port=nccl_port)
            environment = variables(plan, params)
            commands[plan.name] = shown(program, words, environment)
            log = logs / f"{plan.name}-{extra_layers}.log"
            launches.append(Launch(plan.name, (*program, *words), environment, port, log))
        with started(launches, timeout_s=params.start_timeout_s, say=say) as running:
            yield _servers(plans, running, pair.layers, commands, attached_to={})


def _servers(
    plans: Sequence[Planned],
    running: Sequence[Running],
    layers: int,
    commands: Mapping[str, str],
    *,
    attached_to: Mapping[str, str],
) -> tuple[list[Server], Rows]:
    servers = [Server(plan, run) for plan, run in zip(plans, running, strict=True)]
    # Of each row, since a record may be added to on another day, by other code.
    made = {"git_revision": git_revision(), "ready_utc": datetime.now(UTC).isoformat(timespec="seconds")}
    rows = [
        {
            "name": server.name,
            "method": server.planned.method,
            "budget": server.planned.budget,
            "topk_cap": server.planned.topk_cap,
            "extra_layers": server.planned.extra_layers,
            "layers": layers,
            "command": commands.get(server.name, ""),
            "start_s": server.running.start_s,
            "url": attached_to.get(server.name),
            **made,
        }
        for server in servers
    ]
    return servers, rows
