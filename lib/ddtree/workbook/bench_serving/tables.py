"""Show the numbers of a serving run as tables, with intervals next to the values and emulated costs named."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler

from ddtree.workbook.bench.tables import interval_texts
from ddtree.workbook.bench_serving.summary import (
    PLACE,
    PLAIN,
    best_budgets,
    cost_names,
    greedy_summary,
    in_order,
    label,
)
from ddtree.workbook.tables import plain

MAX_LISTED = 12  # texts that diverge from plain's
COMMAND_WIDTH = 84  # characters of a line of a command


def servers_table(servers: pd.DataFrame) -> Styler:
    """What ran, a row for each step cost: layers, seconds until its servers were ready, the day and the commit."""
    rows = []
    for extra_layers, here in servers.groupby("extra_layers"):
        ready = pd.to_numeric(here["start_s"]).dropna()
        origins = here[["ready_utc", "git_revision"]].dropna().drop_duplicates("git_revision").to_dict("records")
        rows.append(
            {
                "layers": ", ".join(map(str, here["layers"].unique())),
                "identity layers": extra_layers,
                "servers": ", ".join(map(label, here["name"])),
                "ready after": f"{ready.min():.0f} to {ready.max():.0f} s" if len(ready) else "already running",
                "measured": "; ".join(f"{at['ready_utc'][:10]}, {at['git_revision'][:7]}" for at in origins),
            }
        )
    return plain(pd.DataFrame(rows))


def commands(servers: pd.DataFrame) -> str:
    """The command line, or the address, of the first server of each method at the lowest cost, wrapped for a shell."""
    first = servers.sort_values("extra_layers", kind="stable").drop_duplicates("method")
    texts = []
    for _, row in first.iterrows():
        command = row["command"] or row["url"]
        lines = textwrap.wrap(command, COMMAND_WIDTH, break_long_words=False, break_on_hyphens=False)
        texts.append(f"{label(row['name'])}:\n" + " \\\n    ".join(lines))
    return "\n\n".join(texts)


def rates_table(rates: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """A row for each place: the plain engine's tokens per second, and every other server's ratio to it."""
    ratios, speeds = interval_texts(rates, "over_plain", "{:.2f}"), interval_texts(rates, "tokens_per_s", "{:,.0f}")
    texts = ratios.where(rates["method"] != PLAIN, speeds)
    return plain(_wide(rates, texts, steps, PLACE).rename(columns={PLAIN: "plain, tokens/s"}))


def best_table(rates: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """The fastest DDTREE at each place over DFLASH, split into tokens and time of a round, against the target."""
    best = best_budgets(rates)
    shown = _places(best, steps, PLACE).assign(fastest=best["name"].map(label))
    shown["over DFLASH"] = interval_texts(best, "over_dflash", "{:.2f}")
    shown["tokens per round"] = best["tokens_over"].map("{:.2f}×".format)
    shown["time of a round"] = best["time_over"].map("{:.2f}×".format)
    targets = zip(best["target"], best["verdict"], strict=True)
    shown["target"] = ["" if pd.isna(target) else f"{target:g}: {verdict}" for target, verdict in targets]
    return plain(shown)


def rounds_table(rounds: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """Batch 1 without prefill: a plain step in ms, and each server's round with the tokens that it gives."""
    texts = rounds["round_ms"].map("{:.2f} ms, ".format) + rounds["acceptance"].map("{:.2f}".format)
    keys = ["extra_layers", "temperature"]
    shown = _wide(rounds, texts, steps, keys)
    shown.insert(2, "plain step", rounds.groupby(keys)["step_ms"].first().map("{:.2f} ms".format).tolist())
    return plain(shown)


def greedy_table(greedy: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """Greedy texts against plain's, a row for each server and cost."""
    found = greedy_summary(greedy)
    shown = _places(found, steps, ["extra_layers"]).assign(server=found["name"].map(label), texts=found["prompts"])
    shown["equal"] = found["equal"]
    shown["diverge at a near-tie"] = found["near_ties"]
    shown["diverge elsewhere"] = found["diverged"] - found["near_ties"]
    shown["largest gap, nats"] = found["largest_gap"]
    return plain(shown)


def divergence_table(greedy: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """Where greedy texts diverge from plain's, unknown gaps first, then the widest."""
    found = greedy[greedy["first_difference"].notna()]
    found = found.sort_values("gap_nats", ascending=False, na_position="first", kind="stable").head(MAX_LISTED)
    shown = _places(found, steps, ["extra_layers"]).assign(server=found["name"].map(label), prompt=found["prompt"] + 1)
    shown["first different token"] = found["first_difference"].map("{:.0f}".format)
    shown["gap of plain's top two, nats"] = found["gap_nats"]
    shown["is plain's second choice"] = found["second_choice"].map({True: "yes", False: "NO"}).fillna("")
    return plain(shown)


def diversity_table(diversity: pd.DataFrame) -> Styler:
    """How many different texts each server gave to one prompt."""
    shown = pd.DataFrame({"T": diversity["temperature"].map("{:g}".format), "server": diversity["name"].map(label)})
    return plain(shown.assign(answers=diversity["samples"], different=diversity["distinct"]))


def _wide(frame: pd.DataFrame, texts: pd.Series, steps: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """`texts`, one for each row of `frame`, as a row for each place and a column for each server."""
    names = in_order(frame)
    wide = frame[[*keys, "name"]].assign(text=texts).pivot(index=list(keys), columns="name", values="text")
    wide = wide.fillna("")[names].reset_index()
    return pd.concat([_places(wide, steps, keys), wide[names].rename(columns=label)], axis=1)


def _places(frame: pd.DataFrame, steps: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The columns of `keys` for reading: cost of a step, batch and temperature."""
    costs = cost_names(steps, frame["extra_layers"], short=True)
    shown = {"extra_layers": ("step cost", lambda layers: costs[int(layers)])}
    shown |= {"batch": ("batch", str), "temperature": ("T", "{:g}".format)}
    return pd.DataFrame({shown[key][0]: frame[key].map(shown[key][1]) for key in keys})
