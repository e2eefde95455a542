"""The tests.

Their shared code is in `tests.helpers`: ``from tests.helpers.flights import Model``. Test modules are imported by their
paths (``--import-mode=importlib``): as `tests.index.test_tagging`, never as a top-level module.
"""
