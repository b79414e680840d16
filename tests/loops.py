"""One test over many values of the same kind: what `parametrize` would count as a test each."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the test with every one of `values` as its argument `name`; a failure says which one it was."""
    all_values = list(values)
    assert all_values, f"no {name} to test"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def with_each(*arguments: Any, **fixtures: Any) -> None:
            for value in all_values:
                try:
                    test(*arguments, **fixtures, **{name: value})
                except BaseException as error:  # pytest.fail raises no Exception
                    error.add_note(f"{name} = {value!r}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        with_each.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return with_each

    return decorate
