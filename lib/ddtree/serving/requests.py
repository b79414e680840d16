"""Requests that a DDTREE server cannot serve rightly: each is refused with a sentence, none is served otherwise."""

from __future__ import annotations

from typing import Any

GRAMMARS = ("json_schema", "regex", "ebnf", "structural_tag")
PENALTIES = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "min_new_tokens": 0}


def refusal(request: Any) -> str | None:
    """Why SGLang's `Req` is refused, or None.

    min_p, top_p, top_k, sampling_seed and logit_bias are served: the last is the same at every node.
    """
    sampling = request.sampling_params
    if request.return_logprob:
        return (
            "DDTREE does not return logprobs: a tree's rows are not those of the text alone. Leave out return_logprob."
        )
    if request.return_hidden_states:
        return "DDTREE does not return hidden states. Leave out return_hidden_states."
    if request.custom_logit_processor is not None:
        return "DDTREE does not run custom_logit_processor: it would have to run at every node of the tree."
    for name in GRAMMARS:
        if getattr(sampling, name) is not None:
            return f"DDTREE does not serve {name}: a grammar's mask differs from node to node. Leave it out."
    for name, off in PENALTIES.items():
        value = getattr(sampling, name)
        if value != off:
            return (
                f"{name} is {value}; DDTREE does not serve it, since the penalty follows each node's own ancestors. "
                f"Set it to {off}."
            )
    return None
