"""torch's dense products of a linear layer, in GFLOP/s: y = x.W^T, dx = dy.W, dW = dy^T.x, all stored in one type.

    python gemm.py f32|bf16 IN:OUT THREADS
"""

import torch

from timing import arguments, clocked, median_ms, report

ROWS = 32768
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def main():
    dtype, shape = arguments(TYPES)
    inner, outer = map(int, shape.split(":"))
    x, weight, g = (torch.randn(s).to(TYPES[dtype]) for s in ((ROWS, inner), (outer, inner), (ROWS, outer)))
    products = lambda: x @ weight.t(), lambda: g @ weight, lambda: g.t() @ x
    times = median_ms(lambda: tuple(clocked(product)[1] for product in products))
    names = "forward_gflops", "input_gradient_gflops", "weight_gradient_gflops"
    speeds = {name: 2 * ROWS * inner * outer / ms / 1e6 for name, ms in zip(names, times)}
    forward, *backward = times
    report(op="gemm", impl="torch", dtype=dtype, forward_ms=forward, backward_ms=sum(backward), **speeds)


if __name__ == "__main__":
    main()
