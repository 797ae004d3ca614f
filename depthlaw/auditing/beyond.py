"""The update beyond the depths that were built: as the module is, as it should be, and where predictions miss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import stdtrit

from depthlaw.auditing.compare import NOT_INDEPENDENT, Findings
from depthlaw.auditing.expected import Claimed
from depthlaw.auditing.faults import Effect, Fault, listed
from depthlaw.auditing.laws import power_of
from depthlaw.auditing.models import Depth, passed_through
from depthlaw.auditing.reading.look import Built, Sublayer
from depthlaw.auditing.updates import as_config, of_few_tokens, predicted, task_of
from depthlaw.network.lower import visited
from depthlaw.sims.model import BRANCH_ROLES, ModelConfig, SublayerConfig
from depthlaw.sims.stats import Estimate, estimate, ratio
from depthlaw.system.page import times

FAR = (100, 1000)
"""Layers at which a prediction says what a fault comes to."""


def far_off(
    depths: Sequence[Depth],
    findings: Findings,
    claimed: Claimed,
    optimizer: str,
    rows: Sequence[Mapping[str, float]],
    numbers: Sequence[int],
    advance: Callable[[str, float, float | None], None],
) -> tuple[dict[int, dict[str, Mapping[str, float]]], list[str]]:
    """The update beside that at the shallowest depth, as it is and as it should be; and the ratio of the two. With it,
    in words, why there is no prediction at some numbers of layers."""
    whole = task_of(depths[-1].built)
    task = of_few_tokens(whole, depths[-1].built.visits)
    wrong = {(fault.side, fault.role) for fault in findings.faults}
    effects: dict[int, dict[str, Mapping[str, float]]] = {}
    missing: dict[str, list[str]] = {}
    done = len(depths)
    start = rows[0]
    try:
        if task is not whole:
            start = predicted(as_config(depths[0].built), task, optimizer)
        first = predicted(_asked_config(depths, claimed, findings, wrong, depths[0].asked), task, optimizer)
    except (ValueError, ArithmeticError) as error:
        return {}, [f"there is no prediction of {claimed.name}: {in_words(error)}"]
    for number in numbers:
        if number <= depths[-1].asked:
            continue
        which = "the module as it is"
        try:
            as_it_is = predicted(extrapolated(depths, findings, number), task, optimizer)
            advance("predicting", done + 1, len(depths) + 2 * len(numbers))
            which = claimed.name
            mended = predicted(_asked_config(depths, claimed, findings, wrong, number), task, optimizer)
        except (ValueError, ArithmeticError) as error:
            missing.setdefault(f"there is no prediction of {which}: {in_words(error)}", []).append(f"{number:,}")
            continue
        done += 2
        advance("predicting", done, len(depths) + 2 * len(numbers))
        is_ = {role: value / start[role] for role, value in as_it_is.items() if start.get(role)}
        should = {role: value / first[role] for role, value in mended.items() if first.get(role)}
        ratio = {
            role: is_[role] * start[role] / (value * first[role])
            for role, value in should.items()
            if value and is_.get(role)
        }
        effects[number] = {"as_it_is": is_, "as_it_should_be": should, "ratio": ratio}
    reasons = [f"at {' and '.join(where)} layers {reason}" for reason, where in missing.items()]
    if effects and task is not whole:
        reasons.append(
            f"what is predicted of more than {depths[-1].asked} layers is of {task.num_tokens} of the "
            f"{whole.num_tokens} tokens"
        )
    return effects, reasons


class Exponential(NamedTuple):
    """Growth that is no power of the number of layers. layers: numbers of them, each twice the one before. factors: by
    which the update grows to each from the one before, as predicted; infinite where it is beyond the floats."""

    layers: Sequence[int]
    factors: Sequence[float]

    @property
    def text(self) -> str:
        """The factors, each with its depths."""
        doublings = [
            f"{'beyond the floats' if factor == math.inf else times(factor)} from {start:,} to {end:,}"
            for (start, end), factor in zip(pairwise(self.layers), self.factors, strict=True)
        ]
        return f"{listed(doublings)} layers"


def exponential(depths: Sequence[Depth], findings: Findings, optimizer: str) -> Exponential | None:
    """The growth of the update where that is exponential; None where it is a power, or not known, as over visits."""
    if len({depth.built.visits for depth in depths}) > 1:
        return None
    task = of_few_tokens(task_of(depths[-1].built), depths[-1].built.visits)

    def update(num_layers: int) -> float:
        return predicted(extrapolated(depths, findings, num_layers), task, optimizer)["update"]

    try:
        return no_power(update, depths[-1].asked) if len(depths) > 1 else None
    except ValueError:
        return None


def no_power(update: Callable[[int], float], start: int) -> Exponential | None:
    """How an update grows from a number of layers on, where that is exponential; an ArithmeticError of it is beyond the
    floats.

    Asked for at that number, at twice it, and so on. From one doubling to the next the exponent of a power settles,
    and that of e^(c N) gains c N / ln 2, which is twice as much each time. A sum of two powers has exponents that rise
    for a while, too: it is exponential where they rise beyond those of any power that is known.
    """
    numbers, values = [start], list[float]()
    while numbers[-1] <= _DEEPEST:
        try:
            values.append(update(numbers[-1]))
        except ArithmeticError:
            values.append(math.inf)
        if values[0] == math.inf or not values[-1] > 0:
            return None
        factors = [after / before for before, after in pairwise(values)]
        if len(factors) >= _FEWEST or values[-1] == math.inf:
            exponents = [math.log2(factor) for factor in factors]
            gained = [after - before for before, after in pairwise(exponents)]
            if not all(after > max(_STEEPER, _SETTLES * before) for before, after in pairwise(gained[-2:])):
                return None
            if exponents[-1] > _HIGHEST:
                return Exponential(numbers, factors)
        numbers.append(2 * numbers[-1])
    return None


def first_of_all(built: Built) -> str:
    """What is to be done about numbers that grow from layer to layer, before anything else."""
    if any(sub.norms for sub in built.sublayers):
        return (
            "what helps is other weights of its stream and its branches, as `depthlaw rule` has them; where it is to "
            "be a scheme that has those, `depthlaw audit` with that name says which are off"
        )
    return (
        "its branches have no norm, so every layer multiplies the stream: first put a norm before each branch "
        "(pre-norm) or a trained weight of 0 on it (rezero)"
    )


_DEEPEST = 1024
"""Layers of which a prediction takes a second."""
_FEWEST = 3
"""Doublings of the number of layers that tell a power from an exponential."""
_HIGHEST = 4.0
"""An exponent that no power has which is known of a Transformer's update: twice the largest."""
_STEEPER = 0.05
"""What the exponent of exponential growth gains, at least, where the number of layers doubles once more: more than the
points of a prediction scatter."""
_SETTLES = 1.5
"""Times what it gained before: of a power that settles less than 1, of an exponential 2."""


