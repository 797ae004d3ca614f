"""``depthlaw measure``: real networks beside what is predicted of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthlaw.cli.shared import options, words
from depthlaw.cli.shared.layers import show_layers
from depthlaw.cli.shared.network_options import Stack, Transformer, networks
from depthlaw.cli.shared.options import MORE, NETWORK, BadInputError, option, refusing
from depthlaw.cli.shared.output import counted, number_of, print_json, say
from depthlaw.system.page import Page, grid
from depthlaw.system.stopping import telling

if TYPE_CHECKING:
    from depthlaw.network.measuring import Extras, Kept
    from depthlaw.network.network import Network
    from depthlaw.sims.records.record import Measurement
    from depthlaw.theory.meanfield.setting import Prediction

EXAMPLES = (
    "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16 --width 64 --seeds 8 --no-keep",
    "measure --scheme post-ln --optimizer sgd --sublayers 4,8,16,32,64 --width 512 --seeds 32 --plot post.png",
    "measure --scheme deepnorm --optimizer adam --layers 6,12,24 --attention --width 64 --heads 4 --roles",
    "measure --scheme deepnorm --optimizer adam --attention --arch encoder-decoder --layers 6 --decoder-layers 6",
)


def run(
    stack: Stack,
    transformer: Transformer,
    width: int = option("The width d_model.", 256, NETWORK, most=100_000),
    seeds: int = option("The number of independent networks of each depth.", 8, NETWORK),
    seed: int = option("The seed of the first of them.", 0, NETWORK, least=0, most=2**31),
    roles: bool = options.ROLES,
    by_layer: bool = options.BY_LAYER,
    changes: bool = option(
        "Also show what each role's step does to the logit, the last hidden state, by itself and relative to its size "
        "(representation), and, with --loss ce, the loss.",
        None,
        MORE,
    ),
    second_order: bool = option(
        "Also show what the step changes to second order beside the first: in a sublayer, in the last hidden state and "
        "in the logit.",
        None,
        MORE,
    ),
    learning_rate: float | None = option(
        "Also take the real step of this learning rate, and find where linearity ends.",
        None,
        MORE,
        least=1e-12,
        most=1e9,
    ),
    plot: Path | None = options.PLOT,
    record: Path | None = option(
        "The file that measurements are kept in and taken from; one in sims/records/local if left out.", None, MORE
    ),
    keeps: bool = option(
        "Whether measurements are kept where --record is left out.", True, MORE, called="--keep/--no-keep"
    ),
    scheduler: str | None = options.SCHEDULER,
    device: str = options.DEVICE,
    dtype: str = option(
        "The precision: float64; float32, which is faster, but wrong for q and k in deep post-LN; or auto, which "
        "takes float32 where rounding changes no number by a thousandth, and float64 elsewhere.",
        "auto",
        MORE,
        known=options.DTYPES,
    ),
    as_json: bool = options.JSON,
) -> None:
    """Measure the update: build real networks, take one optimizer step, and put it beside what `predict` says.

    Each depth has --seeds independent networks, measured by autograd, exact to
    first order in the learning rate. The answer has the mean of their updates
    with its 95 % interval, its ratio to the prediction, and the exponent of the
    depth, measured and predicted. Measurements are kept in a record: the same
    command does not repeat them, and one that was stopped goes on, here or with
    --scheduler on the workers of a Dask cluster, which measure depths and seeds
    side by side.
    """
    # Everything that can be wrong with the input is said before anything is measured.
    chosen = range(seed, seed + seeds)
    if record is None and keeps:
        from depthlaw.network import measuring

        record = options.local_file(measuring.LOCAL, "--record FILE, or --no-keep", "the record")
    transformer, _ = transformer.of_recipe(width)
    asked = networks(stack, transformer, width)

    from depthlaw.network.measured_rows import document_of_measurements
    from depthlaw.network.measuring import Extras, check_memory
    from depthlaw.sims.cluster import workers_of

    with refusing():
        workers = workers_of(scheduler, device)
        kept = _read(record, workers.device, dtype)
        extras = Extras(by_layer, changes, second_order, learning_rate)
        free = None if scheduler is None else workers.free
        check_memory(asked, stack.optimizer, kept, extras, free)  # before the prediction, which may take minutes
    predictions, reason = _predicted(asked, stack.optimizer)
    measured = _measured(asked, stack.optimizer, chosen, kept, extras, scheduler)
    answer = document_of_measurements(
        asked,
        predictions,
        measured,
        stack.optimizer,
        learning_rate=learning_rate,
        seeds=chosen,
        device=workers.device_name,
        not_predicted=reason,
        record=kept.path,
    )
    rows = answer["rows"]
    if plot is not None:
        from depthlaw.paper_checks.pages.plots import Shown, update_against_depth

        shown = Shown(rows, answer["role_units"] if roles else {}, asked[0].d_model)
        note = exponent_text(answer["exponent"])
        update_against_depth(shown, title(answer), note, plot, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
    else:
        has_roles = roles or transformer.attention or not any(row["measured"] for row in rows)
        show(answer, plot, has_roles=has_roles, is_in_layers=transformer.is_in_layers)


def _predicted(asked: Sequence[Network], optimizer: str) -> tuple[list[Prediction | None], str | None]:
    """Of each network. None where there is no theory of it, and why."""
    from depthlaw.network.network import NoTheoryError

    predictions: list[Prediction | None] = []
    reason = None
    passes = sum(2 * network.depth for network in asked if network.is_walked)
    with counted("predicting", passes) as advance, refusing():
        for network in asked:
            try:
                predictions.append(network.theory(optimizer, advance))
            except NoTheoryError as error:
                predictions.append(None)
                reason = str(error)
    return predictions, reason


def _read(path: Path | None, device: str, dtype: str) -> Kept:
    """What the record warns of is said in a line."""
    from depthlaw.network.measuring import Kept

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = Kept(path, device, dtype)
    for warning in caught:
        say(str(warning.message))
    return kept


# ---------------------------------------------------------------- measuring


def _measured(
    asked: Sequence[Network],
    optimizer: str,
    seeds: Sequence[int],
    kept: Kept,
    extras: Extras,
    scheduler: str | None,
) -> list[Measurement]:
    """One network after the other, or side by side on a cluster, with a bar that counts sublayers times seeds."""
    from depthlaw.network.measuring import measure, measure_on
    from depthlaw.sims.cluster import Cluster, LostClusterError

    there = len(kept.runs)

    def what_is_kept() -> str:
        if kept.path is None or len(kept.runs) == there:
            return "nothing was kept"
        return f"what was finished is in {kept.path}, and the same command goes on from there"

    measured = []
    with telling(what_is_kept), counted("measuring", sum(network.depth for network in asked) * len(seeds)) as advance:
        if scheduler is not None:
            with refusing(), _enough_memory(asked[-1]), Cluster(scheduler, kept.device) as cluster:
                try:
                    return measure_on(cluster, asked, optimizer, seeds, kept, extras=extras, advance=advance)
                except LostClusterError as error:
                    raise BadInputError(f"{error}; {what_is_kept()}") from error
        for network in asked:

            def by_depth(num_seeds: float, depth: int = network.depth) -> None:
                advance(num_seeds * depth)

            with refusing(), _enough_memory(network):
                measured.append(measure(network, [optimizer], seeds, kept, extras=extras, advance=by_depth)[optimizer])
    return measured


@contextmanager
def _enough_memory(network: Network) -> Iterator[None]:
    """What an allocator refuses in the middle of a run is refused in one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch.OutOfMemoryError is a RuntimeError
        text = str(error)
        if isinstance(error, RuntimeError) and "memory" not in text.lower():
            raise
        size = f"{network.depth} sublayers, d_model {network.d_model}"
        raise BadInputError(f"out of memory at {size}: {(text or 'no more is there').splitlines()[0]}") from error


