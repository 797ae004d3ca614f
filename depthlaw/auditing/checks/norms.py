"""Norms: where they stand, of which kind they are, and whether they normalise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import product

from depthlaw.auditing.checks.weights import summed_as_asked
from depthlaw.auditing.expected import Pair
from depthlaw.auditing.faults import PLACES, Amount, Fault, Faults, Remark, distinct, layers_text
from depthlaw.auditing.fixes import NORM_CLASSES, Edit, norm_line, summed
from depthlaw.auditing.laws import NEAR, is_near
from depthlaw.auditing.models import Beside, Depth, Models, by_depth, norms_ahead, norms_behind
from depthlaw.auditing.reading.look import Built, Sublayer
from depthlaw.auditing.reading.sublayer import ROUNDED
from depthlaw.theory.stack import NORM_FUNCTIONS

SCALE = 0.03
"""Relative: scales are read from one network's second moments."""
_SMALL_EPSILON = 0.01
"""Beside the stream's second moment, an epsilon that changes what a norm gives by half of that."""
_USUAL_EPSILON = 1e-5
_OF_BRANCHES = ", of what branches are given"
PLACE_TEXTS = {
    "pre": "on what the branch is given",
    "q": "of the queries",
    "k": "of the keys",
    "v": "of the values",
    "inner": "before the output matrix",
    "branch": "on what the branch gives out",
    "post": "on the stream behind the sum",
}


def norms_of_branches(beside: Beside) -> Faults:
    """Norms within sublayers that are missing, or too many."""
    yield from _placed(beside, [place for place in PLACES if place != "post"])


def norms_of_stream(beside: Beside) -> Faults:
    """Norms behind sums that are missing, or too many."""
    yield from _placed(beside, ["post"])


def _placed(beside: Beside, places: Sequence[str]) -> Faults:
    missing: dict[tuple[str, str], list[tuple[Depth, Pair]]] = {}
    extra: dict[tuple[str, str], list[tuple[Depth, Pair]]] = {}
    total: Counter[tuple[str, str]] = Counter()
    for depth, pairs in beside.pairs:
        for pair in pairs:
            kind = pair.built.kind
            total[pair.built.side, kind] += 1
            for place in places:
                there, asked = place in pair.built.norms, place in pair.places
                if asked and not there:
                    missing.setdefault((kind, place), []).append((depth, pair))
                elif there and not asked and (place not in ("q", "k") or beside.is_absolute):
                    extra.setdefault((kind, place), []).append((depth, pair))
    for (word, groups), place in product((("missing", missing), ("too many", extra)), places):
        if lines := {kind: group for (kind, at), group in groups.items() if at == place}:
            yield _of_place(beside, place, word, lines, total)


def _of_place(
    beside: Beside,
    place: str,
    word: str,
    lines: dict[str, list[tuple[Depth, Pair]]],
    total: Counter[tuple[str, str]],
) -> Fault:
    sides = distinct(pair.built.side for group in lines.values() for _, pair in group)
    every = all(len(group) == sum(total[side, kind] for side in sides) for kind, group in lines.items())
    deepest = max((group[-1][0] for group in lines.values()), key=lambda depth: depth.asked)
    at_deepest = [pair for group in lines.values() for depth, pair in group if depth is deepest]
    pair = at_deepest[-1]
    which = "." if every else f": {layers_text({p.layer for p in at_deepest})} of {deepest.counts[pair.built.side]}."
    is_of_sum = place in ("pre", "branch", "post")
    return Fault(
        kind="norms",
        says="A norm {place} is {word} in {share} {kinds} sublayer{which}",
        terms={
            "place": PLACE_TEXTS[place],
            "word": word,
            "share": "every" if every else "some",
            "kinds": " and ".join(sorted(lines)).replace("other", "unread"),
            "which": which,
        },
        where=distinct(w.name for p in at_deepest for w in p.built.weights),
        amount=Amount("", pair.built.norms),
        asked=Amount("", pair.places),
        program=(
            summed_as_asked(beside, deepest, pair)
            if is_of_sum
            else Edit(norm_line(place, is_missing=word == "missing")),
        ),
        roles=(place,),
        side=sides[0] if len(sides) < len(deepest.built.sides) else None,
    )


def kinds_without_norms(models: Models) -> Faults:
    """Sublayers of one kind that have no norm at all, where all others of their side have one before their branch or
    behind it: what each adds grows with the stream, which then explodes. Not so of cross-attentions, which add what
    they read."""
    for side, sublayers in models.last.built.sides.items():
        known = [sub for sub in sublayers if not sub.is_unknown and sub.branch_weight and sub.kind != "cross"]
        bare = [sub for sub in known if not sub.norms]
        normed = [sub for sub in known if sub.norms & {"pre", "branch"}]
        kinds = {sub.kind for sub in bare}
        if not bare or len(bare) + len(normed) < len(known) or kinds & {sub.kind for sub in normed} or not normed:
            continue
        if any("post" in sub.norms for sub in known):
            continue  # behind which the stream has its size again
        yield _bare(
            bare,
            normed[0].norms & {"pre", "branch"},
            "No norm stands before or behind the branch of any {kinds} sublayer, as one does in all others: what it "
            "adds grows with the stream, exponentially with depth.",
            side,
        )