def in_words(error: Exception) -> str:
    """Why there is no prediction: numerical failures, whatever they are called, are numbers that left the floats."""
    is_numerical = isinstance(error, (ArithmeticError, np.linalg.LinAlgError))
    return "numbers overflow on the way" if is_numerical else str(error)


def lost_gradients(depths: Sequence[Depth], num_models: int) -> list[str]:
    """A line for each depth at which the output is finite, and the gradients of some models are not."""
    return [
        f"at {depth.asked} layers {num_models - len(depth.updates)} of {num_models} models have gradients that are no "
        "finite numbers; their update is left out"
        for depth in depths
        if len(depth.updates) < num_models and depth.built.flow.output.isfinite().all()
    ]


def explodes(depths: Sequence[Depth], numbers: Sequence[int]) -> Iterator[str]:
    """A line for each stream that leaves the floats of single precision on the way to one of so many layers.

    The exponent of its growth goes on as a line through the shallowest and the deepest model, so that weights which
    approach 1 with depth are let pass.
    """
    first, last = depths[0], depths[-1]
    for side, sublayers in last.built.sides.items():
        if side not in first.built.sides:
            continue
        end, start = _growth(sublayers), _growth(first.built.sides[side])
        span = last.asked - first.asked
        slope = (end - start) / span if span else end / last.asked
        reached = (n for n in sorted(numbers) if n > last.asked and end + slope * (n - last.asked) > _MOST_DIGITS)
        if (number := next(reached, None)) is None:
            continue
        moments = [(depth.asked, *_ends(depth.built.sides[side])) for depth in depths if side in depth.built.sides]
        squares = "; ".join(f"from {start:.3g} to {end:.3g} at {asked}" for asked, start, end in moments)
        of = f" of the {side}" if len(last.built.sides) > 1 else ""
        yield (
            f"the stream{of} grows with every layer, so that at {number:,} layers its numbers are beyond the floats. "
            f"From its start to its last sublayer its mean square goes {squares} layers"
        )


