"""The watch of a training run: one line in its loop.

    watch = depthlaw.watch(model, optimizer, probe=batch, to="run.jsonl")
    for batch in batches:
        ...
        optimizer.step()
        watch.step(loss=loss)

Whatever goes wrong in it ends the watch with one line, never the run, which is why all of it is one module.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from depthlaw.auditing.inputs import Inputs, given, line_of
from depthlaw.auditing.reading.look import Built
from depthlaw.watching import settings
from depthlaw.watching.clients import Log, as_log
from depthlaw.watching.compare import MATTERS, WHOLE, change_at, learnt_limit
from depthlaw.watching.predicted import predict
from depthlaw.watching.probe import Moved, Probe, is_sharded
from depthlaw.watching.record import Header, Look, Part, Role, Run, Writer, check_architecture
from depthlaw.watching.roles import OTHER, read, unwrapped
from depthlaw.watching.shards import Shards, is_cut

_LOG = logging.getLogger("depthlaw")
_SETTINGS = ("lr", "weight_decay", "betas", "eps", "momentum", "nesterov", "dampening")
_LONG = 600.0
"""Seconds: who has to wait longer for the next look is told."""
_MOST_VOID = 20
"""Steps in a row that are none: a GradScaler's scale, halved at each, has then gone from 2^16 to below 1."""

Alarm = Callable[[str, int, float], Any]


def watch(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    probe: Any,
    to: str | Path | None = None,
    every: int = 100,
    budget: str | float | None = "1%",
    reference: str | Path | None = None,
    log: Any = (),
    start: int = 0,
) -> Watch:
    """Watch a training run: what a step changes in the logits and the last hidden state of a fixed batch, by role.

    Call ``watch.step()`` behind each ``optimizer.step()``, or take each step in ``with watch:``. It looks at the steps
    0, 1, 2, 4, 8 and so on below ``every``, and at each multiple of ``every``, as far as the budget goes; it looks at
    the first step in any case. The run ends in the same bits as without it.

    model: the module that is trained, compiled or wrapped or not; its roles are found as ``depthlaw.audit`` finds them.
    Over several processes all call this, and the first one looks; of FSDP2 it then holds the whole model, which all
    gather for each look. optimizer: its optimizer, or several. probe: the fixed batch, as the model is called with it
    (a tensor, a tuple or a dict by name), or a function that is called with the model and returns one. to: the file of
    the run, in JSON lines; a file of the same run is gone on with. budget: the part of the wall time that looks may
    take, "1%" or 0.01; None for no bound. reference: the file of another run, such as one of the depth at which the
    learning rate was tuned: the watch warns where a role moves further than there. log: where each look is also
    written: a function of (numbers, step), TensorBoard's SummaryWriter, a run of wandb, the module mlflow, an
    Accelerator, a logger of Lightning, or several of these. start: the number of the first step, for a run that goes
    on.

    ValueError for a setting that cannot be. Whatever else goes wrong is said in a line, and the run goes on unwatched.

    >>> import torch
    >>> from torch import nn
    >>> import depthlaw
    >>> layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, batch_first=True)
    >>> model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    >>> x = torch.randn(1, 4, 16)
    >>> watch = depthlaw.watch(model, optimizer, probe=x)
    >>> _ = model(x).square().mean().backward()
    >>> with watch:
    ...     optimizer.step()
    >>> watch.last.step, sorted(watch.last.roles)[:3]
    (0, ['bias', 'fc1', 'fc2'])
    """
    return Watch(
        settings.module(model),
        settings.optimizers(optimizer),
        settings.probe(probe),
        to=settings.file("to", to),
        every=settings.count("every", every, 1),
        budget=settings.share(budget),
        reference=settings.file("reference", reference),
        logs=[as_log(client) for client in (log if isinstance(log, (list, tuple)) else () if log is None else (log,))],
        start=settings.count("start", start, 0),
    )


def _guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """An error ends the watch, not the run."""

    @wraps(method)
    def guarded(self: Watch, *args: Any, **kwargs: Any) -> Any:
        if self.has_ended:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return method(self, *args, **kwargs)
        except Exception as error:  # whatever a module, a file or a client of somebody else raises
            self._end(line_of(error) if not isinstance(error, ValueError) else _line(error))
            return None

    return guarded


