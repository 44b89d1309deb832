"""The kernels against float64, and their independence of where a row sits."""

import numba
import numpy as np
import pytest
from llvmlite import ir
from llvmlite.binding import parse_assembly

from bigsvm.core.compiled import use_threads
from bigsvm.kernels import Kernel, block_of, columns, products
from bigsvm.kernels.simd import element_at
from tests.support.problems import kernel_matrix

pytestmark = pytest.mark.core

KERNELS = [
    Kernel("rbf", gamma=0.05),
    Kernel("laplacian", gamma=0.1),
    Kernel("linear"),
    Kernel("poly", gamma=0.1, coef0=1.0, degree=3),
]


def exact(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Kernel values of all pairs in float64."""
    x, z = x.astype(np.float64), z.astype(np.float64)
    if kernel.name == "rbf":
        return np.exp(-kernel.gamma * ((x[:, None] - z[None]) ** 2).sum(-1))
    if kernel.name == "laplacian":
        return np.exp(-kernel.gamma * np.abs(x[:, None] - z[None]).sum(-1))
    dot = x @ z.T
    return dot if kernel.name == "linear" else (kernel.gamma * dot + kernel.coef0) ** kernel.degree


def computed(kernel: Kernel, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    out = np.empty((len(x), len(z)), np.float32)
    columns(kernel, block_of(z), x, out, np.arange(len(x)))
    return out


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("d", [1, 3, 50, 784])
def test_values_agree_with_float64(kernel, d):
    rng = np.random.default_rng(d)
    x, z = rng.standard_normal((2, 123, d)).astype(np.float32)
    expected = exact(kernel, x, z)
    scale = np.abs(expected).max() if kernel.name in ("linear", "poly") else 1.0
    assert np.abs(computed(kernel, x, z) - expected).max() <= 2e-6 * scale


def test_rbf_error_over_a_million_pairs_is_at_most_2e_6():
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((2, 1000, 20)).astype(np.float32)
    for gamma in (1e-3, 0.02, 0.3):
        kernel = Kernel("rbf", gamma)
        assert np.abs(computed(kernel, x, z) - exact(kernel, x, z)).max() <= 2e-6


def test_rbf_error_of_near_duplicates_far_out_is_at_most_2e_6():
    rng = np.random.default_rng(1)
    far = rng.standard_normal((1000, 20))
    far *= 1e4 / np.linalg.norm(far, axis=1, keepdims=True)
    x = far.astype(np.float32)
    z = (far + 0.1 * rng.standard_normal(far.shape)).astype(np.float32)
    kernel = Kernel("rbf", 2.0)
    values = computed(kernel, x, z)
    assert np.abs(values - exact(kernel, x, z)).max() <= 2e-6
    assert 0.1 < np.diag(values).mean() < 0.9  # the near-duplicates are neither 0 nor 1


WIDE_RBF = Kernel("rbf", gamma=1 / 400)


def wide_rows(count: int, d: int = 200) -> np.ndarray:
    """Rows of all lengths: with this gamma some pairs are near, some far, most tiles have both."""
    rng = np.random.default_rng(6)
    lengths = 10.0 ** rng.uniform(-2, 2, (count, 1))
    rows = (lengths * rng.standard_normal((count, d))).astype(np.float32)
    rows[1::3] = rows[::3][: len(rows[1::3])] * (1 + 1e-6)  # near-duplicates
    return rows


@pytest.mark.parametrize("d", [128, 784])
@pytest.mark.parametrize("far", [0.0, 0.01, 0.5, 1.0])
def test_rbf_error_of_wide_rows_is_at_most_2e_6(d, far):
    rng = np.random.default_rng(d)
    x, z = rng.standard_normal((2, 400, d))
    z[:100] = x[:100] + rng.standard_normal((100, d)) * 10.0 ** rng.uniform(-7, 0, (100, 1))
    lengths = np.where(rng.random((400, 1)) < far, 10.0 ** rng.uniform(0, 4, (400, 1)), 1.0)
    x, z = (lengths * x).astype(np.float32), (lengths * z).astype(np.float32)
    distance = np.stack([np.square(row - z.astype(np.float64)).sum(-1) for row in x])
    for gamma in (0.1 / d, 1 / d, 10 / d):
        values = computed(Kernel("rbf", gamma), x, z)
        assert np.abs(values - np.exp(-gamma * distance)).max() <= 2e-6


@pytest.mark.parametrize("d", [128, 784])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3])
def test_rbf_error_of_wide_rows_beside_each_other_is_at_most_1e_5(d, noise):
    """All features equal, all roundings are, too: the worst there is."""
    rng = np.random.default_rng(d)
    x, z = 0.7 * (1 + rng.uniform(-1e-3, 1e-3, (2, 60, 1))) + noise * rng.random((2, 60, d))
    for gamma in np.geomspace(0.1, 10, 9) / (0.49 * d):
        kernel = Kernel("rbf", gamma)
        values = computed(kernel, x.astype(np.float32), z.astype(np.float32))
        expected = exact(kernel, x.astype(np.float32), z.astype(np.float32))
        assert np.abs(values - expected).max() <= (1e-5 if noise < 0.1 else 1e-6)


def test_equal_wide_rows_have_the_value_1_and_pairs_are_symmetric():
    x = wide_rows(150)
    values = kernel_matrix(WIDE_RBF, x)
    assert (np.diag(values) == 1).all()
    assert np.array_equal(values, values.T)


def test_a_value_of_wide_rows_does_not_depend_on_its_tile():
    x = wide_rows(150)
    whole = computed(WIDE_RBF, x, x)
    for i in (0, 1, 2, 77, 149):
        assert np.array_equal(computed(WIDE_RBF, x[i : i + 1], x)[0], whole[i])
    order = np.random.default_rng(7).permutation(150)
    assert np.array_equal(computed(WIDE_RBF, x[order], x[order]), whole[np.ix_(order, order)])


@pytest.mark.parametrize("d", [1, 200])
def test_extreme_distances_stay_finite(d):
    x = np.zeros((4, d), np.float32)
    x[:, 0] = [0.0, 1e19, 3e38, -3e38]
    values = kernel_matrix(Kernel("rbf", 1.0), x)
    assert np.isfinite(values).all()
    assert (np.diag(values) == 1).all()
    assert values[0, 1:].max() < 1e-37


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_value_depends_on_neither_chunk_nor_lane_nor_pack_nor_threads(kernel):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((1001, 17)).astype(np.float32)
    rows = x[rng.permutation(1001)[:31]]
    whole = computed(kernel, rows, x)
    coef = rng.standard_normal((31, 2))
    sums = np.zeros((2, 1001))
    products(kernel, block_of(x), rows, coef, sums)
    for start, stop in [(0, 1), (3, 40), (16, 32), (5, 1001), (999, 1001)]:
        part = np.empty((31, 1001), np.float32)
        columns(kernel, block_of(x[start:stop], start), rows, part, np.arange(31))
        assert np.array_equal(part[:, start:stop], whole[:, start:stop])
        some = np.zeros((2, 1001))
        products(kernel, block_of(x[start:stop], start), rows, coef, some)
        assert np.array_equal(some[:, start:stop], sums[:, start:stop])
        assert not some[:, :start].any() and not some[:, stop:].any()
    order = rng.permutation(31)
    assert np.array_equal(computed(kernel, rows[order], x), whole[order])
    for count in {1, numba.config.NUMBA_NUM_THREADS}:
        with use_threads(count):
            again = np.zeros((2, 1001))
            products(kernel, block_of(x), rows, coef, again)
            assert np.array_equal(again, sums)
            assert np.array_equal(computed(kernel, rows, x), whole)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_products_are_the_sums_of_columns(kernel):
    rng = np.random.default_rng(3)
    x = rng.standard_normal((200, 9)).astype(np.float32)
    rows, coef = x[:77], rng.standard_normal((77, 3))
    sums = np.full((3, 200), 0.5)
    products(kernel, block_of(x), rows, coef, sums)
    expected = 0.5 + coef.T @ computed(kernel, rows, x).astype(np.float64)
    # The linear kernel sums its rows first, in float64; a column is rounded to float32.
    assert np.allclose(sums, expected, atol=1e-5 if kernel.name == "linear" else 1e-12)


def test_a_coefficient_of_zero_changes_no_bit():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((50, 5)).astype(np.float32)
    coef = rng.standard_normal((20, 1))
    coef[::3] = 0
    kept = np.flatnonzero(coef[:, 0])
    all_rows, some_rows = np.zeros((2, 1, 50))
    products(KERNELS[0], block_of(x), x[:20], coef, all_rows)
    products(KERNELS[0], block_of(x), x[kept], coef[kept], some_rows)
    assert np.array_equal(all_rows, some_rows)


def test_many_rows_are_tiled_without_a_seam():
    rng = np.random.default_rng(5)
    x = rng.standard_normal((40, 300)).astype(np.float32)
    rows = rng.standard_normal((700, 300)).astype(np.float32)
    kernel = Kernel("rbf", 1e-3)
    assert np.abs(computed(kernel, rows, x) - exact(kernel, rows, x)).max() <= 2e-6


def test_emitted_pointers_are_opaque():
    """LLVM knows no others; llvmlite has announced the removal of typed ones from its builder."""
    single = ir.FloatType()
    kind = ir.FunctionType(ir.VoidType(), [single.as_pointer(), ir.IntType(64)])  # as numba has it
    function = ir.Function(ir.Module(), kind, "copy")
    builder = ir.IRBuilder(function.append_basic_block())
    place = element_at(builder, *function.args, single)
    assert str(place.type) == "ptr"
    vector = ir.VectorType(single, 8)
    builder.store(builder.load(place, typ=vector), place)  # a typed one would be refused here
    builder.ret_void()
    parse_assembly(str(function.module)).verify()
