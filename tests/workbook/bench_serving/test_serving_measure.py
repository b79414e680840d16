"""The whole measurement over a stand-in for SGLang: the rows are what the servers said, and no server stays."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest
from ddtree.workbook.bench_serving import servers as servers_module
from ddtree.workbook.bench_serving.client import NotServingError
from ddtree.workbook.bench_serving.measure import Metrics, measure_serving
from ddtree.workbook.bench_serving.servers import ServerDiedError, server_group
from serving_room import PROGRAM, PROMPTS, Room, made_room
from stand_in_server import greedy_ids
from wording import names, tells

NAMES = ["plain", "dflash", "ddtree-16"]
IDS = list(PROMPTS.values())


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(servers_module, "POLL_S", 0.05)
        patch.setattr(servers_module, "COOL_DOWN_S", 0.0)
        yield


@pytest.fixture
def room(quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("STAND_IN", str(tmp_path))
    return made_room(tmp_path)


@pytest.fixture(scope="module")
def run(quick: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Room, Metrics, list[Metrics]]:
    """One whole run of two groups: its room, its rows, and what was kept after each part."""
    place = tmp_path_factory.mktemp("serving")
    room = made_room(place)
    kept: list[Metrics] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAND_IN", str(place))
        metrics = measure_serving(
            room.params(),
            say=lambda _: None,
            keep=lambda rows: kept.append({part: list(found) for part, found in rows.items()}),
            program=PROGRAM,
        )
    return room, metrics, kept


Run = tuple[Room, Metrics, list[Metrics]]


def test_no_server_and_no_child_of_one_stays(run: Run) -> None:
    assert run[0].alive() == []
    assert len(run[0].commands()) == 6


def test_servers_are_told_apart_by_name_group_and_layers(run: Run) -> None:
    rows = run[1]["servers"]
    assert [(row["extra_layers"], row["layers"], row["name"], row["method"]) for row in rows] == [
        (extra, 2 + extra, name, name.split("-")[0]) for extra in (0, 3) for name in NAMES
    ]
    assert [(row["budget"], row["topk_cap"]) for row in rows[:3]] == [(None, None), (None, None), (16, 4)]
    assert all(row["url"] is None and row["start_s"] > 0 for row in rows)


def test_a_command_names_no_folder_of_this_machine(run: Run) -> None:
    commands = {(row["name"], row["extra_layers"]): row["command"] for row in run[1]["servers"]}
    assert not any("/" in command for command in commands.values())
    assert "--model-path target " in commands["plain", 0]
    assert "--model-path target-3 " in commands["dflash", 3]
    assert "--speculative-draft-model-path drafter-3 " in commands["dflash", 3]
    assert "--speculative-algorithm DFLASH" in commands["dflash", 0]
    assert "--speculative-num-draft-tokens 4 " in commands["dflash", 0]
    assert commands["ddtree-16", 0].startswith("DDTREE_BUDGET=16 DDTREE_TOPK_CAP=4 DDTREE_DRAFT_TEMPERATURE=1.0 ")
    assert all("--page-size 1 --sleep-on-idle" in command for command in commands.values())


def test_no_two_servers_share_a_port(run: Run) -> None:
    commands = run[0].commands()
    used = [argv[argv.index(flag) + 1] for argv in commands[:3] for flag in ("--port", "--nccl-port")]
    assert len(set(used)) == 6


def test_each_prompt_goes_round_all_servers_before_the_next(run: Run) -> None:
    rows = [row for row in run[1]["alone"] if row["extra_layers"] == 0]
    assert [(row["temperature"], row["prompt"]) for row in rows] == [
        (temperature, prompt) for temperature in (0.0, 0.6) for prompt in range(3) for _ in NAMES
    ]
    turns = [[row["name"] for row in rows[start : start + 3]] for start in range(0, len(rows), 3)]
    assert all(sorted(turn) == sorted(NAMES) for turn in turns)
    assert {turn[0] for turn in turns[:3]} == set(NAMES), "one server is always measured first"


def test_what_was_asked_is_what_the_rows_say(run: Run) -> None:
    """Behind the warm-up, the servers' own log shows a one-token reply and a whole one for each row, in its order."""
    room, metrics, _ = run
    first = [line for line in room.asked() if line["layers"] == 2]
    start = next(
        place
        for place, (one, two) in enumerate(pairwise(first))
        if [len(line["input_ids"]) for line in (one, two)] == [1, 1]
        and [line["sampling_params"][0]["max_new_tokens"] for line in (one, two)] == [1, 7]
    )
    rows = [row for row in metrics["alone"] if row["extra_layers"] == 0]
    asked = first[start : start + 2 * len(rows)]
    for row, short, whole in zip(rows, asked[::2], asked[1::2], strict=True):
        for line, tokens in ((short, 1), (whole, 7)):
            (sampling,) = line["sampling_params"]
            assert line["name"] == row["name"]
            assert line["input_ids"] == [IDS[row["prompt"]]]
            assert (sampling["temperature"], sampling["max_new_tokens"]) == (row["temperature"], tokens)
            assert sampling["ignore_eos"] is True
            assert line["stream"] is False
            assert ("sampling_seed" in sampling) == (row["method"] == "ddtree" and row["temperature"] > 0)


