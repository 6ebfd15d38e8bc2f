"""Branches on sizes that torch.export has taken: the compiled program takes sizes of that branch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.frontend.torch.agreement import close, drawn
from tilewright.driver.compile import compile_observed
from tilewright.driver.kernels import KernelPool
from tilewright.frontend.torch.guards import remainders
from tilewright.support.errors import InputError

OPEN = torch.export.Dim.AUTO


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] % 4 != 0:
            x = nn.functional.pad(x, (0, 0, 0, 4 - x.shape[2] % 4))
        if (x.shape[3] + 1) % 3 == 0:
            x = x + 1
        x = nn.functional.max_pool2d(x, 4, 4)
        return x * 2 if x.shape[2] % 2 == 0 else x * 3


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    shapes = ({0: OPEN, 2: OPEN, 3: OPEN},)
    return torch.export.export(Branches(), (drawn(2, 3, 64, 65),), dynamic_shapes=shapes)


def test_remainders(program: torch.export.ExportedProgram) -> None:
    assert sorted(remainders(program).values()) == [(3, 2), (8, 0)]


def test_sizes_of_the_branch_agree_and_others_are_refused(
    program: torch.export.ExportedProgram,
) -> None:
    run = compile_observed(program, cache=False, pool=KernelPool(1))
    for count, height, width in ((1, 64, 65), (3, 8, 5), (2, 32, 101)):
        x = drawn(count, 3, height, width, seed=height)
        close(run(x.numpy())[0], Branches()(x).numpy(), 1e-6)
    for height, width in ((66, 65), (12, 65), (64, 64)):
        with pytest.raises(InputError, match=r"expected x_\d_root \* "):
            run(drawn(2, 3, height, width).numpy())


class Table(nn.Module):
    """As positions are told by distances (ALiBi): the end of a table, as long as the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Buffer(drawn(4, 1, 64))

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[-1]
        return x + self.table[:, max(0, 1 - n) :, max(0, 64 - n) :]


def test_sizes_that_only_some_inputs_make_one() -> None:
    shapes = ({0: OPEN, 2: OPEN, 3: OPEN},)
    program = torch.export.export(Table(), (drawn(2, 4, 9, 9),), dynamic_shapes=shapes)
    run = compile_observed(program, cache=False, pool=KernelPool(1))
    for n in (1, 9, 30, 64):
        x = drawn(3, 4, n, n, seed=n)
        close(run(x.numpy())[0], Table()(x).detach().numpy(), 1e-6)
    with pytest.raises(InputError, match="a size of 'add'"):
        run(drawn(1, 4, 65, 65).numpy())
