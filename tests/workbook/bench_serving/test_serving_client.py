"""The client against a small HTTP server of our own: waiting, batches and refusals."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from ddtree.workbook.bench_serving.client import Client, NotServingError, RefusedError
from wording import names

TOKENS = 5


def answer_to(prompt: object, body: dict[str, Any]) -> dict[str, Any]:
    """As SGLang answers: text, output_ids, counts in meta_info; 1 + 2 + 2 tokens, 2 verify passes."""
    meta: dict[str, Any] = {"completion_tokens": TOKENS, "e2e_latency": 0.25, "finish_reason": {"type": "length"}}
    if prompt == "error":
        return {"error": {"message": "out of memory"}}
    if prompt == "abort":
        meta["finish_reason"] = {"type": "abort", "message": "regex is not served"}
    if prompt != "plain":
        meta |= {"spec_verify_ct": 2, "spec_accept_length": 2.0, "spec_correct_drafts_histogram": [0, 2]}
    if body.get("return_logprob"):
        meta["output_top_logprobs"] = [[[-0.5, 7, None], [-0.75, 9, None]][: body["top_logprobs_num"]]] * TOKENS
    return {"text": "one two three four five", "output_ids": list(range(TOKENS)), "meta_info": meta}


class Handler(BaseHTTPRequestHandler):
    """Unhealthy twice, then healthy; the prompt decides how it is answered."""

    def do_GET(self) -> None:
        self.server.looks += 1  # type: ignore[attr-defined]
        self.send_response(200 if self.server.looks > 2 else 503)  # type: ignore[attr-defined]
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)  # type: ignore[attr-defined]
        prompts = body.get("text") or body["input_ids"]
        bad = prompts == ["bad"]
        self.send_response(400 if bad else 200)
        self.end_headers()
        answers = [answer_to(prompt, body) for prompt in prompts]
        self.wfile.write(json.dumps({"error": {"message": "no such model"}} if bad else answers).encode())

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
    assert server.asked[0]["sampling_params"][0]["max_new_tokens"] == 4


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
        "text": ["hello"], "sampling_params": [{"temperature": 0.6, "max_new_tokens": 5}], "stream": False,
    }  # fmt: skip
    assert (reply.rounds, reply.acceptance) == (2, 2.0)
    assert (reply.ids, reply.tokens, reply.passes, reply.server_s) == ((0, 1, 2, 3, 4), 5, (0, 2), 0.25)


def test_without_speculation_there_is_no_acceptance(client: Client) -> None:
    reply = client.request("plain")
    assert (reply.rounds, reply.acceptance, reply.passes) == (None, None, None)


def test_token_ids_are_asked_as_ids(client: Client, server: Any) -> None:
    client.request([5, 6, 7])
    assert server.asked[0]["input_ids"] == [[5, 6, 7]]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [("abort", "regex is not served"), ("error", "out of memory"), ("bad", "400.*no such model")],
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
    assert batch.wall_s > 0
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
    assert len(ids) == TOKENS
    assert server.asked[0]["return_logprob"] is True
    assert server.asked[0]["top_logprobs_num"] == 2
    assert places == [[(-0.5, 7), (-0.75, 9)]] * TOKENS
