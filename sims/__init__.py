"""Measured: real PyTorch networks, plain numbers in and records out.

Build a network from plain numbers, ask by how much one optimizer step changes its output, and train it:

>>> from depthlaw.sims import ModelConfig, Question, Task, alternating, run
>>> task = Task(num_tokens=4)
>>> config = task.on(ModelConfig(encoder=alternating(4), d_model=16))
>>> [result] = run(Question(config=config, task=task, optimizers=("sgd",)), seeds=range(3))
>>> sorted(result.values)[:3]
['sgd/fc1', 'sgd/fc2', 'sgd/head']
"""

import lazy_loader as lazy

# The names stand in the .pyi beside this; each is imported when somebody asks for it.
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
