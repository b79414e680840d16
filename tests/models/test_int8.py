"""int8 keeps a matrix within half a step of each row, leaves vectors alone, and an incomplete file is an error."""

import pytest
import torch
from ddtree.models.weights import dequantise, quantise
from wording import names


def matrix() -> torch.Tensor:
    """Rows whose sizes differ by nine orders of magnitude, and one of zeros."""
    torch.manual_seed(0)
    rows = torch.randn(7, 50) * torch.tensor([1e-6, 1e-3, 0.02, 1.0, 30.0, 1e3, 0.0])[:, None]
    rows[2, 5] = 4.0  # an outlier coarsens its own row alone
    return rows


def test_each_weight_comes_back_within_half_a_step_of_its_row() -> None:
    rows = matrix()
    back = dequantise(quantise({"w": rows}), torch.float32)["w"]
    half_step = rows.abs().amax(dim=1, keepdim=True) / 127 / 2
    assert ((back - rows).abs() <= half_step * (1 + 1e-4)).all()
    assert back[6].tolist() == [0.0] * 50
    largest = rows.abs().argmax(dim=1, keepdim=True)
    torch.testing.assert_close(back.gather(1, largest), rows.gather(1, largest), rtol=1e-6, atol=0)


def test_whole_range_is_used_and_no_more() -> None:
    packed = quantise({"w": matrix()})
    assert packed["w"].dtype == torch.int8
    assert packed["w"][:6].abs().amax(dim=1).tolist() == [127] * 6
    assert packed["w.scale"].dtype == torch.float32
    assert packed["w.scale"].shape == (7,)
    assert packed["w"].min() >= -127


def test_values_by_hand() -> None:
    packed = quantise({"w": torch.tensor([[2.54, -1.0, 0.009], [0.0, -12.7, 6.38]])})
    assert packed["w"].tolist() == [[127, -50, 0], [0, -127, 64]]
    torch.testing.assert_close(packed["w.scale"], torch.tensor([0.02, 0.1]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_vectors_stay_as_they_are(dtype: torch.dtype) -> None:
    norm = torch.tensor([1.0, 1e-3, -250.0, 0.12345], dtype=dtype)
    packed = quantise({"norm": norm, "w": matrix()})
    assert packed["norm"].dtype == dtype
    assert torch.equal(packed["norm"], norm)
    assert set(packed) == {"norm", "w", "w.scale"}
    assert torch.equal(dequantise(packed, dtype)["norm"], norm)


def test_restored_names_and_dtype_are_the_original_ones() -> None:
    weights = {"a.weight": matrix().bfloat16(), "a.norm": torch.ones(3), "b.weight": matrix()}
    back = dequantise(quantise(weights), torch.bfloat16)
    assert {name: weight.shape for name, weight in back.items()} == {n: w.shape for n, w in weights.items()}
    assert {weight.dtype for weight in back.values()} == {torch.bfloat16}


def test_missing_scale_is_named() -> None:
    packed = quantise({"layers.0.w": matrix(), "layers.1.w": matrix()})
    del packed["layers.1.w.scale"]
    with pytest.raises(ValueError, match=names("layers.1.w int8 layers.1.w.scale")):
        dequantise(packed, torch.float32)
