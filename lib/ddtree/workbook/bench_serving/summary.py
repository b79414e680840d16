"""Tokens per second, ratios, tokens per round and round times of a serving run, with intervals and sentences.

Every comparison is paired: the same prompts asked alone, the same repeats asked together, resampled together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from ddtree.workbook.stats import Estimate, ratio_of_ratios, ratio_of_sums, resampled_prompts

PLAIN, DFLASH, DDTREE = "plain", "dflash", "ddtree"
METHODS = (PLAIN, DFLASH, DDTREE)
PLACE = ["extra_layers", "batch", "temperature"]  # what is compared within
TARGETS = {1: 1.2, 8: 1.1}  # tokens/s of the best DDTREE over DFLASH that are aimed at, by batch


def rates(alone: pd.DataFrame, together: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """A row for each server, temperature and batch: whole replies, prefill included.

    tokens_per_s, over_plain, over_dflash and acceptance have columns NAME_lo and NAME_hi, their 95 % interval over the
    units (prompts alone, repeats together) that every server of the place answered; NaN where a method is missing.
    `acceptance` is tokens a round and request, the first token, which prefill gives, left out.
    """
    units = _units(alone, together)
    rows: list[dict[str, Any]] = []
    for place, here in units.groupby(PLACE):
        tables = {name: here.pivot_table(name, "unit", "name", aggfunc="sum", min_count=1) for name in MEASURED}
        whole = tables["tokens"].dropna().index
        if whole.empty:
            continue
        tables = {name: table.loc[whole] for name, table in tables.items()}
        weights = resampled_prompts(len(whole), resamples, seed)
        for server in _servers(here):
            name = server["name"]
            tokens, seconds = tables["tokens"][name], tables["seconds"][name]
            row: dict[str, Any] = dict(zip(PLACE, place, strict=True)) | server | {"units": len(whole)}
            row |= _spread("tokens_per_s", ratio_of_sums(tokens, seconds, weights))
            for base in (PLAIN, DFLASH):
                if base in tables["tokens"]:
                    against = (tables["tokens"][base], tables["seconds"][base])
                    row |= _spread(f"over_{base}", ratio_of_ratios(tokens, seconds, *against, weights))
            if name in tables["rounds"]:  # nobody counts a plain server's steps
                row |= _spread("acceptance", ratio_of_sums(tables["drafted"][name], tables["rounds"][name], weights))
            rows.append(row)
    spread = [f"{name}{end}" for name in RATES for end in ("", "_lo", "_hi")]
    return pd.DataFrame(rows, columns=[*PLACE, "name", "method", "budget", "units", *spread])


def step_costs(alone: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """The plain engine's milliseconds a token (batch 1, prefill left out) at each number of identity layers."""
    rows = []
    for extra_layers, here in _decoding(alone[alone["method"] == PLAIN]).groupby("extra_layers"):
        prompts = here.groupby("prompt")[["seconds", "drafted"]].sum()
        weights = resampled_prompts(len(prompts), resamples, seed)
        step = ratio_of_sums(1e3 * prompts["seconds"], prompts["drafted"], weights)
        rows.append({"extra_layers": extra_layers} | _spread("step_ms", step))
    return pd.DataFrame(rows, columns=["extra_layers", "step_ms", "step_ms_lo", "step_ms_hi"])


def round_times(alone: pd.DataFrame, *, resamples: int, seed: int) -> pd.DataFrame:
    """A row for each drafting server and temperature at batch 1: what a round takes and gives, prefill left out.

    `step_ms` is a plain step at the same cost and temperature, `added_ms` = round_ms - step_ms, and `decode_over_plain`
    = acceptance * step_ms / round_ms, exactly: the same seconds and tokens in another order.
    """
    rows = []
    for (extra_layers, temperature), here in _decoding(alone).groupby(["extra_layers", "temperature"]):
        seconds = here.pivot_table("seconds", "prompt", "name", aggfunc="sum").dropna()
        if PLAIN not in seconds:
            continue
        tokens, rounds = (
            here.pivot_table(name, "prompt", "name", aggfunc="sum", min_count=1).loc[seconds.index]
            for name in ("drafted", "rounds")
        )
        weights = resampled_prompts(len(seconds), resamples, seed)
        step_ms = 1e3 * seconds[PLAIN].sum() / tokens[PLAIN].sum()
        for server in [found for found in _servers(here) if found["name"] in rounds]:
            name = server["name"]
            row = {"extra_layers": extra_layers, "temperature": temperature, **server, "step_ms": step_ms}
            row |= _spread("round_ms", ratio_of_sums(1e3 * seconds[name], rounds[name], weights))
            row |= _spread("acceptance", ratio_of_sums(tokens[name], rounds[name], weights))
            row["added_ms"] = row["round_ms"] - step_ms
            row["decode_over_plain"] = row["acceptance"] * step_ms / row["round_ms"]
            rows.append(row)
    spread = [f"{name}{end}" for name in ("round_ms", "acceptance") for end in ("", "_lo", "_hi")]
    named = ["extra_layers", "temperature", "name", "method", "budget", "step_ms", *spread]
    return pd.DataFrame(rows, columns=[*named, "added_ms", "decode_over_plain"])


