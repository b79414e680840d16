"""Sentences that the numbers of a serving run say: for prose, tables and titles."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

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