def _ends(sublayers: Sequence[Sublayer]) -> tuple[float, float]:
    """The mean square of a stream at its start and at its last sublayer."""
    return sublayers[0].second_moment, sublayers[-1].second_moment


def _growth(sublayers: Sequence[Sublayer]) -> float:
    """The power of ten by which a stream grows from layer to layer: by its residual weights since the last norm that it
    runs through; where no norm stands anywhere and branches grow with it, as it was measured."""
    if not any(sub.norms & _KEEPS_SCALE for sub in sublayers) and _branches_grow(sublayers):
        start, end = _ends(sublayers)
        return math.log10(end / start) / 2
    power = most = 0.0
    for sub in sublayers:
        weight = sub.residual_weight
        power = 0.0 if "post" in sub.norms else power + (math.log10(weight) if weight > 0 else 0.0)
        most = max(most, power)
    return most


def _branches_grow(sublayers: Sequence[Sublayer]) -> bool:
    """Whether branches of some kind grow with their stream, from the first to the last of the kind, and not much less,
    as those behind a bounded activation do."""
    known = [sub for sub in sublayers if sub.branch_rms > 0 and 0 < sub.second_moment < math.inf]
    grown = []
    for kind in {sub.kind for sub in known}:
        first, last = (next(sub for sub in order if sub.kind == kind) for order in (known, known[::-1]))
        stream = math.log(last.second_moment / first.second_moment) / 2
        grown.append(stream > 0 and math.log(last.branch_rms / first.branch_rms) > stream / 2)
    return any(grown)


def extrapolated(depths: Sequence[Depth], findings: Findings, num_layers: int) -> ModelConfig:
    """The module's numbers at a depth that was not built, by the laws that were read at those that were. ValueError, in
    one line, for a loop that has no such depth."""
    first, last = depths[0], depths[-1]
    in_pass, visits = passed_through(depths, num_layers)
    own, rest = divmod(in_pass, visits)
    if rest:
        raise ValueError(f"{in_pass} layers are no whole number of layers, {visits} times")
    config = as_config(last.built)
    sides = []
    for side, sublayers, shallow in zip(
        last.built.sides,
        (config.encoder, config.decoder),
        (as_config(first.built).encoder, as_config(first.built).decoder),
        strict=False,
    ):
        count, count_of_first = last.own_counts[side], first.own_counts[side]
        each = len(sublayers) // count
        growth = math.log(in_pass / last.counts[side])
        span = math.log(last.counts[side] / first.counts[side]) or math.inf

        def grown(value: float, before: float, growth: float = growth, span: float = span) -> float:
            return value * math.exp(growth * math.log(value / before) / span) if value > 0 and before > 0 else value

        new: list[SublayerConfig] = []
        for layer in range(1, own + 1):
            share = (layer - 0.5) / own
            place = min(int(share * count), count - 1)
            earlier = min(int(share * count_of_first), count_of_first - 1)
            for part in range(each):
                sublayer = sublayers[place * each + part]
                before = shallow[min(earlier * each + part, len(shallow) - 1)]
                gains = {}
                for role, gain in sublayer.gains.items():
                    law = findings.laws.get((side, role))
                    gains[role] = config.gain(role, law.at(in_pass, layer)) if law is not None and gain else gain
                new.append(
                    replace(
                        sublayer,
                        gains=gains,
                        residual_weight=grown(sublayer.residual_weight, before.residual_weight),
                        branch_weight=sublayer.branch_weight
                        if last.built.sides[side][place * each + part].trained == "gate"  # of a condition, not of depth
                        else grown(sublayer.branch_weight, before.branch_weight),
                    )
                )
        sides.append(tuple(new))
    return replace(config, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else (), visits=visits)


