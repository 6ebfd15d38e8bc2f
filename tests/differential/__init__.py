"""Differential fuzzing: random valid ONNX graphs, compiled, beside a reference of each operator.

`growth.py` grows a graph operator by operator and knows the content of every value as it goes;
`table.py` collects the functions that draw one application of an operator (`draw_*.py`), `draw.py`
draws whole graphs; `reference.py` computes one node; `comparison.py` says what rounding explains;
`verdict.py` runs a graph in a process of its own; `shrink.py` makes a failing graph small;
`__main__.py` is the command.
"""
