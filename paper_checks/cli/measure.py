"""``depthlaw measure``: real networks beside what is predicted of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paper_checks.cli.options import (
    DEVICES,
    DTYPES,
    MORE,
    NETWORK,
    BadInputError,
    Json,
    Plot,
    Roles,
    between,
    count,
    flag,
    local_file,
    named,
    option,
    refusing,
    written_file,
)
from paper_checks.cli.output import Page, counted, grid, print_json
from paper_checks.cli.predict import (
    ROLES_OF_KINDS,
    Stack,
    Transformer,
    admin_text,
    depth_cells,
    depth_columns,
    error_text,
    finite_width_text,
    in_common,
    networks,
    others_text,
    rest,
    unit_text,
    update_text,
)
from paper_checks.cli.predict import title as title_of_prediction
from paper_checks.system.files import document
from paper_checks.system.stopping import telling

if TYPE_CHECKING:
    from paper_checks.lowering.measuring import Extras, Kept
    from paper_checks.lowering.networks import Network
    from sims.records.record import Found
    from theory.meanfield.setting import Prediction

EXAMPLES = (
    "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16 --width 64 --seeds 8 --no-keep",
    "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16,32,64 --width 512 --seeds 32 --plot post.png",
    "measure --scheme deepnorm --optimizer adam --layers 6,12,24 --attention --width 64 --heads 4 --roles",
    "measure --scheme deepnorm --optimizer adam --attention --arch encoder-decoder --layers 6 --decoder-layers 6",
)


def run(
    stack: Stack,
    transformer: Transformer,
    width: Annotated[int, option("d_model.", "D", NETWORK, read=count, most=100_000)] = 256,
    seeds: Annotated[int, option("Independent networks of each depth.", "K", NETWORK, read=count, most=1_000_000)] = 8,
    seed: Annotated[int, option("The first one's seed.", "S", NETWORK, read=count, least=0, most=2**31)] = 0,
    roles: Roles = False,
    by_layer: Annotated[
        bool,
        flag("--by-layer", "The stream and its gradient at each x_l, and each sublayer's part of the update.", MORE),
    ] = False,
    changes: Annotated[
        bool,
        flag(
            "--changes",
            "What the step of each role does to the logit, the last hidden state and, with --loss ce, the label's "
            "logit and the loss.",
            MORE,
        ),
    ] = False,
    learning_rate: Annotated[
        float | None,
        option(
            "Also take the optimizer's real step of this size, and find where linearity ends.",
            "RATE",
            MORE,
            read=between,
            least=1e-9,
            most=1e9,
        ),
    ] = None,
    plot: Plot = None,
    record: Annotated[
        Path | None,
        option(
            "Keep it there, and go on from it; sims/records/local/measure.jsonl if left out.",
            "FILE",
            MORE,
            read=written_file,
        ),
    ] = None,
    keeps: Annotated[
        bool,
        typer.Option("--keep/--no-keep", help="Whether to keep it where --record is left out.", rich_help_panel=MORE),
    ] = True,
    device: Annotated[str, named("auto (a GPU where there is one), cpu or cuda.", DEVICES, MORE)] = "auto",
    dtype: Annotated[
        str, named("float64, or float32, which is faster and wrong of q and k in deep post-LN.", DTYPES, MORE)
    ] = "float64",
    as_json: Json = False,
) -> None:
    """Real networks: their update in one optimizer step, exact to first order, beside what `predict` says of it.

    Independent networks of each depth, measured by autograd: the mean, its
    95 % interval, its ratio to the prediction, and the exponent in L of both.
    What was measured before with the same sources is taken from the record, so
    a run that was stopped goes on where it was.
    """
    # Everything that can be wrong with the input is said before anything is measured.
    chosen = range(seed, seed + seeds)
    kept_in = _record_file(record) if keeps or record else None
    transformer, _ = transformer.of_recipe(width)
    asked = networks(stack, transformer, width)

    from paper_checks.lowering.measured_rows import exponent, row
    from paper_checks.lowering.measuring import Extras, check_memory
    from sims.measure import choose_device, device_name
    from sims.optim import NORMALISATION

    with refusing():
        where = choose_device(device)
        kept = _read(kept_in, where, dtype)
    extras = Extras(by_layer, changes, learning_rate)
    with refusing():  # before the prediction, which may take minutes
        check_memory(asked, stack.optimizer, kept, extras)
    predictions, reason = _predicted(asked, stack.optimizer)
    measured = _measured(asked, stack.optimizer, chosen, kept, extras)
    rows = [
        row(network, stack.optimizer, prediction, one)
        for network, prediction, one in zip(asked, predictions, measured, strict=True)
    ]
    answer = document(
        scheme=asked[0].scheme.name,
        optimizer=stack.optimizer,
        activation=asked[0].activation,
        norm_kind=asked[0].norm_kind,
        network=in_common(asked[0], stack.optimizer),
        unit=NORMALISATION[stack.optimizer]._asdict(),
        learning_rate=learning_rate,
        seeds=seeds,
        seed=seed,
        device=device_name(where),
        dtype=dtype,
        rows=rows,
        role_units=_role_units(asked[0], stack.optimizer, rows),
        not_predicted=reason,
        holds=next((one.holds for one in predictions if one is not None), None),
        exponent=exponent(rows, [one.values.get("update", ()) for one in measured]),
        record=None if kept.path is None else str(kept.path),
    )
    if plot is not None:
        from paper_checks.pages.plots import Shown, update_against_depth

        shown = Shown(rows, answer["role_units"] if roles else {}, asked[0].d_model)
        note = exponent_text(answer["exponent"])
        update_against_depth(shown, title(answer), note, plot, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
    else:
        has_roles = roles or transformer.attention or not any(one["measured"] for one in rows)
        show(answer, plot, has_roles=has_roles, is_in_layers=transformer.is_in_layers)


def _predicted(asked: Sequence[Network], optimizer: str) -> tuple[list[Prediction | None], str | None]:
    """Of each network. None where there is no theory of it, and why."""
    from paper_checks.lowering.networks import FFN, NoTheoryError

    predictions: list[Prediction | None] = []
    reason = None
    passes = sum(2 * network.depth for network in asked if network.arch != FFN)
    with counted("predicting", passes) as advance, refusing():
        for network in asked:
            try:
                predictions.append(network.theory(optimizer, advance))
            except NoTheoryError as error:
                predictions.append(None)
                reason = str(error)
    return predictions, reason


def _role_units(network: Network, optimizer: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By role, predicted or measured, the power of d_model that it is multiplied by."""
    roles = dict.fromkeys(role for row in rows for role in (*row["roles"], *row["by_role"]))
    return {role: network.role_power(optimizer, role) for role in roles}


