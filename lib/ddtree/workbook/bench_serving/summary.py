"""Compute tokens per second, ratios, tokens per round and round times of a serving run, with intervals and sentences.

Every comparison is paired: the same prompts for single requests, the same repeats for batches, resampled together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ddtree.workbook.stats import columns, ratio_of_ratios, ratio_of_sums, resampled_prompts

PLAIN, DFLASH, DDTREE = "plain", "dflash", "ddtree"
METHODS = (PLAIN, DFLASH, DDTREE)
PLACE = ["extra_layers", "batch", "temperature"]  # servers are compared within one of these
TARGETS = {1: 1.2, 8: 1.1}  # the aim for tokens/s of the best DDTREE over DFLASH, by batch
RATES = ("tokens_per_s", "over_plain", "over_dflash", "acceptance")
SUMS = ("tokens", "seconds", "drafted", "rounds")
MIN_VARIETY = 0.5  # of plain's different answers; a server that is greedy after its first token has far fewer
NEAR_TIE_NATS = 0.25  # two units in the last place of a bfloat16 logit between 16 and 32


def rates(single: pd.DataFrame, batched: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """A row for each server, temperature and batch: whole replies, prefill included.

    tokens_per_s, over_plain, over_dflash and acceptance have columns NAME_lo and NAME_hi, their 95 % interval over the
    units (prompts of single requests, repeats of batches) that every server there answered; NaN where a method is
    missing. `acceptance` is tokens per round and request without the first token, which prefill gives.
    """
    rows = []
    for place, servers, sums, weights in _compared(_units(single, batched), PLACE, resamples, seed):
        for server in servers:
            name = server["name"]
            tokens, seconds = sums["tokens"][name], sums["seconds"][name]
            row = place | server | {"units": len(tokens)}
            row |= columns("tokens_per_s", ratio_of_sums(tokens, seconds, weights))
            for base in (PLAIN, DFLASH):
                if base in sums["tokens"]:
                    against = (sums["tokens"][base], sums["seconds"][base])
                    row |= columns(f"over_{base}", ratio_of_ratios(tokens, seconds, *against, weights))
            if name in sums["rounds"]:  # a plain server's steps are not counted
                row |= columns("acceptance", ratio_of_sums(sums["drafted"][name], sums["rounds"][name], weights))
            rows.append(row)
    return pd.DataFrame(rows, columns=[*PLACE, "name", "method", "budget", "units", *_with_bounds(*RATES)])


def step_costs(single: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """The plain engine's milliseconds per token (batch 1, without prefill) at each number of identity layers."""
    rows = []
    for extra_layers, here in _decoding(single[single["method"] == PLAIN]).groupby("extra_layers"):
        prompts = here.groupby("unit")[["seconds", "drafted"]].sum()
        weights = resampled_prompts(len(prompts), resamples, seed)
        step = ratio_of_sums(1e3 * prompts["seconds"], prompts["drafted"], weights)
        rows.append({"extra_layers": extra_layers} | columns("step_ms", step))
    return pd.DataFrame(rows, columns=["extra_layers", *_with_bounds("step_ms")])


