"""Does the drafter know what it knows? Each node's draft probability beside the target's, and what the walk did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest, norm

from ddtree.adaptive_budget import AutoBudget
from ddtree.decode import Step, generate
from ddtree.models.zoo import Pair
from ddtree.sampling import SamplingParams, target_probs
from ddtree.workbook.params import LiveParams

NODE_COLUMNS = [
    *("temperature", "request", "round", "depth"),
    *("draft", "target", "draft_reach", "reach", "judged", "accepted"),
]
LENGTH_COLUMNS = ["temperature", "rounds", "drafter", "target", "target_lo", "target_hi", "measured", "z"]
DEEPEST = 3  # depth that deeper nodes count as: few rounds get there
Z95 = float(norm.isf(0.025))


@torch.inference_mode()
def node_rows(step: Step, sampling: Sequence[SamplingParams] | SamplingParams) -> pd.DataFrame:
    """One row for each drafted node of a round.

    Columns request, round, depth; draft: the drafter's probability of the token given its parent; target: the
    target's, as the request samples; draft_reach and reach: their products from the root on, of which the latter is the
    probability that this node is accepted; judged: whether its parent was on the path, so that its fate was decided;
    accepted.
    """
    tree, q = step.tree, step.tree.width
    params = [sampling] * tree.batch_size if isinstance(sampling, SamplingParams) else list(sampling)
    probs = target_probs(
        step.logits,
        temperature=[p.temperature for p in params],
        top_k=[p.top_k for p in params],
        top_p=[p.top_p for p in params],
        min_p=[p.min_p for p in params],
    )
    parents = tree.parents.clamp(min=0)
    batch = torch.arange(tree.batch_size, device=parents.device)[:, None]
    target = probs[batch, parents, tree.tokens].double()
    target[:, 0] = 1.0
    draft = (tree.node_logws - tree.node_logws.gather(1, parents)).double().exp()
    on_path = torch.zeros(tree.batch_size, q + 1, dtype=torch.bool, device=parents.device)
    on_path = on_path.scatter(1, torch.where(step.commit.path >= 0, step.commit.path, q), True)[:, :q]
    reach = torch.ones_like(target)
    for node in range(1, q):  # a parent stands before its children
        reach[:, node] = reach.gather(1, parents[:, node, None])[:, 0] * target[:, node]
    place = torch.arange(q, device=parents.device).expand_as(parents)
    drafted = (place > 0) & (place < tree.sizes[:, None])
    columns = {
        "request": torch.tensor(step.requests, device=parents.device)[:, None].expand_as(parents),
        "depth": tree.depths,
        "draft": draft,
        "target": target,
        "draft_reach": tree.node_logws.double().exp(),
        "reach": reach,
        "judged": on_path.gather(1, parents),
        "accepted": on_path,
    }
    found = pd.DataFrame({name: values[drafted].cpu().numpy() for name, values in columns.items()})
    return found.assign(round=step.number)


def collect(pair: Pair, params: LiveParams, prompts: Sequence[str], *, budget: int | AutoBudget) -> pd.DataFrame:
    """Every drafted node of trees of `budget`, all prompts decoded as one batch at each temperature.

    Columns `NODE_COLUMNS`. Raises what `generate` raises.
    """
    frames: list[pd.DataFrame] = []
    for temperature in params.temperatures:
        sampling = SamplingParams(temperature, params.top_k, params.top_p, params.min_p)
        steps: list[pd.DataFrame] = []
        generate(
            pair.target,
            pair.drafter,
            prompts,
            strategy="tree",
            sampling=sampling,
            max_new_tokens=params.max_new_tokens,
            budget=budget,
            topk_cap=params.topk_cap,
            draft_temperature=params.draft_temperature,
            seed=[params.seed + request for request in range(len(prompts))],
            backend=params.backend,
            on_step=lambda step, found=steps, how=sampling: found.append(node_rows(step, how)),  # type: ignore[misc]
        )
        frames += [frame.assign(temperature=temperature) for frame in steps]
    return pd.concat(frames, ignore_index=True)[NODE_COLUMNS]


def reliability(nodes: pd.DataFrame, *, bins: int = 10, deepest: int = DEEPEST) -> pd.DataFrame:
    """Share of judged nodes that were accepted, by temperature, depth and bin of the draft probability.

    Columns temperature, depth (`deepest` stands for all from it on), draft and target (means over the bin), n,
    accepted, share, and share_lo and share_hi, Wilson's 95 % interval. Bins are of equal width on [0, 1]; empty ones
    have no row.
    """
    judged = nodes[nodes["judged"]]
    place = (judged["draft"] * bins).astype(int).clip(upper=bins - 1)
    judged = judged.assign(bin=place, depth=judged["depth"].clip(upper=deepest))
    groups = judged.groupby(["temperature", "depth", "bin"])
    found = groups.agg(draft=("draft", "mean"), target=("target", "mean"), n=("accepted", "size"))
    found = found.assign(accepted=groups["accepted"].sum()).reset_index().drop(columns="bin")
    bounds = [
        binomtest(int(k), int(n)).proportion_ci(0.95, "wilson")
        for k, n in zip(found["accepted"], found["n"], strict=True)
    ]
    share = found["accepted"] / found["n"]
    low, high = np.array(bounds).reshape(-1, 2).T
    return found.assign(share=share, share_lo=np.minimum(low, share), share_hi=np.maximum(high, share))


def acceptance_lengths(nodes: pd.DataFrame) -> pd.DataFrame:
    """Tokens a round commits, expected and measured: one row for each temperature.

    Columns temperature, rounds, drafter (what its own probabilities promise), target (what the law of each round's
    tree promises), target_lo and target_hi (where 95 % of runs would be, from the law's own variance), measured, and
    z: how many standard errors it lies from `target`, None where the law leaves nothing to chance. Rounds follow on
    one another, but given its tree each is a draw of its own, so their deviations add up as independent ones do.
    """
    # A depth or deeper is accepted with the sum of reach at that depth; E[a] and E[a^2] are sums over depths of that.
    weighted = nodes.assign(second_moment=(2 * nodes["depth"] - 1) * nodes["reach"])
    sums = weighted.groupby(["temperature", "request", "round"])[
        ["draft_reach", "reach", "second_moment", "accepted"]
    ].sum()
    sums["variance"] = (sums["second_moment"] - sums["reach"] ** 2).clip(lower=0)
    rows = []
    for temperature, rounds in sums.groupby("temperature"):
        expected, measured = 1 + rounds["reach"].mean(), 1 + rounds["accepted"].mean()
        error = float(np.sqrt(rounds["variance"].sum())) / len(rounds)
        rows.append(
            {
                "temperature": temperature,
                "rounds": len(rounds),
                "drafter": 1 + rounds["draft_reach"].mean(),
                "target": expected,
                "target_lo": expected - Z95 * error,
                "target_hi": expected + Z95 * error,
                "measured": measured,
                "z": (measured - expected) / error if error > 1e-4 else None,
            }
        )
    return pd.DataFrame(rows, columns=LENGTH_COLUMNS).astype({"z": float})
