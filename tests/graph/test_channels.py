"""channels: how the channels of groups are laid out, against what the machine gains."""

import numpy as np
import pytest

from tilewright.graph.builder import Builder
from tilewright.graph.passes import channels as of_channels
from tilewright.graph.passes.channels import ChannelLayout, Packing
from tilewright.graph.passes.choose_layouts import choose_layouts
from tilewright.ir.dtype import f32
from tilewright.ir.expr import as_int
from tilewright.strategy.cpu.layouts import Layouts
from tilewright.target.costs import COMMON, HALVES

PLAIN = Packing(16)


def grouped(ci, co, groups, taps, lanes, costs):
    """How the channels are laid out where processors pick; None for a plain convolution."""
    policy = Layouts(4 * lanes, costs=costs)
    own, ways = of_channels.grouped(ci, co, groups, taps, policy)
    return ways.get(own)


def block_of(channels, lanes, costs):
    return Layouts(4 * lanes, costs=costs).block(channels, f32)


@pytest.mark.parametrize(
    ("ci", "co", "groups", "step"),
    [(128, 128, 32, 4), (256, 256, 32, 8), (336, 336, 14, 8), (48, 96, 6, 8), (60, 240, 30, 2),
     (24, 384, 24, 1), (96, 96, 2, 16), (64, 64, 4, 16)],
)  # fmt: skip
def test_groups_that_make_vectors_stay_where_they_are(ci, co, groups, step):
    layout = grouped(ci, co, groups, 9, 16, HALVES)
    assert layout == ChannelLayout(PLAIN, PLAIN, step, groups)
    assert layout.group(ci, co) == (groups, ci // groups, co // groups)
    assert layout.filter_shape((co, ci // groups, 3, 3)) == (
        -(-co // 16), ci // groups // step, 3, 3, step, 16
    )  # fmt: skip


def test_groups_are_filled_up_where_short_vectors_are_no_faster():
    """24 channels are three vectors of 8 or two of 16, one of them half empty."""
    halves, whole = (grouped(336, 336, 14, 9, 16, costs) for costs in (HALVES, COMMON))
    assert halves == ChannelLayout(PLAIN, PLAIN, 8, 14)
    assert whole == ChannelLayout(Packing(16, 14), Packing(16, 14), 8, 14)
    assert whole.group(336, 336) == (14, 32, 32)
    assert whole.filter_shape((336, 24, 3, 3)) == (28, 3, 3, 3, 8, 16)  # 24 numbers, not 32


@pytest.mark.parametrize("channels", range(1, 130))
def test_blocks_of_half_a_vector_where_they_save_a_quarter(channels):
    """Where one unit makes a whole vector of two halves, 8 channels are one half and not a vector
    that is half empty, 24 three and not four. Nowhere else."""
    saves = channels <= 8 or 16 < channels <= 24
    assert block_of(channels, 16, HALVES) == (8 if saves else 16)
    assert block_of(channels, 16, COMMON) == 16
    assert block_of(channels, 8, COMMON) == 8


@pytest.mark.parametrize(
    ("ci", "co", "costs", "blocks"),
    [(24, 64, HALVES, (8, 16)), (64, 24, HALVES, (16, 8)), (8, 24, HALVES, (1, 8)),
     (24, 24, COMMON, (16, 16))],
)  # fmt: skip
def test_images_and_results_have_blocks_of_their_own(ci, co, costs, blocks):
    build = Builder("g")
    x = build.input("x", "f32", (1, ci, 9, 9))
    y = build.emit("conv", x, build.constant(np.ones((co, ci, 2, 2), np.float32)))
    made = choose_layouts(build.finish([y]), Layouts(64, costs=costs))
    (conv,) = (node for node in made.nodes if node.op == "conv_packed")
    assert (as_int(conv.inputs[0].shape[-1]), as_int(conv.output.shape[-1])) == blocks


@pytest.mark.parametrize("costs", [HALVES, COMMON])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_last_block_reads_no_channel_that_is_not_there(lanes, costs):
    """20 results fill a block of 16 and a part of another, which begins groups that do not exist;
    whatever is picked, all that it reads is there."""
    rng, kept = np.random.default_rng(3), 0
    for _ in range(300):
        groups, sources, results = (int(rng.choice([2, 3, 4, 5, 8, 12, 16, 24])) for _ in range(3))
        ci, co = groups * sources, groups * results
        layout = grouped(ci, co, groups, 9, lanes, costs)
        if layout is None or layout.groups == 1:
            continue
        shape = layout.filter_shape((co, sources, 3, 3))
        count, stored, computed = layout.group(ci, co)
        of_group = min((shape[0] * shape[5] - 1) // computed, count - 1)
        last = of_group * stored + shape[1] * shape[4]
        assert last <= layout.image.padded(ci)
        kept += layout.image.groups == 1
    assert kept > 10


def test_a_few_channels_in_odd_groups_run_as_one_convolution():
    assert grouped(15, 15, 5, 9, 16, HALVES).groups == 1


def test_many_thin_groups_stay_plain():
    assert grouped(512, 512, 256, 9, 16, HALVES) is None


@pytest.mark.parametrize(
    ("channels", "step"), [(16, 16), (24, 8), (40, 8), (20, 4), (18, 2), (47, 16), (17, 1), (1, 1)]
)
def test_steps_leave_few_channels_over(channels, step):
    assert Layouts(64).step(channels, 16) == step


def test_a_filter_holds_the_weights_and_zeros():
    weights = np.arange(1, 1 + 20 * 6 * 2, dtype=np.float32).reshape(20, 6, 1, 2)
    packed = ChannelLayout(PLAIN, PLAIN, 2, 2).pack_filter(weights)
    assert packed.shape == (2, 3, 1, 2, 2, 16)
    for o in range(32):
        for c in range(6):
            want = weights[o, c] if o < 20 else np.zeros((1, 2))
            np.testing.assert_array_equal(packed[o // 16, c // 2, :, :, c % 2, o % 16], want)