# ---------------------------------------------------------------- for people


def show(answer: Mapping[str, Any], plot: Path | None, *, has_roles: bool, is_in_layers: bool) -> None:
    """has_roles: a line for each role. plot: the figure that was written. is_in_layers: layers N stand beside sublayers
    L, since they were given."""
    page, rows, network = Page(), answer["rows"], answer["network"]
    page.say(title(answer), "bold")
    if line := words.rest(network):
        page.say(line, "dim")
    page.show(_table(answer, has_roles=has_roles, is_in_layers=is_in_layers))
    scatter = " ± standard error of the mean, [ ] 95 % interval." if answer["seeds"] > 1 else ""
    dtype = f" Computed in {answer['dtype']}." if answer["dtype"] else ""
    page.say(f"{words.update_text(answer)}{scatter}{dtype}", "dim")
    if has_roles and (line := words.others_text(answer["role_units"])):
        page.say(line, "dim")
    if answer["not_predicted"] is not None:
        page.say(f"Nothing is predicted: {answer['not_predicted']}.", "dim")
    else:
        error = f" {words.error_text(rows)}" if "error" in rows[0] else ""
        width = words.finite_width_text(rows, network["d_model"])
        page.say(f"predicted: at {answer['holds']}. {width}{error}", "dim")
    for line in filter(None, (words.visits_text(answer), *_notes(answer))):
        page.say(line)
    for row in rows:
        if "changes" in row:
            _show_changes(page, row, words.unit_text(answer))
        show_layers(page, row)
        if "finite" in row:
            page.say(_finite(row, answer["learning_rate"]))
    if "second_order_exponents" in answer:
        _show_second_order(page, answer)
    page.wrote(plot)
    if answer["record"] is not None:
        page.say_where(f"Kept in {answer['record']}.", "dim")


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    return f"{words.title(answer)}, d_model {answer['network']['d_model']}, {number_of(answer['seeds'], 'seed')}"


