"""The numbers of a serving run as tables for reading, intervals beside the values, emulated costs named."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler

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

MOST_PARTED = 12  # texts listed where they part from plain's
COMMAND_WIDTH = 84  # characters of a line of a command


def servers_table(servers: pd.DataFrame) -> Styler:
    """What ran, a row for each step cost: layers, seconds until its servers were ready, the day and the commit."""
    rows = []
    for extra_layers, here in servers.groupby("extra_layers"):
        ready = pd.to_numeric(here["start_s"]).dropna()
        row = {"layers": ", ".join(map(str, here["layers"].unique())), "identity layers": extra_layers}
        row |= {"servers": ", ".join(map(label, here["name"]))}
        row["ready after"] = f"{ready.min():.0f} to {ready.max():.0f} s" if len(ready) else "ran already"
        made = here[["ready_utc", "git_revision"]].dropna().drop_duplicates("git_revision").to_dict("records")
        rows.append(row | {"measured": "; ".join(f"{at['ready_utc'][:10]}, {at['git_revision'][:7]}" for at in made)})
    return plain(pd.DataFrame(rows))


def commands(servers: pd.DataFrame) -> str:
    """The command line, or the address, of the first server of each method at the least cost."""
    first = servers.sort_values("extra_layers", kind="stable").drop_duplicates("method")
    return "\n\n".join(f"{label(row['name'])}:\n{_broken(row['command'] or row['url'])}" for _, row in first.iterrows())


def rates_table(rates: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """A row for each place: the plain engine's tokens a second, and every other server's over them."""
    texts = _with_interval(rates, "over_plain", "{:.2f}")
    plain_rows = rates["method"] == PLAIN
    texts = texts.where(~plain_rows, _with_interval(rates, "tokens_per_s", "{:,.0f}"))
    return plain(_wide(rates, texts, steps, PLACE).rename(columns={"plain": "plain, tokens/s"}))


def best_table(rates: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """The fastest DDTREE at each place over DFLASH, split into tokens and time of a round, against the target."""
    best = best_budgets(rates)
    shown = _place(best, steps, PLACE).assign(fastest=best["name"].map(label))
    shown["over DFLASH"] = _with_interval(best, "over_dflash", "{:.2f}")
    shown["tokens a round"] = best["tokens_over"].map("{:.2f}×".format)
    shown["time of a round"] = best["time_over"].map("{:.2f}×".format)
    pairs = zip(best["target"], best["verdict"], strict=True)
    shown["target"] = ["" if pd.isna(target) else f"{target:g}: {verdict}" for target, verdict in pairs]
    return plain(shown)


def rounds_table(rounds: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """Batch 1, prefill left out: a plain step in ms, and each server's round with the tokens that it gives."""
    pairs = zip(rounds["round_ms"], rounds["acceptance"], strict=True)
    texts = pd.Series([f"{ms:.2f} ms, {tokens:.2f}" for ms, tokens in pairs], index=rounds.index, dtype=object)
    keys = ["extra_layers", "temperature"]
    shown = _wide(rounds, texts, steps, keys)
    step = rounds.groupby(keys)["step_ms"].first().map("{:.2f} ms".format)
    shown.insert(2, "plain step", step.tolist())
    return plain(shown)


def greedy_table(greedy: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """Greedy texts against plain's, a row for each server and cost."""
    found = greedy_summary(greedy)
    shown = _place(found, steps, ["extra_layers"]).assign(server=found["name"].map(label))
    shown = shown.assign(texts=found["prompts"], equal=found["equal"])
    shown["part at a near-tie"] = found["near_ties"]
    shown["part elsewhere"] = found["parted"] - found["near_ties"]
    shown["largest gap, nats"] = found["largest_gap"]
    return plain(shown)


def parted_table(greedy: pd.DataFrame, steps: pd.DataFrame) -> Styler:
    """The greedy texts that part from plain's, widest gap first, those of unknown gap before them."""
    parted = greedy[greedy["first_difference"].notna()]
    parted = parted.sort_values("gap_nats", ascending=False, na_position="first", kind="stable").head(MOST_PARTED)
    shown = _place(parted, steps, ["extra_layers"]).assign(server=parted["name"].map(label))
    shown = shown.assign(prompt=parted["prompt"] + 1)
    shown["parts at token"] = parted["first_difference"].map("{:.0f}".format)
    shown["gap of plain's two best, nats"] = parted["gap_nats"]
    shown["is plain's second choice"] = parted["second_choice"].map({True: "yes", False: "NO"}).fillna("")
    return plain(shown)


def diversity_table(diversity: pd.DataFrame) -> Styler:
    """How many different texts each server gave to one prompt."""
    shown = pd.DataFrame({"T": diversity["temperature"].map("{:g}".format), "server": diversity["name"].map(label)})
    return plain(shown.assign(answers=diversity["samples"], different=diversity["distinct"]))


def _wide(frame: pd.DataFrame, texts: pd.Series, steps: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """`texts`, one for each row of `frame`, as a row for each place and a column for each server."""
    named = frame[[*keys, "name"]].assign(text=texts)
    wide = named.pivot(index=list(keys), columns="name", values="text").fillna("")[in_order(frame)].reset_index()
    return pd.concat([_place(wide, steps, keys), wide[in_order(frame)].rename(columns=label)], axis=1)


def _place(frame: pd.DataFrame, steps: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """The columns that say where: cost of a step, batch and temperature, those of them that are in `keys`."""
    costs = cost_names(steps, frame["extra_layers"], short=True)
    shown = {"extra_layers": ("step cost", lambda layers: costs[int(layers)])}
    shown |= {"batch": ("batch", str), "temperature": ("T", "{:g}".format)}
    return pd.DataFrame({shown[key][0]: frame[key].map(shown[key][1]) for key in keys})


def _with_interval(frame: pd.DataFrame, name: str, form: str) -> pd.Series:
    """ "1.2 (1.1 to 1.3)", "" where there is no value."""
    columns = (frame[name], frame[f"{name}_lo"], frame[f"{name}_hi"])
    texts = [
        "" if pd.isna(value) else f"{form.format(value)} ({form.format(low)} to {form.format(high)})"
        for value, low, high in zip(*columns, strict=True)
    ]
    return pd.Series(texts, index=frame.index, dtype=object)


def _broken(command: str) -> str:
    """A command in lines that a shell takes as one."""
    lines = textwrap.wrap(command, COMMAND_WIDTH, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines)
