"""The ways to check a statement, for claims of several sources.

``checks`` has the common ones, from printed values to growth laws. They draw on ``algebra``, ``search`` and
``intervals``, and on three ways to the update of a network: ``second_meanfield``, ``kernel`` and ``recorded_stacks``.
``signal_propagation`` is about streams and updates at initialisation, ``tables`` about what papers print in tables,
``training`` about what the records of the experiments say. A check of one source alone stands beside its claims.
"""