def best_budgets(rated: pd.DataFrame) -> pd.DataFrame:
    """At each place the fastest DDTREE server against DFLASH, and where its ratio comes from.

    `tokens_over` is the ratio of tokens a round, `time_over` that of the time of a round: over_dflash is the first over
    the second. `verdict` is "reached", "reached, interval below" or "missed" where a batch has a target, else "".
    """
    rows = []
    for place, here in rated.groupby(PLACE):
        trees = here[(here["method"] == DDTREE) & here["over_dflash"].notna()]
        if trees.empty:
            continue
        best = trees.sort_values("over_dflash").iloc[-1].to_dict()
        tokens_over = best["acceptance"] / here.loc[here["method"] == DFLASH, "acceptance"].iloc[0]
        row: dict[str, Any] = dict(zip(PLACE, place, strict=True))
        row |= {name: best[name] for name in ("name", "budget", "units", "over_dflash", "over_dflash_lo")}
        row |= {"over_dflash_hi": best["over_dflash_hi"], "tokens_over": tokens_over}
        row |= {"time_over": tokens_over / best["over_dflash"], "target": TARGETS.get(int(row["batch"]))}
        rows.append(row | {"verdict": _verdict(best, row["target"])})
    ratio = ["over_dflash", "over_dflash_lo", "over_dflash_hi", "tokens_over", "time_over", "target", "verdict"]
    return pd.DataFrame(rows, columns=[*PLACE, "name", "budget", "units", *ratio])


def in_order(frame: pd.DataFrame) -> list[str]:
    """The names of the servers in `frame`: plain, DFLASH, then DDTREE by budget."""
    return [str(server["name"]) for server in _servers(frame)]


RATES = ("tokens_per_s", "over_plain", "over_dflash", "acceptance")
MEASURED = ("tokens", "seconds", "drafted", "rounds")


def _units(alone: pd.DataFrame, together: pd.DataFrame) -> pd.DataFrame:
    """Both kinds of rows as one: `unit` is what is resampled, `drafted` the tokens that rounds gave."""
    one = alone.assign(batch=1, unit=alone["prompt"], seconds=alone["total_s"], drafted=alone["tokens"] - 1)
    many = together.assign(
        unit=together["repeat"], seconds=together["wall_s"], drafted=together["tokens"] - together["requests"]
    )
    columns = [*PLACE, "name", "method", "budget", "unit", *MEASURED]
    return pd.concat([frame[columns] for frame in (one, many) if len(frame)] or [one[columns]], ignore_index=True)


def _decoding(alone: pd.DataFrame) -> pd.DataFrame:
    return alone.assign(seconds=alone["total_s"] - alone["first_token_s"], drafted=alone["tokens"] - 1)


def _servers(frame: pd.DataFrame) -> list[dict[str, Any]]:
    found = frame[["name", "method", "budget"]].drop_duplicates("name").to_dict("records")
    return sorted(({str(k): v for k, v in row.items()} for row in found), key=_order)


def _order(server: Mapping[str, Any]) -> tuple[int, float]:
    budget = server["budget"]
    return METHODS.index(server["method"]), 0.0 if pd.isna(budget) else float(budget)