def no_norm_anywhere(built: Built) -> Faults:
    """Of a model whose update was seen to grow exponentially: whether that is for want of norms."""
    if not any(sub.norms for sub in built.sublayers):
        says = (
            "No norm stands anywhere, and what a branch adds grows with the stream: every layer multiplies it, and the "
            "update grows exponentially with depth."
        )
        yield _bare(built.sublayers, frozenset({"pre"}), says, None)


def _bare(bare: Sequence[Sublayer], wanted: frozenset[str], says: str, side: str | None) -> Fault:
    """Of sublayers without norms, that they have none."""
    return Fault(
        kind="norms",
        says=says,
        terms={"kinds": " and ".join(sorted({sub.kind for sub in bare}))},
        where=distinct(weight.name for sub in bare for weight in sub.weights),
        amount=Amount("", frozenset()),
        asked=Amount("", wanted),
        program=(Edit(summed("", "", wanted)),),
        roles=tuple(sorted(wanted)),
        side=side,
    )


def norms_of_queries(beside: Beside) -> Faults:
    """Of norms of queries and keys a scheme says nothing."""
    has_more = ({"q", "k"} & pair.built.norms - pair.places for _, pairs in beside.pairs for pair in pairs)
    if not beside.is_absolute and any(has_more):
        yield Remark(f"queries and keys are normalised, of which {beside.name} says nothing")


def final_norm(beside: Beside) -> Faults:
    """The norm behind the last sublayer."""
    for depth, asked in zip(beside.depths, beside.asked, strict=True):
        built, ends = depth.built, asked.ends_in_norm
        wrong = [side for side, final in built.final.items() if final != ends and side in built.sides]
        if wrong and not ends:
            yield Remark(f"a final norm stands behind the last sublayer; {beside.name} has none")
        elif wrong:
            yield Fault(
                kind="norms",
                says=f"No norm stands behind the last sublayer, before {_reader(built, wrong[0])}.",
                amount="no final norm",
                asked="a final norm",
                program=(_ended(built, _reader(built, wrong[0])),),
                roles=("final",),
                side=wrong[0],
            )
        if wrong:
            return


def unnormed_ends(models: Models) -> Faults:
    """A stack whose branches alone are normalised, read without a norm: its stream is larger the deeper the model is,
    and so is what the head, or the decoder beside an encoder, makes of it. Of hidden states that a module gives nobody
    can tell who normalises them.
    """
    built = models.last.built
    has_head = "head" in built.others.values() or bool(built.tied)
    *_, last = built.sides
    for side, sublayers in built.sides.items():
        end = sublayers[-1].norms
        if built.final.get(side, True) or "pre" not in end or end & {"post", "branch"} or side in models.serial:
            continue
        if side == last and not has_head:
            yield Remark("no norm stands behind the last sublayer of a pre-norm stack: what reads it must have one")
            continue
        reader = _reader(built, side)
        yield Fault(
            kind="norms",
            says=f"No norm stands behind the last sublayer, before {reader}.",
            amount="no final norm",
            asked="a final norm, as every norm stands inside a branch",
            program=(_ended(built, reader),),
            roles=("final",),
            side=side,
        )


def _reader(built: Built, side: str) -> str:
    """Of what a side ends in, in words."""
    *_, last = built.sides
    return "the head" if side == last else "the decoder" if built.has_decoder else f"the attention of {last}"


def _ended(built: Built, reader: str) -> Edit:
    """A final norm, with the line that makes it."""
    class_ = NORM_CLASSES.get(str(built.norm_kind), "Norm")
    return Edit(
        f"self.final_norm = {class_}({built.d_model})  # in __init__\nx = self.final_norm(x)  # before {reader}"
    )


def kind_of_norms(beside: Beside) -> Faults:
    """layernorm, rmsnorm or another."""
    kind, wanted = beside.last.built.norm_kind, beside.asked[-1].norm_kind
    if kind is not None and kind != wanted and any(pair.places for _, pairs in beside.pairs for pair in pairs):
        yield Fault(
            kind="norms",
            says=f"The norms are {kind}, and {beside.name} has {wanted}.",
            amount=kind,
            asked=wanted,
            program=(Edit(f"norm = {NORM_CLASSES.get(wanted, wanted)}(d_model)"),),
            roles=("kind",),
        )


# ---------------------------------------------------------------- what they give