def test_batches_of_the_warm_up_shrink_as_measured_ones_do(run: Run) -> None:
    """Replies end one after another, so that what is made for a smaller batch is made before anything is timed."""
    first = [line for line in run[0].asked() if line["layers"] == 2 and len(line["input_ids"]) == 4][:6]
    assert [line["name"] for line in first] == [name for name in NAMES for _ in (0.0, 0.6)]
    for line in first:
        assert [sampling["max_new_tokens"] for sampling in line["sampling_params"]] == [8, 16, 24, 32]


def test_alone_holds_what_the_server_counted(run: Run) -> None:
    counted = {"plain": (None, None), "dflash": (3, 7 / 3), "ddtree": (2, 7 / 2)}
    for row in run[1]["alone"]:
        assert row["tokens"] == 7
        assert (row["rounds"], row["acceptance"]) == counted[row["method"]]
        assert row["total_s"] > 0
        assert row["first_token_s"] > 0


def test_histograms_add_up_the_passes_of_all_prompts(run: Run) -> None:
    rows = run[1]["histograms"]
    assert len(rows) == 2 * 2 * 2, "groups, temperatures, speculative servers"
    right = {"dflash": {"2": 9}, "ddtree": {"3": 6}}
    assert all(row["counts"] == right[row["method"]] for row in rows)


def test_a_batch_is_one_request_and_sums_over_it(run: Run) -> None:
    rows = [row for row in run[1]["together"] if row["extra_layers"] == 0]
    assert [(row["temperature"], row["batch"], row["repeat"]) for row in rows] == [
        (temperature, 4, repeat) for temperature in (0.0, 0.6) for repeat in range(2) for _ in NAMES
    ]
    right = {"plain": None, "dflash": 12, "ddtree": 8}
    for row in rows:
        assert (row["tokens"], row["requests"], row["rounds"]) == (28, 4, right[row["method"]])
        assert row["first_token_s"] == 0.125, "the server's own clock"
    whole = [
        line
        for line in run[0].asked()
        if line["layers"] == 2 and len(line["input_ids"]) == 4 and line["sampling_params"][0]["max_new_tokens"] == 7
    ]
    assert [line["name"] for line in whole] == [row["name"] for row in rows]
    first, second = (whole[place]["input_ids"] for place in (0, 3))
    assert first == [IDS[0], IDS[1], IDS[2], IDS[0]]
    assert second == [IDS[1], IDS[2], IDS[0], IDS[1]], "the next batch goes on where this one ends"
    seeds = [sampling["sampling_seed"] for line in whole if line["name"] == "ddtree-16"
             for sampling in line["sampling_params"] if sampling["temperature"] > 0]  # fmt: skip
    assert len(seeds) == len(set(seeds)) == 8


def test_greedy_texts_diverge_where_they_diverge_and_the_gap_is_plains(run: Run) -> None:
    rows = {(row["extra_layers"], row["name"], row["prompt"]): row for row in run[1]["greedy"]}
    assert len(rows) == 2 * 2 * 3
    for extra in (0, 3):
        for prompt, ids in enumerate(IDS):
            equal = rows[extra, "dflash", prompt]
            assert (equal["first_difference"], equal["gap_nats"], equal["second_choice"]) == (None, None, None)
            assert equal["tokens"] == 7
            tree = rows[extra, "ddtree-16", prompt]
            parts = sum(ids) % 2 == 0
            assert tree["first_difference"] == (2 if parts else None)
            assert tree["gap_nats"] == (0.25 if parts else None)
            assert tree["second_choice"] is (True if parts else None)


def test_only_plain_is_asked_for_its_likeliest_tokens(run: Run) -> None:
    lines = [line for line in run[0].asked() if line.get("return_logprob")]
    assert [(line["name"], line["input_ids"], line["sampling_params"][0]["max_new_tokens"]) for line in lines] == [
        ("plain", [IDS[0]], 3), ("plain", [IDS[0]], 3),
    ]  # fmt: skip


def test_depth_is_free_where_plain_says_the_same(run: Run) -> None:
    assert run[1]["depth_is_free"] == [
        {"extra_layers": 3, "prompt": prompt, "same": ids[-1] != 63} for prompt, ids in enumerate(IDS)
    ]
    assert {row["extra_layers"] for row in run[1]["plain_greedy"]} == {0, 3}
    assert run[1]["plain_greedy"][0]["ids"] == greedy_ids(IDS[0], 7)


def test_diversity_counts_different_texts_once_in_the_first_group(run: Run) -> None:
    rows = {row["name"]: row for row in run[1]["diversity"]}
    assert list(rows) == NAMES
    tree = rows["ddtree-16"]
    assert tree == {
        "name": "ddtree-16", "method": "ddtree", "budget": 16, "temperature": 0.6, "samples": 6, "distinct": 5,
    }  # fmt: skip
    assert all(row["samples"] == 6 for row in rows.values())
    assert rows["plain"]["distinct"] == 2, "four at once and then two, and the stand-in draws once a request"