def round_times(single: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """A row for each speculative server and temperature at batch 1: time and tokens of a round, without prefill.

    `step_ms` is a plain step at the same cost and temperature, `added_ms` = round_ms - step_ms, and `decode_over_plain`
    = acceptance * step_ms / round_ms is exactly the ratio of decoding speeds.
    """
    rows = []
    for place, servers, sums, weights in _compared(_decoding(single), ["extra_layers", "temperature"], resamples, seed):
        seconds, tokens, rounds = (sums[name] for name in ("seconds", "drafted", "rounds"))
        if PLAIN not in seconds:
            continue
        step_ms = 1e3 * seconds[PLAIN].sum() / tokens[PLAIN].sum()
        for server in servers:
            if (name := server["name"]) in rounds:
                row = place | server | {"step_ms": step_ms}
                row |= columns("round_ms", ratio_of_sums(1e3 * seconds[name], rounds[name], weights))
                row |= columns("acceptance", ratio_of_sums(tokens[name], rounds[name], weights))
                row["added_ms"] = row["round_ms"] - step_ms
                row["decode_over_plain"] = row["acceptance"] * step_ms / row["round_ms"]
                rows.append(row)
    first = ["extra_layers", "temperature", "name", "method", "budget", "step_ms"]
    named = [*first, *_with_bounds("round_ms", "acceptance"), "added_ms", "decode_over_plain"]
    return pd.DataFrame(rows, columns=named)


def best_budgets(rated: pd.DataFrame) -> pd.DataFrame:
    """At each place the fastest DDTREE server against DFLASH, and where its ratio comes from.

    `tokens_over` is the ratio of tokens per round, `time_over` that of round times: over_dflash is the first over the
    second. `verdict` is "reached", "reached, interval below" or "missed" where a batch has a target, else "".
    """
    rows = []
    for place, here in rated.groupby(PLACE):
        trees = here[(here["method"] == DDTREE) & here["over_dflash"].notna()]
        if trees.empty:
            continue
        best = trees.sort_values("over_dflash").iloc[-1].to_dict()
        row: dict[str, Any] = dict(zip(PLACE, place, strict=True))
        row |= {name: best[name] for name in ("name", "budget", "units", *_with_bounds("over_dflash"))}
        row["tokens_over"] = best["acceptance"] / here.loc[here["method"] == DFLASH, "acceptance"].iloc[0]
        row["time_over"] = row["tokens_over"] / best["over_dflash"]
        row["target"] = TARGETS.get(int(row["batch"]))
        rows.append(row | {"verdict": _verdict(best, row["target"])})
    names = ["name", "budget", "units", *_with_bounds("over_dflash"), "tokens_over", "time_over", "target", "verdict"]
    return pd.DataFrame(rows, columns=[*PLACE, *names])


def _verdict(best: Mapping[Any, Any], target: float | None) -> str:
    if target is None:
        return ""
    if best["over_dflash"] < target:
        return "missed"
    return "reached" if best["over_dflash_lo"] >= target else "reached, interval below"


def _units(single: pd.DataFrame, batched: pd.DataFrame) -> pd.DataFrame:
    """Both kinds of rows as one: `unit` is what is resampled, `drafted` the tokens that rounds gave."""
    one = _decoding(single).assign(batch=1, seconds=single["total_s"])
    drafted = batched["tokens"] - batched["requests"]
    many = batched.assign(unit=batched["repeat"], seconds=batched["wall_s"], drafted=drafted)
    names = [*PLACE, "name", "method", "budget", "unit", *SUMS]
    return pd.concat([frame[names] for frame in (one, many) if len(frame)] or [one[names]], ignore_index=True)


def _decoding(single: pd.DataFrame) -> pd.DataFrame:
    """Single requests without their prefill, in the columns of `_units`."""
    seconds = single["total_s"] - single["first_token_s"]
    return single.assign(unit=single["prompt"], seconds=seconds, drafted=single["tokens"] - 1)


def _compared(
    frame: pd.DataFrame, keys: list[str], resamples: int, seed: int
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], dict[str, pd.DataFrame], np.ndarray]]:
    """For each place: its keys, its servers, its sums, and bootstrap weights, over the units that all its servers have.

    Sums are by name: a row for each unit and a column for each server, NaN where there are no values.
    """
    for place, here in frame.groupby(keys):
        sums = {name: here.pivot_table(name, "unit", "name", aggfunc="sum", min_count=1) for name in SUMS}
        complete = sums["tokens"].dropna().index
        if len(complete):
            sums = {name: table.loc[complete] for name, table in sums.items()}
            weights = resampled_prompts(len(complete), resamples, seed)
            yield dict(zip(keys, place, strict=True)), _servers(here), sums, weights


def _with_bounds(*names: str) -> list[str]:
    return [f"{name}{end}" for name in names for end in ("", "_lo", "_hi")]


def in_order(frame: pd.DataFrame) -> list[str]:
    """The names of the servers in `frame`: plain, DFLASH, then DDTREE by budget."""
    return [str(server["name"]) for server in _servers(frame)]


def _servers(frame: pd.DataFrame) -> list[dict[str, Any]]:
    found = frame[["name", "method", "budget"]].drop_duplicates("name")
    order = found.assign(method=found["method"].map(METHODS.index), budget=found["budget"].fillna(0).astype(float))
    return [dict(row) for _, row in found.loc[order.sort_values(["method", "budget"]).index].iterrows()]


def label(name: str) -> str:
    """ "plain", "DFLASH" or "DDTREE 16" for a server's name."""
    return name if name == PLAIN else name.upper().replace("-", " ")


