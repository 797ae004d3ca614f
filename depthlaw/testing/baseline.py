"""The initialisation of a model as it was accepted: a small file, beside which a later audit is held."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from depthlaw.auditing.laws import NEAR, SMALL, SURE, is_near
from depthlaw.sims.records.record import in_one_line
from depthlaw.system.files import read_all, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

    from depthlaw.auditing.audit import Audit
    from depthlaw.auditing.reading.look import Built


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")


class Start(_Part):
    """How large the entries of a matrix, or of all parameters of a role, are at the start: their standard deviation, or
    the root mean square of what is no branch matrix. scatter: the relative standard error of that size as the entries'
    own fourth moments tell it; null in files of before, where it is that of normal entries."""

    size: float
    entries: int
    scatter: float | None = None

    @property
    def error(self) -> float:
        """Entries that are drawn more evenly than normal ones are taken for normal."""
        of_normal = math.sqrt(1 / (2 * self.entries))
        return of_normal if self.scatter is None else max(self.scatter, of_normal)

    @classmethod
    def of(cls, values: Sequence[Tensor], size: float | None = None) -> Start:
        """Of all entries of these together. size: where it is known."""
        entries = sum(value.numel() for value in values)
        second, fourth = (sum(value.double().pow(n).sum().item() for value in values) / entries for n in (2, 4))
        spread = max(fourth - second**2, 0.0)
        return cls(
            size=math.sqrt(second) if size is None else size,
            entries=entries,
            scatter=math.sqrt(spread / entries) / (2 * second) if second else 0.0,
        )


class Sublayer(_Part):
    """weights: by role."""

    side: str
    index: int
    kind: str
    residual_weight: float
    branch_weight: float
    norms: Sequence[str]
    weights: Mapping[str, Start]


class Model(_Part):
    """others: by role, all that is no branch matrix."""

    sublayers: Sequence[Sublayer]
    final_norm: Mapping[str, bool]
    others: Mapping[str, Start]


class Baseline(_Part):
    """models: by number of layers. faults: those that were accepted too, as ``key_of`` names them."""

    kind: Literal["depthlaw-baseline"] = "depthlaw-baseline"
    version: Literal[1] = 1
    module: str
    models: Mapping[int, Model]
    faults: Sequence[str]

    @classmethod
    def of(cls, audit: Audit, faults: Sequence[str]) -> Baseline:
        return cls(
            module=type(audit.depths[-1].built.module).__name__,
            models={depth.asked: _model(depth.built) for depth in audit.depths},
            faults=faults,
        )

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """ValueError, in one line, for what is no such file; OSError."""
        content = read_all(path)
        try:
            document = from_json(content)
        except ValueError as error:
            raise ValueError(f"{path} is no JSON, and so no baseline of depthlaw audit: {error}") from None
        if not isinstance(document, dict) or document.get("kind") != "depthlaw-baseline":
            raise ValueError(f"{path} is no baseline of depthlaw audit (allowed: what --accept writes)")
        try:
            return cls.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(f"{path}: {in_one_line(error)}") from None

    def write(self, path: Path) -> None:
        write_atomically(path, self.model_dump_json(indent=1) + "\n")

    def changes(self, audit: Audit) -> list[str]:
        """What has changed since, a sentence each: what is the same at several depths or sublayers once. ValueError, in
        one line, where no depth is the same."""
        by_change: dict[str, list[str]] = {}
        depths = [depth for depth in audit.depths if depth.asked in self.models]
        if not depths:
            accepted = ", ".join(map(str, self.models))
            raise ValueError(f"the baseline is of {accepted} layers, and none of these is audited: name the same")
        for depth in depths:
            for what, where in _changes(self.models[depth.asked], _model(depth.built)):
                by_change.setdefault(what, []).append(
                    f"{where} of {depth.asked} layers" if where else f"{depth.asked} layers"
                )
        return [f"{what} ({_few(places)})." for what, places in by_change.items()]


def key_of(kind: str, side: str | None, roles: Sequence[str]) -> str:
    return " ".join(filter(None, (kind, side, *roles)))


def _few(places: Sequence[str]) -> str:
    return ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "")


def _model(built: Built) -> Model:
    matrices = {weight.name for weight in built.weights}
    others: dict[str, list[Tensor]] = {}
    for name, parameter in built.module.named_parameters():
        if name not in matrices and parameter.numel():
            others.setdefault(built.others.get(name, "other"), []).append(parameter.detach())
    return Model(
        sublayers=[
            Sublayer(
                side=sub.side,
                index=sub.index,
                kind=sub.kind,
                residual_weight=sub.residual_weight,
                branch_weight=sub.branch_weight,
                norms=sorted(sub.norms),
                weights={w.role: Start.of([w.of(w.parameter.detach())], w.std) for w in sub.weights},
            )
            for sub in built.sublayers
        ],
        final_norm=dict(built.final),
        others={role: Start.of(values) for role, values in others.items()},
    )


def _changes(then: Model, now: Model) -> Iterator[tuple[str, str]]:
    """What, and where in the model."""
    if [(s.side, s.index, s.kind) for s in then.sublayers] != [(s.side, s.index, s.kind) for s in now.sublayers]:
        yield f"The model has other sublayers: {len(then.sublayers)} accepted, {len(now.sublayers)} found", ""
        return
    for old, new in zip(then.sublayers, now.sublayers, strict=True):
        where = f"{old.side} sublayer {old.index}"
        for name in ("residual_weight", "branch_weight"):
            accepted, present = getattr(old, name), getattr(new, name)
            if not is_near(present, accepted, NEAR):
                yield f"The {name.replace('_', ' ')} is {present:.4g}; {accepted:.4g} was accepted", where
        if list(old.norms) != list(new.norms):
            yield f"The norms are {_listed(new.norms)}; {_listed(old.norms)} was accepted", where
        yield from ((what, where) for what in _starts(old.weights, new.weights))
    if then.final_norm != now.final_norm:
        yield "The final norm is another than was accepted", ""
    yield from ((what, "") for what in _starts(then.others, now.others))


def _starts(then: Mapping[str, Start], now: Mapping[str, Start]) -> Iterator[str]:
    for role in dict.fromkeys((*then, *now)):
        if role not in then or role not in now:
            yield f"{role} is {'new' if role in now else 'no longer there'}"
            continue
        old, new = then[role], now[role]
        error = math.hypot(old.error, new.error)
        if (old.size > 0) != (new.size > 0) or (
            old.size > 0 and abs(math.log(new.size / old.size)) > max(SURE * error, SMALL)
        ):
            yield f"{role} starts at {_rounded(new.size)}; {_rounded(old.size)} was accepted"


def _rounded(size: float) -> str:
    """To two digits: three would tell draws apart that are alike."""
    return f"{size:.2g}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
