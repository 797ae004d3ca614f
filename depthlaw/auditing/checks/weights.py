"""Weights of the stream and of branches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from depthlaw.auditing.expected import Pair
from depthlaw.auditing.faults import Amount, Fault, Faults, Remark, distinct
from depthlaw.auditing.fixes import CONSTANT, Assign, Edit, Entry, summed
from depthlaw.auditing.laws import NEAR, by_num_layers, is_near, layers_of, power_of, share_of_layers
from depthlaw.auditing.models import Beside, Depth, Models, by_depth, names_of

PROPORTION = 0.75
"""Between the square root of the number of layers and that number: with a larger power of it a logarithm grows about in
proportion, and what it is of, exponentially."""
Pairs = Sequence[tuple[Depth, Pair]]


def residual_weights(beside: Beside) -> Faults:
    """What multiplies the stream."""
    for side, pairs in beside.by_side:
        wrong = [(depth, pair) for depth, pair in pairs if not is_near(*_ratio_where_post(pair), NEAR)]
        if wrong:
            is_right = all(is_near(p.built.residual_weight, p.asked.residual_weight, NEAR) for _, p in wrong)
            word = "branch weight" if is_right else "residual weight"
            name = word.replace(" ", "_")
            yield Fault(
                kind=word.replace(" ", "-"),
                says=_cause(beside, word, pairs, wrong),
                where=names_of(wrong),
                amount=Amount(word, by_depth((d, getattr(p.built, name)) for d, p in pairs)),
                asked=Amount(word, by_depth((d, getattr(p.asked, name)) for d, p in pairs)),
                program=(summed_as_asked(beside, *wrong[-1]),),
                side=side,
            )


def branch_weights(beside: Beside) -> Faults:
    """What multiplies branches, and whether that is trained."""
    for side, every in beside.by_side:
        pairs = [
            (depth, pair) for depth, pair in every if pair.built.trained != "gate"
        ]  # of which a claim says nothing
        wrong = [(depth, pair) for depth, pair in pairs if _is_branch_off(pair)]
        if wrong and _is_of_another_base(beside, pairs):
            yield Remark(
                f"the branch weight is {beside.name}'s times the number of layers of a base model, which is yours"
            )
        elif wrong:
            depth, pair = wrong[-1]
            yield Fault(
                kind="branch-weight",
                says=_cause(beside, "branch weight", pairs, wrong),
                where=_branch_names(wrong),
                amount=Amount("branch weight", by_depth((d, p.built.branch_weight) for d, p in pairs)),
                asked=Amount("branch weight", by_depth((d, p.asked.branch_weight) for d, p in pairs)),
                program=(
                    _started(beside, [p for d, p in wrong if d is depth], depth)
                    if pair.built.trained
                    else summed_as_asked(beside, depth, pair),
                ),
                side=side,
            )
        elif kinds := [(depth, pair) for depth, pair in pairs if _asked_kind(pair) != _kind(pair)]:
            pair = kinds[-1][1]
            yield Fault(
                kind="branch-weight",
                says=f"The branch weight is {_kind(pair)}; {beside.name} has it {_asked_kind(pair)}.",
                where=_branch_names(kinds),
                amount=_kind(pair),
                asked=_asked_kind(pair),
                program=(
                    Edit(
                        f"self.scale = nn.Parameter(torch.full((d_model,), {pair.asked.branch_weight:.6g}))"
                        if pair.asked.has_layer_scale
                        else "self.scale = nn.Parameter(torch.zeros(()))"
                        if pair.asked.trains_branch_weight
                        else f"x = x + {pair.asked.branch_weight:.6g} * branch(x)"
                    ),
                ),
                side=side,
            )


def live_gates(beside: Beside) -> Faults:
    """Gates of a condition that start at other numbers than 0, where a claim's layers start as the identity."""
    for side, every in beside.by_side:
        gates = [
            (depth, pair) for depth, pair in every if pair.built.trained == "gate" and not pair.asked.branch_weight
        ]
        wrong = [(depth, pair) for depth, pair in gates if pair.built.branch_weight]
        if wrong:
            yield Fault(
                kind="branch-weight",
                says=f"Gates do not start at 0, as those of {beside.name} do, whose layers start as the identity.",
                where=_branch_names(wrong),
                amount=Amount("root mean square of the gates", by_depth((d, p.built.branch_weight) for d, p in gates)),
                asked=Amount("root mean square of the gates", by_depth((d, 0.0) for d, _ in gates)),
                program=(Edit("nn.init.zeros_(modulation.weight)  # of the linear layer whose output is the gates"),),
                side=side,
            )