def _asked_config(
    depths: Sequence[Depth],
    claimed: Claimed,
    findings: Findings,
    wrong: set[tuple[str | None, str | None]],
    num_layers: int,
) -> ModelConfig:
    """What is asked for at a depth; of a scheme, on the constants of the module's own initialisation. wrong: sides and
    roles of faults, whose constants are those of the other roles' initialisation."""
    built = depths[-1].built
    in_pass, visits = passed_through(depths, num_layers)
    asked = visited(claimed.config(built, dict.fromkeys(built.sides, in_pass)), visits)
    shape = as_config(built)
    is_start_wrong, is_head_wrong = ((None, role) in wrong for role in ("embedding", "head"))
    config = replace(
        asked,
        embedding_std=asked.embedding_std * asked.embedding_multiplier if is_start_wrong else shape.embedding_std,
        embedding_multiplier=1.0,
        head_gain=asked.head_gain if is_head_wrong else shape.head_gain,
        is_causal=shape.is_causal,
    )
    if claimed.is_absolute:
        return config
    config = replace(config, attention_scale=shape.attention_scale)
    sides = []
    for side, sublayers in zip(built.sides, (config.encoder, config.decoder), strict=False):
        bases = {
            key[1]: findings.bases[key] if key in wrong else shape.gain(key[1], law.constant / asked_law.constant)
            for key, law in findings.laws.items()
            if key[0] == side and (asked_law := findings.asked_laws.get(key)) is not None and asked_law.constant
        }
        sides.append(
            tuple(
                replace(
                    sub,
                    gains={role: sub.gains.get(role, 1.0) * bases.get(role, 1.0) for role in config.roles(sub.kind)},
                )
                for sub in sublayers
            )
        )
    return replace(config, encoder=sides[0], decoder=sides[1] if len(sides) > 1 else ())


NO_LAW = ("depth-ignored", "no-residual", "visits")
"""Faults of modules whose sublayers, as they are read at some depths, say nothing of other depths."""
_KEEPS_SCALE = frozenset({"pre", "v", "inner", "branch", "post"})
"""Places of norms behind which a branch is as large whatever the stream is."""
_MOST_DIGITS = math.log10(torch.finfo(torch.float32).max)
_MISS = 0.01
"""The probability that any role's interval leaves out the prediction of a block that is as it is predicted."""


def missed_by(depths: Sequence[Depth], rows: Sequence[Mapping[str, float]]) -> Mapping[str, tuple[float, float]]:
    """By role, what is measured and what is predicted at the greatest depth, where these differ by more than chance and
    a finite width move them.

    Of a few models of one depth the scatter is hardly known. Relative to the mean it is about the same at each depth,
    so it is taken from the seeds of all of them; and what misses alike at all depths is told by all of them together.
    """
    last = depths[-1]
    share = math.log1p(len(last.built.sublayers) / last.built.d_model)
    roles = [role for role in rows[-1] if role.rpartition("/")[2] in ("update", *BRANCH_ROLES)]
    missed = {}
    for role in roles:
        off = [
            [math.log(update[role] / row[role]) for update in depth.updates if update.get(role, 0.0) > 0]
            for depth, row in zip(depths, rows, strict=True)
            if row.get(role, 0.0) > 0
        ]
        num_free = sum(len(logs) - 1 for logs in off if logs)
        if not off or num_free < 1 or len(off[-1]) < len(last.updates):
            continue
        scatter = math.sqrt(sum(float(np.var(logs)) * len(logs) for logs in off if logs) / num_free)
        width = float(-stdtrit(num_free, _MISS / len(roles) / 4)) * scatter
        every = [value for logs in off for value in logs]
        of_last, of_all = (abs(fmean(logs)) - width / math.sqrt(len(logs)) for logs in (off[-1], every))
        mean = estimate([update[role] for update in last.updates]).mean
        if of_last > share or (of_all > share and abs(math.log(mean / rows[-1][role])) > share):
            missed[role] = mean, rows[-1][role]
    return missed


