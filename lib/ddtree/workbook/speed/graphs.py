"""A call captured in CUDA graphs, one for each set of inputs, so that replays rotate through them as launches do."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ddtree.workbook.speed.timing import Case


def captured(name: str, call: Callable[[int], object], sets: int) -> Case:
    """The case that replays `call(0)`, ..., `call(sets - 1)` in turn, and keeps `call`: a graph holds addresses alone,
    so what `call` reads must live as long.

    Raises RuntimeError where the call waits for the device, which no graph can hold.
    """
    graphs = [_capture(call, number) for number in range(sets)]
    return Case(name, lambda turn: graphs[turn % sets].replay(), reads=call)


def _capture(call: Callable[[int], object], number: int) -> torch.cuda.CUDAGraph:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside), torch.inference_mode():
        for _ in range(2):  # tables that are made once, and libraries that set themselves up
            call(number)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        call(number)
    return graph