def exponent_text(exponent: Mapping[str, Any]) -> str:
    """Empty where there is none."""
    if exponent["measured"] is None:
        return ""
    text = f"exponent in L: measured {exponent['measured']:z.3f}"
    if exponent["low"] is not None:
        text += f" [{exponent['low']:z.3f}, {exponent['high']:z.3f}]"
    if exponent["predicted"] is not None:
        text += f", predicted over the same L {exponent['predicted']:z.3f}"
    return text if not exponent["left_out"] else f"{text}, without L = {', '.join(exponent['left_out'])}"


def _table(answer: Mapping[str, Any], *, has_roles: bool, is_in_layers: bool) -> Any:
    rows = answer["rows"]
    depths = [words.depth_cells(row, is_in_layers=is_in_layers) for row in rows]
    is_predicted = any(row["update"] is not None for row in rows)

    def lines() -> Iterator[list[str] | None]:
        for depth, row in zip(depths, rows, strict=True):
            if has_roles:
                yield None
            first = list(depth.values())
            for role, values in [("update", row), *(row["by_role"].items() if has_roles else ())]:
                measured = "none" if values["measured"] is None else _mean(values)
                predicted = "-" if values["update"] is None else f"{values['update']:.4g}"
                yield [*first, role, *([predicted, measured, _ratio(values)] if is_predicted else [measured])]
                first = [""] * len(depth)

    numbers = ["predicted", "measured", "ratio"] if is_predicted else ["measured"]
    return grid([*depths[0], "role", *numbers], lines(), texts=["role"])


def _ratio(values: Mapping[str, Any]) -> str:
    if values["measured"] is None or values["ratio"] is None:
        return "-"
    # An update is no less than 0, and neither is what its interval can hold.
    least = None if values["ratio_low"] is None else max(values["ratio_low"], 0)
    ratio, low, high = (
        # Three decimals of a number near 1, as ratios mostly are.
        "" if number is None else f"{number:.3f}" if 0.01 <= number < 1000 else f"{number:.2g}"
        for number in (values["ratio"], least, values["ratio_high"])
    )
    return rf"{ratio} \[{low}, {high}]" if low and high else ratio


def _mean(values: Mapping[str, Any], digits: int = 4) -> str:
    if values["measured"] is None:
        return "diverged"
    error = values["standard_error"]
    return f"{values['measured']:.{digits}g}" + (f" ± {float(f'{error:.1g}'):g}" if error else "")


# ---------------------------------------------------------------- what the numbers mean


_SCATTERED = 0.8
"""Of log U: from here on 95 % intervals of 8 seeds hold the mean less than 90 % of the time (``sims.stats``)."""


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    exponent, rows = answer["exponent"], answer["rows"]
    if text := exponent_text(exponent):
        yield f"{text[0].upper()}{text[1:]}."
    elif len(rows) > 1:
        yield f"No exponent: {exponent['reason']}."
    if wide := [str(row["num_sublayers"]) for row in rows if (row["log_scatter"] or 0) >= _SCATTERED]:
        yield (
            f"L = {', '.join(wide)}: log U scatters by {_SCATTERED} or more between seeds, so rare large values carry "
            "the mean and its interval is too short: a larger --width narrows the scatter, and more --seeds help."
        )
    yield from filter(None, (words.admin_text(answer), words.left_out_text(answer)))
    for row in rows:
        if row["diverged"]:
            first = row["diverged"][0]
            count = f"{len(row['diverged'])} of {row['num_seeds']} seeds diverged"
            yield f"L = {row['num_sublayers']}: {count}; seed {first['seed']} {_place(first)}."
        for role, change in row["unreliable"].items():
            yield (
                f"L = {row['num_sublayers']}: {role} is left out. Noise of one unit in the last place changes it by "
                f"{100 * change:.2g} %: rounding decides it in {answer['dtype']}."
            )
    steps = [(row["real_step"]["measured"], row["measured"]) for row in rows if row["real_step"]]
    factors = [step / update for step, update in steps if step and update and abs(step / update - 1) > 1e-3]
    if factors:
        low, high = (f"{end(factors):z.3f}" for end in (min, max))
        yield (
            f"Real {answer['optimizer']} changes it {low if low == high else f'{low} to {high}'} times as much: it "
            "divides its step by the root of the number of nonzero entries of a gradient, and the definition of update "
            f"by that of all entries; {answer['activation']} leaves zeros."
        )


