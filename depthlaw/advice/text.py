"""Advice in words: what happens, what to do, another way to do it; then a short table, and behind it all the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from depthlaw.advice.code import ADAPTIVE
from depthlaw.advice.remedies import layers_text, published
from depthlaw.advice.remedy import ALL, HELD, MATTERS, Remedy, away
from depthlaw.network.predicted_rows import percent
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.system import page as pages
from depthlaw.system.page import LARGE, Page, amount, grid

if TYPE_CHECKING:
    from depthlaw.advice.advice import Advice

_SHOWN = 5
"""Remedies in the short table; --why has all."""
_NAMED = 3
"""Roles that a line names; the others of it are counted."""
WORDS: Mapping[str, str] = {
    "q": "the queries",
    "k": "the keys",
    "v": "the values",
    "out": "the attention's output matrix",
    "cross_q": "the queries of the cross-attention",
    "cross_k": "the keys of the cross-attention",
    "cross_v": "the values of the cross-attention",
    "cross_out": "the cross-attention's output matrix",
    "fc1": "the FFN's first matrix",
    "fc3": "the FFN's matrix beside the gate",
    "fc2": "the FFN's output matrix",
    "bias": "the biases of matrices",
    "norm_gain": "the norms' gains",
    "norm_bias": "the norms' biases",
    "layer_scale": "the trained vector on each branch",
    "branch_weight": "the trained weight of each branch",
    "embedding": "the embedding",
    "head": "the head",
    ALL: "all parameters together",
}
"""What a role is, for who does not know its name."""
FLAT = "a flat first step does not promise better training (`depthlaw explain S3-49`)"
"""The last remark of all advice."""
_OF_WHAT = (
    "How far: one logit, by a step that is taken to change that logit; a loss over many tokens moves it otherwise, "
    "which `depthlaw watch` measures."
)
"""Which step it is that the advice speaks of."""


def times(factor: float) -> str:
    """A factor.

    >>> from depthlaw.advice.text import times
    >>> times(3.872), times(1234.5), times(5.67e124), times(0.0)
    ('x 3.87', 'x 1,234', 'explodes (x 5.7e124)', 'x 0')
    """
    number = pages.times(factor)
    return f"explodes ({number})" if factor >= LARGE else number


def show(page: Page, advices: Sequence[Advice], *, has_why: bool = False) -> None:
    """advices: of one model at one or several depths, the deepest last."""
    last = advices[-1]
    page.say(_nothing(advices), "bold")
    if last.first:
        page.say(f"First of all: {last.first}.", "bold red")
    best, other = last.remedies[0], other_way(last.remedies)
    at = f" at {layers_text(last.deep)} layers" if len(advices) > 1 else ""
    if best.changes:
        page.say(f"Do this{at}: {_way(best, last)} {_known(best)}", "bold")
    else:
        page.say(
            f"Change nothing{at}: {_each(last)} kind of parameter that matters moves as far as before, {_WITHIN}.",
            "bold",
        )
    if other is not None:
        page.say(f"Or this: {_way(other, last)} {_known(other)}", "bold")
    names = [last.name, best.name, *([other.name] if other is not None else [])]
    left = [
        f"left out of {recipe.name}: {_in_a_word(recipe.leaves_out)} (--why has it in full)"
        for recipe in published(last.deep, names)
    ]
    for warning in (*last.warnings, *left):
        page.say(f"Mind: {warning}.", "bold yellow")
    page.show(_table(advices))
    if has_why:
        _show_why(page, advices)
    eps = ", with each epsilon scaled too" if last.optimizer in ADAPTIVE else ""
    more = [] if has_why else ["By kind of parameter, and why: --why."]
    more += [f"As Python to paste{eps}: --code best, or --code NAME."] if best.changes and len(advices) == 1 else []
    page.say(" ".join([*more, _OF_WHAT, f"{FLAT[0].upper()}{FLAT[1:]}."]), "dim")


def _in_a_word(leaves_out: str) -> str:
    """
    >>> from depthlaw.advice.text import _in_a_word
    >>> _in_a_word("its rates by width: all have one, and no more; and Adam's eps by width, which falls")
    "its rates by width and Adam's eps by width"
    """
    parts = [part.strip().removeprefix("and ").partition(":")[0].partition(",")[0] for part in leaves_out.split(";")]
    return " and ".join(parts)


def line(advice: Advice) -> str:
    """The whole advice in a line."""
    best = advice.remedies[0]
    many, few = layers_text(advice.deep), layers_text(advice.shallow)
    grown = times(advice.factors["update"])
    return f"{advice.name}, {few} to {many} layers: {grown}; best: {best.name}, {_worst(best)}"


# ---------------------------------------------------------------- the first lines

_WITHIN = f"within {100 * (HELD - 1):.0f} %"
_GOOD_ENOUGH = 1.25
"""What another way may leave and is still told before one that changes the tuned model."""


def _nothing(advices: Sequence[Advice]) -> str:
    """What happens if nothing is changed."""
    last = advices[-1]
    nothing = next(remedy for remedy in last.remedies if remedy.name == "nothing")
    far = [f"of {layers_text(advice.deep)} layers {_far(advice.factors['update'])}" for advice in advices]
    text = (
        f"If you change nothing, one {last.optimizer} step moves {last.name} {', '.join(far)} as "
        f"{layers_text(last.shallow)}"
    )
    shares = {role: last.shares[role] for role in last.matters}
    matrices = [role for role in shares if role in BRANCH_ROLES]
    most = max(matrices, key=lambda role: shares[role], default=None)
    if most is not None:
        text += f"; {percent(shares[most])} of that is {most}, {WORDS[most]}"
    carries = [role for role in shares if role in ("layer_scale", "branch_weight") and shares[role] > 1]
    worst = nothing.worst_role
    for role in carries:
        text += (
            f". That is of the matrices: {WORDS[role]} carries the update itself, moves it {_far(shares[role])} as "
            f"they do, and changes {times(last.factors[role])}"
        )
    if not carries and worst != most and nothing.worst > HELD * away(last.factors["update"]):
        text += f"; most changes {worst}, {WORDS[worst]}: {times(nothing.leaves[worst])}"
    for role in last.vanished:
        text += f"; {role}, {WORDS[role]}, hardly moves it any more: {times(last.factors[role])}"
    return f"{text}."


def _far(factor: float) -> str:
    """
    >>> from depthlaw.advice.text import _far
    >>> _far(3.872), _far(5.67e124)
    ('3.87 times as far', '5.7e124 times as far (it explodes)')
    """
    return f"{amount(factor)} times as far{' (it explodes)' if factor >= LARGE else ''}"


def other_way(remedies: Sequence[Remedy]) -> Remedy | None:
    """The next best, of the other kind where there is one: learning rates alone, or what the model is built with; one
    that leaves the tuned model as it is, where that is good enough. None where nothing has to be done."""
    if not remedies[0].changes:
        return None
    best, *rest = (remedy for remedy in remedies if remedy.changes)
    others = [remedy for remedy in rest if bool(remedy.own_rates) != bool(best.own_rates)]
    easy = [remedy for remedy in others if remedy.keeps_tuned and remedy.worst <= _GOOD_ENOUGH]
    return next(iter([*easy, *others, *rest]), None)


def _each(advice: Advice) -> str:
    return "each other" if advice.vanished else "each"


def _way(remedy: Remedy, advice: Advice) -> str:
    if remedy.worst <= HELD:
        left = f"{_each(advice).capitalize()} role then moves it as before."
    else:
        role = remedy.worst_role
        means = "" if WORDS[role] == f"the {role}" else f", {WORDS[role]}"
        left = f"What then changes most is {role}{means}: {times(remedy.leaves[role])}."
    return f"{remedy.name}: {_changes(remedy)}. {left}"


def _changes(remedy: Remedy) -> str:
    rates = {role: rate for role, rate in remedy.own_rates.items() if f"{rate:.2g}" != "1"}
    if len(set(rates.values())) < 2:
        return "; ".join(remedy.changes)
    first, rest = _split(sorted(rates, key=lambda role: -away(rates[role])))
    named = [f"{role} x {rates[role]:.2g}" for role in first]
    if rest:
        least, most = (f"{limit(rates[role] for role in rest):.2g}" for limit in (min, max))
        named.append(f"{len(rest)} others x {least}" + (f" to {most}" if most != least else ""))
    return ", ".join(named)  # the name says that these are learning rates


def _split(roles: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Those that a line names, and the rest, which is none or several."""
    number = len(roles) if len(roles) <= _NAMED + 1 else _NAMED
    return roles[:number], roles[number:]