def test_each_part_is_kept_before_the_next_begins(run: Run) -> None:
    kept = run[2]
    parts = ("alone", "greedy", "together", "diversity")
    filled = [[part for part in parts if any(row.get("extra_layers", 0) == 0 for row in rows[part])] for rows in kept]
    assert filled[:4] == [list(parts[:n]) for n in range(1, 5)], "one part after another"
    groups = [sorted({row["extra_layers"] for row in rows["alone"]}) for rows in kept]
    assert groups == [[0]] * 4 + [[0, 3]] * 3, "answers are compared once"
    assert kept[0]["depth_is_free"] == []
    assert kept[-1] == run[1]
    assert run[1]["skipped"] == []


def test_deepened_folders_are_gone(run: Run) -> None:
    paths = [argv[argv.index("--model-path") + 1] for argv in run[0].commands()]
    deep = [Path(path) for path in paths if path.endswith("target-3")]
    assert len(deep) == 3
    assert not any(path.exists() for path in deep)


def test_a_server_that_cannot_start_is_named_with_the_end_of_its_log(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DIES", "dflash")
    with pytest.raises(ServerDiedError, match=r"dflash.*3.*\n.*torch\.OutOfMemoryError"):
        measure_serving(room.params(), say=lambda _: None, program=PROGRAM)
    assert room.alive() == []


def test_a_server_that_dies_while_it_is_asked_leaves_what_was_done(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DIES", "ddtree:15")
    with pytest.raises(ServerDiedError, match=r"ddtree-16.*3.*\n.*illegal memory access"):
        measure_serving(room.params(), say=lambda _: None, program=PROGRAM)
    assert room.alive() == []
    assert (room.place / "out/logs/ddtree-16-0.log").is_file()


def test_a_server_that_never_serves_is_given_up(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (PROGRAM[0], "-c", "import time; print('loading', flush=True); time.sleep(600)")
    with pytest.raises(ServerDiedError, match=r"plain.* 1 s.*ConnectError.*\n.*loading"):
        measure_serving(room.params(start_timeout_s=1), say=lambda _: None, program=program)
    children = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not any("time.sleep(600)" in line for line in children)


def test_without_a_gpu_nothing_is_started(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(RuntimeError, match=names("1 CUDA")):
        measure_serving(room.params())
    assert list(room.place.glob("[0-9]*.json")) == []


def test_running_servers_are_attached_to_and_left_running(room: Room) -> None:
    start = server_group(room.params(), 0, (room.target, room.drafter), room.place / "logs", PROGRAM, lambda _: None)
    with start as (servers, _):
        urls = {server.name: server.client.url for server in servers}
        params = room.params(urls=urls, extra_layers=[0], temperatures=[0.6], batches=[4])
        found = measure_serving(params, say=lambda _: None)
        assert all(httpx.get(f"{url}/health_generate").status_code == 200 for url in urls.values())
    assert [(row["name"], row["url"], row["start_s"], row["command"]) for row in found["servers"]] == [
        (name, urls[name], None, "") for name in NAMES
    ]
    assert found["alone"] == []
    assert len(found["together"]) == 2 * 3
    (skipped,) = found["skipped"]
    assert tells(skipped["what"], "1 greedy")
    assert tells(skipped["why"], "1 batches")


@pytest.mark.parametrize(("missing", "why"), [("plain", "plain urls"), ("zero", "0 temperatures")])
def test_a_regression_that_cannot_be_made_is_said_to_be_skipped(room: Room, missing: str, why: str) -> None:
    start = server_group(room.params(), 0, (room.target, room.drafter), room.place / "logs", PROGRAM, lambda _: None)
    with start as (servers, _):
        urls = {server.name: server.client.url for server in servers if server.name != missing}
        temperatures = [0.6] if missing == "zero" else [0.0]
        params = room.params(urls=urls, extra_layers=[0], temperatures=temperatures, batches=[1], samples=0)
        found = measure_serving(params, say=lambda _: None)
    assert found["greedy"] == found["plain_greedy"] == found["depth_is_free"] == found["diversity"] == []
    (skipped,) = found["skipped"]
    assert tells(skipped["what"], "greedy")
    assert tells(skipped["why"], why)


def test_attached_servers_have_one_target(room: Room) -> None:
    with pytest.raises(ValueError, match=names("extra_layers [0, 3] urls")):
        measure_serving(room.params(urls={"plain": "http://127.0.0.1:1"}))


def test_an_address_where_nobody_serves_is_named(room: Room) -> None:
    params = room.params(urls={"plain": "http://127.0.0.1:1"}, extra_layers=[0], start_timeout_s=1)
    with pytest.raises(NotServingError, match=names("plain http://127.0.0.1:1 ConnectError")):
        measure_serving(params, say=lambda _: None)
