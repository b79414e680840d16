"""A client of a running server, or of an engine in this process: waits until it serves, asks, and measures.

What it counts is what the server says it emitted; the clock is the client's own. A streamed reply shows its first
token; a whole one costs the server and the client least, which a measurement of small models needs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

WARM_UP = {"temperature": 0.0, "max_new_tokens": 4}
Chunk = dict[str, Any]  # SGLang's: text so far, output_ids, meta_info
Prompt = str | Sequence[int]
Choice = tuple[float, int]  # log-probability in nats, token


class NotServingError(RuntimeError):
    """The server did not come to serve in the time given."""


class RefusedError(RuntimeError):
    """The server refused or aborted a request; the message is the server's."""


class Server(Protocol):
    """What the client needs of a server."""

    concurrent: bool  # whether several threads may stream at once

    def health(self) -> str | None:
        """Why it is not healthy, or None."""

    def stream(self, prompt: Prompt, sampling: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of one reply. Raises RefusedError."""

    def answer(self, prompts: Sequence[Prompt], sampling: Sequence[dict[str, Any]], **more: Any) -> list[Chunk]:
        """Whole replies to prompts asked as one request, each under its own `sampling`. Raises RefusedError."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as the client saw it; times in seconds."""

    text: str
    ids: tuple[int, ...]
    tokens: int
    first_token_s: float | None  # None for a reply that came whole
    total_s: float
    server_s: float | None  # the same as the server saw it; None where it does not say
    finish: str  # SGLang's finish_reason: "length" or "stop"
    rounds: int | None  # verify passes; None without speculation
    acceptance: float | None  # tokens a verify pass emitted in the mean, by the server's count
    passes: tuple[int, ...] | None  # entry n: verify passes that emitted n + 1 tokens; None where it does not say

    @property
    def tokens_per_s(self) -> float:
        """The whole reply over the whole time, prefill included."""
        return self.tokens / self.total_s


@dataclass(frozen=True, slots=True)
class Load:
    """What a set of requests came to."""

    replies: tuple[Reply, ...]
    wall_s: float

    @property
    def tokens_per_s(self) -> float:
        """All replies' tokens over the wall clock."""
        return sum(reply.tokens for reply in self.replies) / self.wall_s

    @property
    def first_token_s(self) -> float | None:
        """Median of those that streamed; None if none did."""
        seen = [reply.first_token_s for reply in self.replies if reply.first_token_s is not None]
        return statistics.median(seen) if seen else None

    @property
    def acceptance(self) -> float | None:
        """Tokens a verify pass, over all passes; None without speculation. The first token of a reply has no pass."""
        rounds = [reply.rounds for reply in self.replies if reply.rounds]
        return sum(reply.tokens - 1 for reply in self.replies if reply.rounds) / sum(rounds) if rounds else None


class HttpServer:
    """A server by its URL, over /health_generate and /generate."""

    concurrent = True

    def __init__(self, url: str, *, timeout_s: float = 600.0, transport: httpx.BaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self.http = httpx.Client(base_url=self.url, timeout=timeout_s, transport=transport)

    def health(self) -> str | None:
        try:
            answer = self.http.get("/health_generate")
        except httpx.TransportError as error:
            return f"{type(error).__name__}: {error}"
        return None if answer.status_code == 200 else f"status {answer.status_code}"

    def stream(self, prompt: Prompt, sampling: dict[str, Any]) -> Iterator[Chunk]:
        asked = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
        body = {**asked, "sampling_params": sampling, "stream": True}
        with self.http.stream("POST", "/generate", json=body) as answer:
            if answer.status_code != 200:
                raise RefusedError(f"{self.url} answered {answer.status_code}: {answer.read().decode()[:500]}")
            for line in answer.iter_lines():
                if line.startswith("data:") and (data := line.removeprefix("data:").strip()) != "[DONE]":
                    yield json.loads(data)

    def answer(self, prompts: Sequence[Prompt], sampling: Sequence[dict[str, Any]], **more: Any) -> list[Chunk]:
        body = {**_several(prompts, "text"), "sampling_params": list(sampling), "stream": False, **more}
        answer = self.http.post("/generate", json=body)
        if answer.status_code != 200:
            raise RefusedError(f"{self.url} answered {answer.status_code}: {answer.text[:500]}")
        return list(answer.json())

    def close(self) -> None:
        self.http.close()


class EngineServer:
    """SGLang's engine in this process, started with `arguments`; it answers one request after another."""

    concurrent = False

    def __init__(self, **arguments: Any) -> None:
        import sglang  # lazily: a client of a URL needs no SGLang

        self.engine = sglang.Engine(**arguments)

    def health(self) -> str | None:
        return None  # the constructor returned, so it serves

    def stream(self, prompt: Prompt, sampling: dict[str, Any]) -> Iterator[Chunk]:
        asked = {"prompt": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
        yield from self.engine.generate(**asked, sampling_params=sampling, stream=True)

    def answer(self, prompts: Sequence[Prompt], sampling: Sequence[dict[str, Any]], **more: Any) -> list[Chunk]:
        return list(self.engine.generate(**_several(prompts, "prompt"), sampling_params=list(sampling), **more))

    def close(self) -> None:
        self.engine.shutdown()


class Client:
    """Asks and measures. `server` is an HttpServer or an EngineServer."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def wait(self, timeout_s: float = 300.0, every_s: float = 1.0) -> None:
        """Until the server is healthy and has answered one request, so that what follows is measured warm.

        Raises NotServingError with the last reason.
        """
        end = time.monotonic() + timeout_s
        while (reason := self.server.health()) is not None:
            if time.monotonic() >= end:
                raise NotServingError(f"the server is not healthy after {timeout_s:g} s: {reason}.")
            time.sleep(every_s)
        self.ask("1, 2, 3,", **WARM_UP)

    def ask(self, prompt: Prompt, **sampling: Any) -> Reply:
        """Stream one reply; `sampling` are SGLang's parameters. Raises RefusedError."""
        start = time.perf_counter()
        first: float | None = None
        last: Chunk = {}
        for last in self.server.stream(prompt, sampling):
            _refuse(last)
            if first is None and last["meta_info"]["completion_tokens"] > 0:
                first = time.perf_counter() - start
        total = time.perf_counter() - start
        if not last or first is None:
            raise RefusedError("the server ended the stream without a token.")
        return _reply(last, total, first)

    def together(
        self, prompts: Sequence[Prompt], *, each: Sequence[Mapping[str, Any]] | None = None, **sampling: Any
    ) -> Load:
        """Ask all `prompts` in one request and wait for the last of the replies, which come whole.

        `each` holds more sampling parameters of each prompt, its sampling_seed for one. Every reply's total_s is the
        wall clock of all. Raises RefusedError.
        """
        asked = [{**sampling, **own} for own in each or [{}] * len(prompts)]
        start = time.perf_counter()
        answers = self.server.answer(prompts, asked)
        wall = time.perf_counter() - start
        for answer in answers:
            _refuse(answer)
        return Load(tuple(_reply(answer, wall) for answer in answers), wall)

    def choices(self, prompt: Prompt, many: int, **sampling: Any) -> tuple[tuple[int, ...], list[list[Choice]]]:
        """One reply's tokens, and at each of their places the `many` likeliest, the likeliest first.

        Of two that are equally likely either may be the token and either may be listed first.
        Raises RefusedError, from a speculative server always.
        """
        (answer,) = self.server.answer([prompt], [sampling], return_logprob=True, top_logprobs_num=many)
        _refuse(answer)
        places = answer["meta_info"]["output_top_logprobs"]
        listed = [[(float(logprob), int(token)) for logprob, token, *_ in place] for place in places]
        return tuple(answer["output_ids"]), listed

    def load(self, prompts: Sequence[Prompt], *, at_once: int = 1, **sampling: Any) -> Load:
        """Ask all `prompts`, `at_once` of them at a time.

        Raises ValueError for several at once on an engine, which answers one after another; RefusedError.
        """
        if at_once < 1 or (at_once > 1 and not self.server.concurrent):
            raise ValueError(
                f"at_once is {at_once}; it must be 1 or more, and 1 for an engine in this process. "
                "Start a server for more."
            )
        start = time.perf_counter()
        with ThreadPoolExecutor(at_once) as threads:
            replies = tuple(threads.map(lambda prompt: self.ask(prompt, **sampling), prompts))
        return Load(replies, time.perf_counter() - start)


def _several(prompts: Sequence[Prompt], texts: str) -> dict[str, Any]:
    """Prompts of one request; `texts` is what the server calls them where they are texts."""
    if all(isinstance(prompt, str) for prompt in prompts):
        return {texts: list(prompts)}
    return {"input_ids": [list(prompt) for prompt in prompts]}


def _reply(last: Chunk, total_s: float, first_token_s: float | None = None) -> Reply:
    meta = last["meta_info"]
    passes = meta.get("spec_correct_drafts_histogram")
    return Reply(
        text=last["text"],
        ids=tuple(last.get("output_ids", ())),
        tokens=meta["completion_tokens"],
        first_token_s=first_token_s,
        total_s=total_s,
        server_s=meta.get("e2e_latency"),
        finish=meta["finish_reason"]["type"],
        rounds=meta.get("spec_verify_ct"),
        acceptance=meta.get("spec_accept_length"),
        passes=tuple(passes) if passes else None,
    )


def _refuse(chunk: Chunk) -> None:
    if "error" in chunk:
        raise RefusedError(str(chunk["error"].get("message", chunk["error"])))
    finish = chunk["meta_info"].get("finish_reason")
    if finish and finish["type"] == "abort":
        raise RefusedError(str(finish.get("message", finish)))
