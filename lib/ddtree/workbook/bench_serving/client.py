"""Send requests to an SGLang server and measure the replies.

Token counts are the server's, times the client's own. Replies come whole, not streamed: that costs server and client
least, which measuring small models needs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

WARM_UP = {"temperature": 0.0, "max_new_tokens": 4}
Answer = dict[str, Any]  # of SGLang: text, output_ids, meta_info
Prompt = str | Sequence[int]
Choice = tuple[float, int]  # log-probability in nats, token


class NotServingError(RuntimeError):
    """The server did not become ready in the time given."""


class RefusedError(RuntimeError):
    """The server refused or aborted a request; the message is the server's."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to one prompt, by the server's counts."""

    ids: tuple[int, ...]
    tokens: int
    server_s: float | None  # seconds by the server's clock; None where it does not say
    rounds: int | None  # verify passes; None without speculation
    acceptance: float | None  # mean tokens per verify pass
    passes: tuple[int, ...] | None  # entry n: verify passes that emitted n + 1 tokens; None where it does not say


@dataclass(frozen=True, slots=True)
class BatchReply:
    """The replies to prompts that were sent as one request, and the seconds until the last of them came."""

    replies: tuple[Reply, ...]
    wall_s: float


class Client:
    """A server by its URL, through /health_generate and /generate. Sampling parameters are SGLang's."""

    def __init__(self, url: str, *, timeout_s: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self.http = httpx.Client(base_url=self.url, timeout=timeout_s)

    def close(self) -> None:
        self.http.close()

    def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """The server's answer to JSON. Raises RefusedError for a status other than 200."""
        answer = self.http.post(path, json=body)
        if answer.status_code != 200:
            raise RefusedError(f"{self.url}{path} answered {answer.status_code}: {answer.text[:500]}")
        return answer

    def health(self) -> str | None:
        """Why the server is not healthy, or None."""
        try:
            answer = self.http.get("/health_generate")
        except httpx.TransportError as error:
            return f"{type(error).__name__}: {error}"
        return None if answer.status_code == 200 else f"status {answer.status_code}"

    def wait(self, timeout_s: float = 300.0, every_s: float = 1.0) -> None:
        """Until the server is healthy and has answered one request, so that it is warm.

        Raises NotServingError with the last reason.
        """
        end = time.monotonic() + timeout_s
        while (reason := self.health()) is not None:
            if time.monotonic() >= end:
                raise NotServingError(f"the server is not healthy after {timeout_s:g} s: {reason}.")
            time.sleep(every_s)
        self.request("1, 2, 3,", **WARM_UP)

    def request(self, prompt: Prompt, **sampling: Any) -> Reply:
        """The reply to one prompt. Raises RefusedError."""
        (reply,) = self.request_batch([prompt], **sampling).replies
        return reply

    def request_batch(
        self, prompts: Sequence[Prompt], *, each: Sequence[Mapping[str, Any]] | None = None, **sampling: Any
    ) -> BatchReply:
        """Send all `prompts` in one request and wait for the last of the replies, which come whole.

        `each` holds more sampling parameters of each prompt, for example its sampling_seed. Raises RefusedError.
        """
        parameters = [{**sampling, **own} for own in each or [{}] * len(prompts)]
        start = time.perf_counter()
        answers = self.generate(prompts, parameters)
        wall_s = time.perf_counter() - start
        return BatchReply(tuple(_reply(answer) for answer in answers), wall_s)

    def top_logprobs(self, prompt: Prompt, count: int, **sampling: Any) -> tuple[tuple[int, ...], list[list[Choice]]]:
        """The tokens of one reply, and at each of their places the top `count` tokens, the likeliest first.

        Equally likely tokens come in any order. Raises RefusedError, always from a speculative server.
        """
        (answer,) = self.generate([prompt], [sampling], return_logprob=True, top_logprobs_num=count)
        places = answer["meta_info"]["output_top_logprobs"]
        choices = [[(float(logprob), int(token)) for logprob, token, *_ in place] for place in places]
        return tuple(answer["output_ids"]), choices

    def generate(self, prompts: Sequence[Prompt], sampling: Sequence[Mapping[str, Any]], **more: Any) -> list[Answer]:
        """Whole replies to prompts sent as one request, each with its own `sampling`, as SGLang gives them.

        Raises RefusedError.
        """
        texts = all(isinstance(prompt, str) for prompt in prompts)
        inputs = {"text": list(prompts)} if texts else {"input_ids": [list(prompt) for prompt in prompts]}
        body = {**inputs, "sampling_params": list(sampling), "stream": False, **more}
        answers: list[Answer] = self.post("/generate", body).json()
        for answer in answers:
            if "error" in answer:
                raise RefusedError(str(answer["error"].get("message", answer["error"])))
            finish = answer["meta_info"].get("finish_reason")
            if finish and finish["type"] == "abort":
                raise RefusedError(str(finish.get("message", finish)))
        return answers


def _reply(answer: Answer) -> Reply:
    meta = answer["meta_info"]
    passes = meta.get("spec_correct_drafts_histogram")
    return Reply(
        ids=tuple(answer.get("output_ids", ())),
        tokens=meta["completion_tokens"],
        server_s=meta.get("e2e_latency"),
        rounds=meta.get("spec_verify_ct"),
        acceptance=meta.get("spec_accept_length"),
        passes=tuple(passes) if passes else None,
    )