def _worst(remedy: Remedy) -> str:
    role = remedy.worst_role
    return f"{times(remedy.leaves[role])} in {role}"


_FOUND = {1: "shown to gain", 0: "no verdict", -1: "shown to cost"}
_VERDICTS = {1: "training here bears it out", 0: "training here does not tell", -1: "training here speaks against it"}


def _gain(gain: Mapping[str, Any]) -> str:
    """Of a row of ``records.GAINS``."""
    like = gain["model"] if gain["is_same_model"] else f"the nearest model that was trained, {gain['model']}"
    return (
        f"in {like}, {gain['d_model']} wide, under {gain['optimizer']}, tuned at {gain['from_layers']} layers and "
        f"taken to {gain['layers']}, it took {_span(gain)} off the held-out loss ({gain['num_seeds']} seeds)"
        + (f", and {' and '.join(gain['beaten_by'])} ended lower" if gain["beaten_by"] else "")
        + (f"; in runs {longer['times']} times as long {_span(longer)}" if (longer := gain.get("longer")) else "")
    )


def _span(gain: Mapping[str, Any]) -> str:
    """What it took off the loss, with its 95 % interval."""
    mean, low, high = (f"{gain[name]:z.2f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}] nats"


def known_of(remedy: Remedy) -> str:
    """What this project's own training says of it."""
    if remedy.gain is not None:
        return f"{_VERDICTS[remedy.gain['verdict']]}: {_gain(remedy.gain)}"
    return "derived only, as no run here has trained it" if remedy.record is None else _trained(remedy.record)


def _known(remedy: Remedy) -> str:
    """The same in a line; of what and how far the runs were is said by --why."""
    text = known_of(remedy) if remedy.gain is None else _in_short(remedy.gain)
    return f"{text[0].upper()}{text[1:]}."


def _in_short(gain: Mapping[str, Any]) -> str:
    like = gain["model"] if gain["is_same_model"] else f"{gain['model']}, the nearest that was trained"
    beaten = f"; {' and '.join(gain['beaten_by'])} ended lower" if gain["beaten_by"] else ""
    longer = f"; {of['times']} times as long {_span(of)}" if (of := gain.get("longer")) else ""
    at = f"at {gain['layers']} layers of {like}, {gain['d_model']} wide"
    verdict = "no effect" if gain["is_none"] else _FOUND[gain["verdict"]]
    return f"trained here: {verdict}, {_span(gain)} off the loss {at}{longer}{beaten}"


def _trained(record: Mapping[str, Any]) -> str:
    return (
        f"of small networks that {record['scheme']} builds at every depth, {record['num_trained']} of "
        f"{record['num_runs']} runs here trained"
    )


# ---------------------------------------------------------------- the short table


def _table(advices: Sequence[Advice]) -> object:
    last = advices[-1]
    shown = [remedy.name for remedy in last.remedies[:_SHOWN]]
    shown += [remedy.name for remedy in last.remedies[_SHOWN:] if remedy.name == "nothing"]
    by_name = [{remedy.name: remedy for remedy in advice.remedies} for advice in advices]
    heads = ["what to do", *(f"at {layers_text(advice.deep)} layers" for advice in advices)]
    rows = [[name, *(_worst(roles[name]) if name in roles else "-" for roles in by_name)] for name in shown]
    if len(advices) == 1:
        heads.append("what it changes")
        rows = [[*row, _kinds(remedy)] for row in rows for remedy in [by_name[0][row[0]]]]
    title = "How far a step moves it then, where that changes most"
    return grid(heads, rows, texts=[heads[0], "what it changes"], title=title)


def _kinds(remedy: Remedy) -> str:
    """What sort of things it changes."""
    text = "; ".join(remedy.changes)
    kinds = {
        "learning rates": "learning rate of" in text,
        "branch weight": "branch weight" in text,
        "residual weight": "residual weight" in text,
        "embedding": "embedding x" in text,
        "init": "standard deviation of" in text or "init " in text,
        "the tuned model, too": not remedy.keeps_tuned,
    }
    return ", ".join(kind for kind, is_changed in kinds.items() if is_changed) or "-"


# ---------------------------------------------------------------- why


def _show_why(page: Page, advices: Sequence[Advice]) -> None:
    last = advices[-1]
    page.say(", ".join([f"d_model {last.deep.d_model}", *(f"{name} {value}" for name, value in last.block.items())]))
    page.show(_roles(advices))
    small = [role for role in last.factors if role not in ("update", *last.matters)]
    others = ", ".join(f"{role} {times(last.factors[role])}" for role in small) or "none"
    page.say(
        "exponent: the power of the number of layers with which the role's update grows. share: the role's update "
        "beside that of all branch matrices. "
        f"Roles with a share below {percent(MATTERS)} at both depths count together, in all: {others}.",
        "dim",
    )
    later = {name: moved for name, moved in last.after_start.items() if moved is not None}
    heads = ["what to do", "growth left", *["later"] * bool(later), "a step beside its matrix", "branches at the start"]
    rows = [
        [
            *(remedy.name, _worst(remedy)),
            *[times(later[remedy.name]) if remedy.name in later else "-"] * bool(later),
            *(f"x {remedy.relative:.3g}", f"{100 * remedy.branches:.0f} %"),
        ]
        for remedy in last.remedies
    ]
    page.show(grid(heads, rows, texts=[heads[0]], title="All ways, best first"))
    page.say(
        "growth left: how far a step moves the deeper model over how far it moved the tuned one, in the role where "
        "this ratio is furthest from 1, or in all roles together. "
        f"{_LATER if later else ''}"
        "a step beside its matrix: the size of a step over that of the matrix that it changes, beside the same in the "
        "tuned model, for the matrix where this changes most. "
        "branches at the start: the part of the stream that the branches have put there before training; where it is "
        "below 10 %, the model starts nearly as the identity.\n"
        "First stand the ways that training here has shown to gain, then those of which it does not tell, last those "
        f"that it has shown to cost. Among these the best way is the one that holds the update, {_WITHIN}, or has the "
        "least of its growth left. Among ways that are equal in this, those stand first that do not start as the "
        "identity, then those that keep the tuned model, those that keep the forward pass, those whose steps are "
        "smaller beside their matrices, and those that change fewer things. Where training here has shown one way to "
        "end at a smaller loss than another, that one stands before it.",
        "dim",
    )
    for remedy in last.remedies:
        page.say(f"{remedy.name}: {'; '.join(remedy.changes) or remedy.note}.")
    for remedy in last.remedies:
        if remedy.gain is not None:
            page.say(f"{remedy.name}: {known_of(remedy)}.", "dim")
    records = {r.record["scheme"]: _trained(r.record) for r in last.remedies if r.record is not None and r.changes}
    for text in records.values():
        page.say(f"{text[0].upper()}{text[1:]}.", "dim")
    for remark in last.remarks[:-1]:  # the last one stands below everything
        page.say(f"{remark[0].upper()}{remark[1:]}.", "dim")


_LATER = (
    "later: the same of all branch matrices by the law that was nearest to steps behind the first few in training "
    "here, once the optimizer has made matrices as large as Xavier's init; a dash where there is none. It held of some "
    "decoders and failed of others (TRAINING.md, after-start), so nothing is ranked by it. "
)


def _roles(advices: Sequence[Advice]) -> object:
    last = advices[-1]

    def cells(role: str) -> Iterator[str]:
        yield role
        yield from (times(advice.factors[role]) for advice in advices)
        yield f"{last.exponents[role]:z.2f}"
        yield "" if role == "update" else _share(last.shares[role])

    heads = ["role", *(f"at {layers_text(advice.deep)} layers" for advice in advices), "exponent", "share"]
    rows = [list(cells("update")), None, *(list(cells(role)) for role in last.matters)]
    return grid(heads, rows, texts=["role"], title="Where nothing is changed, by kind of parameter")


def _share(share: float) -> str:
    """Of what moves more than all matrices together, in multiples of these."""
    return percent(share) if share <= 1 else f"{times(share)} of the matrices'"
