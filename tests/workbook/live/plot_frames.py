"""Small frames with numbers that can be checked by hand."""

import pandas as pd


def summary() -> pd.DataFrame:
    rows = [
        # temperature, label, strategy, budget, tokens/s (value, lo, hi), speed-up, acceptance
        (1.0, "tree 16/4", "tree", 16, (22, 20, 25), (1.1, 0.9, 1.3), (2.0, 1.9, 2.2)),
        (1.0, "autoregressive", "autoregressive", 0, (20, 19, 21), (1, 1, 1), (1, 1, 1)),
        (1.0, "chain", "chain", 7, (18, 16, 19), (0.9, 0.8, 0.95), (1.5, 1.4, 1.6)),
        (0.0, "tree 16/4", "tree", 16, (30, 27, 34), (1.5, 1.4, 1.7), (3.0, 2.8, 3.3)),
        (0.0, "chain", "chain", 7, (24, 22, 25), (1.2, 1.1, 1.3), (2.5, 2.4, 2.6)),
        (0.0, "autoregressive", "autoregressive", 0, (20, 19, 21), (1, 1, 1), (1, 1, 1)),
    ]
    names = ("tokens_per_s", "speedup", "acceptance")
    ends = ("", "_lo", "_hi")
    return pd.DataFrame(
        [
            {"temperature": t, "label": label, "strategy": strategy, "budget": budget}
            | {
                f"{n}{e}": float(v)
                for n, values in zip(names, measured, strict=True)
                for e, v in zip(ends, values, strict=True)
            }
            | {"overhead_share": 0.1, "rounds": 10, "tokens": 20}
            for t, label, strategy, budget, *measured in rows
        ]
    )


ACCEPTED = {
    (0.0, "autoregressive"): [0, 0],
    (0.0, "chain"): [0, 0, 1, 2],
    (0.0, "tree 16/4"): [0, 1, 2, 3],
    (1.0, "autoregressive"): [0, 0],
    (1.0, "chain"): [0, 0, 0, 1],
    (1.0, "tree 16/4"): [0, 0, 1, 1],
}
STAGE_MS = {
    "autoregressive": {"draft": 0.0, "build": 0.0, "compile": 0.5, "verify": 40.0, "sample": 1.0, "commit": 0.5},
    "chain": {"draft": 8.0, "build": 0.5, "compile": 0.5, "verify": 50.0, "sample": 2.0, "commit": 1.0},
    "tree 16/4": {"draft": 8.0, "build": 4.0, "compile": 1.0, "verify": 60.0, "sample": 5.0, "commit": 2.0},
}


def rounds() -> pd.DataFrame:
    """Stage times vary by a tenth around `STAGE_MS`, so that their mean is that."""
    return pd.DataFrame(
        [
            {"temperature": t, "label": label, "strategy": label.split()[0], "prompt": 0, "repeat": 0, "round": i}
            | {"budget": {"autoregressive": 0, "chain": 7}.get(label, 16), "tree_size": 1}
            | {"accepted": accepted, "emitted": accepted + 1}
            | {f"{stage}_ms": ms * (0.9 if i % 2 else 1.1) for stage, ms in STAGE_MS[label].items()}
            for (t, label), all_accepted in ACCEPTED.items()
            for i, accepted in enumerate(all_accepted)
        ]
    )