class Growth(NamedTuple):
    """Of the update from one depth to another. measured: on num_models of each."""

    measured: Estimate
    predicted: float
    num_models: int

    @classmethod
    def of(cls, shallow: Depth, deep: Depth, predicted: float) -> Growth | None:
        """None where fewer than two models of a depth were measured."""
        samples = [[update["update"] for update in depth.updates if update.get("update")] for depth in (shallow, deep)]
        if not all(len(sample) > 1 for sample in samples):
            return None
        before, after = map(estimate, samples)
        return cls(ratio(after, before), predicted, len(samples[0]))

    @property
    def is_as_predicted(self) -> bool:
        low, high = self.measured.low or 0.0, self.measured.high or math.inf
        factor = self.measured.mean / self.predicted
        return max(factor, 1 / factor) <= _MISSED or low <= self.predicted <= high

    @property
    def text(self) -> str:
        of = self.measured
        return (
            f"measured on {self.num_models} models of each depth, the update grows {times(of.mean)} "
            f"({of.low or 0:.3g} to {of.high or math.inf:.3g}), and {times(self.predicted)} is predicted"
        )


_MISSED = 1.25
"""A factor between the growth that is measured and the one that is predicted, of which something is to be said."""


def outside(depth: Depth, missed: Mapping[str, tuple[float, float]], growth: Growth | None = None) -> Iterator[str]:
    """A line where predictions are not what is measured, with what they leave out of this block. growth: from the
    shallowest depth to this one."""
    if not missed:
        return
    built = depth.built
    off = [f"{role} {is_:.3g} beside {predicted:.3g}" for role, (is_, predicted) in missed.items()]
    known = {
        "layers that share their matrices": bool(built.shared) and built.visits == 1,
        "that each token meets a few experts of many, by its router's weights": built.has_experts,
        "the parts that other remarks say were not read": bool(built.unread or built.joined),
        "long skips": bool(built.long_skips),
        "biases that do not start at 0": any(built.flow.parameters[name].any() for name in built.biases),
        "that FFNs are not all of one width": len({w.shape for w in built.weights if w.role == "fc1"}) > 1,
        "an activation that it does not know": any(sub.kind == "ffn" and not sub.activation for sub in built.sublayers),
    }
    out = [text for text, is_there in known.items() if is_there]
    why = (
        f"The prediction leaves out {' and '.join(out)}"
        if out
        else "The prediction leaves out that the width is finite, and nothing else that is known"
    )
    rest = ""
    if is_useless(missed, growth):
        rest = ", and no prediction of it at any depth"
    elif is_useless(missed) and growth is not None:
        rest = (
            f". It is off in size; how it grows is as predicted, on which alone `depthlaw advise` rests: {growth.text}"
        )
    yield (
        f"at {depth.asked} layers what is measured is not what is predicted "
        f"({', '.join(off[:4])}{' ...' if len(off) > 4 else ''}), so trust what is measured{rest}. {why}"
    )


_USELESS = 3.0
"""A factor between what is predicted and what is measured."""


def is_useless(missed: Mapping[str, tuple[float, float]], growth: Growth | None = None) -> bool:
    """Whether predictions are so far off, in size and in how they grow, that nothing is to be told by them."""
    ratios = [max(is_ / predicted, predicted / is_) for is_, predicted in missed.values()]
    return max(ratios, default=1) >= _USELESS and not (growth is not None and growth.is_as_predicted)


