"""Measured: real PyTorch networks, plain numbers in and records out. `model` is the Transformer.

The modules that measure and train are shown here, and not where they are: a recorded number names their contents by a
hash, so that a word changed there would make every record one of other sources. The others show themselves: ``record``
and ``store`` keep runs, ``sweep`` makes many, ``stats`` and ``outcomes`` say what they show, ``planning`` how many
seeds that takes.

model: a Transformer from plain numbers. ``ModelConfig`` is all that it is made of: its sublayers, which ``alternating``
and ``decoder_layers`` list, its width, its norms; ValueError, in one line, for what does not fit. ``Transformer`` is
that network at one seed, in float64. Inputs are vectors (B, T, D), or tokens (B, T) where there is a vocabulary.

>>> import torch
>>> from sims.model import ModelConfig, SublayerConfig, Transformer, alternating, decoder_layers
>>> [one.kind for one in alternating(4, residual_weight=2.0)]
['attention', 'ffn', 'attention', 'ffn']
>>> [one.kind for one in decoder_layers(1)]
['attention', 'cross', 'ffn']
>>> config = ModelConfig(encoder=alternating(4), placement="pre", d_model=16, num_heads=2, num_outputs=3)
>>> model = Transformer(config, seed=0)
>>> hidden = model(torch.ones(1, 5, 16, dtype=torch.float64))
>>> tuple(hidden.shape), tuple(model.logits(hidden).shape), len(model.tagged())
((1, 5, 16), (1, 5, 3), 13)
>>> SublayerConfig(kind="ffn", gains={"q": 2.0})
Traceback (most recent call last):
    ...
ValueError: no role q in ffn: fc1, fc2

optim: ``first_step`` is -(theta_1 - theta_0) / lr of an optimizer's first step, as a formula; ``make`` is the optimizer
itself, torch's or, where torch has none, as published. The last argument says how many of the last dimensions are the
tensor's own; those before are ensemble members.

>>> from sims.optim import first_step, make
>>> grad, weight = torch.tensor([[3.0, -4.0]]), torch.ones(1, 2)
>>> [first_step(name, grad, weight, 2).tolist() for name in ("sgd", "adam")]
[[[3.0, -4.0]], [[1.0, -1.0]]]
>>> leaf = torch.nn.Parameter(weight.clone())
>>> leaf.grad = grad
>>> make("signsgd", [leaf], lr=0.5).step()
>>> leaf.tolist()
[[0.5, 1.5]]

ensemble, update: many seeds at once, and what a first step changes, exact to first order. ``Task`` says what the
networks are given and what is read, ``draw_inputs`` draws it, ``first_order`` takes one forward and one backward pass,
``roles_of`` adds up by role: (E,) each, E members.

>>> from sims.ensemble import Ensemble, Member
>>> from sims.update import Task, draw_inputs, first_order, roles_of
>>> task = Task(num_tokens=4)
>>> config = task.on(ModelConfig(encoder=alternating(4), d_model=16))
>>> ensemble = Ensemble([Member(config, seed) for seed in (0, 1, 2)])
>>> inputs = draw_inputs(config, task, (0, 1, 2), torch.float64, "cpu")
>>> order = first_order(ensemble, inputs, task, ["sgd"])
>>> roles = roles_of(ensemble, order.functionals["sgd"])
>>> sorted(roles), tuple(roles["update"].shape)
(['fc1', 'fc2', 'head', 'k', 'out', 'q', 'update', 'v'], (3,))

measure: all of that for one ``Question``. ``run`` yields a ``Result`` for as many seeds at once as memory holds; its
values are by optimizer/role, a number for each seed, in the unit that is O(1) in the width. NotEnoughMemoryError, a
ValueError, where not one network fits.

>>> from sims.measure import Question, choose_device, run
>>> [result] = run(Question(config=config, task=task, optimizers=("sgd", "adam")), seeds=range(3))
>>> result.seeds, [round(value, 2) for value in result.values["sgd/update"]]
([0, 1, 2], [4.88, 1.34, 3.87])
>>> bool(torch.allclose(roles["update"], torch.tensor(result.values["sgd/update"], dtype=torch.float64)))
True
>>> choose_device("cpu")
'cpu'

data: examples that every machine has, or one's own. ``load`` reads a task once in a process; its ``batch`` is a
function of size, seed and step alone. ``guess`` is the entropy of the labels, in nats.

>>> from sims.training.data import DataConfig, load
>>> data = load(DataConfig(name="digits"))
>>> data.num_positions, data.num_features, data.num_classes, round(data.guess, 2)
(17, 4, 10, 2.28)
>>> batch = data.batch(2, seed=0, step=0)
>>> tuple(batch.inputs.shape), tuple(batch.labels.shape)
((2, 17, 4), (2, 17))

train: one run, and what became of it by a stated rule: trained, stuck or diverged. ``TrainConfig`` is all that decides
it. Losses are in nats a label; with a checkpoint, a run that was stopped goes on bit for bit.

>>> from sims.training.train import TrainConfig, train
>>> model = ModelConfig(encoder=alternating(2), d_model=16, num_heads=2)
>>> settings = {"learning_rate": 1e-2, "num_steps": 4, "warmup_steps": 2, "batch_size": 4}
>>> config = TrainConfig(model=model, data=DataConfig(name="digits"), **settings)
>>> [config.rate_at(step) for step in range(4)]
[0.5, 1.0, 1.0, 1.0]
>>> result = train(config)
>>> result.num_steps, len(result.losses), result.outcome in ("trained", "stuck", "diverged")
(4, 4, True)
"""