def growing_branches(models: Models) -> Faults:
    """Branches that a number multiplies which grows with the number of layers, on a stream that it does not: the more
    layers there are, the less is left of what each was given."""
    for side in models.last.built.sides:
        growing = [
            (depth, sub)
            for depth in models.depths
            for sub in depth.built.sides.get(side, ())
            if sub.trained != "gate" and sub.residual_weight and sub.branch_weight
        ]
        # behind a norm on the stream the ratio is all that counts
        ratios = {
            (d.counts[side], s.index, s.kind): abs(s.branch_weight / (s.residual_weight if "post" in s.norms else 1))
            for d, s in growing
        }
        power = power_of(by_num_layers(ratios))
        if power is None or power < NEAR:
            continue
        depth, sub = growing[-1]
        is_post = "post" in sub.norms
        number = ratios[depth.counts[side], sub.index, sub.kind]
        law = f"{number / depth.counts[side] ** power:.4g} * {models.called(side)}**{power:.3g}"
        yield Fault(
            kind="residual-weight",
            says="A number that grows with the number of layers stands on the branches"
            + (", not on the stream." if is_post else "."),
            where=distinct(w.name for d, s in growing if d is depth for w in s.weights),
            amount=Amount("branch weight", by_depth((d, s.branch_weight) for d, s in growing)),
            # On a stream that no norm divides again, the number would make it grow exponentially.
            asked=Amount("residual weight", by_depth((d, abs(s.branch_weight / s.residual_weight)) for d, s in growing))
            if is_post
            else Amount("branch weight", by_depth((d, 1.0) for d, _ in growing)),
            program=(Edit(f"residual_weight = {law}\n{summed('residual_weight * ', '', sub.norms)}"),)
            if is_post
            else (Edit(summed("", "", sub.norms)),),
            side=side,
        )


def growing_stream(models: Models) -> Faults:
    """Numbers above 1 on a stream that no norm divides again, whose product grows exponentially with the number of
    layers: what deep layers add is nothing beside it."""
    for side in models.last.built.sides:
        of_depths = [(depth, depth.built.sides.get(side, ())) for depth in models.depths]
        if any("post" in sub.norms or sub.residual_weight <= 0 for _, sublayers in of_depths for sub in sublayers):
            continue
        logs = {d.counts[side]: sum(math.log(sub.residual_weight) for sub in sublayers) for d, sublayers in of_depths}
        (few, least), (many, most) = min(logs.items()), max(logs.items())
        # 1 + 1/N in N layers multiplies by e, at any N
        if few == many or most <= NEAR or (least > 0 and most / least < (many / few) ** PROPORTION):
            continue
        deepest = of_depths[-1][1]
        yield Fault(
            kind="residual-weight",
            says="A number above 1 multiplies the stream, and no norm behind the sum divides it again: the stream "
            "grows exponentially, and deep layers do nothing.",
            where=distinct(w.name for sub in deepest if sub.residual_weight > 1 for w in sub.weights),
            amount=Amount(
                "residual weight", by_depth((d, sub.residual_weight) for d, sublayers in of_depths for sub in sublayers)
            ),
            asked=Amount("residual weight", by_depth((d, 1.0) for d, sublayers in of_depths for _ in sublayers)),
            program=(Edit(summed("", "", deepest[-1].norms)),),
            side=side,
        )


def _is_branch_off(pair: Pair) -> bool:
    """Where a norm stands on the stream, the residual weight over the branch weight is all that counts."""
    is_post = "post" in pair.built.norms and "post" in pair.places
    return not is_post and not is_near(pair.built.branch_weight, pair.asked.branch_weight, NEAR)


def _kind(pair: Pair) -> str:
    return {"vector": "a trained vector", "scalar": "a trained scalar", None: "fixed"}[pair.built.trained]


def _asked_kind(pair: Pair) -> str:
    asked = pair.asked
    return (
        "a trained vector" if asked.has_layer_scale else "a trained scalar" if asked.trains_branch_weight else "fixed"
    )


def _is_of_another_base(beside: Beside, pairs: Pairs) -> bool:
    """Whether branch weights are those of the scheme but for the depth of the model that was tuned, where the scheme
    leaves that open."""
    factors = [pair.built.branch_weight / pair.asked.branch_weight for _, pair in pairs if pair.asked.branch_weight]
    is_one = all(is_near(of, factors[0], NEAR) for of in factors)
    return beside.claimed.has_base and len(beside.depths) > 1 and is_one


def _branch_names(wrong: Pairs) -> tuple[str, ...]:
    named = [p.built.branch_parameter for _, p in wrong if p.built.branch_parameter]
    return distinct(named) or names_of(wrong)


def _ratio_where_post(pair: Pair) -> tuple[float, float]:
    """The residual weight that is there and the one that is asked for. Before a norm that stands on the stream, only
    its ratio to the branch weight counts."""
    built, asked = pair.built.residual_weight, pair.asked.residual_weight
    if "post" in pair.built.norms and "post" in pair.places and pair.built.branch_weight and pair.asked.branch_weight:
        return built / pair.built.branch_weight, asked / pair.asked.branch_weight
    return built, asked


# ---------------------------------------------------------------- fixes


