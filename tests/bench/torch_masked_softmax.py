"""PyTorch's side of the masked softmax figures: the same shapes, byte counts and rotation as
host/examples/measure.rs, one JSON object a line.

    python3 torch_masked_softmax.py [--quick]

`softmax` is torch.softmax without scale or mask, eager; `masked` is torch.compile of scale + masked_fill +
softmax. Medians of graph replays.
"""

import json
import sys

import torch

ROTATE, CASE = 2 << 30, 256 << 20


def shape_for(k, size):
    rows = max(CASE // (k * size), 16)
    q = min(max(rows // 16, 1), 512)
    return (max(rows // 16 // q, 1), 16, q, k)


def time(sets, run):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(2 * sets):
            run(i % sets)
    torch.cuda.synchronize()
    graph, calls = torch.cuda.CUDAGraph(), max(2 * sets, 8)
    with torch.cuda.graph(graph):
        for i in range(calls):
            run(i % sets)
    graph.replay()
    times = []
    for _ in range(9):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return sorted(times)[len(times) // 2]


def masked(x, drop, scale):
    return torch.softmax((x * scale).masked_fill(drop, float("-inf")), -1)


def case(dtype, shape, compiled):
    b, h, q, k = shape
    size = torch.empty(0, dtype=dtype).element_size()
    sets = min(max(ROTATE // (2 * b * h * q * k * size), 2), 64)
    xs = [torch.rand(shape, device="cuda").mul_(8).sub_(4).to(dtype) for _ in range(sets)]
    out = [torch.empty_like(x) for x in xs]
    drop = torch.rand(b, 1, q, k, device="cuda") < 0.2
    name = str(dtype).split(".")[1]
    row = {"dtype": name, "shape": list(shape)}
    row["torch_softmax_us"] = time(sets, lambda i: torch.softmax(xs[i], -1, out=out[i]))
    if compiled:
        # A fresh compilation for each shape, as a user with fixed shapes would have.
        torch._dynamo.reset()
        function = torch.compile(masked, dynamic=False)
        row["torch_compile_us"] = time(sets, lambda i: function(xs[i], drop, 0.125))
    print(json.dumps(row), flush=True)


def main():
    quick = "--quick" in sys.argv
    x = torch.rand(1 << 29, device="cuda")
    y = torch.empty_like(x)
    us = time(1, lambda _: torch.add(x, 0, out=y))  # a graph's own copy node is slower than a kernel
    print(json.dumps({"torch": torch.__version__, "torch_copy_gbps": 2 * x.numel() * 4 / us / 1e3}), flush=True)
    del x, y
    sizes = [128, 256, 384, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 127, 385, 1000, 4095, 50257]
    for dtype in (torch.float32, torch.bfloat16):
        size = torch.empty(0, dtype=dtype).element_size()
        for k in sizes:
            case(dtype, shape_for(k, size), compiled=not quick and k in (128, 1024, 4096, 127))
        for shape in ((8, 16, 384, 384), (64, 16, 512, 512)):
            case(dtype, shape, compiled=True)


main()
