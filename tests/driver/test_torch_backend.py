"""`torch.compile(model, backend="tilewright")` against eager PyTorch."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tilewright.driver import torch_backend
from tilewright.driver.torch_backend import EagerWarning
from tilewright.support.errors import CompileError, ScheduleWarning


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """PyTorch keeps what it compiled; a graph that PyTorch has to run fails a test that does not
    expect it."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        yield


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled, as they come."""
    seen: list[Any] = []
    compile = torch_backend.compile

    def counted(graph: Any, **options: Any) -> Any:
        seen.append(graph)
        return compile(graph, **options)

    monkeypatch.setattr(torch_backend, "compile", counted)
    return seen


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_a_model(compiles: list[Any]) -> None:
    model = Net().eval()
    fast = torch.compile(model, backend="tilewright")
    with torch.no_grad():
        for seed in range(3):
            x = drawn(2, 3, 6, 6, seed=seed)
            close(fast(x), model(x))
    (graph,) = compiles
    assert len(graph.inputs) == 1, "parameters and buffers are constants"


def test_the_name_works_without_importing_tilewright() -> None:
    program = (
        "import sys, torch\n"
        "assert 'tilewright' not in sys.modules\n"
        "f = torch.compile(lambda x: torch.tanh(x) * 2 + 1, backend='tilewright')\n"
        "x = torch.arange(5.0)\n"
        "torch.testing.assert_close(f(x), torch.tanh(x) * 2 + 1)\n"
        "assert 'tilewright.driver.torch_backend' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_python_between_graphs_runs_in_python(compiles: list[Any]) -> None:
    said: list[float] = []

    def f(x: Tensor) -> Tensor:
        y = torch.sin(x) + 1
        said.append(float(y.sum()))  # a graph break
        return y.cos() if y.sum() > 0 else -y

    fast = torch.compile(f, backend="tilewright")
    for x in (drawn(7), drawn(7) - 100):
        said.clear()
        close(fast(x), f(x))
        close(said[0], said[1])
    assert len(compiles) >= 2


def test_nests_of_inputs_and_results() -> None:
    def f(given: dict[str, Any], *, scale: float = 2.0) -> dict[str, Any]:
        a, (b, c) = given["a"], given["rest"]
        return {"sum": a + b * scale, "same": c, "rows": a.shape[0], "more": [a.argmax(-1), None]}

    given = {"a": drawn(3, 4), "rest": (drawn(3, 4, seed=1), drawn(2))}
    found, expected = torch.compile(f, backend="tilewright")(given), f(given)
    close(found["sum"], expected["sum"])
    assert torch.equal(found["more"][0], expected["more"][0])
    assert found["same"] is given["rest"][1]
    assert (found["rows"], found["more"][1]) == (3, None)


def test_a_changed_parameter_is_seen(compiles: list[Any]) -> None:
    model = nn.Linear(4, 3).eval()
    fast = torch.compile(model, backend="tilewright")
    x = drawn(2, 4)
    with torch.no_grad():
        for step in range(4):
            close(fast(x), model(x))
            model.weight += step + 1
    first, second, last = compiles
    assert len(first.inputs) == len(second.inputs) == 1
    assert len(last.inputs) == 3, "what changes often is an input"


class Cache(nn.Module):
    """A decoding step: writes a position of its keys and values and attends to all so far."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 16, 8))
        self.register_buffer("values", torch.zeros(1, 16, 8))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        seen = torch.arange(16) <= position
        return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen[None])


def test_buffers_that_the_model_writes(compiles: list[Any]) -> None:
    model, other = Cache().eval(), Cache().eval()
    other.load_state_dict(model.state_dict())
    fast = torch.compile(model, backend="tilewright")
    with torch.no_grad():
        for step in range(5):
            x, position = drawn(1, 1, 8, seed=step), torch.tensor([step])
            close(fast(x, position), other(x, position))
            close(model.keys, other.keys)
    assert len(compiles) == 1


def test_inputs_that_the_model_writes() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2).add_(y)
        return x.sum(0)

    a, b = drawn(3, 4), drawn(3, 4)
    close(torch.compile(f, backend="tilewright")(a, drawn(4)), f(b, drawn(4)))
    close(a, b)


def test_dynamic_sizes(compiles: list[Any]) -> None:
    model = Net().eval()
    fast = torch.compile(model, backend="tilewright", dynamic=True)
    with torch.no_grad():
        for batch in (2, 3, 5, 8):
            x = drawn(batch, 3, 4 + batch, 20)
            close(fast(x), model(x))
    assert len(compiles) == 2  # for the first sizes alone, and for all


def test_sizes_that_become_dynamic(compiles: list[Any]) -> None:
    def f(x: Tensor) -> tuple[Tensor, int]:
        return torch.softmax(x, 0) * x.shape[0], x.shape[0] * 2

    fast = torch.compile(f, backend="tilewright")
    for rows in (3, 4, 5, 6):
        found, expected = fast(drawn(rows, 3)), f(drawn(rows, 3))
        close(found[0], expected[0])
        assert found[1] == expected[1]
    assert len(compiles) == 3  # for 3, which PyTorch took for fixed, for 4, and for all


