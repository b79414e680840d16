"""The client against a small HTTP server of our own: waiting, streaming, batches and refusals."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ddtree.workbook.bench_serving.client import Client, NotServingError, RefusedError
from wording import names

WORDS = ["one", " two", " three", " four", " five"]


def chunks(speculative: bool, count: int = len(WORDS)) -> list[dict[str, Any]]:
    """As SGLang sends them: text so far, several tokens a chunk, counts in meta_info; 1 + 2 + 2 tokens in 2 rounds."""
    sent = []
    for tokens in (1, 3, count):
        meta: dict[str, Any] = {"completion_tokens": tokens, "finish_reason": None}
        if speculative:
            meta |= {"spec_verify_ct": tokens // 2, "spec_accept_length": 2.0}
        sent.append({"text": "".join(WORDS[:tokens]), "output_ids": list(range(tokens)), "meta_info": meta})
    sent[-1]["meta_info"] |= {"finish_reason": {"type": "length", "length": count}, "e2e_latency": 0.25}
    if speculative:
        sent[-1]["meta_info"]["spec_correct_drafts_histogram"] = [0, 2]
    return sent


def whole(body: dict[str, Any]) -> list[dict[str, Any]]:
    """As SGLang answers several prompts asked as one request."""
    answers = []
    for prompt in body.get("text") or body["input_ids"]:
        answer = chunks(speculative=prompt != "plain")[-1]
        if prompt == "abort":
            answer["meta_info"]["finish_reason"] = {"type": "abort", "message": "regex is not served"}
        if body.get("return_logprob"):
            place = [[-0.5, 7, None], [-0.75, 9, None]]
            answer["meta_info"]["output_top_logprobs"] = [place[: body["top_logprobs_num"]]] * len(WORDS)
        answers.append(answer)
    return answers


class Handler(BaseHTTPRequestHandler):
    """Unhealthy twice, then healthy; a prompt says how it is answered."""

    def do_GET(self) -> None:
        self.server.looks += 1  # type: ignore[attr-defined]
        self.send_response(200 if self.server.looks > 2 else 503)  # type: ignore[attr-defined]
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)  # type: ignore[attr-defined]
        prompt = body.get("text") or body["input_ids"]
        bad = prompt in ("bad", ["bad"])
        self.send_response(400 if bad else 200)
        self.end_headers()
        if bad:
            self.wfile.write(b'{"error": {"message": "no such model"}}')
            return
        if not body["stream"]:
            self.wfile.write(json.dumps(whole(body)).encode())
            return
        sent: list[dict[str, Any]] = chunks(speculative=prompt != "plain")
        if prompt == "abort":
            finish = {"type": "abort", "message": "regex is not served"}
            sent = [{"text": "", "meta_info": {"completion_tokens": 0, "finish_reason": finish}}]
        elif prompt == "error":
            sent = [{"error": {"message": "out of memory"}}]
        elif prompt == "silence":
            sent = []
        for chunk in sent:
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.looks, made.asked = 0, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def client(server: ThreadingHTTPServer) -> Iterator[Client]:
    made = Client(f"http://127.0.0.1:{server.server_address[1]}/")
    yield made
    made.close()


def test_waiting_ends_after_health_and_one_answer(client: Client, server: Any) -> None:
    client.wait(timeout_s=20, every_s=0.01)
    assert server.looks == 3
    assert len(server.asked) == 1
    assert server.asked[0]["sampling_params"]["max_new_tokens"] == 4


def test_a_server_that_stays_ill_is_named_with_its_reason(client: Client, server: Any) -> None:
    server.looks = -10_000
    with pytest.raises(NotServingError, match=names("0.05 503")):
        client.wait(timeout_s=0.05, every_s=0.01)


def test_no_server_is_a_reason_too() -> None:
    nobody = Client("http://127.0.0.1:1")
    with pytest.raises(NotServingError, match="ConnectError"):
        nobody.wait(timeout_s=0.0, every_s=0.01)
    nobody.close()


def test_a_reply_is_what_the_server_counted(client: Client, server: Any) -> None:
    reply = client.request("hello", temperature=0.6, max_new_tokens=5)
    assert server.asked[0] == {
        "text": "hello", "sampling_params": {"temperature": 0.6, "max_new_tokens": 5}, "stream": True,
    }  # fmt: skip
    assert (reply.text, reply.tokens, reply.finish) == ("one two three four five", 5, "length")
    assert (reply.rounds, reply.acceptance) == (2, 2.0)
    assert (reply.ids, reply.passes, reply.server_s) == ((0, 1, 2, 3, 4), (0, 2), 0.25)
    assert reply.first_token_s is not None
    assert 0 < reply.first_token_s <= reply.total_s


def test_without_speculation_there_is_no_acceptance(client: Client) -> None:
    reply = client.request("plain")
    assert (reply.rounds, reply.acceptance, reply.passes) == (None, None, None)


def test_token_ids_are_asked_as_ids(client: Client, server: Any) -> None:
    client.request([5, 6, 7])
    assert server.asked[0]["input_ids"] == [5, 6, 7]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [("abort", "regex is not served"), ("error", "out of memory"), ("bad", "400.*no such model"), ("silence", "token")],
)
def test_a_refusal_says_what_the_server_said(client: Client, prompt: str, told: str) -> None:
    with pytest.raises(RefusedError, match=told):
        client.request(prompt)


def test_prompts_asked_together_are_one_request_and_come_whole(client: Client, server: Any) -> None:
    batch = client.request_batch(
        [[1, 2], [3]], each=[{"sampling_seed": 8}, {"sampling_seed": 9}], temperature=0.6, max_new_tokens=5
    )
    common = {"temperature": 0.6, "max_new_tokens": 5}
    assert server.asked == [
        {
            "input_ids": [[1, 2], [3]], "stream": False,
            "sampling_params": [{**common, "sampling_seed": 8}, {**common, "sampling_seed": 9}],
        }
    ]  # fmt: skip
    assert [reply.ids for reply in batch.replies] == [(0, 1, 2, 3, 4)] * 2
    assert [reply.total_s for reply in batch.replies] == [batch.wall_s] * 2
    assert [reply.first_token_s for reply in batch.replies] == [None, None], "whole replies show no first token"
    assert [reply.acceptance for reply in batch.replies] == [2.0, 2.0]


def test_texts_asked_together_are_asked_as_texts(client: Client, server: Any) -> None:
    client.request_batch(["hello", "plain"])
    assert server.asked == [{"text": ["hello", "plain"], "sampling_params": [{}, {}], "stream": False}]


@pytest.mark.parametrize(("prompt", "told"), [("abort", "regex is not served"), ("bad", "400.*no such model")])
def test_one_refusal_among_several_is_an_error(client: Client, prompt: str, told: str) -> None:
    with pytest.raises(RefusedError, match=told):
        client.request_batch([prompt])


def test_top_logprobs_are_the_likeliest_tokens_at_each_place(client: Client, server: Any) -> None:
    ids, places = client.top_logprobs([4, 5], 2, temperature=0.0)
    assert len(ids) == len(WORDS)
    assert server.asked[0]["return_logprob"] is True
    assert server.asked[0]["top_logprobs_num"] == 2
    assert places == [[(-0.5, 7), (-0.75, 9)]] * len(WORDS)