def input_scales(beside: Beside) -> Faults:
    """The scale of what branches are given behind their norms: another than the claim's, by gains, by an epsilon or by
    a number."""
    if beside.asked[-1].norm_kind in NORM_FUNCTIONS:
        return  # what is behind a function in a norm's place hangs on the stream
    for side, of_side in beside.by_side:
        both = [(d, p) for d, p in of_side if "pre" in p.built.norms and "pre" in p.places and not p.built.modulated]
        both = [(d, p) for d, p in both if math.isfinite(p.built.input_rms) and not p.built.is_unknown]
        wrong = [(d, p) for d, p in both if not is_near(p.built.input_rms, p.asked.input_scale, SCALE)]
        if not wrong:
            continue
        depth, pair = wrong[-1]
        is_of_one = all(is_near(p.asked.input_scale, 1.0, NEAR) for _, p in both)
        gains = _gains_off(depth.built) if is_of_one else []
        is_eps = all(p.built.input_growth > SCALE and p.built.epsilon("pre")[0] > 0 for _, p in wrong)
        if is_of_one and not gains and is_eps:
            wrong_subs, subs = ([(d, p.built) for d, p in pairs] for pairs in (wrong, both))
            yield epsilon_fault("pre", wrong_subs, subs)
            continue
        yield Fault(
            kind="norm-gain" if gains else "input-scale",
            says="Gains of norms do not start at 1."
            if gains
            else f"What branches are given has another scale than {beside.name}'s.",
            where=tuple(gains) or distinct(w.name for d, p in wrong if d is depth for w in p.built.weights),
            amount=Amount("root mean square", by_depth((d, p.built.input_rms) for d, p in both), _OF_BRANCHES),
            asked=Amount("root mean square", by_depth((d, p.asked.input_scale) for d, p in both)),
            program=(
                Edit(
                    "nn.init.ones_(norm.weight)"
                    if gains
                    else f"u = {pair.asked.input_scale:.6g} * norm(x)  # layer {pair.layer} of {depth.counts[side]}"
                ),
            ),
            roles=("pre",),
            side=side,
        )


def _gains_off(built: Built) -> list[str]:
    """Names of norms' gains that are neither 1 nor 0 on the average (those that are stored as 1 + w are 0)."""
    gains = {
        name: built.flow.parameters[name].detach().double() for name, of in built.others.items() if of == "norm_gain"
    }
    return [name for name, gain in gains.items() if abs(gain.mean().item() - 1) > SCALE and gain.any()]


def norms_that_do_not_normalise(models: Models) -> Faults:
    """Norms whose epsilon is not small: of a claim, those on the stream; else those that leave more of the size of what
    they are given than they take out."""
    most = 0.5 if models.claimed is None else 2 * SCALE
    is_function = models.last.built.norm_kind in NORM_FUNCTIONS
    for side, place in product(models.last.built.sides, ("pre", "post")):
        every = [(depth, sub) for depth in models.depths for sub in depth.built.sides.get(side, ())]
        finite = [(depth, sub) for depth, sub in every if math.isfinite(sub.epsilon(place)[0])]
        wrong = [(depth, sub) for depth, sub in finite if _growth_at(sub, place) > most]
        if 2 * len(wrong) > len(finite) and not is_function and (models.claimed is None or place == "post"):
            yield epsilon_fault(place, wrong, finite)


def _growth_at(sub: Sublayer, place: str) -> float:
    return sub.input_growth if place == "pre" else sub.output_growth


def epsilon_fault(
    place: str, wrong: Sequence[tuple[Depth, Sublayer]], compared: Sequence[tuple[Depth, Sublayer]]
) -> Fault:
    depth = wrong[-1][0]
    there = [sub for at, sub in wrong if at is depth]
    largest = max(there, key=lambda sub: sub.epsilon(place)[1])
    eps, moment = largest.epsilon(place)
    about = "at least" if _growth_at(largest, place) > 1 - ROUNDED else "about"  # it hides all else
    class_ = NORM_CLASSES.get(str(depth.built.norm_kind), "Norm")
    enough = min(10 ** math.floor(math.log10(moment * _SMALL_EPSILON)), _USUAL_EPSILON)
    names = (norms_ahead if place == "pre" else norms_behind)(depth.built, there)
    is_pre = place == "pre"
    sizes = ((d, sub.input_rms if is_pre else (1 - _growth_at(sub, place)) ** 0.5) for d, sub in compared)
    beside = "the stream" if is_pre else "the sums that they stand behind"
    fix = f"norm = {class_}(d_model, eps={enough:.0e})  # or a larger {'embedding' if is_pre else 'stream'}"
    return Fault(
        kind="epsilon",
        says=f"The norms' epsilon, {about} {{eps:.1g}}, is not small beside the second moment of "
        f"{beside}, {{moment:.1g}}.",
        terms={"eps": eps, "moment": moment},
        where=names or distinct(w.name for sub in there for w in sub.weights),
        amount=Amount("root mean square", by_depth(sizes), _OF_BRANCHES if is_pre else ", of what norms give"),
        asked=Amount("root mean square", 1.0),
        program=(Edit(fix),),
        roles=(place,),
        side=there[-1].side,
    )
