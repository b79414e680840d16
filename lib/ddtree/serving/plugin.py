"""What SGLang calls in each of its processes, found by the package's entry point `sglang.srt.plugins`."""

from __future__ import annotations


def register() -> None:
    """Make DDTREE known to SGLang. Called twice it does nothing more.

    Raises IncompatibleSGLangError for any SGLang but the pinned one, and registers nothing then.
    """
    from ddtree.serving.compat import check_release, check_signatures

    check_release()
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    from ddtree.serving import algorithm
    from ddtree.serving.algorithm import NAME, DDTreeAlgorithm, create_worker

    if get_spec(NAME) is not None:
        return
    check_signatures()
    SpeculativeAlgorithm.register(NAME, supports_overlap=True, spec_class=DDTreeAlgorithm)(create_worker)
    algorithm.install()