def test_sizes_that_keep_coming(compiles: list[Any]) -> None:
    fast = torch.compile(lambda x: torch.softmax(x, 0), backend="tilewright", dynamic=True)
    for rows in (3, 4, 5, 4, 4, 5, 4, 4, 4):
        close(fast(drawn(rows, 7)), torch.softmax(drawn(rows, 7), 0))
    assert [graph.outputs[0].static_shape for graph in compiles] == [(3, 7), None, (4, 7)]


def test_sizes_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile = torch_backend.compile

    def fixed(graph: Any, **options: Any) -> Any:
        if graph.symbols:
            raise CompileError("cannot compile the graph", "its sizes are open")
        return compile(graph, **options)

    monkeypatch.setattr(torch_backend, "compile", fixed)
    fast = torch.compile(lambda x: torch.softmax(x, 0), backend="tilewright", dynamic=True)
    close(fast(drawn(3, 7)), torch.softmax(drawn(3, 7), 0))
    with pytest.warns(EagerWarning, match="its sizes are open"):
        close(fast(drawn(4, 7)), torch.softmax(drawn(4, 7), 0))
    close(fast(drawn(3, 7)), torch.softmax(drawn(3, 7), 0))


def test_a_number_that_no_shape_shows(compiles: list[Any]) -> None:
    def f(x: Tensor, length: int) -> Tensor:
        return x + torch.arange(length).sum()

    fast = torch.compile(f, backend="tilewright", dynamic=True)
    for length in (4, 5, 9):
        close(fast(drawn(3), length), f(drawn(3), length))


def test_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = drawn(5, 6).requires_grad_()

    def gradients(f: Callable[[Tensor], Tensor]) -> list[Tensor]:
        loss = f(x).square().sum()
        return [loss, *torch.autograd.grad(loss, [x, *model.parameters()])]

    close(gradients(torch.compile(model, backend="tilewright")), gradients(model))


def test_random_numbers_are_others_at_each_run() -> None:
    draw = torch.compile(lambda x: torch.rand_like(x), backend="tilewright")
    x = torch.zeros(1000)
    torch.manual_seed(1)
    first, second = draw(x), draw(x)
    torch.manual_seed(1)
    assert torch.equal(draw(x), first), "PyTorch's seed repeats them"
    assert not torch.equal(first, second)


def test_dropout_in_training() -> None:
    layer = nn.Dropout(0.4).train()
    fast = torch.compile(layer, backend="tilewright")
    x = torch.ones(10_000, requires_grad=True)
    y = fast(x)
    y.sum().backward()
    assert abs(float((y > 0).float().mean()) - 0.6) < 0.03
    assert x.grad is not None
    close(x.grad, y.detach())  # the mask of the forward pass
    assert not torch.equal(fast(x), y)


def test_training_attention() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = drawn(2, 5, 16)

    def gradients(f: Callable[..., Tensor]) -> list[Tensor]:
        mask = torch.ones(5, 5).triu(1).bool()
        y = f(x, src_mask=mask) * torch.arange(16)
        return [y, *torch.autograd.grad(y.sum(), list(layer.parameters()))]

    with warnings.catch_warnings():
        warnings.simplefilter("error", ScheduleWarning)  # each kernel by its family's strategy
        close(gradients(torch.compile(layer, backend="tilewright")), gradients(layer))


def test_two_symbols_of_one_size(compiles: list[Any]) -> None:
    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, torch.cat([k, q], 2), torch.cat([v, q], 2))

    fast = torch.compile(step, backend="tilewright")
    for length in (3, 4, 7):
        q, k, v = drawn(1, 2, 2, 8), drawn(1, 2, length, 8, seed=1), drawn(1, 2, length, 8, seed=2)
        close(fast(q, k, v), step(q, k, v))
    assert len(compiles) == 3, "for 3 and for 4, and for all"


def test_complex_results_and_strided_writes() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        y[::2] = 0
        return torch.fft.rfft(y), y

    for found, expected in zip(torch.compile(f, backend="tilewright")(drawn(6)), f(drawn(6)),
                               strict=True):  # fmt: skip
        close(found, expected)


def test_what_we_cannot_import_pytorch_runs() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.special.airy_ai(x)

    fast = torch.compile(f, backend="tilewright")
    x = drawn(5)
    with pytest.warns(EagerWarning, match=r"airy_ai.*no translator knows this operator"):
        close(fast(x), f(x))
    close(fast(x), f(x))


def test_options() -> None:
    given = {"threads": 1, "opt_level": 0}
    fast = torch.compile(torch.sin, backend="tilewright", options=given)
    close(fast(drawn(3)), drawn(3).sin())
    for wrong, named in ({"options": {"fast": True}}, "fast"), ({"mode": "max-autotune"}, "mode"):
        with pytest.raises(Exception, match=f"cannot pass .*{named}"):
            torch.compile(torch.cos, backend="tilewright", **wrong)(drawn(3))  # type: ignore[call-overload]
