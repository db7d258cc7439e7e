"""Matrix products and convolutions as networks of one operator without epilogue."""

from __future__ import annotations

from sw.convolution import Convolution
from sw.graph.network import ImageConvolution, MatrixProduct, Network, Operator, Tensor, whole
from sw.graph.views import broadcast, transposed
from sw.problem import Product


def network_of(problem: Product | Convolution, name: str = "matmul") -> Network:
    """The network that computes C from A and B; for a convolution, A are the weights and B the images."""
    a = Tensor("A", problem.shape_a, problem.type_a)
    b = Tensor("B", problem.shape_b, problem.type_b)
    c = Tensor("C", problem.shape_c, "int32")
    operator: Operator
    if isinstance(problem, Convolution):
        operator = ImageConvolution(
            *(name, "ConvInteger", (name,), whole(c), whole(b), whole(a), problem.rows, problem.cols),
            *(problem.groups, problem.zero_b, problem.zero_a),
        )
    else:
        batch, rows = problem.batch, len(problem.batch_a)
        view_a, view_b = whole(a), whole(b)
        if problem.transposed_a:
            view_a = transposed(view_a, (*range(rows), rows + 1, rows))
        if problem.transposed_b:
            rows = len(problem.batch_b)
            view_b = transposed(view_b, (*range(rows), rows + 1, rows))
        view_a = broadcast(view_a, (*batch, problem.m, problem.k))
        view_b = broadcast(view_b, (*batch, problem.k, problem.n))
        operator = MatrixProduct(
            name, "MatMulInteger", (name,), whole(c), view_a, view_b, problem.zero_a, problem.zero_b
        )
    return Network(name, {t.name: t for t in (a, b, c)}, (operator,), ("A", "B"), ("C",))
