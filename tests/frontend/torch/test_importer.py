"""The importer itself: names, constants, in-place operators, symbolic sizes, and what it says when it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tilewright as tw
from tests.frontend.torch.agreement import Call, agree, drawn
from tilewright.frontend.torch import import_torch
from tilewright.frontend.torch.program import decomposed, export
from tilewright.graph.evaluate import evaluate
from tilewright.graph.parse import parse
from tilewright.support.errors import CompileError, ImportFault, InputError


class Net(nn.Module):
    """Tied weights, a buffer, a nest of results."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("offset", torch.arange(4.0), persistent=False)

    def forward(self, image: Tensor, mask: Tensor) -> dict[str, Any]:
        x = self.second(self.first(image)) + self.offset
        return {"scores": x, "rest": [x.sum(1), None, (mask, x > 0)]}


def test_inputs_and_outputs_keep_their_names_and_order() -> None:
    graph = agree(Net(), drawn(2, 4), drawn(2, of=torch.bool))
    assert graph.input_names == ("image", "mask")
    assert [str(v.dtype) for v in graph.inputs] == ["f32", "bool"]
    assert graph.output_names == ("scores", "rest_0", "rest_2_0", "rest_2_1")


def test_parameters_are_views_and_tied_ones_are_one() -> None:
    net = Net()
    graph = import_torch(net, (drawn(2, 4), drawn(2, of=torch.bool)))
    held = [c for c in graph.constants.values() if c.array.shape == (4, 4)]
    assert len({id(c) for c in held}) == 1
    assert all(np.shares_memory(c.array, net.first.weight.detach().numpy()) for c in held)


def test_transposed_parameters_stay_views() -> None:
    weight = nn.Parameter(drawn(3, 5).t())
    graph = agree(lambda x: x @ weight.detach(), drawn(2, 5))
    assert any(not c.array.flags.c_contiguous for c in graph.constants.values())


def test_nests_of_inputs() -> None:
    def f(pair: Any, more: Any) -> Any:
        return pair[0] + pair[1], more["x"] * 2

    from tests.frontend.torch.agreement import Call

    a, b, c = (drawn(3, seed=n) for n in range(3))
    graph = import_torch(Call(f), ([a, b], {"x": c}))
    assert len(graph.inputs) == 3
    assert len(graph.outputs) == 2


def test_numbers_among_the_inputs_are_fixed() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, by: float, bias: Tensor | None = None) -> Tensor:
            return x * by if bias is None else x * by + bias

    graph = import_torch(Scaled(), (drawn(3), 2.5, None))
    assert graph.input_names == ("x",)


def test_numpy_examples() -> None:
    graph = import_torch(nn.ReLU(), (np.zeros((2, 3), np.float32),))
    assert graph.inputs[0].static_shape == (2, 3)


def test_an_input_may_be_an_output_and_an_output_may_come_twice() -> None:
    graph = agree(lambda x: (x, x + 1, x + 1, x), drawn(3))
    assert len(graph.outputs) == 4


def test_results_of_a_dataclass() -> None:
    @dataclass
    class Result:
        scores: Tensor
        states: tuple[Tensor, ...]

    torch.export.register_dataclass(Result, serialized_type_name="tests.Result")

    class Made(nn.Module):
        def forward(self, x: Tensor) -> Result:
            return Result(x + 1, (x, x * 2))

    graph = import_torch(Made(), (drawn(3),))
    assert graph.output_names == ("scores", "states_0", "states_1")


# in-place operators -------------------------------------------------------------------------------


