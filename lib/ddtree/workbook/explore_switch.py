"""Whether a kernel has a front-end with live controls; the environment decides, nothing is loaded to know."""

import os

LIVE_VARIABLE = "DDTREE_LIVE"


def has_frontend() -> bool:
    """Whether someone can move a slider.

    Jupyter's server names its session in the kernel's environment; papermill and nbclient do not.
    DDTREE_LIVE=0 or 1 decides first, because a run started from inside a notebook inherits that name.
    Raises ValueError for another value.
    """
    override = os.environ.get(LIVE_VARIABLE)
    if override is None:
        return "JPY_SESSION_NAME" in os.environ
    if override not in ("0", "1"):
        raise ValueError(f"The environment variable {LIVE_VARIABLE} is {override!r}; 0 or 1 is needed.")
    return override == "1"
