"""Hostile model files and artifacts: `python -m tests.fuzz --count 2000` is the acceptance check.

seeds      small sound models that use many operators and features of the format
damage     mutations of a file's bytes, whatever it holds
structure  mutations of a model: its graph, shapes, types, operators, attributes
places     mutations of where a model's external data lies
artifacts  mutations of a compiled artifact, its hashes repaired or not
cases      number → `Case`: the files to write and whether they must be refused
judge      one case in a process of its own → ok, refused, or one of the ways to fail
"""
