"""A packed layer gives the plain layer's product."""

import pytest
import torch
from ddtree.models import weights
from ddtree.models.weights import PackedLinear, can_pack, pack_linears
from tiny import tiny_llama
from torch import nn

pytestmark = pytest.mark.skipif(not can_pack(), reason="this torch build or CPU has no oneDNN")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (5, 24), (17, 24), (2, 3, 24), (3, 0, 24)])
@torch.inference_mode()
def test_product_is_the_plain_one(shape: tuple[int, ...], bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(24, 40, bias=bias, dtype=dtype)
    rows = torch.randn(shape, dtype=dtype)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    packed = PackedLinear(plain)
    found = packed(rows)
    assert found.dtype == dtype
    torch.testing.assert_close(found, plain(rows), rtol=tolerance, atol=tolerance)
    assert (packed.in_features, packed.out_features) == (24, 40)


@torch.inference_mode()
def test_every_linear_of_a_model_is_replaced_and_nothing_else() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(9, 8), nn.Linear(8, 16), nn.ModuleDict({"inner": nn.Linear(16, 4)})["inner"], nn.LayerNorm(4)
    )
    tokens = torch.arange(9)
    before = model(tokens)
    assert pack_linears(model) == 2
    torch.testing.assert_close(model(tokens), before, rtol=1e-5, atol=1e-5)
    assert not any(isinstance(module, nn.Linear) for module in model.modules())
    assert sorted(name for name, _ in model.named_parameters()) == ["0.weight", "3.bias", "3.weight"]
    assert pack_linears(model) == 0


@torch.inference_mode()
def test_packed_target_scores_as_before() -> None:
    model = tiny_llama()
    tokens = torch.tensor([[1, 2, 3, 4]])
    before = model(tokens).logits
    assert pack_linears(model) == 2 * 7 + 1
    torch.testing.assert_close(model(tokens).logits, before, rtol=0, atol=1e-4)


def test_a_trial_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    assert can_pack.__wrapped__(torch.bfloat16) in (True, False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("error", [AttributeError("no such op"), RuntimeError("needs another cpu"), TypeError("args")])
def test_a_torch_build_that_cannot_pack_says_so(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def unusable(linear: nn.Linear) -> nn.Module:
        raise error

    monkeypatch.setattr(weights, "PackedLinear", unusable)
    assert not can_pack.__wrapped__()
    monkeypatch.setattr(weights, "PackedLinear", lambda _: lambda rows: 2 * rows)
    assert not can_pack.__wrapped__(), "wrong products count too"
