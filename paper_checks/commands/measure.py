"""``depthlaw measure``: real networks beside what is predicted of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_checks.commands.asked import Attention, Stack, networks
from paper_checks.commands.inputs import BadInputError, count, fraction, refusing
from paper_checks.commands.output import document, print_json

if TYPE_CHECKING:
    from paper_checks.networks import Network
    from sims.record import Found

_SHOWN_LAYERS = 16


def run(
    *,
    stack: Stack,
    attention: Attention,
    width: str,
    seeds: str,
    seed: str,
    device: str,
    dtype: str,
    plot: str | None,
    record: str | None,
    keeps: bool,
    has_roles: bool,
    has_layers: bool,
    has_changes: bool,
    learning_rate: str | None,
    as_json: bool,
) -> int:
    """Everything that can be wrong with the input is said before anything is measured."""
    first = count(seed, "--seed", least=0, most=2**31)
    chosen = range(first, first + count(seeds, "--seeds", most=1_000_000))
    rate = None if learning_rate is None else float(fraction(learning_rate, "--learning-rate"))
    if rate is not None and not 0 < rate < math.inf:
        raise BadInputError(f"--learning-rate is positive, not {learning_rate}")
    target = None if plot is None else _plot_file(plot)
    asked = networks(stack, attention, width)

    from paper_checks.measured_rows import exponent, row
    from paper_checks.measuring import LOCAL, Extras, Kept
    from sims.measure import DTYPES, choose_device, device_name

    if dtype not in DTYPES:
        raise BadInputError(f"--dtype is one of {', '.join(DTYPES)}, not {dtype!r}")
    with refusing():
        where = choose_device(device)
        kept = Kept(_record_file(record, LOCAL) if keeps or record else None, where, dtype)
    extras = Extras(has_layers, has_changes, rate)
    found = _measured(asked, stack.optimizer, chosen, kept, extras)
    rows = [row(network, stack.optimizer, one) for network, one in zip(asked, found, strict=True)]
    answer = document(
        scheme=asked[0].scheme.name,
        optimizer=stack.optimizer,
        activation=stack.activation,
        norm_kind=stack.norm_kind,
        network={name: value for name, value in asked[0].named(stack.optimizer).items() if name != "num_sublayers"},
        seeds=len(chosen),
        seed=first,
        device=device_name(where),
        dtype=dtype,
        rows=rows,
        exponent=exponent(rows, [one.values.get("update", ()) for one in found]),
        record=None if kept.path is None else str(kept.path),
    )
    if target is not None:
        from paper_checks.plots import update_against_depth

        update_against_depth(rows, _title(answer), _exponent_text(answer["exponent"]) or "", target)
    if as_json:
        print_json(answer)
    else:
        show(answer, has_roles=has_roles or attention.is_on, target=target)
    return 0


def _plot_file(text: str) -> Path:
    from paper_checks.plots import SUFFIXES

    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInputError(f"--plot wants a file that ends in {', '.join(SUFFIXES)}, not {text!r}")
    if not path.parent.is_dir():
        raise BadInputError(f"--plot: there is no folder {path.parent}")
    return path


def _record_file(text: str | None, default: Path) -> Path:
    path = default if text is None else Path(text)
    if text is not None and not path.parent.is_dir():
        raise BadInputError(f"--record: there is no folder {path.parent}")
    return path


# ---------------------------------------------------------------- measuring


def _measured(asked: Sequence[Network], optimizer: str, seeds: Sequence[int], kept: Any, extras: Any) -> list[Found]:
    """One network after the other, with a bar that counts sublayers times seeds."""
    from paper_checks.measuring import measure

    found = []
    with _bar(sum(network.depth for network in asked) * len(seeds), optimizer) as advance:
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


@contextmanager
def _bar(total: float, optimizer: str) -> Iterator[Callable[[float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("measuring"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(optimizer, total=total)
        yield lambda done: bar.advance(task, done)


# ---------------------------------------------------------------- for people


def _title(answer: dict[str, Any]) -> str:
    network = answer["network"]
    kind = "" if network["arch"] == "ffn" else f", {network['arch']}"
    return (
        f"{answer['scheme']} under {answer['optimizer']}, {answer['activation']}, {answer['norm_kind']}{kind}, "
        f"d_model {network['d_model']}, {answer['seeds']} seeds"
    )


def show(answer: dict[str, Any], *, has_roles: bool, target: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    rows = answer["rows"]
    table = Table(title=_title(answer), title_justify="left", caption="[ ] 95 % interval", caption_justify="left")
    has_layers = "num_layers" in rows[0]
    for name in (*(["layers"] if has_layers else []), "sublayers", "role", "predicted", "measured", "ratio"):
        table.add_column(name, justify="left" if name == "role" else "right")
    for one in rows:
        depth = [f"{one['num_layers']}-{one['num_decoder_layers']}"] if has_layers else []
        first = [*depth, str(one["num_sublayers"])]
        names = list(one["by_role"]) if has_roles else []
        lines = [("update", one), *((role, one["by_role"][role]) for role in names)]
        for index, (role, numbers) in enumerate(lines):
            table.add_row(*(first if index == 0 else [""] * len(first)), role, *_cells(numbers))
    console.print(table)
    for line in _notes(answer):
        console.print(line, markup=False, highlight=False)
    for one in rows:
        _show_extras(console, one)
    if target is not None:
        console.print(f"Wrote {target}.", markup=False, highlight=False)
    if answer["record"] is not None:
        console.print(f"Kept in {answer['record']}.", markup=False, highlight=False, style="dim", soft_wrap=True)


def _cells(one: dict[str, Any]) -> tuple[str, str, str]:
    predicted = "-" if one["update"] is None else f"{one['update']:.5g}"
    if one["measured"] is None:
        return predicted, "diverged", "-"
    error = "" if one["standard_error"] is None else f" ± {one['standard_error']:.2g}"
    ratio = "-" if one["ratio"] is None else f"{one['ratio']:.3f}"
    if one["ratio_low"] is not None:
        ratio += f" [{one['ratio_low']:.3f}, {one['ratio_high']:.3f}]"
    return predicted, f"{one['measured']:.5g}{error}", ratio.replace("[", r"\[")


def _exponent_text(found: dict[str, Any]) -> str | None:
    if found["measured"] is None:
        return None
    text = f"exponent in L: measured {found['measured']:.3f}"
    if found["low"] is not None:
        text += f" [{found['low']:.3f}, {found['high']:.3f}]"
    return text if found["predicted"] is None else f"{text}, predicted over the same L {found['predicted']:.3f}"


def _notes(answer: dict[str, Any]) -> Iterator[str]:
    found = answer["exponent"]
    if text := _exponent_text(found):
        yield f"{text[0].upper()}{text[1:]}."
    elif len(answer["rows"]) > 1:
        yield f"No exponent: {found['reason']}."
    for one in answer["rows"]:
        depth = one["num_sublayers"]
        if one["diverged"]:
            first = one["diverged"][0]
            yield (
                f"{depth} sublayers: {len(one['diverged'])} of {one['num_seeds']} seeds diverged; seed {first['seed']} "
                f"at x_{first['index']} of the {first['side']}, in the {first['in_pass']} pass."
            )
        for role, change in one["unreliable"].items():
            yield (
                f"{depth} sublayers: {role} is left out: noise of one unit in the last place changes it by "
                f"{100 * change:.2g} %, so rounding decides it in {answer['dtype']}."
            )
    steps = [(one["real_step"] or {}).get("measured") for one in answer["rows"]]
    factors = [
        step / one["measured"] for step, one in zip(steps, answer["rows"], strict=True) if step and one["measured"]
    ]
    if factors:
        yield (
            f"The real first step of {answer['optimizer']} moves the logit {_range(factors)} times as far: it divides "
            "by the norm of the signs, and entries whose gradient is exactly 0, as relu makes them, have none."
        )
    if answer["network"]["arch"] != "ffn":
        yield "Nothing is predicted of attention: measured only."


def _range(numbers: Sequence[float]) -> str:
    low, high = (f"{end(numbers):.3f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _show_extras(console: Any, one: dict[str, Any]) -> None:
    from rich.table import Table

    depth = one["num_sublayers"]
    if "changes" in one:
        table = Table(title=f"{depth} sublayers: what one step changes, per unit learning rate", title_justify="left")
        table.add_column("role")
        for reading in one["changes"]:
            table.add_column(reading.replace("_", " "), justify="right")
        for role in next(iter(one["changes"].values())):
            table.add_row(role, *(_mean(numbers[role]) for numbers in one["changes"].values()))
        console.print(table)
    if "finite" in one:
        numbers = {name: _mean(value) for name, value in one["finite"].items()}
        first = numbers.pop("first_order")
        moved = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
        console.print(
            f"{depth} sublayers, the real step, of everything that trains: {moved}; first order {first}; linear to a "
            f"tenth up to a learning rate of {_mean(one['linear_up_to'])}.",
            markup=False,
            highlight=False,
        )
    for side in ("encoder", "decoder"):
        if side not in one.get("layers", {}):
            continue
        streams = one["layers"][side]
        table = Table(title=f"{depth} sublayers, {side}: the stream x_l", title_justify="left")
        names = list(dict.fromkeys(name for stream in streams.values() for name in stream))
        for name in ("l", *(name.replace("_", " ") for name in names)):
            table.add_column(name, justify="right")
        step = -(-len(streams) // _SHOWN_LAYERS)
        for index, stream in streams.items():
            if int(index) % step == 0 or int(index) == len(streams) - 1:
                values = (stream.get(name) for name in names)
                table.add_row(index, *("-" if value is None else f"{value:.4g}" for value in values))
        console.print(table)


def _mean(found: dict[str, Any]) -> str:
    if found["measured"] is None:
        return "diverged"
    error = found["standard_error"]
    return f"{found['measured']:.4g}" + ("" if error is None else f" ± {error:.1g}")
