"""A pair is found by name, folder or hub id; what cannot be had is a sentence that says where it was looked for."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ddtree.models import zoo
from ddtree.models.weights import dequantise, quantise
from ddtree.models.zoo import ASSETS, Pair, fetch, fetch_drafter, load_pair
from dflash.model import DFlashDraftModel
from safetensors.torch import load_file, save_file
from tiny import tiny_drafter, tiny_llama, tiny_target
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from wording import names, tells

SHIPPED = ASSETS / "smollm2-135m-dflash"
CPU_WITH = {"amx_bf16": "bfloat16", "avx512_bf16": "bfloat16", "avx512f": "float32"}


def save_target(folder: Path, change: Callable[[LlamaForCausalLM], None] | None = None) -> Path:
    """A tiny target as a folder; `change` may spoil it first."""
    model = tiny_llama()
    model.generation_config.eos_token_id = 9
    if change is not None:
        change(model)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(64)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


def save_drafter(folder: Path) -> Path:
    tiny_drafter(tiny_target()).model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A tiny target and its drafter on disk."""
    root = tmp_path_factory.mktemp("pair")
    return str(save_target(root / "target")), str(save_drafter(root / "drafter"))


# Finding


def test_unknown_name_lists_the_zoo() -> None:
    for search, what in ((fetch, "model"), (lambda name: fetch_drafter("smollm2-135m", name), "drafter")):
        with pytest.raises(FileNotFoundError) as caught:
            search("smollm3")
        assert tells(caught.value, f"{what} smollm3 smollm2-135m")


@pytest.mark.parametrize("name", ["/no/model", "./no/model", "~/no", "a/b/c"])
def test_missing_folder_is_not_taken_for_a_hub_id(name: str) -> None:
    with pytest.raises(FileNotFoundError, match=names(f"model {name}")):
        fetch(name)


def test_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=names("config.json")) as caught:
        fetch(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


def test_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "org" / "name" / "config.json").write_text("{}")
    assert fetch(str(tmp_path / "org" / "name")) == tmp_path / "org" / "name"
    monkeypatch.chdir(tmp_path)
    assert fetch("org/name") == Path("org/name"), "before the hub is asked"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch_drafter("any", "~/org/name") == tmp_path / "org" / "name"


def test_hub_id_without_network_says_where_it_looked(tmp_path: Path) -> None:
    """In a process of its own, since the hub's library reads its variables when it is imported."""
    script = "from ddtree.models.zoo import fetch; fetch('org/no-such-model')"
    environment = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert tells(last, f'FileNotFoundError: model "org/no-such-model" {tmp_path / "hub"}')


def test_truncated_weights_from_the_hub_are_fetched_again(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folders[0], tmp_path / "snapshot")
    weights = tmp_path / "snapshot" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    asked: list[bool] = []

    def snapshot_download(hub_id: str, *, allow_patterns: list[str], force_download: bool = False) -> str:
        asked.append(force_download)
        if force_download:
            weights.write_bytes(whole)
        return str(weights.parent)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    for _ in range(2):
        assert fetch("org/name") == weights.parent
    assert asked == [False, True, False]
    assert tells(capsys.readouterr().out, f"{weights} damaged")


def test_auto_drafter_belongs_to_zoo_names_alone(folders: tuple[str, str]) -> None:
    for model in ("org/name", folders[0]):
        with pytest.raises(ValueError, match=names("drafter auto smollm2-135m")) as caught:
            fetch_drafter(model)
        assert tells(caught.value, model)


# Loading


def test_pair_of_folders(folders: tuple[str, str]) -> None:
    pair = load_pair(*folders, dtype="float32")
    assert pair.target.eos_ids == {9}
    assert pair.target.encode("5 1 3") == [5, 1, 3]
    assert pair.drafter.depth == 3
    assert {name: pair.facts[name] for name in ("model", "drafter", "dtype", "device", "block_size")} == {
        "model": folders[0],
        "drafter": folders[1],
        "dtype": "float32",
        "device": "cpu",
        "block_size": 4,
    }
    tokens = torch.tensor([[5, 1, 3]])
    with torch.inference_mode():
        expected = tiny_llama()(tokens).logits
        torch.testing.assert_close(pair.target.model(tokens).logits, expected, rtol=0, atol=1e-4)
    session = pair.target.open([[5, 1, 3, 2]], room=1)
    assert session.prompt_features.shape == (1, 3, 2 * 32), "both feature layers that the drafter's config names"


