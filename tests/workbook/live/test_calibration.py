"""Calibration from rounds of a tiny pair: probabilities recomputed by hand, and expectations that measurement meets."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from ddtree.decode import Step, generate
from ddtree.sampling import SamplingParams, target_probs
from ddtree.workbook.live.calibration import NODE_COLUMNS, acceptance_lengths, collect, node_rows, reliability
from ddtree.workbook.params import LiveParams
from oracles import children_of, lineage
from tiny_pair import tiny_pair

PROMPTS = ["5 1 3 2 7", "6", "1 2 3 4 5"]


def steps_of(sampling: list[SamplingParams], tokens: int = 12) -> list[Step]:
    pair, steps = tiny_pair(), []
    generate(
        pair.target,
        pair.drafter,
        PROMPTS,
        strategy="tree",
        sampling=sampling,
        max_new_tokens=[tokens, tokens - 5, tokens],
        budget=9,
        topk_cap=3,
        seed=[1, 2, 3],
        on_step=steps.append,
    )
    return steps


def test_every_node_by_hand() -> None:
    sampling = [SamplingParams(1.0), SamplingParams(0.5, top_k=3), SamplingParams(0.0)]
    for step in steps_of(sampling):
        params = [sampling[request] for request in step.requests]
        found = node_rows(step, params)
        at = 0
        for row, (request, p) in enumerate(zip(step.requests, params, strict=True)):
            tree = step.tree
            probs = target_probs(step.logits[row], temperature=p.temperature, top_k=p.top_k).double()
            parents, tokens = tree.parents[row].tolist(), tree.tokens[row].tolist()
            path = step.commit.path[row, : step.commit.lengths[row]].tolist()
            for node in range(1, int(tree.sizes[row])):
                line = found.iloc[at]
                at += 1
                assert (line["request"], line["round"], line["depth"]) == (request, step.number, tree.depths[row, node])
                ratio = math.exp(tree.node_logws[row, node] - tree.node_logws[row, parents[node]])
                assert line["draft"] == pytest.approx(ratio)
                assert line["target"] == pytest.approx(probs[parents[node], tokens[node]].item())
                ancestors = lineage(parents, node)[1:]
                reach = math.prod(probs[parents[n], tokens[n]].item() for n in ancestors)
                assert line["reach"] == pytest.approx(reach)
                assert line["draft_reach"] == pytest.approx(math.exp(tree.node_logws[row, node]))
                assert line["accepted"] == (node in path)
                assert line["evaluated"] == (parents[node] in path)
        assert at == len(found)


def test_siblings_on_the_path_are_judged_and_one_at_most_is_accepted() -> None:
    for step in steps_of([SamplingParams(1.0)] * 3):
        found = node_rows(step, SamplingParams(1.0))
        for row, request in enumerate(step.requests):
            evaluated = sum(
                len(children_of(step.tree, row, node))
                for node in step.commit.path[row, : step.commit.lengths[row]].tolist()
            )
            mine = found[found["request"] == request]
            assert mine["evaluated"].sum() == evaluated
            assert mine["accepted"].sum() == int(step.commit.lengths[row]) - 1
            assert not (mine["accepted"] & ~mine["evaluated"]).any()


@pytest.fixture(scope="module")
def nodes() -> pd.DataFrame:
    params = LiveParams.from_mapping(
        {"prompts": PROMPTS, "temperatures": [0.0, 1.0], "budget": 9, "topk_cap": 3, "max_new_tokens": 100}
    )
    return collect(tiny_pair(), params, [f"{a} {b}" for a in range(1, 8) for b in range(1, 8)], budget=params.budget)


def test_collect_has_every_prompt_at_every_temperature(nodes: pd.DataFrame) -> None:
    assert nodes.columns.tolist() == NODE_COLUMNS
    assert set(nodes["temperature"]) == {0.0, 1.0}
    assert nodes.groupby("temperature")["request"].nunique().tolist() == [49, 49]
    assert nodes[["draft", "target", "reach"]].notna().all().all()


def test_targets_probability_is_the_acceptance_and_measured_length_meets_the_law(nodes: pd.DataFrame) -> None:
    hot = nodes[(nodes["temperature"] == 1.0) & nodes["evaluated"]]
    n = len(hot)
    assert n > 5000
    error = math.sqrt((hot["target"] * (1 - hot["target"])).sum()) / n
    assert hot["accepted"].mean() == pytest.approx(hot["target"].mean(), abs=4 * error)
    lengths = acceptance_lengths(nodes).set_index("temperature")
    assert lengths.loc[0.0, "target"] == lengths.loc[0.0, "measured"], "greedy rounds leave nothing to chance"
    assert math.isnan(lengths.loc[0.0, "z"])
    assert abs(lengths.loc[1.0, "z"]) < 3.5
    assert lengths.loc[1.0, "target_hi"] - lengths.loc[1.0, "target_lo"] < 0.2


def test_a_walk_that_accepts_too_much_is_seen(nodes: pd.DataFrame) -> None:
    """Or the test above could not fail: one more draft accepted in every tenth round."""
    hot = nodes[nodes["temperature"] == 1.0].copy()
    first = hot.groupby(["request", "round"]).head(1)
    hot["accepted"] = hot["accepted"].astype(int)
    hot.loc[first.index[::10], "accepted"] += 1
    assert acceptance_lengths(hot).loc[0, "z"] > 3.5


def frame(*rows: tuple[float, int, int, int, float, float, bool, bool]) -> pd.DataFrame:
    names = ["temperature", "request", "round", "depth", "draft_reach", "reach", "evaluated", "accepted"]
    made = pd.DataFrame(list(rows), columns=names)
    return made.assign(draft=made["draft_reach"], target=made["reach"])


def test_lengths_by_hand() -> None:
    """Round 0: a child of .5 with a child of .4 (reach .2); round 1: one child of .6."""
    table = frame(
        (1.0, 0, 0, 1, 0.8, 0.5, True, True),
        (1.0, 0, 0, 2, 0.6, 0.2, True, False),
        (1.0, 0, 1, 1, 0.3, 0.6, True, True),
    )
    (row,) = acceptance_lengths(table).to_dict("records")
    variance = (0.5 * 1 + 0.2 * 3 - 0.7**2) + (0.6 - 0.36)
    assert row["rounds"] == 2
    assert row["drafter"] == pytest.approx(1 + 1.7 / 2)
    assert row["target"] == pytest.approx(1 + 1.3 / 2)
    assert row["measured"] == pytest.approx(2.0)
    assert row["z"] == pytest.approx((2.0 - 1.65) / (math.sqrt(variance) / 2))
    assert row["target_hi"] - row["target"] == pytest.approx(1.959964 * math.sqrt(variance) / 2)


def test_reliability_by_hand() -> None:
    table = frame(
        *((1.0, 0, i, 1, 0.12 + 0.01 * (i % 2), 0.3, True, i < 3) for i in range(10)),
        (1.0, 0, 10, 1, 1.0, 0.9, True, True),
        (1.0, 0, 11, 1, 0.95, 0.7, True, True),
        (1.0, 0, 11, 2, 0.95, 0.7, False, False),
    )
    found = reliability(table)
    assert found[["temperature", "depth", "n", "accepted"]].to_numpy().tolist() == [[1, 1, 10, 3], [1, 1, 2, 2]]
    assert found["draft"].tolist() == pytest.approx([0.125, 0.975])
    assert found["target"].tolist() == pytest.approx([0.3, 0.8])
    assert found["share"].tolist() == [0.3, 1.0]
    assert found.loc[0, ["share_lo", "share_hi"]].tolist() == pytest.approx([0.1078, 0.6032], abs=1e-4)
    assert found.loc[1, ["share_lo", "share_hi"]].tolist() == pytest.approx([0.3424, 1.0], abs=1e-4)
    assert np.isclose(reliability(table, bins=1)["n"].sum(), 12), "a node whose parent was not accepted is left out"


def test_deep_nodes_count_as_the_deepest() -> None:
    table = frame(*((1.0, 0, depth, depth, 0.5, 0.5, True, depth == 5) for depth in range(1, 7)))
    found = reliability(table)
    assert found[["depth", "n", "accepted"]].to_numpy().tolist() == [[1, 1, 0], [2, 1, 0], [3, 4, 1]]
    assert reliability(table, deepest=6)["depth"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_run_that_drafts_nothing_has_empty_tables() -> None:
    params = LiveParams.from_mapping({"budget": 0, "max_new_tokens": 3, "temperatures": [1.0]})
    nodes = collect(tiny_pair(), params, PROMPTS, budget=params.budget)
    assert nodes.columns.tolist() == NODE_COLUMNS
    assert len(reliability(nodes)) == len(acceptance_lengths(nodes)) == 0


def test_batch_probabilities_are_those_of_each_request() -> None:
    step = steps_of([SamplingParams(1.0)] * 3)[0]
    one, many = node_rows(step, SamplingParams(1.0)), node_rows(step, [SamplingParams(1.0)] * 3)
    pd.testing.assert_frame_equal(one, many)
    assert torch.isfinite(step.logits).all()
