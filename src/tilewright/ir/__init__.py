"""The loop IR: dtypes, expressions, statements, buffers, functions; their text, checks and
meaning.
"""
