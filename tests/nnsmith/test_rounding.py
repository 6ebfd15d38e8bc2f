"""What rounding explains, on modules written here: nnsmith itself is not needed."""

import math

import numpy as np
import pytest
import torch

from tests.nnsmith.rounding import Disturbed, differences, run


def chain(x):
    return torch.sin(x * 50.0), torch.floor(x * 7.0).to(torch.int64), torch.relu(x)


def test_results_that_rounding_explains_agree():
    x = torch.linspace(-2, 2, 101, dtype=torch.float32)
    exact = [y.numpy() for y in chain(x.double())]
    found = [exact[0].astype(np.float32), exact[1], exact[2].astype(np.float32)]
    assert differences(chain, [x], found) == []


@pytest.mark.parametrize("output, by", [(0, 1e-3), (1, 3), (2, 1e-4)])
def test_other_results_are_told(output, by):
    x = torch.linspace(-2, 2, 101, dtype=torch.float32)
    found = [y.numpy().copy() for y in chain(x)]
    found[output][7] += by
    (told,) = differences(chain, [x], found)
    assert told.startswith(f"output {output}[7] is ") and "1 of 101 differ" in told


def test_other_shapes_and_types_are_told():
    x = torch.ones(3)
    assert "eager gives float32" in differences(torch.neg, [x], [-np.ones(3)])[0]
    assert "eager gives float32" in differences(torch.neg, [x], [-np.ones(4, np.float32)])[0]


@pytest.mark.parametrize("rows", [(), (3,)])
def test_another_order_of_a_long_product_with_a_vector_agrees(rows):
    random = torch.Generator().manual_seed(4)
    a, b = (torch.randn(*s, 4000, generator=random) for s in (rows, ()))
    a[..., -1] = -(a[..., :-1] @ b[:-1]) / b[-1]  # what is left is rounding
    found = (a.numpy() * b.numpy()).cumsum(-1, dtype=np.float32)[..., -1]
    assert differences(torch.matmul, [a, b], [found]) == []


def test_a_long_product_of_one_sign_in_another_order_agrees():
    a = torch.full((1 << 15,), 0.7424836265645346, dtype=torch.float64)
    lanes = (a.numpy() * a.numpy()).reshape(-1, 64).cumsum(0)[-1]
    assert differences(torch.dot, [a, a], [lanes.sum()]) == []
    assert differences(torch.dot, [a, a], [lanes.sum() * (1 + 1e-10)])


def test_shares_below_the_normal_halves_may_be_one_apart():
    def ratio(x):
        share = torch.softmax(x, 1)
        return share / share

    x = torch.tensor([[0.0, -17.8], [0.0, -17.3]], dtype=torch.float16)  # half of the least, about
    for low in (np.float16(1.0), np.float16(np.nan)):
        assert differences(ratio, [x], [np.array([[1, low], [1, low]], np.float16)]) == []
    assert differences(ratio, [x], [np.full((2, 2), np.nan, np.float16)])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_casts_beyond_an_integer_end_at_its_range(dtype):
    most, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
    held = [5.0, -0.5, float(least), float(most >> 1)]
    beyond = [1e30, -1e30, most + 1.0, least - 4096.0, math.inf, -math.inf, math.nan]
    x = torch.tensor(held + beyond, dtype=torch.float64)
    (found,) = run(lambda x: x.to(dtype), [x], Disturbed(0, 0.0))
    assert found.tolist() == [*map(int, held), *[most, least] * 3, 0]


def test_gelu_of_infinities_is_its_limit():
    x = torch.tensor([-math.inf, math.inf, math.nan])
    (found,) = run(torch.nn.functional.gelu, [x], Disturbed(1))
    np.testing.assert_array_equal(found, [0.0, math.inf, math.nan])


def test_positions_in_a_long_line_may_be_rounded():
    def stretched(x):
        return torch.nn.functional.interpolate(x, size=50_000, mode="linear")

    random = torch.Generator().manual_seed(11)
    x = torch.randn(1, 1, 16384, generator=random) * 10
    exact = stretched(x.double()).float().numpy()
    assert np.abs(exact - stretched(x).numpy()).max() > 1e-3  # f32 knows a position to 2^-11
    assert differences(stretched, [x], [exact]) == []
    exact[0, 0, 7] += 5.0
    assert "1 of 50000 differ" in differences(stretched, [x], [exact])[0]


def test_sums_inside_a_long_softmax_may_be_rounded():
    def ratios(x):
        return torch.softmax(x, 1)

    x = torch.randint(0, 2, (1, 100_000), generator=torch.Generator().manual_seed(5)).double()
    whole = np.exp((x.numpy() - 1).astype(np.longdouble))
    exact = (whole / whole.sum()).astype(np.float64)
    assert np.abs(exact / ratios(x).numpy() - 1).max() > 1e-14
    assert differences(ratios, [x], [exact]) == []
    assert differences(ratios, [x], [exact * (1 + 1e-11)])


@pytest.mark.parametrize("align_corners", [False, True])
def test_cubic_interpolation_of_doubles_is_what_it_should_be(align_corners):
    random = torch.Generator().manual_seed(9)
    x = torch.rand(2, 3, 9, 14, dtype=torch.float64, generator=random)
    size = {"size": (23, 5), "mode": "bicubic", "align_corners": align_corners}
    eager = torch.nn.functional.interpolate(x, **size)
    (found,) = run(lambda x: torch.nn.functional.interpolate(x, **size), [x], Disturbed(0, 0.0))
    np.testing.assert_allclose(found, eager.numpy(), rtol=1e-12)


def test_cubic_interpolation_just_below_a_pixel():
    up = torch.nn.Upsample(size=(24570, 1), mode="bicubic")
    x = torch.rand(1, 1, 65536, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (found,) = run(up, [x], Disturbed(0, 0.0))
    position, pixels = 15609.5 * 65536 / 24570 - 0.5, x[0, 0, 41633:41637, 0]
    t = position - int(position)  # 0.998, but f32 has none between 41634.996 and 41635
    far = [((-0.75 * d + 3.75) * d - 6) * d + 3 for d in (1 + t, 2 - t)]
    near = [(1.25 * d - 2.25) * d * d + 1 for d in (t, 1 - t)]
    truth = float(pixels @ torch.tensor([far[0], *near, far[1]], dtype=torch.float64))
    assert int(position) == 41634 and abs(found[0, 0, 15609, 0] - truth) < 1e-9
    assert abs(up(x)[0, 0, 15609, 0].item() - truth) > 1e-6  # eager's
