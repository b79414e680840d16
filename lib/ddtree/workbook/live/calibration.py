"""Measures the calibration of the drafter: each node's draft probability, the target's, and whether it was accepted.

The verify accepts a node with the target's probability of it, so the expected number of tokens is known for each round.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest, norm

from ddtree.adaptive_budget import AutoBudget
from ddtree.decode import Step
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams, target_probs
from ddtree.workbook.live.measure import decode, sampling_at
from ddtree.workbook.params import LiveParams

NODE_COLUMNS = [
    *("temperature", "request", "round", "depth"),
    *("draft", "target", "draft_reach", "reach", "evaluated", "accepted"),
]
DEEPEST = 3  # deeper nodes are counted at this depth, because few rounds reach them
Z95 = float(norm.isf(0.025))


def collect(pair: Pair, params: LiveParams, prompts: Sequence[str], *, budget: int | AutoBudget) -> pd.DataFrame:
    """Every drafted node of trees of `budget`, all prompts decoded as one batch at each temperature.

    Columns NODE_COLUMNS. Raises what `generate` raises.
    """
    frames: list[pd.DataFrame] = []
    for temperature in params.temperatures:
        sampling = sampling_at(params, temperature)
        decode(
            pair,
            params,
            prompts,
            strategy="tree",
            temperature=temperature,
            budget=budget,
            seed=[params.seed + request for request in range(len(prompts))],
            tokens=params.max_new_tokens,
            on_step=lambda step, how=sampling: frames.append(  # type: ignore[misc]
                node_rows(step, how).assign(temperature=how.temperature)
            ),
        )
    return pd.concat(frames, ignore_index=True)[NODE_COLUMNS]


@torch.inference_mode()
def node_rows(step: Step, sampling: Sequence[SamplingParams] | SamplingParams) -> pd.DataFrame:
    """One row for each drafted node of a round.

    Columns request, round, depth; draft: the drafter's probability of the token given its parent; target: the
    target's, as the request samples; draft_reach and reach: their products from the root on, of which the latter is the
    probability that this node is accepted; evaluated: whether its parent was accepted, so that the verify came to this
    node or to a sibling before it; accepted.
    """
    tree, q = step.tree, step.tree.width
    params = [sampling] * tree.batch_size if isinstance(sampling, SamplingParams) else sampling
    filters = {name: [getattr(p, name) for p in params] for name in ("temperature", "top_k", "top_p", "min_p")}
    probs = target_probs(step.logits, **filters)
    parents = tree.parents.clamp(min=0)
    batch = torch.arange(tree.batch_size, device=parents.device)[:, None]
    target = probs[batch, parents, tree.tokens].double()
    target[:, 0] = 1.0
    reach = torch.ones_like(target)
    for node in range(1, q):  # parents come before their children
        reach[:, node] = reach.gather(1, parents[:, node, None])[:, 0] * target[:, node]
    on_path = torch.zeros(tree.batch_size, q + 1, dtype=torch.bool, device=parents.device)
    on_path = on_path.scatter(1, torch.where(step.commit.path >= 0, step.commit.path, q), True)[:, :q]
    place = torch.arange(q, device=parents.device).expand_as(parents)
    drafted = (place > 0) & (place < tree.sizes[:, None])
    columns = {
        "request": torch.tensor(step.requests, device=parents.device)[:, None].expand_as(parents),
        "depth": tree.depths,
        "draft": (tree.node_logws - tree.node_logws.gather(1, parents)).double().exp(),
        "target": target,
        "draft_reach": tree.node_logws.double().exp(),
        "reach": reach,
        "evaluated": on_path.gather(1, parents),
        "accepted": on_path,
    }
    found = pd.DataFrame({name: values[drafted].cpu().numpy() for name, values in columns.items()})
    return found.assign(round=step.number)


def reliability(nodes: pd.DataFrame, *, bins: int = 10, deepest: int = DEEPEST) -> pd.DataFrame:
    """Share of evaluated nodes that were accepted, by temperature, depth and bin of the draft probability.

    Columns temperature, depth (`deepest` includes all deeper nodes), draft and target (means over the bin), n,
    accepted, share, and share_lo and share_hi, Wilson's 95 % interval. Bins are of equal width on [0, 1]; empty ones
    have no row.
    """
    evaluated = nodes[nodes["evaluated"]]
    place = (evaluated["draft"] * bins).astype(int).clip(upper=bins - 1)
    evaluated = evaluated.assign(bin=place, depth=evaluated["depth"].clip(upper=deepest))
    groups = evaluated.groupby(["temperature", "depth", "bin"])
    found = groups.agg(
        draft=("draft", "mean"), target=("target", "mean"), n=("accepted", "size"), accepted=("accepted", "sum")
    )
    found = found.reset_index().drop(columns="bin")
    return found.join(accepted_shares(found["accepted"], found["n"]))


def accepted_shares(accepted: Iterable[int], n: Iterable[int]) -> pd.DataFrame:
    """Columns share, share_lo and share_hi: accepted of n, with Wilson's 95 % interval."""
    counts = [(int(count), int(total)) for count, total in zip(accepted, n, strict=True)]
    rows = [(count / total, *binomtest(count, total).proportion_ci(0.95, "wilson")) for count, total in counts]
    found = pd.DataFrame(rows, columns=["share", "share_lo", "share_hi"], dtype=float)
    # Rounding must not put the share outside its interval.
    return found.assign(share_lo=found.min(axis=1), share_hi=found.max(axis=1))


def acceptance_lengths(nodes: pd.DataFrame) -> pd.DataFrame:
    """Tokens a round commits, expected and measured: one row for each temperature.

    Columns temperature, rounds, drafter (expected by its own probabilities), target (expected by the target's
    probabilities of each round's tree), target_lo and target_hi (range of 95 % of runs, from the exact variance),
    measured, and z: its distance from `target` in standard errors, None where the variance is 0. Rounds follow on one
    another, but given its tree each is a separate draw, so their deviations add up like independent ones.
    """
    # A depth or deeper is accepted with the sum of reach at that depth; E[a] and E[a^2] are sums over depths of that.
    weighted = nodes.assign(second_moment=(2 * nodes["depth"] - 1) * nodes["reach"])
    summed = ["draft_reach", "reach", "second_moment", "accepted"]
    sums = weighted.groupby(["temperature", "request", "round"])[summed].sum()
    sums["variance"] = (sums["second_moment"] - sums["reach"] ** 2).clip(lower=0)
    by_temperature = sums.groupby("temperature")
    rounds = by_temperature.size()
    drafter, target, measured = (1 + by_temperature[name].mean() for name in ("draft_reach", "reach", "accepted"))
    error = np.sqrt(by_temperature["variance"].sum()) / rounds
    found = {"rounds": rounds, "drafter": drafter, "target": target}
    found |= {"target_lo": target - Z95 * error, "target_hi": target + Z95 * error, "measured": measured}
    return pd.DataFrame(found | {"z": ((measured - target) / error).where(error > 1e-4)}).reset_index()