def in_place(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z.add_(y).relu_()
    return z + 1


def through_a_view(x: Tensor, y: Tensor) -> Tensor:
    z = x * 2
    z[0].add_(y[0])
    return z


def read_before(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * 2
    before = z + y
    z.mul_(3)
    return before, z


def behind_a_view(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * 2
    view = z.view(-1)
    z.add_(y)
    return view, z


@pytest.mark.parametrize("f", [in_place, through_a_view, read_before, behind_a_view])
def test_in_place_operators(f: Any) -> None:
    agree(f, drawn(3, 4), drawn(3, 4, seed=1))


def test_private_updates_need_no_decomposition() -> None:
    from tests.frontend.torch.agreement import Call

    inputs = (drawn(3, 4), drawn(3, 4, seed=1))
    plain, viewed = (export(Call(f), inputs) for f in (in_place, behind_a_view))
    assert decomposed(plain) is plain
    assert decomposed(viewed) is not viewed


def test_regions_without_gradients() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", enabled=False):
            return y.float() + x

    agree(f, drawn(3))


# symbolic sizes -----------------------------------------------------------------------------------


def test_a_symbolic_batch() -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(2 * 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(self.conv(x)).flatten(1)
            return torch.softmax(self.fc(y), 1)

    batch = torch.export.Dim("batch", max=64)
    graph = agree(Small(), drawn(2, 1, 4, 4), dynamic=({0: batch},), other=(drawn(5, 1, 4, 4),))
    assert [s.name for s in graph.symbols] == ["batch"]
    assert graph.ranges == {"batch": (1, 64)} and parse(str(graph)).ranges == graph.ranges


def test_a_size_that_is_a_multiple_and_ranges_hold_in_the_run() -> None:
    def halves(x: Tensor, y: Tensor) -> Tensor:
        return x.unflatten(0, (-1, 2)).sum(1) * y[1:]

    n = torch.export.Dim("n", min=3, max=20)
    shapes = (({0: 2 * n}, {0: n + 1}),)
    given = (drawn(8, 4), drawn(5, 4))
    module = Call(halves)
    program = torch.export.export(module, given, dynamic_shapes=shapes)
    graph = import_torch(program)
    assert [str(v.type_text) for v in graph.inputs] == [
        "f32[inputs_0_0_root * 2, 4]",
        "f32[inputs_0_0_root + 1, 4]",
    ]
    exe = tw.compile(graph, cache=False)
    for n in (3, 7, 20):
        x, y = drawn(2 * n, 4, seed=n), drawn(n + 1, 4, seed=-n)
        want = halves(x, y).numpy()
        np.testing.assert_allclose(exe(x.numpy(), y.numpy())[0], want, rtol=1e-6)
        np.testing.assert_allclose(evaluate(graph, [x.numpy(), y.numpy()])[0], want, rtol=1e-6)
    for n, m, why in (
        (2, 3, r"inputs_0_0_root \* 2 with inputs_0_0_root from 3 to 20"),
        (21, 22, "from 3 to 20"),
        (6, 8, r"expected 7 = inputs_0_0_root \+ 1"),
    ):
        with pytest.raises(InputError, match=why):
            exe(drawn(2 * n, 4).numpy(), drawn(m, 4).numpy())
        with pytest.raises(InputError):
            evaluate(graph, [drawn(2 * n, 4).numpy(), drawn(m, 4).numpy()])
    with pytest.raises(InputError, match=r"dimension 0 is 9, expected inputs_0_0_root \* 2"):
        exe(drawn(9, 4).numpy(), drawn(5, 4).numpy())


def test_a_symbolic_length() -> None:
    def f(tokens: Tensor, table: Tensor) -> Tensor:
        n = tokens.shape[1]
        x = table[tokens] + torch.arange(n).unsqueeze(-1)
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)

    length = torch.export.Dim("length", min=2, max=64)
    tokens = torch.zeros(2, 6, dtype=torch.long)
    agree(
        f,
        tokens,
        drawn(5, 8),
        dynamic=[({1: length}, None)],
        other=(torch.ones(2, 9, dtype=torch.long), drawn(5, 8)),
    )


def test_a_program_of_torch_export() -> None:
    program = torch.export.export(nn.Linear(3, 4), (drawn(2, 3),))
    exe = tw.compile(program, cache=False)
    x = drawn(2, 3, seed=1)
    np.testing.assert_allclose(exe(x.numpy())[0], program.module()(x).detach().numpy(), atol=1e-5)


def test_compile_a_module() -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    x = drawn(4, 3)
    exe = tw.compile(net, example_inputs=(x,), cache=False)
    np.testing.assert_allclose(exe(x.numpy())[0], net(x).detach().numpy(), atol=1e-5)


# refusals -----------------------------------------------------------------------------------------


def refusal(module: Any, *inputs: Any) -> str:
    with pytest.raises(ImportFault) as caught:
        import_torch(module, inputs)
    return str(caught.value)


def test_missing_example_inputs() -> None:
    with pytest.raises(CompileError) as caught:
        tw.compile(nn.ReLU())
    assert str(caught.value) == (
        "cannot import ReLU: its input shapes are not known\n"
        "  pass example_inputs=(tensor, ...), the arguments of its forward"
    )


def test_a_tensor_instead_of_a_tuple() -> None:
    with pytest.raises(CompileError) as caught:
        tw.compile(nn.ReLU(), example_inputs=drawn(3))
    assert str(caught.value) == (
        "cannot import ReLU: example_inputs is a Tensor, not a tuple\n"
        "  pass the arguments of its forward as a tuple: example_inputs=(x,)"
    )


def test_no_module() -> None:
    with pytest.raises(ImportFault, match=r"is no torch\.nn\.Module"):
        import_torch(drawn(3), (drawn(3),))


def test_training_mode_says_to_call_eval() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.1)).train()
    text = refusal(net, drawn(3, 4))
    assert "2 of its nodes are not supported" in text
    assert "from: 1 (torch.nn.modules.dropout.Dropout)" in text
    assert "from: 2 (torch.nn.modules.dropout.Dropout)" in text
    assert "call module.eval() before compiling; to train, import it with seeded=True" in text
    agree(net, drawn(3, 4))  # agree calls eval()


def test_training_mode_is_harmless_where_it_changes_nothing() -> None:
    import_torch(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)).train(), (drawn(3, 4),))