def test_a_pair_that_cannot_be_packed_loads_and_says_so(
    folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo, "can_pack", lambda _dtype: False)
    pair = load_pair(*folders, dtype="float32")
    assert pair.facts["packed_linears"] is False
    assert any(isinstance(module, torch.nn.Linear) for module in pair.target.model.modules())


@pytest.mark.parametrize("flag", CPU_WITH)
def test_auto_dtype_follows_the_cpu(
    folders: tuple[str, str], flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_cpu(monkeypatch, tmp_path / "cpuinfo", f"flags\t: fpu sse2 {flag} avx2\n")
    pair = load_pair(*folders)
    assert pair.facts["dtype"] == CPU_WITH[flag]
    assert {pair.target.model.dtype, pair.drafter.model.dtype} == {zoo.DTYPES[CPU_WITH[flag]]}


def test_auto_dtype_of_an_unknown_cpu_is_float32(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_cpu(monkeypatch, tmp_path / "absent")
    assert load_pair(*folders).facts["dtype"] == "float32"


def test_dtype_asked_for_is_the_dtype(
    folders: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_cpu(monkeypatch, tmp_path / "cpuinfo", "flags\t: amx_bf16\n")
    assert load_pair(*folders, dtype="float32").target.model.dtype == torch.float32


def pretend_cpu(monkeypatch: pytest.MonkeyPatch, cpuinfo: Path, content: str | None = None) -> None:
    if content is not None:
        cpuinfo.write_text(content)
    monkeypatch.setattr(zoo, "Path", lambda path: cpuinfo if path == "/proc/cpuinfo" else Path(path))


# Refusing


@pytest.fixture
def no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong in the arguments is said before a download begins."""

    def refuse(model: str) -> Path:
        raise AssertionError("nothing may be fetched")

    monkeypatch.setattr(zoo, "fetch", refuse)


@pytest.mark.usefixtures("no_fetch")
def test_unknown_dtype() -> None:
    with pytest.raises(ValueError, match=names("dtype int4 auto float32 bfloat16 float16")):
        load_pair("smollm2-135m", dtype="int4")


@pytest.mark.usefixtures("no_fetch")
def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=names("device cuda cpu")):
        load_pair("smollm2-135m", device="cuda")


@pytest.mark.usefixtures("no_fetch")
def test_unknown_device() -> None:
    with pytest.raises(ValueError, match=names("device gpu cpu cuda")):
        load_pair("smollm2-135m", device="gpu")


def test_target_that_names_no_end_token(folders: tuple[str, str], tmp_path: Path) -> None:
    def without_end(model: LlamaForCausalLM) -> None:
        model.generation_config.eos_token_id = None
        model.config.eos_token_id = None

    with pytest.raises(ValueError, match=names("generation_config eos_token_id")):
        load_pair(str(save_target(tmp_path, without_end)), folders[1], dtype="float32")


def test_several_end_tokens_all_count(folders: tuple[str, str], tmp_path: Path) -> None:
    def two_ends(model: LlamaForCausalLM) -> None:
        model.generation_config.eos_token_id = [9, 11]

    assert load_pair(str(save_target(tmp_path, two_ends)), folders[1], dtype="float32").target.eos_ids == {9, 11}


def test_drafter_of_another_target(folders: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=names("576 32")) as caught:
        load_pair(folders[0], str(fetch_drafter("smollm2-135m")))
    assert "smollm2-135m-dflash" in str(caught.value)


def test_folder_of_pickles_is_refused_by_name(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((Path(folders[0]) / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"not read")
    for pair in ((str(tmp_path), folders[1]), (folders[0], str(tmp_path))):
        with pytest.raises(ValueError, match=names("pytorch_model.bin safetensors")) as caught:
            load_pair(*pair, dtype="float32")
        assert str(tmp_path) in str(caught.value)


def test_folder_without_weights_is_named(folders: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((Path(folders[0]) / "config.json").read_text())
    with pytest.raises(ValueError, match=names("safetensors")):
        load_pair(str(tmp_path), folders[1], dtype="float32")


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_truncated_weights_of_a_folder_are_named(folders: tuple[str, str], tmp_path: Path, keep: int) -> None:
    shutil.copytree(folders[0], tmp_path / "target")
    weights = tmp_path / "target" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(ValueError, match=names("model.safetensors")):
        load_pair(str(tmp_path / "target"), folders[1], dtype="float32")


# The pair that the project knows by name


def test_shipped_drafter_is_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 16_000_000


def test_shipped_drafter_loads_in_dflash_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    folder = fetch_drafter("smollm2-135m")
    assert sorted(path.name for path in folder.iterdir()) == [".manifest.json", "config.json", "model.safetensors"]
    model, loading = DFlashDraftModel.from_pretrained(folder, local_files_only=True, output_loading_info=True)
    assert {name: problems for name, problems in loading.items() if problems} == {}
    weights = dequantise(load_file(SHIPPED / "model.int8.safetensors"), torch.bfloat16)
    assert {name: weight.shape for name, weight in model.state_dict().items()} == {
        name: weight.shape for name, weight in weights.items()
    }
    assert all(torch.equal(weight.bfloat16(), weights[name]) for name, weight in model.state_dict().items())
    assert (model.block_size, model.target_layer_ids) == (8, [1, 7, 14, 21, 27])


def test_new_weights_do_not_find_the_old_cache_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo, "ASSETS", tmp_path / "assets")
    asset = tmp_path / "assets" / SHIPPED.name
    asset.mkdir(parents=True)
    (asset / "config.json").write_text("{}")
    for value in (1.0, 2.0):
        save_file(quantise({"w": torch.full((2, 3), value)}), asset / "model.int8.safetensors")
        for _ in range(2):
            weights = load_file(fetch_drafter("smollm2-135m") / "model.safetensors")
            assert weights["w"].tolist() == [[value] * 3] * 2
    assert len([entry for entry in (tmp_path / "cache").iterdir() if entry.is_dir()]) == 2


def test_damaged_drafter_is_made_again_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    weights = fetch_drafter("smollm2-135m") / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    assert fetch_drafter("smollm2-135m") / "model.safetensors" == weights
    assert weights.read_bytes() == whole
    said = f"model.safetensors 1000 {len(whole)}"
    assert tells(capsys.readouterr().out, said)


def test_verify_reads_the_contents_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights").write_text("right")

    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    monkeypatch.setattr(zoo, "ZOO", {"smollm2-135m": zoo.ZooEntry(fill, SHIPPED.name)})
    target = fetch("smollm2-135m") / "weights"
    drafter = fetch_drafter("smollm2-135m") / "config.json"
    right = drafter.read_text()
    target.write_text("wrong")
    drafter.write_text(right.replace("8", "9"))
    fetch("smollm2-135m")
    assert target.read_text() == "wrong", "a load looks at sizes alone"
    assert zoo.verify("smollm2-135m") == target.parent
    assert (target.read_text(), drafter.read_text()) == ("right", right)


def test_verify_knows_zoo_names_alone(folders: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=names("smollm2-135m")):
        zoo.verify(folders[0])


@pytest.fixture(scope="module")
def real(smollm2: Path) -> Pair:
    return load_pair("smollm2-135m")


@pytest.mark.model
def test_real_pair_loads(real: Pair) -> None:
    assert real.target.eos_ids == {2}, "<|im_end|>; the tokenizer inside the GGUF says 1"
    assert (real.target.output_head.out_features, real.target.model.config.num_hidden_layers) == (49152, 30)
    assert real.drafter.depth == 7
    assert (real.facts["model"], real.facts["drafter"], real.facts["block_size"]) == ("smollm2-135m", "auto", 8)


@pytest.mark.model
def test_real_tokenizer(real: Pair) -> None:
    tokenizer = real.target.tokenizer
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.pad_token_id) == ("<|im_end|>", 2, 2)
    message = "Blanks stay : before , these ! \n\tdon 't ."
    assert tokenizer.decode(tokenizer(message)["input_ids"]) == message
    asked = tokenizer.decode(real.target.encode("Hello?"))
    assert asked.endswith("<|im_start|>user\nHello?<|im_end|>\n<|im_start|>assistant\n")
    assert real.target.decode([*tokenizer("Yes.")["input_ids"], 2]) == "Yes."
