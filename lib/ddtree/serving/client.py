"""A client of a running server, or of an engine in this process: waits until it serves, streams, and measures.

What it counts is what the server says it emitted; the clock is the client's own.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

WARM_UP = {"temperature": 0.0, "max_new_tokens": 4}
Chunk = dict[str, Any]  # SGLang's: text so far, output_ids, meta_info


class NotServingError(RuntimeError):
    """The server did not come to serve in the time given."""


class RefusedError(RuntimeError):
    """The server refused or aborted a request; the message is the server's."""


class Server(Protocol):
    """What the client needs of a server."""

    concurrent: bool  # whether several threads may stream at once

    def health(self) -> str | None:
        """Why it is not healthy, or None."""

    def stream(self, prompt: str | Sequence[int], sampling: dict[str, Any]) -> Iterator[Chunk]:
        """The chunks of one reply. Raises RefusedError."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as the client saw it; times in seconds."""

    text: str
    tokens: int
    first_token_s: float
    total_s: float
    finish: str  # SGLang's finish_reason: "length" or "stop"
    rounds: int | None  # verify passes; None without speculation
    acceptance: float | None  # tokens a verify pass emitted in the mean, by the server's count

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
    def first_token_s(self) -> float:
        """Median."""
        return statistics.median(reply.first_token_s for reply in self.replies)

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

    def stream(self, prompt: str | Sequence[int], sampling: dict[str, Any]) -> Iterator[Chunk]:
        asked = {"text": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
        body = {**asked, "sampling_params": sampling, "stream": True}
        with self.http.stream("POST", "/generate", json=body) as answer:
            if answer.status_code != 200:
                raise RefusedError(f"{self.url} answered {answer.status_code}: {answer.read().decode()[:500]}")
            for line in answer.iter_lines():
                if line.startswith("data:") and (data := line.removeprefix("data:").strip()) != "[DONE]":
                    yield json.loads(data)

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

    def stream(self, prompt: str | Sequence[int], sampling: dict[str, Any]) -> Iterator[Chunk]:
        asked = {"prompt": prompt} if isinstance(prompt, str) else {"input_ids": list(prompt)}
        yield from self.engine.generate(**asked, sampling_params=sampling, stream=True)

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

    def ask(self, prompt: str | Sequence[int], **sampling: Any) -> Reply:
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
        meta = last["meta_info"]
        return Reply(
            text=last["text"],
            tokens=meta["completion_tokens"],
            first_token_s=first,
            total_s=total,
            finish=meta["finish_reason"]["type"],
            rounds=meta.get("spec_verify_ct"),
            acceptance=meta.get("spec_accept_length"),
        )

    def load(self, prompts: Sequence[str | Sequence[int]], *, at_once: int = 1, **sampling: Any) -> Load:
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


def _refuse(chunk: Chunk) -> None:
    if "error" in chunk:
        raise RefusedError(str(chunk["error"].get("message", chunk["error"])))
    finish = chunk["meta_info"].get("finish_reason")
    if finish and finish["type"] == "abort":
        raise RefusedError(str(finish.get("message", finish)))