def _record_file(given: Path | None) -> Path:
    from paper_checks.lowering.measuring import LOCAL

    return local_file(LOCAL, "--record FILE, or --no-keep", "the record") if given is None else given


def _read(path: Path | None, device: str, dtype: str) -> Kept:
    """What the record warns of is said in a line."""
    from paper_checks.lowering.measuring import Kept

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = Kept(path, device, dtype)
    for one in caught:
        print(f"depthlaw: {one.message}", file=sys.stderr)
    return kept


# ---------------------------------------------------------------- measuring


def _measured(
    asked: Sequence[Network], optimizer: str, seeds: Sequence[int], kept: Kept, extras: Extras
) -> list[Found]:
    """One network after the other, with a bar that counts sublayers times seeds."""
    from paper_checks.lowering.measuring import measure

    results = []
    text = "nothing was kept"
    if kept.path is not None:
        text = f"what was finished is in {kept.path}, and the same command goes on from there"
    with telling(text), counted("measuring", sum(network.depth for network in asked) * len(seeds)) as advance:
        for network in asked:
            with refusing(), _enough_memory(network):

                def by_depth(num_seeds: float, depth: int = network.depth) -> None:
                    advance(num_seeds * depth)

                results.append(measure(network, [optimizer], seeds, kept, extras=extras, advance=by_depth)[optimizer])
    return results


@contextmanager
def _enough_memory(network: Network) -> Iterator[None]:
    """What an allocator refuses in the middle of a run is refused in one line."""
    import torch

    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and "memory" not in text.lower():
            raise
        size = f"{network.depth} sublayers, d_model {network.d_model}"
        raise BadInputError(
            f"out of memory at {size}: {text.splitlines()[0] if text else 'no more is there'}"
        ) from error


# ---------------------------------------------------------------- for people

_SHOWN_LAYERS = 16


def show(answer: Mapping[str, Any], plot: Path | None, *, has_roles: bool, is_in_layers: bool) -> None:
    """has_roles: a line for each role. plot: the figure that was written. is_in_layers: layers N stand beside sublayers
    L, since they were given."""
    page = Page()
    page.say(title(answer), "bold")
    if line := rest(answer["network"]):
        page.say(line, "dim")
    page.show(_table(answer, has_roles=has_roles, is_in_layers=is_in_layers))
    for line in _meaning(answer, has_roles=has_roles):
        page.say(line, "dim")
    for line in _notes(answer):
        page.say(line)
    for row in answer["rows"]:
        _show_changes(page, row, unit_text(answer))
        _show_layers(page, row)
        if "finite" in row:
            page.say(_finite(row, answer["learning_rate"]))
    page.wrote(plot)
    if answer["record"] is not None:
        page.say_where(f"Kept in {answer['record']}.", "dim")


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    seeds = "1 seed" if answer["seeds"] == 1 else f"{answer['seeds']} seeds"
    return f"{title_of_prediction(answer)}, d_model {answer['network']['d_model']}, {seeds}"


