"""A folder in which the whole measurement runs: tiny models, a tokenizer of digits, the stand-in for SGLang."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ddtree.workbook.params import ServingParams
from tiny import tiny_drafter, tiny_llama, tiny_target
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

PROGRAM = (sys.executable, str(Path(__file__).with_name("stand_in_server.py")))
PROMPTS = {"1 2 3": [1, 2, 3], "4 5": [4, 5], "2 63": [2, 63]}  # sums 6, 9 and 65


@dataclass(frozen=True)
class Room:
    place: Path

    @property
    def target(self) -> Path:
        return self.place / "target"

    @property
    def drafter(self) -> Path:
        return self.place / "drafter"

    def params(self, **changed: Any) -> ServingParams:
        values: dict[str, Any] = {
            "target": str(self.target), "drafter": str(self.drafter), "out_dir": str(self.place / "out"),
            "prompts": list(PROMPTS), "temperatures": [0.0, 0.6], "batches": [1, 4], "max_new_tokens": 7, "repeats": 2,
            "samples": 6, "extra_layers": [0, 3], "seed": 11, "start_timeout_s": 30,
            "server_arguments": {"page_size": 1, "sleep_on_idle": True},
        }  # fmt: skip
        return ServingParams.from_mapping(values | changed)

    def asked(self) -> list[dict[str, Any]]:
        """What all servers were asked with token ids, in order."""
        lines = [json.loads(line) for line in (self.place / "asked.jsonl").read_text().splitlines()]
        return [line for line in lines if "input_ids" in line]

    def commands(self) -> list[list[str]]:
        """In the order in which servers began, so those of a group stand together."""
        began = sorted(self.place.glob("[0-9]*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(path.read_text())["argv"] for path in began]

    def alive(self) -> list[int]:
        """Processes of servers and their children that still run."""
        pids = [pid for path in self.place.glob("[0-9]*.json") for pid in json.loads(path.read_text())["pids"]]
        assert pids, "no server was started"
        return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def made_room(place: Path) -> Room:
    room = Room(place)
    tiny_llama().save_pretrained(room.target)
    tiny_drafter(tiny_target()).model.save_pretrained(room.drafter)
    tokenizer = Tokenizer(WordLevel({str(number): number for number in range(64)}, unk_token="0"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(room.target)
    return room


def until(true: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)
