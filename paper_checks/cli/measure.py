"""``depthlaw measure``: real networks beside what is predicted of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paper_checks.cli.asked import Stack, Transformer, in_common, networks
from paper_checks.cli.choices import BUILT_ACTIVATIONS, DEVICES, DTYPES
from paper_checks.cli.inputs import (
    BadInputError,
    count,
    fraction,
    one_name,
    plot_file,
    refusing,
    writable,
)
from paper_checks.cli.measure_text import exponent_text, show, title
from paper_checks.cli.options import MORE, NETWORK, Json, Plot, Roles, flag, named, option
from paper_checks.cli.output import print_json, progress
from paper_checks.system.files import document
from paper_checks.system.stopping import telling

if TYPE_CHECKING:
    from paper_checks.lowering.measuring import Extras, Kept
    from paper_checks.lowering.networks import Network
    from sims.records.record import Found
    from theory.meanfield.setting import Prediction

_RATES = (Fraction(1, 10**9), Fraction(10**9))
"""Learning rates of a real step: below, it is lost in rounding, and above, in overflow."""


@dataclass(frozen=True, kw_only=True)
class BuiltStack(Stack):
    """A stack that is built: it may have an activation that no theory knows."""

    activation: Annotated[str, named(f"{BUILT_ACTIVATIONS}.", BUILT_ACTIVATIONS)] = "relu"


def run(
    stack: BuiltStack,
    transformer: Transformer,
    width: Annotated[str, option("d_model.", "D", NETWORK)] = "256",
    seeds: Annotated[str, option("Independent networks of each depth.", "K", NETWORK)] = "8",
    seed: Annotated[str, option("The first one's seed.", "S", NETWORK)] = "0",
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
        str | None,
        option("Also take the optimizer's real step of this size, and find where linearity ends.", "RATE", MORE),
    ] = None,
    plot: Plot = None,
    record: Annotated[
        str | None,
        option("Keep it there, and go on from it; sims/records/local/measure.jsonl if left out.", "FILE", MORE),
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
    stack.check_names(BUILT_ACTIVATIONS)
    one_name(device, "--device", DEVICES)
    one_name(dtype, "--dtype", DTYPES)
    first = count(seed, "--seed", least=0, most=2**31)
    chosen = range(first, first + count(seeds, "--seeds", most=1_000_000))
    rate = None if learning_rate is None else _rate(learning_rate)
    target = None if plot is None else plot_file(plot)
    kept_in = _record_file(record) if keeps or record else None
    asked = networks(stack, transformer, width)

    from paper_checks.lowering.measured_rows import exponent, row
    from paper_checks.lowering.measuring import Extras, check_memory
    from sims.measure import choose_device, device_name
    from sims.optim import NORMALISATION

    with refusing():
        where = choose_device(device)
        kept = _read(kept_in, where, dtype)
    extras = Extras(by_layer, changes, rate)
    with refusing():  # before the prediction, which may take minutes
        check_memory(asked, stack.optimizer, kept, extras)
    predictions, reason = _predicted(asked, stack.optimizer)
    found = _measured(asked, stack.optimizer, chosen, kept, extras)
    rows = [
        row(network, stack.optimizer, prediction, one)
        for network, prediction, one in zip(asked, predictions, found, strict=True)
    ]
    answer = document(
        scheme=asked[0].scheme.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
        network=in_common(asked[0], stack.optimizer),
        unit=NORMALISATION[stack.optimizer]._asdict(),
        learning_rate=rate,
        seeds=len(chosen),
        seed=first,
        device=device_name(where),
        dtype=dtype,
        rows=rows,
        role_units=_role_units(asked[0], stack.optimizer, rows),
        not_predicted=reason,
        holds=next((one.holds for one in predictions if one is not None), None),
        exponent=exponent(rows, [one.values.get("update", ()) for one in found]),
        record=None if kept.path is None else str(kept.path),
    )
    if target is not None:
        from paper_checks.pages.plots import panels, update_against_depth

        shown, note = panels(rows, answer["role_units"] if roles else {}), exponent_text(answer["exponent"])
        update_against_depth(shown, title(answer), note, target, is_in_layers=transformer.is_in_layers)
    if as_json:
        print_json(answer)
    else:
        has_roles = roles or transformer.attention or not any(one["measured"] for one in rows)
        show(answer, has_roles=has_roles, target=target, is_in_layers=transformer.is_in_layers)


def _predicted(asked: Sequence[Network], optimizer: str) -> tuple[list[Prediction | None], str | None]:
    """Of each network. None where there is no theory of it, and why."""
    from paper_checks.lowering.networks import FFN, NoTheoryError

    predictions: list[Prediction | None] = []
    reason = None
    passes = sum(2 * network.depth for network in asked if network.arch != FFN)
    with progress("predicting", passes) as advance, refusing():
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


def _rate(text: str) -> float:
    rate, (least, most) = fraction(text, "--learning-rate"), _RATES
    if not least <= rate <= most:
        raise BadInputError(f"--learning-rate lies between {float(least):g} and {float(most):g}, not at {text.strip()}")
    return float(rate)


def _record_file(text: str | None) -> Path:
    from paper_checks.lowering.measuring import LOCAL

    if text is not None:
        return writable(Path(text), "--record")
    try:
        LOCAL.parent.mkdir(parents=True, exist_ok=True)
        return writable(LOCAL, "the record")
    except (OSError, BadInputError) as error:
        raise BadInputError(f"{LOCAL.parent} cannot be written: give --record FILE, or --no-keep") from error


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

    found = []
    text = "nothing was kept"
    if kept.path is not None:
        text = f"what was finished is in {kept.path}, and the same command goes on from there"
    with telling(text), progress("measuring", sum(network.depth for network in asked) * len(seeds)) as advance:
        for network in asked:
            with refusing(), _enough_memory(network):

                def by_depth(num_seeds: float, depth: int = network.depth) -> None:
                    advance(num_seeds * depth)

                found.append(measure(network, [optimizer], seeds, kept, extras=extras, advance=by_depth)[optimizer])
    return found


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