def cost_name(extra_layers: int, step_ms: float | None, *, short: bool = False) -> str:
    """ "1.1 ms a step", or, where identity layers emulate it, "emulated cost, 5.3 ms a step (+130 layers)".

    `step_ms` is None where no plain engine was measured with single requests. `short`, for tables and narrow screens,
    gives "emulated cost, 5.3 ms (+130)".
    """
    own = "" if step_ms is None else f"{step_ms:.1f} ms a step"
    if not extra_layers:
        return own or "the model as it is"
    name = f"emulated cost{own and ', '}{own} (+{extra_layers} layers)"
    return name.replace(" a step (", " (").replace(" layers)", ")") if short else name


def cost_names(steps: pd.DataFrame, costs: Iterable[int], *, short: bool = False) -> dict[int, str]:
    """`cost_name` of each number of identity layers in `costs`, ascending."""
    known = dict(zip(steps["extra_layers"], steps["step_ms"], strict=True))
    return {layers: cost_name(layers, known.get(layers), short=short) for layers in sorted({int(c) for c in costs})}


def greedy_summary(greedy: pd.DataFrame) -> pd.DataFrame:
    """A row for each server and cost: texts compared with plain's, how many are equal, and how the others diverge.

    `near_ties` of `diverged` texts first differ where plain's top two are at most NEAR_TIE_NATS apart and the other
    token is its second choice; `largest_gap` is in nats, NaN where no text diverges or no gap is known.
    """
    rows = []
    for (extra_layers, name), here in greedy.groupby(["extra_layers", "name"], sort=False):
        diverged = here[here["first_difference"].notna()]
        near = diverged[(diverged["gap_nats"] <= NEAR_TIE_NATS) & diverged["second_choice"].eq(True)]
        row = {"extra_layers": extra_layers, "name": name, "prompts": len(here), "equal": len(here) - len(diverged)}
        row |= {"diverged": len(diverged), "near_ties": len(near)}
        rows.append(row | {"largest_gap": diverged["gap_nats"].max()})
    names = ["extra_layers", "name", "prompts", "equal", "diverged", "near_ties", "largest_gap"]
    return pd.DataFrame(rows, columns=names)


def describe_greedy(greedy: pd.DataFrame) -> str:
    """How many greedy texts are the plain engine's, and whether the others diverge at a near-tie."""
    if greedy.empty:
        return "No greedy text was compared."
    found = greedy_summary(greedy)[["prompts", "diverged", "near_ties", "equal"]].sum()
    equal = f"{found['equal']} of {found['prompts']} greedy texts are the plain engine's, token for token"
    others = f"{equal}; of the other {found['diverged']}"
    if not found["diverged"]:
        return f"{equal}."
    if found["diverged"] == found["near_ties"]:
        gap = greedy["gap_nats"].max()
        return f"{others}, all diverge at a near-tie, with plain's top two at most {gap:.3g} nats apart."
    far = found["diverged"] - found["near_ties"]
    return f"{others}, {far} diverge where there is NO near-tie: the output has changed."


def describe_depths(depth_is_free: pd.DataFrame) -> str:
    """Whether identity layers leave the plain engine's greedy text unchanged."""
    if depth_is_free.empty:
        return "No identity layers were added, so no cost is emulated."
    counts = [
        f"{int(here['same'].sum())} of {len(here)} texts with {layers} identity layers"
        for layers, here in depth_is_free.groupby("extra_layers")
    ]
    return f"{'; '.join(counts)} are the plain engine's without them."


def describe_diversity(diversity: pd.DataFrame) -> str:
    """Whether every server's answers vary as plain's do; for one that repeats itself, rates mean nothing."""
    names = diversity["name"].unique()
    if PLAIN not in names or len(names) < 2:
        return "No answers were compared with the plain engine's."
    right = diversity[diversity["name"] == PLAIN].set_index("temperature")["distinct"]
    few = diversity[diversity["distinct"] < MIN_VARIETY * diversity["temperature"].map(right)]
    if few.empty:
        return "Every server's answers vary as the plain engine's do."
    repeats = [
        f"{label(row['name'])} at T = {row['temperature']:g} ({row['distinct']} of {row['samples']} differ, plain's "
        f"{right[row['temperature']]})"
        for row in few.to_dict("records")
    ]
    return f"Answers do NOT vary as they should, so rates there mean nothing: {'; '.join(repeats)}."