class Watch:
    """What ``watch`` returns. last: the last look. has_ended: whether something went wrong, which a line has told, or
    the watch was closed. It is one class, since whatever goes wrong anywhere in it has to end all of it, and not the
    run."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Any],
        probe: Any,
        *,
        to: Path | None,
        every: int,
        budget: float | None,
        reference: Path | None,
        logs: Sequence[Log],
        start: int,
    ) -> None:
        self.last: Look | None = None
        self.has_ended = False
        self._module = unwrapped(model)
        self._optimizers: list[Any] = [*optimizers]
        self._every, self._budget, self._logs = every, budget, list(logs)
        self._number = self._first = start
        self._tokens: int | None = None
        self._before: dict[str, Tensor] | None = None
        self._shards: Shards | None = None
        self._gathers = False
        self._asked = -1
        self._rates: dict[str, float] = {}
        self._limits: dict[str, tuple[float, Alarm | None]] = {}
        self._bases: dict[str, float] = {}
        self._beyond: set[str] = set()
        self._decided: tuple[int, bool] | None = None
        self._stepped: set[Any] = set()
        self._is_void = self._has_looked = False
        self._num_void, self._touched = 0, math.nan
        self._has_told = self._has_waited = False
        self._writer: Writer | None = None
        self._reference: Run | None = None
        self._hooks: list[Any] = []
        self._began = time.perf_counter()
        self._spent = self._last_cost = self._last_look = 0.0
        self._begin(probe, to, reference)

    # ------------------------------------------------------------ the beginning

    @_guarded
    def _begin(self, probe: Any, to: Path | None, reference: Path | None) -> None:
        if is_cut(self._module):
            self._shards = Shards(self._module)
            self._hook_on()
            if self._shards.copy is None:
                return
            self._module = self._shards.copy
        elif _rank():  # of DDP the first process looks, and the others know no more
            self._end(None)
            return
        elif is_sharded(self._module):
            raise ValueError("its parameters are cut by FSDP1, tensor parallelism or ZeRO-3, which a watch cannot read")
        self._inputs = copy.deepcopy(
            given(_asked(probe, self._module), self._module)
        )  # a loader may fill its tensors anew
        built = self._read()
        if reference is not None:
            self._refer(reference)
        if to is not None:
            predicted = predict(built, self._optimizers, self._first)
            self._tokens = _tokens_at(to, self._first)
            self._writer = Writer(to, self._header().model_copy(update={"predicted": predicted}))
        if self._shards is None:
            self._hook_on()
        self._touched = self._touches()
        self._spent = time.perf_counter() - self._began

    def _hook_on(self) -> None:
        for optimizer in map(_bare, self._optimizers):
            if hasattr(optimizer, "register_step_pre_hook"):
                self._hooks.append(optimizer.register_step_pre_hook(lambda stepped, *_: self._on_step(stepped)))

    def _read(self) -> Built:
        """The roles, and the names that they are of; anew where parameters were added."""
        try:
            roles, built = read(self._module, self._inputs)
        except ValueError:
            raise
        except Exception as error:  # of a probe that does not fit, whatever the module raises
            raise ValueError(f"reading {type(self._module).__name__} on the probe: {line_of(error)}") from error
        self._names = {name for name, _ in self._module.named_parameters()}
        self._probe = Probe(self._module, self._inputs, roles)
        return built

    def _header(self) -> Header:
        roles, counts = self._probe.roles, dict.fromkeys(self._probe.roles.names, 0)
        largest: dict[str, int] = {}
        total = 0
        for name, parameter in self._module.named_parameters():
            role_of = roles.of.get(name, OTHER)
            for role in roles.roles_of(name):
                is_all = isinstance(role_of, str)
                number = parameter.numel() if is_all else int((role_of == roles.names.index(role)).sum())
                counts[role] = counts.get(role, 0) + number
            size = parameter.numel() * parameter.element_size() * parameter.requires_grad
            total += size
            for role in roles.roles_of(name):
                largest[role] = largest.get(role, 0) + size
        return Header(
            versions={"depthlaw": version("depthlaw"), "torch": torch.__version__, "python": platform.python_version()},
            module=type(self._module).__name__,
            num_layers=roles.num_layers,
            d_model=roles.d_model,
            roles={role: number for role, number in counts.items() if number},
            optimizers=[
                {"name": type(optimizer).__name__} | {name: _plain(group[name]) for name in _SETTINGS if name in group}
                for optimizer in self._optimizers
                for group in getattr(optimizer, "param_groups", [{}])[:1]
            ],
            probe=", ".join(f"{name} {tuple(value.shape)}" for name, value in self._inputs.data.items()),
            probe_sha256=_digest(self._inputs),
            every=self._every,
            budget=self._budget,
            start=self._first,
            memory_bytes=2 * total + max(largest.values(), default=0),
        )

    def _refer(self, path: Path) -> None:
        """A reference that does not fit is told, and left out."""
        header = self._header()
        try:
            run = Run.read(path)
            check_architecture(run, header, "this model")
        except (OSError, ValueError) as error:
            _LOG.warning("depthlaw: the watch goes on without its reference: %s", _line(error))
            return
        if run.header.probe_sha256 != header.probe_sha256:
            _LOG.warning("depthlaw: the reference %s was watched on another probe, so that ratios mean less", path)
        self._reference = run

    # ------------------------------------------------------------ each step

    def __enter__(self) -> Watch:
        self._before_step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.step()

    def _on_step(self, optimizer: Any) -> None:
        """A block round a whole loop would be taken for one step."""
        infinite = getattr(optimizer, "found_inf", None)
        if isinstance(infinite, Tensor) and bool(infinite.any()):  # a fused step under a GradScaler: it changes nothing
            self._is_void = True
            return
        if optimizer in self._stepped and not self._has_told and not self.has_ended:
            self._has_told = True
            _LOG.warning(
                "depthlaw: an optimizer took more than one step within one of the watch: `with watch:` stands round "
                "each optimizer.step(), not round the loop, or watch.step() behind each"
            )
        self._stepped.add(optimizer)
        self._before_step()

    def _before_step(self) -> None:
        """Of several processes all gather, or none, whatever has become of the watch of the first."""
        if self._shards is None:
            self._keep()
        elif self._before is None and self._is_candidate() and self._asked != self._number:
            self._asked = self._number
            self._gathers = self._shards.agree(not self.has_ended and self._is_due())
            if self._gathers:
                self._before = self._shards.gathered()
                self._keep()

    @_guarded
    def _keep(self) -> None:
        """What the parameters are before a step, if it is to be looked at."""
        if self._shards is None:
            if self._before is not None or not self._is_due():
                return
            self._before = {n: p.detach().clone() for n, p in self._module.named_parameters() if p.requires_grad}
        began = time.perf_counter()
        self._rates = {}
        groups = [group for optimizer in self._optimizers for group in getattr(optimizer, "param_groups", ())]
        rates = {id(parameter): float(group.get("lr", math.nan)) for group in groups for parameter in group["params"]}
        named = dict(self._module.named_parameters()) if self._shards is None else self._shards.parameters
        for name, parameter in named.items():
            if id(parameter) in rates:
                self._rates[name] = rates[id(parameter)]
        self._last_cost = time.perf_counter() - began

    def _is_candidate(self) -> bool:
        """Whether the step that comes is looked at, if the budget goes so far."""
        number = self._number - self._first
        is_instead = self._shards is None and 0 < self._num_void < _MOST_VOID  # of one that was none
        return is_instead or self._number % self._every == 0 or (number < self._every and number & (number - 1) == 0)

    def _is_due(self) -> bool:
        """Whether the step that comes is looked at."""
        if not self._is_candidate():
            return False
        if self._decided is None or self._decided[0] != self._number:
            wait = 0.0 if self._budget is None else (self._spent + self._last_look) / self._budget
            wait -= time.perf_counter() - self._began
            self._decided = self._number, not self._has_looked or self._budget is None or wait <= 0
            if self._has_looked and wait > _LONG and not self._has_waited:
                self._has_waited = True
                _LOG.warning(
                    "depthlaw: the next look comes in about %.0f minutes: looks may take %.3g %% of the time, and have "
                    "taken %.3g s so far (a smaller probe makes them shorter, budget= and every= say how often)",
                    *(wait / 60, 100 * (self._budget or 0.0), self._spent),
                )
        return self._decided[1]

    def step(self, loss: Any = None, *, tokens: int | None = None) -> None:
        """Behind each step of the optimizers, and once for all of them. loss: of the run, if it is to be recorded.
        tokens: how many this step has seen, so that runs can be compared at equal tokens."""
        if self._shards is not None and self._gathers:
            self._shards.refresh()
        if self._is_first:
            self._step(loss, tokens)
        self._number += 1
        self._before, self._gathers, self._is_void = None, False, False
        self._stepped.clear()
        if self._is_candidate():
            self._touched = self._touches()

    def _touches(self) -> float:
        """How often torch has changed the optimizers' parameters in place; not a number where there are none."""
        groups = [group for optimizer in self._optimizers for group in getattr(optimizer, "param_groups", ())]
        parameters = [parameter for group in groups for parameter in group["params"]]
        return float(sum(parameter._version for parameter in parameters)) if parameters else math.nan

    @_guarded
    def _step(self, loss: Any, tokens: int | None) -> None:
        if tokens is not None:
            self._tokens = (self._tokens or 0) + int(tokens)
        if not self._is_due():
            return
        if not self._stepped and (self._is_void or self._touches() == self._touched):
            self._pass_over(loss)
            return
        if self._before is None:
            if not self._has_told:
                self._has_told = True
                _LOG.warning(
                    "depthlaw: step %d was not seen (none was taken, or its optimizer is none of torch's: take it in "
                    "`with watch:`)",
                    self._number,
                )
            return
        began = time.perf_counter()
        if self._names != {name for name, _ in self._module.named_parameters()}:
            self._read()
        moved = self._probe.look(self._before)
        look = self._look(moved, loss, began)
        if self._writer is not None:
            self._writer.add(look)
        self.last, self._num_void, self._has_looked = look, 0, True
        numbers = _numbers(look)
        for log in self._logs:
            log(numbers, look.step)
        self._warn(look)
        self._last_look = time.perf_counter() - began + self._last_cost
        self._spent += self._last_look

    def _pass_over(self, loss: Any) -> None:
        """No optimizer took this step, as a GradScaler lets none be taken where gradients are infinite. The next one
        that is taken is looked at."""
        self._num_void += 1
        self.last = Look(
            step=self._number,
            took_step=False,
            tokens=self._tokens,
            seconds=time.perf_counter() - self._began,
            cost_seconds=0.0,
            method="none",
            loss=None if loss is None else _finite(float(loss)),
            whole=0.0,
            first_order=0.0,
            roles={},
            stream=[],
        )
        if self._writer is not None:
            self._writer.add(self.last)
        if self._num_void == _MOST_VOID:
            _LOG.warning(
                "depthlaw: step %d: the optimizer that is watched took none of the last %d steps (is it the one that "
                "trains, and are gradients finite?)",
                self._number,
                _MOST_VOID,
            )

    def _look(self, moved: Moved, loss: Any, began: float) -> Look:
        logits, hidden = moved.changes["logits"], moved.changes.get("hidden")
        rates = self._rates_by_role()
        roles = {}
        for role, change in logits.roles.items():
            rate = rates.get(role)
            weight, step = moved.weights.get(role, (None, None))
            base = None if self._reference is None else change_at(self._reference, role, self._number)
            roles[role] = Role(
                change=_finite(change),
                hidden=None if hidden is None else _finite(hidden.roles[role]),
                per_rate=_finite(change / rate) if rate else None,
                share=_finite(logits.share[role]),
                rate=rate,
                weight=_finite(weight),
                step=_finite(step),
                beside_reference=_finite(change / base) if base else None,
            )
        return Look(
            step=self._number,
            tokens=self._tokens,
            seconds=time.perf_counter() - self._began,
            cost_seconds=time.perf_counter() - began + self._last_cost,
            method=moved.method,
            loss=None if loss is None else _finite(float(loss)),
            probe_loss=_finite(moved.loss),
            whole=_finite(logits.whole),
            first_order=_finite(logits.first_order),
            hidden=None if hidden is None else _finite(hidden.whole),
            roles=roles,
            stream=[
                Part.model_validate({n: _finite(v) if isinstance(v, float) else v for n, v in row.items()})
                for row in moved.stream
            ],
        )

    def _rates_by_role(self) -> dict[str, float]:
        """Of the step: the learning rate, or the mean of those of the parameters of a role."""
        by_role: dict[str, list[float]] = {}
        for name, rate in self._rates.items():
            for role in self._probe.roles.roles_of(name):
                by_role.setdefault(role, []).append(rate)
        means = {role: fmean(rates) for role, rates in by_role.items()}
        return {role: mean for role, mean in means.items() if math.isfinite(mean)}

    # ------------------------------------------------------------ alarms

    def limit(self, role: str, update: float, then: Alarm | None = None) -> None:
        """Tell when a role moves the logits more than so many times as far as in the reference at the same step, or,
        where there is none, as at the first look.

        then: called with role, step and how many times as far, at each look beyond the limit (infinitely, where the
        change is no finite number); if left out, a line is logged when that begins. What it raises ends the watch;
        SystemExit ends the run. With a reference all roles have a limit from the beginning, at looks where they are 5 %
        of the change or more: twice as far, and more of a role whose steps are uneven in the reference itself.
        ValueError for a limit that cannot be.
        """
        settings.check_limit(role, update, then)
        if self.has_ended or not self._is_first:
            return
        known = self._probe.roles.names
        if role not in known:
            _LOG.warning("depthlaw: no limit is set: no role is called %r (there are %s)", role, ", ".join(known))
            return
        self._limits[role] = float(update), then

    def _warn(self, look: Look) -> None:
        if look.whole is not None:
            self._beyond.discard(WHOLE)
        elif WHOLE not in self._beyond:
            self._beyond.add(WHOLE)
            _LOG.warning("depthlaw: step %d: what the step moves the logits by is no finite number", look.step)
        for role, moved in look.roles.items():
            if moved.change == 0:
                continue
            if moved.change is None:  # no finite number
                times, what = math.inf, "before"
            elif self._reference is not None:
                times, what = moved.beside_reference, "in the reference"
            else:
                times, what = moved.change / self._bases.setdefault(role, moved.change), "at the first look"
            if role in self._limits:
                limit, then = self._limits[role]
            elif self._reference is None or abs(moved.share or 0.0) < MATTERS:
                limit, then = math.inf, None
            else:
                limit, then = learnt_limit(self._reference, role), None
            if times is None or times <= limit:
                self._beyond.discard(role)
                continue
            if then is not None:
                then(role, look.step, times)
            elif role not in self._beyond:
                line = "depthlaw: step %d: %s moves the logits %.2g times as far as %s; the limit is %.2g"
                _LOG.warning(line, look.step, role, times, what, limit)
            self._beyond.add(role)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Look no more, and close the file. A run that ends does not need it."""
        if not self.has_ended and self._is_first:
            self._end(None)

    @property
    def _is_first(self) -> bool:
        """Of processes over which FSDP2 has cut the model, whether this is the one that looks."""
        return self._shards is None or self._shards.copy is not None

    def _end(self, line: str | None) -> None:
        self.has_ended = True
        self._before = None
        if self._shards is None:  # else the other processes ask it before each look
            for hook in self._hooks:
                hook.remove()
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:  # what was left to be written
                line = line or line_of(error)
        if line is not None:
            _LOG.warning("depthlaw: the watch has ended, the run goes on: %s", line)


def _asked(probe: Any, module: nn.Module) -> Any:
    """The batch, or what a function of the user's own gives for it."""
    if not callable(probe):
        return probe
    try:
        return probe(module)
    except Exception as error:  # whatever the function raises
        raise ValueError(f"the probe {getattr(probe, '__name__', probe)}() raised {line_of(error)}") from error


