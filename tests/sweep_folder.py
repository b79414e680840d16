"""Sweep folders of made-up rounds: a small model of acceptance and cost, so that findings are known beforehand."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ddtree.workbook.params import LiveParams
from ddtree.workbook.records import write_result, write_traces

STAGES = ("draft", "build", "compile", "verify", "sample", "commit")
FAILURE = "cell 7 raised OutOfMemoryError: no room for the cache"


def cell_id(temperature: float, budget: int | str, topk_cap: int = 4, seed: int = 0) -> str:
    return f"temperature-{temperature:g}_budget-{budget}_topk_cap-{topk_cap}_seed-{seed}"


def write_sweep(
    folder: Path,
    temperatures: Sequence[float] = (0.0, 0.6, 1.0),
    budgets: Sequence[int | str] = (4, 16, "auto"),
    topk_caps: Sequence[int] = (4,),
    seeds: Sequence[int] = (0,),
    *,
    not_run: Sequence[str] = (),
    failed: Sequence[str] = (),
    prompts: int = 4,
    tokens: int = 48,
) -> Path:
    """A sweep of every combination, without the results of the cells named in `not_run` and `failed`."""
    cells = []
    for temperature in temperatures:
        for budget in budgets:
            for cap in topk_caps:
                for seed in seeds:
                    name = cell_id(temperature, budget, cap, seed)
                    values = {"temperatures": [temperature], "budget": budget, "topk_cap": cap, "seed": seed}
                    params = live_params(**values, prompts=[f"prompt {i}" for i in range(prompts)])
                    cells.append({"id": name, "params": params})
                    if name in failed:
                        write_failed(folder / "cells" / name)
                    elif name not in not_run:
                        write_cell(folder / "cells" / name, params, tokens)
    axes = {
        "temperatures": list(temperatures),
        "budget": list(budgets),
        "topk_cap": list(topk_caps),
        "seed": list(seeds),
    }
    plan = {"schema": 1, "file": "made-up.yaml", "notebook": "03_live", "axes": axes, "cells": cells}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sweep.json").write_text(json.dumps(plan))
    return folder


def live_params(**values: Any) -> dict[str, Any]:
    """All parameters of 03_live but `threads`, as a plan holds them."""
    return {
        name: value
        for name, value in {**LiveParams.defaults(), "extra_budgets": [], **values}.items()
        if name != "threads"
    }


def write_failed(folder: Path) -> None:
    folder.mkdir(parents=True)
    error = {"output_type": "error", "ename": "OutOfMemoryError", "evalue": "no room", "traceback": []}
    cells = [{"cell_type": "code", "outputs": [error]}]
    (folder / "executed.ipynb").write_text(json.dumps({"cells": cells, "metadata": {"ddtree": {"failure": FAILURE}}}))


def write_cell(folder: Path, params: dict[str, Any], tokens: int) -> None:
    write_traces(folder, "rounds", made_up_rounds(params, tokens))
    metrics = {"complete": True, "prompts_done": len(params["prompts"]), "prompts_planned": len(params["prompts"])}
    write_result(folder, notebook="03_live", params=LiveParams(), metrics=metrics, wall_s=1.0)


def made_up_rounds(params: dict[str, Any], tokens: int) -> pd.DataFrame:
    """Acceptance falls with entropy, entropy rises with temperature, and verify costs a little for every node."""
    (temperature,) = params["temperatures"]
    budget, cap = params["budget"], params["topk_cap"]
    nodes = 64 if budget == "auto" else budget
    decoders = [
        ("autoregressive", "autoregressive", 0, 0),
        ("chain", "chain", 0, 1),
        (f"tree {budget}/{cap}", "tree", nodes, nodes),
    ]
    stream = np.random.default_rng([params["seed"], int(100 * temperature), nodes])
    rows = []
    for prompt in range(len(params["prompts"])):
        for label, strategy, shown, width in decoders:
            done = 0
            while done < tokens:
                row = _round(stream, temperature, strategy, min(width, 12) if budget == "auto" else width)
                row["emitted"] = min(row["emitted"], tokens - done)
                done += row["emitted"]
                place = {"temperature": temperature, "label": label, "strategy": strategy, "budget": shown}
                rows.append(place | {"prompt": prompt, "repeat": 0, "tree_size": width + 1} | row)
    return pd.DataFrame(rows)


def _round(stream: np.random.Generator, temperature: float, strategy: str, nodes: int) -> dict[str, Any]:
    entropy = float(stream.gamma(1.2, temperature)) if temperature > 0 else 0.0
    chance = 0.0
    if strategy != "autoregressive":
        wide = 1 + 0.25 * np.log2(max(1, nodes))
        chance = float(1 - (1 - 0.55 * np.exp(-0.45 * entropy)) ** wide)
    offered = chance if temperature > 0 else float(stream.random() < chance)
    accepted = 0
    while accepted < 7 and stream.random() < (chance if accepted else offered):
        accepted += 1
    times = {
        "draft": 0.0 if strategy == "autoregressive" else 12.0,
        "build": 0.02 * nodes,
        "compile": 0.2,
        "verify": 40 + 0.5 * nodes,
        "sample": 0.5 + (1.5 + 0.02 * nodes) * (temperature > 0),
        "commit": 0.5,
    }
    noise = float(stream.uniform(0.95, 1.05))
    spent = {f"{stage}_ms": noise * times[stage] for stage in STAGES}
    return {"accepted": accepted, "emitted": accepted + 1, "entropy": entropy, "offered": offered, **spent}


def by_hand(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Rounds as `Sweep.rounds` holds them: what a row does not name has a plain value, all its time goes to `ms`.

    `ms` is the verify time of the round unless the row names stages itself.
    """
    plain = {
        "cell": "a",
        "slice": "every run",
        "temperature": 0.0,
        "budget": 0,
        "prompt": 0,
        "entropy": 0.0,
        "offered": 0.0,
    }
    found = []
    for row in rows:
        strategy = str(row["label"]).split()[0]
        stages = {f"{stage}_ms": 0.0 for stage in STAGES} | {"verify_ms": float(row.get("ms", 10.0))}
        full = plain | {"strategy": strategy, "accepted": row.get("emitted", 1) - 1, "emitted": 1} | stages | row
        found.append({name: value for name, value in full.items() if name != "ms"})
    return pd.DataFrame(found)