def _place(first: Mapping[str, Any]) -> str:
    """Where a seed stopped being finite."""
    if first["in_pass"] == "step":
        return "after the real step"
    if first["in_pass"] == "update":
        return f"in the update of {first['side']}, sublayer {first['index']}"
    return f"first at x_{first['index']} of the {first['side']}, going {first['in_pass']}"


# ---------------------------------------------------------------- what else was asked for


def _finite(row: Mapping[str, Any], rate: float) -> str:
    numbers = {name: _mean(value) for name, value in row["finite"].items()}
    first = numbers.pop("first_order")
    numbers["loss" if "loss" in numbers else "logit"] += f" (to first order {first})"
    moved = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
    return (
        f"L = {row['num_sublayers']}: a real step of learning rate {rate:g}, of all that trains, changes {moved}. "
        f"Linear, to a tenth, up to a learning rate of {_mean(row['linear_up_to'])}."
    )


_WHERE = {"block": "a sublayer", "hidden": "last hidden state", "logit": "logit", "loss": "loss"}
"""The readings whose second order is shown, in the order of the network."""


def _show_second_order(page: Page, answer: Mapping[str, Any]) -> None:
    unit = words.unit_text(answer)
    page.say("What the step of the branch matrices changes to second order beside the first:")
    where = {reading: text for reading, text in _WHERE.items() if reading in answer["second_order_exponents"]}

    def lines() -> Iterator[list[str] | None]:
        for reading, text in where.items():
            yield None
            for place, row in enumerate(answer["rows"]):
                orders = row["second_order"][reading]
                over = orders["over_first"]
                interval = "" if over["low"] is None else rf" \[{max(over['low'], 0):.2g}, {over['high']:.2g}]"
                predicted = "-" if over["predicted"] is None else f"{over['predicted']:.3g}"
                cells = [_mean(orders[order], 3).split(" ")[0] for order in ("first", "second", "over_first")]
                name = "" if place else text
                yield [name, str(row["num_sublayers"]), *cells[:2], f"{cells[2]}{interval}", predicted]

    heads = ["in", "L", "first", "second", "second over first", "predicted"]
    page.show(grid(heads, lines(), texts=["in"], unbroken=["second over first"]))
    for reading, text in where.items():
        if found := exponent_text(answer["second_order_exponents"][reading]):
            page.say(f"In {text if text.startswith('a ') else f'the {text}'}, second over first: {found}.")
    page.say(
        f"first, second: means over networks of root mean squares, per unit learning rate and its square, divided by "
        f"{unit} and its square. a sublayer: what its own step changes behind it, given the stream that it has without "
        f"a step. second over first: of a step whose first order moves the {'loss' if 'loss' in where else 'logit'} "
        "by 1, [ ] 95 % interval. Units of a ReLU stay on their side of its kink. predicted: of stacks of FFNs; that "
        "of the logit has either sign, and is 0 on average.",
        "dim",
    )


def _show_changes(page: Page, row: Mapping[str, Any], unit: str) -> None:
    page.say(
        f"L = {row['num_sublayers']}: what a step of each role alone changes, per unit learning rate, divided by "
        f"{unit}; hidden: root mean square; representation: the same over that of the last hidden state itself"
    )
    readings = row["changes"]
    heads = ["role", *(reading.replace("_", " ") for reading in readings)]
    roles = next(iter(readings.values()))
    rows = ([role.replace("_on_", " on "), *(_mean(of[role], 2) for of in readings.values())] for role in roles)
    page.show(grid(heads, rows, ["role"]))
    page.say(
        "update on spheres: of all branch matrices, by a step that keeps the norm of each, as Muon on spheres; on "
        "vectors: that of each vector of them along the stream, as nGPT. At infinite width that takes nothing off."
    )
    if (predicted := readings["representation"]["update"]["predicted"]) is not None:
        page.say(f"Predicted for the representation, of all branch matrices: {predicted:.3g}.")
    else:
        page.say(
            "Predicted for the representation: nothing; it is derived for stacks of FFNs that are not gated, with one "
            "stream and real norms."
        )
