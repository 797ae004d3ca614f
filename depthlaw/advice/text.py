"""Advice in words: what happens, what to do, another way to do it; then a short table, and behind it all the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from depthlaw.advice.code import ADAPTIVE
from depthlaw.advice.remedies import layers_text, published
from depthlaw.advice.remedy import ALL, HELD, MATTERS, Remedy, away, is_post_norm, no_later
from depthlaw.network.predicted_rows import percent
from depthlaw.sims.config import BRANCH_ROLES
from depthlaw.system import page as pages
from depthlaw.system.page import LARGE, Page, amount, grid

if TYPE_CHECKING:
    from rich.table import Table

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
    page.show_whole(*_tables(advices))
    page.say(_legend(advices), "dim")
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
        f"If you change nothing, one {last.optimizer} step of the branch matrices moves {last.name} {', '.join(far)} "
        f"as {layers_text(last.shallow)}"
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
            f". Beside these, {WORDS[role]} carries the update itself, moves it {_far(shares[role])} as "
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
    """The next best, of those that training has shown to gain where there are some; of the other kind where there is
    one: learning rates alone, or what the model is built with; one that leaves the tuned model as it is, where that is
    good enough. None where nothing has to be done."""
    if not remedies[0].changes:
        return None
    best, *rest = (remedy for remedy in remedies if remedy.changes)
    rest = [remedy for remedy in rest if remedy.shown == 1] or rest
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
        left = (
            f"Furthest from before is then what {role}{means}{',' * bool(means)} moves: {times(remedy.leaves[role])}."
        )
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
_VERDICTS = {
    1: "training here has shown it to gain",
    0: "training here does not tell",
    -1: "training here has shown it to cost",
}


def _gain(gain: Mapping[str, Any]) -> str:
    """Of a row of ``records.GAINS``."""
    like = gain["model"] if gain["is_same_model"] else f"the nearest model that was trained, {gain['model']}"
    return (
        f"in {like}, {gain['d_model']} wide, under {gain['optimizer']}, tuned at {gain['from_layers']} layers and "
        f"taken to {gain['layers']}, it took {_interval(gain)} nats off the held-out loss ({gain['num_seeds']} seeds) "
        f"after {gain['num_steps']:,} steps"
        + (f", and {' and '.join(gain['beaten_by'])} ended lower" if gain["beaten_by"] else "")
        + _beside(gain)
    )


def _beside(gain: Mapping[str, Any]) -> str:
    """What was seen in longer runs, and of fewer layers, where there are some."""
    text = ""
    if longer := gain.get("longer"):
        text += f"; after {gain['num_steps'] * longer['times']:,} steps {_interval(longer)}"
    if half := gain.get("halfway"):
        text += f"; at {half['layers']} layers {_interval(half)}"
    return text


def known_of(remedy: Remedy) -> str:
    """What this project's own training says of it."""
    if remedy.gain is not None:
        return f"{_VERDICTS[remedy.gain['verdict']]}: {_gain(remedy.gain)}"
    text = "derived only: no run here took a model like this one deeper in this way"
    return text if remedy.record is None else f"{text}; {_trained(remedy.record)}"


def _known(remedy: Remedy) -> str:
    """The same in a line; of what and how far the runs were is said by --why."""
    text = known_of(remedy) if remedy.gain is None else _in_short(remedy.gain)
    return f"{text[0].upper()}{text[1:]}."


def _in_short(gain: Mapping[str, Any]) -> str:
    like = gain["model"] if gain["is_same_model"] else f"{gain['model']}, the nearest that was trained"
    beaten = f"; {' and '.join(gain['beaten_by'])} ended lower" if gain["beaten_by"] else ""
    runs = f"{gain['d_model']} wide, {gain['num_steps']:,} steps, {gain['num_seeds']} seeds"
    verdict = "no effect" if gain["is_none"] else _FOUND[gain["verdict"]]
    if not gain["learns"]:
        verdict = "no better than guessing, with it and without"
    took = (
        f"{_interval(gain)} nats off the loss from {gain['from_layers']} to {gain['layers']} layers of {like} ({runs})"
    )
    return f"trained here: {verdict}, {took}{_beside(gain)}{beaten}"


def _trained(record: Mapping[str, Any]) -> str:
    return (
        f"of small networks that {record['scheme']} builds at every depth, {record['num_trained']} of "
        f"{record['num_runs']} runs here trained"
    )


# ---------------------------------------------------------------- the short table


def _tables(advices: Sequence[Advice]) -> tuple[list[Table], list[Table]]:
    """One table, and the same as two where that is too wide: what a step does, and what training showed."""
    last = advices[-1]
    shown = _in_table(last)
    by_name = [{remedy.name: remedy for remedy in advice.remedies} for advice in advices]
    names = {"what to do": [remedy.name for remedy in shown]}
    steps = {
        f"at {layers_text(advice.deep)} layers": [_worst(of[one.name]) if one.name in of else "-" for one in shown]
        for advice, of in zip(advices, by_name, strict=True)
    }
    if _has_later(last):
        steps["later"] = [_later(last, remedy) for remedy in shown]
    seen, training = _seen(last), {}
    if seen is not None:
        cells = [_training(remedy, seen) for remedy in shown]
        training = dict(zip(("off the loss", "transfer costs"), map(list, zip(*cells, strict=True)), strict=True))
    how_far, learnt = "How far a step moves it then", "What training showed"
    if not training:
        return [_of_columns(names | steps, how_far)], [_of_columns(names | steps, how_far)]
    whole = _of_columns(names | steps | training, f"{how_far}, and {learnt[0].lower()}{learnt[1:]}")
    return [whole], [_of_columns(names | steps, how_far), _of_columns(names | training, learnt)]


