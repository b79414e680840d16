"""Register DDTREE with SGLang, which calls `register` in each of its processes (entry point `sglang.srt.plugins`)."""

from __future__ import annotations


def register() -> None:
    """Make DDTREE known to SGLang; a second call does nothing.

    Raises IncompatibleSGLangError for any SGLang other than the pinned release, and then registers nothing.
    """
    from ddtree.serving.compat import check_release, check_signatures

    check_release()
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    from ddtree.serving.algorithm import NAME, DDTreeAlgorithm, create_worker, register_hooks

    if get_spec(NAME) is not None:
        return
    check_signatures()
    SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=DDTreeAlgorithm)(create_worker)
    register_hooks()