def _line(error: Exception) -> str:
    """In the words of a watch: what the audit calls its input is the probe."""
    return " ".join(str(error).split()).replace("--input", "the probe")


def _bare(optimizer: Any) -> Any:
    """Without Accelerate's wrapper, whose steps the wrapped one takes."""
    inner = getattr(optimizer, "optimizer", None)
    return _bare(inner) if isinstance(inner, Optimizer) else optimizer


def _rank() -> int:
    dist = torch.distributed
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _tokens_at(path: Path, start: int) -> int | None:
    """That a run has seen which goes on at a step, by its file: beyond the last look in it as many for each step."""
    if not start:
        return None
    try:
        looks = [look for look in Run.read(path).looks if look.step < start]
    except (OSError, ValueError):  # a file is told by what writes it
        return None
    last = looks[-1] if looks else None
    return None if last is None or last.tokens is None else round(last.tokens * start / (last.step + 1))


def _numbers(look: Look) -> dict[str, float]:
    """As loggers have it, flat."""
    numbers = {"whole": look.whole, "hidden": look.hidden, "probe_loss": look.probe_loss}
    for role, moved in look.roles.items():
        numbers |= {f"change/{role}": moved.change, f"per_rate/{role}": moved.per_rate, f"weight/{role}": moved.weight}
        numbers |= {f"step/{role}": moved.step, f"beside_reference/{role}": moved.beside_reference}
    for part in look.stream:
        numbers[f"stream/{part.side}/{part.layer}/{part.kind}"] = part.second_moment
    return {f"depthlaw/{name}": value for name, value in numbers.items() if value is not None}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return [_plain(part) for part in value] if isinstance(value, (tuple, list)) else value


def _digest(inputs: Inputs) -> str:
    digest = hashlib.sha256()
    for name, value in inputs.data.items():
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
