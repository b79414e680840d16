"""Started in place of SGLang: answers /generate from the prompt alone, counts what it is asked, and has a child.

STAND_IN is a folder for what the tests read: PID.json of each server, asked.jsonl of all. STAND_IN_DIES is a method:
"dflash" ends at its start, "dflash:40" at its 40th request.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PER_PASS = {"dflash": 2, "ddtree": 3}
PARTS_AT, ODD_ONE = 2, 63


def greedy_ids(prompt: list[int], tokens: int, *, method: str = "plain", layers: int = 2) -> list[int]:
    """DDTREE says another token at place 2 of even prompts; a deeper target differs on prompts that end in 63."""
    ids = [(sum(prompt) + 7 * place) % 50 for place in range(tokens)]
    if layers > 2 and prompt[-1] == ODD_ONE:
        ids = [token + 1 for token in ids]
    if method == "ddtree" and sum(prompt) % 2 == 0 and tokens > PARTS_AT:
        ids[PARTS_AT] += 100
    return ids


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = 0
    lock = threading.Lock()

    def do_GET(self) -> None:
        self._send(b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.lock:
            Handler.asked += 1
            if died_of and Handler.asked >= int(died_of):
                print("CUDA error: an illegal memory access, as it were", flush=True)
                os._exit(3)
            with (place / "asked.jsonl").open("a") as log:
                log.write(json.dumps({"name": name, "layers": layers, **body}) + "\n")
        pairs = zip(body.get("input_ids", [[0]]), body["sampling_params"], strict=True)  # a text is the warm-up
        self._send(json.dumps([answer(prompt, sampling, body) for prompt, sampling in pairs]).encode())

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def answer(prompt: list[int], sampling: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    tokens = sampling["max_new_tokens"]
    ids = greedy_ids(prompt, tokens, method=method, layers=layers)
    if sampling["temperature"] > 0:
        ids[-1] = 1000 + sampling.get("sampling_seed", Handler.asked) % 5
    meta: dict[str, Any] = {
        "completion_tokens": tokens, "finish_reason": {"type": "length"}, "e2e_latency": 0.125,
    }  # fmt: skip
    if method in PER_PASS and tokens > 1:
        each = PER_PASS[method]
        rounds = -(-(tokens - 1) // each)
        histogram = [0] * (each - 1) + [rounds]
        meta |= {
            "spec_verify_ct": rounds, "spec_accept_length": tokens / rounds, "spec_correct_drafts_histogram": histogram,
        }  # fmt: skip
    if body.get("return_logprob"):
        meta["output_top_logprobs"] = [[[-0.5, token, None], [-0.75, token + 100, None]] for token in ids]
    return {"text": " ".join(map(str, ids)), "output_ids": ids, "meta_info": meta}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--model-path", type=Path)
    parser.add_argument("--speculative-algorithm", default="plain")
    known, _ = parser.parse_known_args()
    method = known.speculative_algorithm.lower()
    name = f"ddtree-{os.environ['DDTREE_BUDGET']}" if method == "ddtree" else method
    layers = json.loads((known.model_path / "config.json").read_text())["num_hidden_layers"]
    place = Path(os.environ["STAND_IN"])
    dies, _, died_of = os.environ.get("STAND_IN_DIES", "").partition(":")
    died_of = died_of if dies == method else ""
    child = subprocess.Popen(["sleep", "600"])
    began = place / f"{os.getpid()}.json"
    began.with_suffix(".part").write_text(json.dumps({"argv": sys.argv, "pids": [os.getpid(), child.pid]}))
    began.with_suffix(".part").rename(began)  # whole, whenever it is looked for
    if dies == method and not died_of:
        print("torch.OutOfMemoryError: as it were", flush=True)
        sys.exit(3)
    ThreadingHTTPServer(("127.0.0.1", known.port), Handler).serve_forever()