def _of_columns(columns: Mapping[str, Sequence[str]], title: str) -> Table:
    heads = list(columns)
    return grid(heads, list(zip(*columns.values(), strict=True)), texts=heads[:1], title=title, unbroken=heads[1:])


def _in_table(advice: Advice) -> list[Remedy]:
    """The first remedies, and nothing."""
    return [remedy for at, remedy in enumerate(advice.remedies) if at < _SHOWN or remedy.name == "nothing"]


def _has_later(advice: Advice) -> bool:
    return any(advice.after_start(remedy) is not None for remedy in _in_table(advice))


def _later(advice: Advice, remedy: Remedy) -> str:
    factor = advice.after_start(remedy)
    return "-" if factor is None else times(factor)


def _seen(advice: Advice) -> Mapping[str, Any] | None:
    """What was trained that is like the model: the row of its first remedy that has one."""
    return next((remedy.gain for remedy in advice.remedies if remedy.gain is not None), None)


def _training(remedy: Remedy, seen: Mapping[str, Any]) -> tuple[str, str]:
    """What a remedy took off the loss, and what transfer costs with it."""
    if remedy.gain is not None:
        return _interval(remedy.gain), _interval(remedy.gain["transfer"])
    return ("derived only", "-") if remedy.changes else ("-", _interval(seen["as_it_is"]))


def _interval(estimate: Mapping[str, Any]) -> str:
    """A mean with its 95 % interval, where it has one."""
    if estimate["low"] is None or estimate["high"] is None:
        return f"{estimate['mean']:z.2f}"
    mean, low, high = (f"{estimate[name]:z.2f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _legend(advices: Sequence[Advice]) -> str:
    """What the columns of the short table are."""
    last = advices[-1]
    text = (
        "At so many layers: how far a step moves the model beside the tuned one, in the kind of parameter where that "
        "changes most. "
    )
    if len(advices) > 1:
        text += f"The other columns are of {layers_text(last.deep)} layers. "
    if _has_later(last):
        text += (
            "Later: the same of all branch matrices together, behind the first few steps, once the optimizer has made "
            "matrices as large as Xavier's init, by the law that was nearest in training here; it held in some "
            "decoders and failed in others, and init was not forgotten there as it takes it to be, so nothing is "
            "ranked by it. "
        )
    else:
        text += f"{no_later(last.optimizer, is_post_norm=is_post_norm(last.remedies[0].config))} "
    seen = _seen(last)
    if seen is None:
        if last.deep.depth < last.shallow.depth:
            return f"{text}Training here only went deeper, so all is derived only."
        return f"{text}No run here took such a model deeper under {last.optimizer}, so all is derived only."
    whose = seen["model"] if seen["is_same_model"] else f"{seen['model']}, the nearest model that was trained"
    return (
        f"{text}Off the loss: nats that the way took off the held-out loss in training here, at the rate that was "
        "tuned on the shallower model, with the 95 % interval. Transfer costs: nats that this rate costs there beside "
        f"the rate that is best with the way. Trained: {whose}, {seen['d_model']} wide, under {seen['optimizer']}, "
        f"{seen['from_layers']} to {seen['layers']} layers, {seen['num_steps']:,} steps, {seen['num_seeds']} seeds; "
        f"asked: {last.deep.d_model} wide, {layers_text(last.shallow)} to {layers_text(last.deep)} layers."
    )


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
    later = ["later"] * any(last.after_start(remedy) is not None for remedy in last.remedies)
    heads = [
        "what to do",
        f"at {layers_text(last.deep)} layers",
        *later,
        "a step beside its matrix",
        "branches at the start",
    ]
    rows = [
        [
            *(remedy.name, _worst(remedy), *(_later(last, remedy) for _ in later)),
            *(f"x {remedy.relative:.3g}", f"{100 * remedy.branches:.0f} %"),
        ]
        for remedy in last.remedies
    ]
    page.show(grid(heads, rows, texts=heads[:1], title="All ways, best first"))
    page.say(
        "a step beside its matrix: the size of a step over that of the matrix that it changes, beside the same in the "
        "tuned model, for the matrix where this changes most. "
        "branches at the start: the part of the stream that the branches have put there before training; where it is "
        "below 10 %, the model starts nearly as the identity.\n"
        "First stand the ways that training here has shown to gain, then those of which it does not tell, last those "
        f"that it has shown to cost. Among these the best way is the one that holds the update, {_WITHIN}, or has the "
        "least of its growth left. Among ways that are equal in this, those stand first that do not start as the "
        "identity, then those that keep the tuned model, those that keep the forward pass, those whose steps are "
        "smaller beside their matrices, and those that change fewer things. Where training here has shown one way to "
        "end at a smaller loss than another, that one stands before it. What stands below nothing is worse than "
        "changing nothing.",
        "dim",
    )
    for remedy in last.remedies:
        page.say(f"{remedy.name}: {'; '.join(remedy.changes) or remedy.note}.")
    for remedy in last.remedies:
        if remedy.changes:
            page.say(f"{remedy.name}: {known_of(remedy)}.", "dim")
    for remark in last.remarks[:-1]:  # the last one stands below everything
        page.say(f"{remark[0].upper()}{remark[1:]}.", "dim")


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