def with_effect(
    fault: Fault,
    depths: Sequence[Depth],
    rows: Sequence[Mapping[str, float]],
    far: Mapping[int, Mapping[str, Mapping[str, float]]],
    missed: Mapping[str, tuple[float, float]],
    name: str | None,
    has_rates: bool = False,
) -> Fault:
    """The fault with its effect on the update, measured and predicted. has_rates: whether what is asked for has
    learning rates of its own. missed: as ``missed_by`` tells it."""
    known = set[str]().union(*depths[-1].updates)
    role = next((key for key in (f"{fault.side}/{fault.role}", fault.role) if key in known), None) or "update"
    side, _, name_of_role = role.rpartition("/")
    effect = Effect(
        of=f"the {side}'s {name_of_role}" if side else "all branch matrices" if role == "update" else role,
        name=name,
        start=depths[0].asked,
        end=depths[-1].asked,
        has_rates=has_rates,
    )
    first, last = ([update[role] for update in depth.updates if role in update] for depth in (depths[0], depths[-1]))
    if first and last and len(depths) > 1 and sum(first) > 0:
        effect = replace(effect, measured=fmean(last) / fmean(first))
    if fault.kind in NOT_INDEPENDENT:
        if effect.measured is not None and rows and rows[0].get(role):
            effect = replace(effect, independent=rows[-1][role] / rows[0][role])
        return replace(fault, effect=effect)
    ways = {number: effect for number, effect in far.items() if all(role in effect[which] for which in _WAYS)}
    if ways:
        as_it_is, mended = ({number: effect[which][role] for number, effect in ways.items()} for which in _WAYS)
        ratio = {number: of for number, effect in ways.items() if (of := effect["ratio"].get(role)) is not None}
        effect = replace(effect, as_it_is=as_it_is, mended=mended, ratio=ratio, missed=missed.get(role))
    return replace(fault, effect=effect)


def learning_rates(claimed: Claimed | None, depths: Sequence[Depth]) -> tuple[str, ...]:
    """What a claim multiplies the learning rates of roles by, each kind as a comment of Python: a prediction of what is
    asked for has them. None where all rates are as they are."""
    if claimed is None:
        return ()
    by_role: dict[str, dict[int, float]] = {}
    for depth in depths:
        asked = claimed.config(depth.built, depth.counts)
        for sub in (*asked.encoder, *asked.decoder):
            for role in asked.roles(sub.kind):
                by_role.setdefault(role, {})[max(depth.counts.values())] = sub.lr_multipliers.get(role, 1.0)
    groups: dict[tuple[tuple[int, float], ...], list[str]] = {}
    for role, rates in by_role.items():
        if any(rate != 1 for rate in rates.values()):
            groups.setdefault(tuple(rates.items()), []).append(role)
    lines = []
    for rates, roles in groups.items():
        last, rate = rates[-1]
        power = power_of(dict(rates))
        law = f"{rate * last**-power:.4g} * num_layers**{power:.3g}" if power else f"{rate:.4g}"
        at = f", {rate:.4g} at {last} layers" if power else ""
        lines.append(f"# and in the optimizer, the learning rate of {listed(roles)} times {law}{at}")
    return tuple(lines)


_WAYS = ("as_it_is", "as_it_should_be")


def left_out(built: Built) -> set[str]:
    """Roles of which a prediction says something else than what is measured: biases, where some matrices have none."""
    biased = {role for roles in built.biases.values() for role in roles}
    return set() if all(weight.role in biased for weight in built.weights) else {"bias", "encoder/bias", "decoder/bias"}


def worse(name: str, optimizer: str, far: Mapping[int, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """A line where the update grows more, at the greatest depth, when all is mended."""
    number = max(far)
    is_, mended = (far[number][which].get("update", 0.0) for which in ("as_it_is", "as_it_should_be"))
    if mended <= 1.1 * is_:
        return []
    does = "grows more" if mended > 1 else "shrinks less"
    return [
        f"by {name} itself the update {does} under {optimizer} than in the module as it is, {times(mended)} "
        f"beside {times(is_)} at {number:,} layers: `depthlaw advise` says what keeps it from growing"
    ]