def exponent_text(found: Mapping[str, Any]) -> str:
    """Empty where there is none."""
    if found["measured"] is None:
        return ""
    text = f"exponent in L: measured {found['measured']:z.3f}"
    if found["low"] is not None:
        text += f" [{found['low']:z.3f}, {found['high']:z.3f}]"
    if found["predicted"] is not None:
        text += f", predicted over the same L {found['predicted']:z.3f}"
    return text if not found["left_out"] else f"{text}, without L = {', '.join(found['left_out'])}"


def _table(answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> Any:
    rows = answer["rows"]
    depth = depth_columns(rows, is_in_layers=is_in_layers)
    numbers = ["predicted", "measured", "ratio"] if any(row["update"] is not None for row in rows) else ["measured"]

    def lines() -> Iterator[list[str] | None]:
        for row in rows:
            if has_roles:
                yield None
            first = depth_cells(row, depth)
            for role, values in [("update", row), *(row["by_role"].items() if has_roles else ())]:
                yield [*first, role, *(_cells(values)[name] for name in numbers)]
                first = [""] * len(depth)

    return grid([*depth, "role", *numbers], lines(), texts=["role"])


def _cells(one: Mapping[str, Any]) -> dict[str, str]:
    ratio = "-"
    if one["measured"] is not None and one["ratio"] is not None:
        ends = (one["ratio_low"], one["ratio_high"])
        interval = "" if None in ends else rf" \[{_decimals(ends[0])}, {_decimals(ends[1])}]"
        ratio = _decimals(one["ratio"]) + interval
    return {
        "predicted": "-" if one["update"] is None else f"{one['update']:.4g}",
        "measured": "none" if one["measured"] is None else _mean(one),
        "ratio": ratio,
    }


def _decimals(number: float) -> str:
    """Three of a number near 1, as ratios mostly are."""
    return f"{number:.3f}" if 0.01 <= abs(number) < 1000 else f"{number:.2g}"


def _mean(one: Mapping[str, Any], digits: int = 4) -> str:
    if one["measured"] is None:
        return "diverged"
    error = one["standard_error"]
    return f"{one['measured']:.{digits}g}" + (f" ± {error:.1g}" if error else "")


# ---------------------------------------------------------------- what the numbers mean


def _meaning(answer: Mapping[str, Any], *, has_roles: bool) -> Iterator[str]:
    rows, network = answer["rows"], answer["network"]
    scatter = " ± standard error of the mean, [ ] 95 % interval." if answer["seeds"] > 1 else ""
    yield f"{update_text(answer)}{scatter}"
    if has_roles and (line := others_text(answer["role_units"])):
        yield line
    if answer["not_predicted"] is not None:
        yield f"Nothing is predicted: {answer['not_predicted']}."
    else:
        error = "" if network["arch"] == "ffn" else f" {error_text(rows)}"
        yield f"predicted: at {answer['holds']}. {finite_width_text(rows, network['d_model'])}{error}"


_SCATTERED = 0.8
"""Of log U: from here on 95 % intervals of 8 seeds hold the mean less than 90 % of the time (``sims.stats``)."""


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    found, rows = answer["exponent"], answer["rows"]
    if text := exponent_text(found):
        yield f"{text[0].upper()}{text[1:]}."
    elif len(rows) > 1:
        yield f"No exponent: {found['reason']}."
    wide = [str(one["num_sublayers"]) for one in rows if (one["log_scatter"] or 0) >= _SCATTERED]
    if wide:
        yield (
            f"L = {', '.join(wide)}: log U scatters by {_SCATTERED} or more between seeds, so rare large values carry "
            "the mean and its interval is too short: a larger --width narrows the scatter, and more --seeds help."
        )
    if line := admin_text(answer):
        yield line
    for one in rows:
        depth = one["num_sublayers"]
        if one["diverged"]:
            count = f"{len(one['diverged'])} of {one['num_seeds']} seeds diverged"
            yield f"L = {depth}: {count}; {_place(one['diverged'][0])}."
        for role, change in one["unreliable"].items():
            yield (
                f"L = {depth}: {role} is left out. Noise of one unit in the last place changes it by "
                f"{100 * change:.2g} %: rounding decides it in {answer['dtype']}."
            )
    if factors := list(_lengthened(rows)):
        yield (
            f"Real {answer['optimizer']} changes it {_range(factors)} times as much: it divides its step by the root "
            f"of the number of nonzero entries of a gradient, and the definition of update by that of all entries; "
            f"{answer['activation']} leaves zeros."
        )


def _place(one: Mapping[str, Any]) -> str:
    """Where a seed stopped being finite."""
    if one["in_pass"] == "step":
        return f"seed {one['seed']} after the real step"
    if one["in_pass"] == "update":
        return f"seed {one['seed']} in the update of {one['side']}, sublayer {one['index']}"
    way = {"forward": "going forward", "backward": "going backward"}[one["in_pass"]]
    return f"seed {one['seed']} first at x_{one['index']} of the {one['side']}, {way}"


def _lengthened(rows: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    """Real step over update, where they differ."""
    for one in rows:
        step = (one["real_step"] or {}).get("measured")
        if step and one["measured"] and abs(step / one["measured"] - 1) > 1e-3:
            yield step / one["measured"]


def _range(numbers: Sequence[float]) -> str:
    low, high = (f"{end(numbers):z.3f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- what else was asked for


def _finite(one: Mapping[str, Any], rate: float) -> str:
    numbers = {name: _mean(value) for name, value in one["finite"].items()}
    first = numbers.pop("first_order")
    numbers["loss" if "loss" in numbers else "logit"] += f" (to first order {first})"
    moved = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
    return (
        f"L = {one['num_sublayers']}: a real step of learning rate {rate:g}, of all that trains, changes {moved}. "
        f"Linear, to a tenth, up to a learning rate of {_mean(one['linear_up_to'])}."
    )


def _show_changes(page: Page, one: Mapping[str, Any], unit: str) -> None:
    if "changes" not in one:
        return
    page.say(
        f"L = {one['num_sublayers']}: what a step of each role alone changes, per unit learning rate, divided by "
        f"{unit}; hidden: root mean square"
    )
    readings = one["changes"]
    heads = ["role", *(reading.replace("_", " ") for reading in readings)]
    roles = next(iter(readings.values()))
    page.show(grid(heads, ([role, *(_mean(of[role], 2) for of in readings.values())] for role in roles), ["role"]))


def _show_layers(page: Page, one: Mapping[str, Any]) -> None:
    for side, streams in one.get("streams", {}).items():
        names = list(dict.fromkeys(name for stream in streams.values() for name in stream))
        columns = {name.replace("_", " "): {at: found.get(name) for at, found in streams.items()} for name in names}
        last = f"; x_{len(streams) - 1}: behind the final norm" if len(streams) - 1 > _sublayers(one, side) else ""
        _show_columns(page, f"L = {one['num_sublayers']}: x_l of the {side}{last}", "l", columns)
    if parts := _by_kind(one.get("updates_by_layer", {})):
        order = ", the encoder's first" if "num_layers" in one else ""
        heading = f"L = {one['num_sublayers']}: update of the n-th sublayer of a kind{order}"
        _show_columns(page, heading, "n", parts)


def _sublayers(one: Mapping[str, Any], side: str) -> int:
    """Of one side."""
    if "num_layers" not in one:
        return one["num_sublayers"]
    return 2 * one["num_layers"] if side == "encoder" else 3 * one["num_decoder_layers"]


def _by_kind(by_role: Mapping[str, Mapping[str, float | None]]) -> dict[str, dict[str, float | None]]:
    """The matrices of a sublayer together, by kind and number. None where one of them is missing."""
    found: dict[str, dict[str, float | None]] = {}
    for kind, roles in ROLES_OF_KINDS.items():
        present = [by_role[role] for role in roles if role in by_role]
        for number in dict.fromkeys(number for values in present for number in values):
            parts = [values.get(number) for values in present]
            known = [part for part in parts if part is not None]
            found.setdefault(kind, {})[number] = sum(known) if len(known) == len(roles) else None
    return found


def _show_columns(page: Page, heading: str, first: str, columns: Mapping[str, Mapping[str, float | None]]) -> None:
    """Few enough lines to read, evenly, and the last."""
    lines = list(dict.fromkeys(line for values in columns.values() for line in values))
    shown = dict.fromkeys([*lines[:: -(-len(lines) // _SHOWN_LAYERS)], lines[-1]])
    cells = {line: [column.get(line) for column in columns.values()] for line in shown}
    page.say(heading)
    page.show(
        grid(
            [first, *columns],
            ([line, *("-" if x is None else f"{x:.4g}" for x in values)] for line, values in cells.items()),
        )
    )