def _spread(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_lo": estimate.low, f"{name}_hi": estimate.high}


def _verdict(best: Mapping[Any, Any], target: float | None) -> str:
    if target is None:
        return ""
    if best["over_dflash"] < target:
        return "missed"
    return "reached" if best["over_dflash_lo"] >= target else "reached, interval below"


VARIED = 0.5  # of plain's different answers, at least; one that is greedy after its first token has far fewer
NEAR_TIE_NATS = 0.25  # two units in the last place of a bfloat16 logit between 16 and 32


def label(name: str) -> str:
    """ "plain", "DFLASH" or "DDTREE 16" for a server's name."""
    return name if name == "plain" else name.upper().replace("-", " ")


def cost_name(extra_layers: int, step_ms: float | None) -> str:
    """ "1.1 ms a step", or "emulated cost, 5.3 ms a step (+130 layers)": a cost that is not the model's own says so.

    `step_ms` is None where no plain engine was measured alone.
    """
    own = "" if step_ms is None else f"{step_ms:.1f} ms a step"
    if not extra_layers:
        return own or "the model as it is"
    return f"emulated cost{own and ', '}{own} (+{extra_layers} layers)"


def short_cost_name(extra_layers: int, step_ms: float | None) -> str:
    """`cost_name` for a table and for a heading on a phone: "1.1 ms a step", "emulated cost, 5.3 ms (+130)"."""
    return cost_name(extra_layers, step_ms).replace(" a step (+", " (+").replace(" layers)", ")")


def cost_names(steps: pd.DataFrame, costs: Iterable[int], *, short: bool = False) -> dict[int, str]:
    """`cost_name` or `short_cost_name` of each number of identity layers in `costs`, ascending."""
    known = dict(zip(steps["extra_layers"], steps["step_ms"], strict=True))
    name = short_cost_name if short else cost_name
    return {layers: name(layers, known.get(layers)) for layers in sorted({int(cost) for cost in costs})}


def greedy_summary(greedy: pd.DataFrame) -> pd.DataFrame:
    """A row for each server and cost: texts compared with plain's, how many are equal, and where the others part.

    `near_ties` of `parted` texts part where plain's two best are at most NEAR_TIE_NATS apart and the other token is its
    second choice; `largest_gap` is in nats, NaN where no text parts or no gap is known.
    """
    rows = []
    for (extra_layers, name), here in greedy.groupby(["extra_layers", "name"], sort=False):
        parted = here[here["first_difference"].notna()]
        near = parted[(parted["gap_nats"] <= NEAR_TIE_NATS) & parted["second_choice"].eq(True)]
        row = {"extra_layers": extra_layers, "name": name, "prompts": len(here), "equal": len(here) - len(parted)}
        rows.append(row | {"parted": len(parted), "near_ties": len(near), "largest_gap": parted["gap_nats"].max()})
    names = ["extra_layers", "name", "prompts", "equal", "parted", "near_ties", "largest_gap"]
    return pd.DataFrame(rows, columns=names)


def say_greedy(greedy: pd.DataFrame) -> str:
    """How many greedy texts are the plain engine's, and whether those that part do so at a near-tie."""
    if greedy.empty:
        return "No greedy text was compared."
    found = greedy_summary(greedy)[["prompts", "parted", "near_ties", "equal"]].sum()
    equal = f"{found['equal']} of {found['prompts']} greedy texts are the plain engine's, token for token"
    if not found["parted"]:
        return f"{equal}."
    if found["parted"] == found["near_ties"]:
        gap = greedy["gap_nats"].max()
        return f"{equal}; the other {found['parted']} part at a near-tie, at most {gap:.3g} nats between its two best."
    far = found["parted"] - found["near_ties"]
    return f"{equal}; of the other {found['parted']}, {far} part where there is NO near-tie: the texts are not its own."


def say_depth(depth_is_free: pd.DataFrame) -> str:
    """Whether identity layers leave the plain engine's greedy text as it is."""
    if depth_is_free.empty:
        return "No identity layers were added, so no cost is emulated."
    said = [
        f"{int(here['same'].sum())} of {len(here)} texts with {layers} identity layers"
        for layers, here in depth_is_free.groupby("extra_layers")
    ]
    return f"{'; '.join(said)} are the plain engine's without them."


def say_diversity(diversity: pd.DataFrame) -> str:
    """Whether every server's answers vary as plain's do; one that repeats itself is rated for something easier."""
    names = diversity["name"].unique()
    if "plain" not in names or len(names) < 2:
        return "No answers were compared with the plain engine's."
    right = diversity[diversity["name"] == "plain"].set_index("temperature")["distinct"]
    few = diversity[diversity["distinct"] < VARIED * diversity["temperature"].map(right)]
    if few.empty:
        return "Every server varies as the plain engine does."
    said = [
        f"{label(row['name'])} at T = {row['temperature']:g} ({row['distinct']} of {row['samples']} differ, plain's "
        f"{right[row['temperature']]})"
        for row in few.to_dict("records")
    ]
    return f"NOT sampled as it seems, so its rates there mean nothing: {'; '.join(said)}."