def test_all_unsupported_operators_are_in_one_error() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return torch.special.airy_ai(x), x.relu(), torch.hash_tensor(x)

    text = refusal(Odd(), torch.eye(3))
    assert "2 of its nodes are not supported" in text
    assert "special_airy_ai = aten.special_airy_ai.default: no translator" in text
    assert "schema: aten::hash_tensor(Tensor self, int[1] dim=[]" in text
    assert "inputs: x float32[3, 3]" in text


def test_a_number_that_is_data() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.sum().item()

    agree(Scaled(), drawn(3))


def test_branches_on_data() -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum() > 0 else x

    text = refusal(Branching(), drawn(3))
    assert text.startswith("cannot import Branching: torch.export fails on it with ")
    assert "must not branch on their content" in text


def test_changed_buffers() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("step", torch.ones(1))

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.count += self.step
            y.mul_(2)
            return x + self.count

    graph = import_torch(Counter(), (drawn(3), drawn(2)))
    assert graph.input_names == ("x", "y", "count")
    assert graph.output_names == ("output", "count", "y")
    x, y = drawn(3).numpy(), drawn(2).numpy()
    results = evaluate(graph, [x, y, np.float32([4])])
    for found, expected in zip(results, (x + 5, np.float32([5]), y * 2), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_running_statistics_in_training() -> None:
    norm = nn.BatchNorm2d(3).train()
    x = drawn(4, 3, 5, 5)
    graph = import_torch(norm, (x,))
    state = {k: v.clone().numpy() for k, v in norm.named_buffers()}
    found = dict(
        zip(
            graph.output_names,
            evaluate(graph, [x.numpy(), *(state[k] for k in graph.input_names[1:])]),
            strict=True,
        )
    )
    np.testing.assert_allclose(found.pop("output"), norm(x).detach().numpy(), atol=1e-5)
    assert set(found) == set(state)
    for name, content in norm.named_buffers():
        np.testing.assert_allclose(found[name], content.numpy(), rtol=1e-5, atol=1e-6)


def test_no_tensor_result() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> None:
            x + 1

    assert "it returns no tensor" in refusal(Nothing(), drawn(3))
