"""Command lines and environments of servers, prompts as the target's own template gives them, order of turns."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ddtree.models.target import Target
from ddtree.workbook.bench.timing import rotated
from ddtree.workbook.bench_serving.measure import cycled, encode_prompts, first_difference
from ddtree.workbook.bench_serving.servers import (
    PORTS,
    Launch,
    ModelFolders,
    ServerSpec,
    command_text,
    cuda_graph_batches,
    free_ports,
    launch_arguments,
    launch_environment,
    server_specs,
    source_folders,
)
from ddtree.workbook.params import ServingParams
from serving_room import made_room
from transformers import AutoTokenizer
from wording import names

FOLDERS = ModelFolders(Path("/models/the target"), Path("/models/drafter"), layers=30, block_size=8)
TEMPLATE = "{% for m in messages %}1 {{ m['content'] }} 2 {% endfor %}{% if add_generation_prompt %}3{% endif %}"


def words(name: str, **changed: Any) -> list[str]:
    params = ServingParams.from_mapping({"budgets": [32], "seed": 5} | changed)
    (spec,) = [spec for spec in server_specs(params, 0) if spec.name == name]
    return launch_arguments(spec, params, FOLDERS, port=21000, nccl_port=21001)


def value(line: list[str], flag: str) -> str:
    return line[line.index(flag) + 1]


def test_every_server_gets_the_folder_ports_seed_and_batches() -> None:
    for name in ("plain", "dflash", "ddtree-32"):
        line = words(name, batches=[1, 6], tp=2)
        assert value(line, "--model-path") == "/models/the target"
        assert (value(line, "--port"), value(line, "--nccl-port")) == ("21000", "21001")
        assert (value(line, "--random-seed"), value(line, "--tp-size")) == ("5", "2")
        start = line.index("--cuda-graph-bs-decode")
        assert line[start + 1 : start + 5] == ["1", "2", "4", "6"]


def test_speculation_is_asked_of_those_that_speculate() -> None:
    assert not any(word.startswith("--speculative") for word in words("plain"))
    dflash, tree = words("dflash"), words("ddtree-32")
    for line, algorithm in ((dflash, "DFLASH"), (tree, "DDTREE")):
        assert value(line, "--speculative-algorithm") == algorithm
        assert value(line, "--speculative-draft-model-path") == "/models/drafter"
    assert value(dflash, "--speculative-num-draft-tokens") == "8"
    assert "--speculative-num-draft-tokens" not in tree, "a tree's width is its budget's, not the block's"


def test_more_arguments_come_as_flags_values_and_lists_and_win() -> None:
    more = {"sleep_on_idle": True, "enable_metrics": False, "mem_fraction_static": 0.5, "random_seed": 9,
            "cuda_graph_bs_decode": "1 8", "log_level": "info"}  # fmt: skip
    line = words("plain", server_arguments=more)
    assert "--sleep-on-idle" in line
    assert "--enable-metrics" not in line
    assert (value(line, "--mem-fraction-static"), value(line, "--log-level")) == ("0.5", "info")
    assert line.count("--random-seed") == 1
    assert value(line, "--random-seed") == "9"
    start = line.index("--cuda-graph-bs-decode")
    assert line[start + 1 : start + 3] == ["1", "8"]
    assert line[start + 3].startswith("--")


def test_a_seed_fits_every_generator() -> None:
    assert value(words("plain", seed=2**62 + 3), "--random-seed") == "3"


def test_settings_of_ddtree_are_launch_environment() -> None:
    params = ServingParams.from_mapping({"budgets": [16, 64], "topk_cap": 6, "draft_temperature": 0.8})
    plain, dflash, small, large = server_specs(params, 7)
    assert launch_environment(plain, params) == launch_environment(dflash, params) == {}
    right = {"DDTREE_TOPK_CAP": "6", "DDTREE_DRAFT_TEMPERATURE": "0.8"}
    assert launch_environment(small, params) == {"DDTREE_BUDGET": "16", **right}
    assert launch_environment(large, params) == {"DDTREE_BUDGET": "64", **right}
    assert large == ServerSpec("ddtree-64", "ddtree", 64, 6, 7)


def test_a_command_is_shown_as_one_types_it() -> None:
    command = (sys.executable, "-m", "sglang.launch_server", "--model-path", "/models/the target")
    spec = ServerSpec("plain", "plain", None, None, 0)
    line = command_text(Launch(spec, command, {"A": "1"}, 21000, Path("log")))
    assert line == f"A=1 {Path(sys.executable).name} -m sglang.launch_server --model-path 'the target'"


def test_graphs_are_captured_for_what_is_asked_and_what_is_left_of_it() -> None:
    assert cuda_graph_batches([1, 8]) == [1, 2, 4, 8]
    assert cuda_graph_batches([5]) == [1, 2, 4, 5]
    assert cuda_graph_batches([1]) == [1]


def test_ports_are_different_and_free() -> None:
    ports = free_ports(10)
    assert len(set(ports)) == 10
    assert set(ports) <= set(PORTS)


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_prompts_are_what_live_runs_give_the_target(template: str | None, tmp_path: Path) -> None:
    room = made_room(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(room.target)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(room.target)
    target = Target.__new__(Target)  # its encoding needs no model
    target.tokenizer = AutoTokenizer.from_pretrained(room.target)
    right = [target.encode("7 8 9"), target.encode("40")]
    assert encode_prompts(["7 8 9", "40"], room.target) == right
    assert right[0] == ([7, 8, 9] if template is None else [1, 7, 8, 9, 2, 3])


def test_folders_are_taken_as_they_are_and_names_looked_up(tmp_path: Path) -> None:
    room = made_room(tmp_path)
    assert source_folders(room.params()) == (room.target, room.drafter)
    (tmp_path / "smollm2-135m").symlink_to(room.target)
    linked = room.params(target=str(tmp_path / "smollm2-135m"))
    assert source_folders(linked)[0].name == "smollm2-135m", "a command shows the name that was given"
    with pytest.raises(FileNotFoundError, match=names("model no-such-model")):
        source_folders(room.params(target="no-such-model"))
    with pytest.raises(FileNotFoundError, match=names("drafter no-such-drafter")):
        source_folders(room.params(drafter="no-such-drafter"))


def test_a_zoo_name_is_not_a_folder_that_happens_to_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ddtree.models.zoo.fetch", lambda name: Path("/cache") / name)
    monkeypatch.setattr("ddtree.models.zoo.fetch_drafter", lambda name: Path("/cache") / f"{name}-drafter")
    found = source_folders(ServingParams.from_mapping({}))
    assert found == (Path("/cache/smollm2-135m"), Path("/cache/smollm2-135m-drafter"))


def test_turns_start_one_further_and_batches_go_round() -> None:
    assert [rotated("abc", turn) for turn in range(4)] == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"],
                                                                ["a", "b", "c"]]  # fmt: skip
    assert [cycled("abc", 4, turn) for turn in range(2)] == [["a", "b", "c", "a"], ["b", "c", "a", "b"]]


def test_texts_diverge_at_the_first_token_that_differs() -> None:
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2)) is None


def test_a_machine_that_serves_needs_no_workbook() -> None:
    """Pandas, plotly, papermill and the drafter's class are not there; a fresh interpreter shows what is imported."""
    code = (
        "import sys, ddtree.workbook.bench_serving.record; "
        "print(sorted({'pandas', 'plotly', 'papermill', 'dflash', 'platformdirs', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
