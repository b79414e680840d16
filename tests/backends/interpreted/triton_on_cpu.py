"""Triton's interpreter, mended for NumPy 2.4; import this before Triton, with TRITON_INTERPRET=1 in the environment."""

from typing import Any

from triton.runtime import interpreter

_as_triton_patches = interpreter._patch_lang_tensor


def _patch_lang_tensor(tensor: type, scope: Any) -> None:
    _as_triton_patches(tensor, scope)
    # NumPy 2.4 refuses int(array of one element), which is how Triton 3.6 reads the bounds of a range.
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_lang_tensor
