"""Identity layers change the cost of a model and not one bit of what it says; its drafter reads the same layers."""

import json
from pathlib import Path

import pytest
import torch
from ddtree.workbook.bench_serving import identity_layers
from ddtree.workbook.bench_serving.identity_layers import add_identity_layers, add_identity_layers_to_drafter
from safetensors.torch import load_file, save_file
from tiny import FEATURE_LAYERS, LAYERS, SIZES, tiny_drafter, tiny_llama, tiny_target
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from wording import names

EXTRA = 5
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [60, 50, 40, 30, 20, 10, 0, 7]])


def llama() -> LlamaForCausalLM:
    return tiny_llama()


def llama_with_biases() -> LlamaForCausalLM:
    torch.manual_seed(4)
    config = tiny_llama().config
    config.attention_bias = config.mlp_bias = True
    model = LlamaForCausalLM(config)
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    return model


def qwen3() -> Qwen3ForCausalLM:
    torch.manual_seed(3)
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=64, num_hidden_layers=3, tie_word_embeddings=True, **SIZES))


def saved(model: LlamaForCausalLM | Qwen3ForCausalLM, folder: Path, dtype: torch.dtype, shard: str = "5GB") -> Path:
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return folder


def logits(folder: Path, dtype: torch.dtype) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.inference_mode():
        return model(IDS).logits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [llama, llama_with_biases, qwen3])
def test_logits_are_equal_to_the_bit_and_would_not_be_with_other_layers(
    make: object, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = make()  # type: ignore[operator]
    layers = model.config.num_hidden_layers
    source = saved(model, tmp_path / "source", dtype)
    deep = add_identity_layers(source, tmp_path / "deep", EXTRA)
    right = logits(source, dtype)
    assert torch.equal(logits(deep, dtype), right)
    loaded = AutoModelForCausalLM.from_pretrained(deep, dtype=dtype)
    assert loaded.config.num_hidden_layers == layers + EXTRA == len(loaded.model.layers)
    (added,) = [path for path in deep.glob("*.safetensors") if "model.layers.0.mlp.up_proj.weight" in load_file(path)]
    weights = load_file(added)
    zeroed = [name for name in weights if "o_proj" in name or "down_proj" in name]
    for name in zeroed:
        assert not weights[name].any()
        torch.nn.init.normal_(weights[name], std=0.05)
    save_file(weights, added, metadata={"format": "pt"})
    assert not torch.equal(logits(deep, dtype), right), "the added layers are not computed at all"


def test_added_layers_do_the_work_of_a_real_one(tmp_path: Path) -> None:
    deep = add_identity_layers(saved(llama(), tmp_path / "source", torch.float32), tmp_path / "deep", EXTRA)
    layers = AutoModelForCausalLM.from_pretrained(deep).model.layers
    real = dict(layers[EXTRA].named_parameters())
    for layer in layers[:EXTRA]:
        for name, weight in layer.named_parameters():
            right = torch.zeros_like(weight) if "o_proj" in name or "down_proj" in name else real[name]
            assert torch.equal(weight, right), name


def test_shards_and_small_files_hold_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_layers, "FILE_BYTES", 1)  # a file for each added layer
    source = saved(llama(), tmp_path / "source", torch.float32, shard="20KB")
    shards = len(list(source.glob("*.safetensors")))
    assert shards > 1
    deep = add_identity_layers(source, tmp_path / "deep", EXTRA)
    assert len(list(deep.glob("*.safetensors"))) == shards + EXTRA
    assert torch.equal(logits(deep, torch.float32), logits(source, torch.float32))
    index = json.loads((deep / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(
        weight.nbytes for path in deep.glob("*.safetensors") for weight in load_file(path).values()
    )


def test_kinds_of_layers_are_named_for_each(tmp_path: Path) -> None:
    source = saved(qwen3(), tmp_path / "source", torch.float32)
    config = json.loads((add_identity_layers(source, tmp_path / "deep", EXTRA) / "config.json").read_text())
    assert config["layer_types"] == ["full_attention"] * (3 + EXTRA)


def test_what_stands_beside_the_weights_comes_along(tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "source", torch.float32)
    (source / "tokenizer.json").write_text("{}")
    (source / "pytorch_model.bin").write_text("a pickle")
    deep = add_identity_layers(source, tmp_path / "deep", 1)
    assert (deep / "tokenizer.json").read_text() == "{}"
    assert (deep / "generation_config.json").is_file()
    assert not (deep / "pytorch_model.bin").exists()


def test_the_drafter_reads_the_same_features(tmp_path: Path) -> None:
    source = saved(tiny_llama(), tmp_path / "source", torch.float32)
    drafter = tmp_path / "drafter"
    tiny_drafter(tiny_target()).model.save_pretrained(drafter)
    deep_drafter = add_identity_layers_to_drafter(drafter, tmp_path / "deep_drafter", EXTRA)
    config = json.loads((deep_drafter / "config.json").read_text())
    moved = config["dflash_config"]["target_layer_ids"]
    assert moved == [layer + EXTRA for layer in FEATURE_LAYERS]
    assert config["num_target_layers"] == LAYERS + EXTRA
    assert (deep_drafter / "model.safetensors").samefile(drafter / "model.safetensors")
    deep = add_identity_layers(source, tmp_path / "deep", EXTRA)
    states = []
    for folder in (source, deep):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.inference_mode():
            states.append(model.model(IDS, output_hidden_states=True).hidden_states)
    shallow, deeper = states  # entry n is what layer n reads
    for before, after in zip(FEATURE_LAYERS[:-1], moved[:-1], strict=True):
        assert torch.equal(shallow[before + 1], deeper[after + 1])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel LlamaForCausalLM"),
        ({"architectures": None}, "architecture"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "several kinds"),
    ],
)
def test_other_models_are_refused_with_a_sentence(change: dict[str, object], told: str, tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "source", torch.float32)
    config = json.loads((source / "config.json").read_text()) | change
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=names(told)):
        add_identity_layers(source, tmp_path / "deep", 1)


def test_nothing_to_add_and_no_drafter_are_errors(tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "source", torch.float32)
    with pytest.raises(ValueError, match=names("extra_layers 0")):
        add_identity_layers(source, tmp_path / "deep", 0)
    with pytest.raises(ValueError, match="target_layer_ids"):
        add_identity_layers_to_drafter(source, tmp_path / "deep", 1)