def summed_as_asked(beside: Beside, depth: Depth, pair: Pair) -> Edit:
    """The sum of a sublayer as it should be, its weights as Python of the number of layers."""
    lines, factors = [], []
    for name in ("residual_weight", "branch_weight"):
        value = getattr(pair.asked, name)
        law = beside.law(name, depth, pair.built.side)
        if law is None:
            lines.append(f'{name} = {beside.call}.{name}s["{pair.built.side}"][sublayer]  # sublayer: from 0')
        elif "layer" in law:
            lines.append(f"{name} = {law}  # {value:.6g} at {depth.asked} layers")
        is_number = law is not None and "layer" not in law
        factors.append(("" if value == 1 else f"{value:.6g} * ") if is_number else f"{name} * ")
    return Edit("\n".join([*lines, summed(factors[0], factors[1], pair.places)]))


def _started(beside: Beside, pairs: Sequence[Pair], depth: Depth) -> Assign:
    """Each trained branch weight as it should start."""
    side = pairs[0].built.side
    by_name = {str(pair.built.branch_parameter): pair for pair in reversed(pairs)}  # of visits of one the first
    entries = tuple(Entry(name, "", p.layer, f"{p.asked.branch_weight:.6g}") for name, p in reversed(by_name.items()))
    law = beside.law("branch_weight", depth, side)
    return Assign(CONSTANT, entries, law, beside.called(side), depth.counts[side], beside.own(side))


# ---------------------------------------------------------------- causes


def _cause(beside: Beside, word: str, pairs: Pairs, wrong: Pairs) -> str:
    """What is wrong with a weight, in the words of its likeliest cause."""
    name = word.replace(" ", "_")
    built = {(d.asked, p.layer, p.built.kind): getattr(p.built, name) for d, p in pairs}
    asked = {(d.asked, p.layer, p.built.kind): getattr(p.asked, name) for d, p in pairs}
    other = "branch_weight" if name == "residual_weight" else "residual_weight"
    others = {(d.asked, p.layer, p.built.kind): getattr(p.built, other) for d, p in pairs}
    which = "" if len(wrong) == len(pairs) else f" in {len(wrong)} of {len(pairs)} sublayers"
    is_moved = all(is_near(others[key], asked[key], NEAR) for key in asked)
    if name == "residual_weight" and is_moved and not all(is_near(value, 1.0, NEAR) for value in asked.values()):
        return f"The {word} stands on the branch, not on the stream."
    if name == "branch_weight" and all(p.built.trained for _, p in pairs):
        return f"The {word} starts at another value than {beside.name}'s."
    if all(is_near(value, 1.0, NEAR) for value in built.values()):
        return f"The {word} is not applied."
    if whose := _whose(beside, pairs, name):
        return f"The {word} is that of {whose}."
    if len({round(value, 6) for value in built.values()}) == 1 and len({round(v, 6) for v in asked.values()}) > 1:
        value, laws = next(iter(built.values())), {key[0]: number for key, number in asked.items()}
        at = layers_of(value, laws, NEAR)
        return f"The {word} is the same at every depth{f', that of {at} layers' if at else ''}."
    if all(is_near(built[key] * asked[key], 1.0, NEAR) for key in asked):
        return f"The {word} is one over what it should be."
    if all(is_near(built[key], asked[key] ** 2, NEAR) for key in asked):
        return f"The {word} is applied twice."
    if of_power := _of_powers(beside, word, by_num_layers(built), by_num_layers(asked)):
        return of_power
    return f"The {word} is another than {beside.name}'s{which}."


def _of_powers(beside: Beside, word: str, built: Mapping[int, float], asked: Mapping[int, float]) -> str | None:
    """What differs between two powers of the number of layers; None where they are none, or alike but for a number that
    says nothing."""
    power, wanted = power_of(built), power_of(asked)
    if power is None or wanted is None:
        return None
    last = max(built)
    if abs(power - wanted) > NEAR:
        theirs = f"as N^{wanted:.3g}" if abs(wanted) > NEAR else f"is {asked[last]:.4g}"
        return f"The {word} goes as N^{power:.3g}, and {beside.name}'s {theirs}."
    share = share_of_layers(built[last] / asked[last], wanted)
    return None if share is None else f"The {word} is that of {share} as many layers."


def _whose(beside: Beside, pairs: Pairs, name: str) -> str | None:
    """Where else the scheme has the weights of a side."""

    def is_there(pair: Pair) -> float:
        return _ratio_where_post(pair)[0] if name == "residual_weight" else pair.built.branch_weight

    for words, there in beside.elsewhere(pairs[0][1].built.side):
        weights = [{getattr(sublayer, name) for sublayer in sublayers} for sublayers in there]
        wanted = dict(zip((depth.asked for depth in beside.depths), weights, strict=True))
        if all(
            len(wanted[depth.asked]) == 1 and is_near(is_there(pair), min(wanted[depth.asked]), NEAR)
            for depth, pair in pairs
        ):
            return words
    return None
