"""What ``depthlaw train`` prints for people: what became of the runs, their update, and what the words mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_SHOWN_DIVERGED = 8


def show(answer: Mapping[str, Any], *, target: Path | None) -> None:
    """answer: the JSON document. target: the plot that was written."""
    from rich.console import Console

    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, markup=False, highlight=False, style=style)

    say(title(answer), "bold")
    say(rest(answer["config"]), "dim")
    say(f"Data: {answer['data']['about']}.", "dim")
    console.print(_outcomes(answer))
    for line in _meaning(answer):
        say(line, "dim")
    for line in _diverged(answer):
        say(line)
    if any(one["update"] for row in answer["rows"] for one in row["updates"]):
        console.print(_updates(answer))
        say(_UPDATES, "dim")
    for line in _notes(answer):
        say(line)
    if target is not None:
        say(f"Wrote {target}.")
    console.print(f"Kept in {answer['store']}.", markup=False, highlight=False, style="dim", soft_wrap=True)


def title(answer: Mapping[str, Any]) -> str:
    """Of the table and of the plot."""
    config, rows = answer["config"], answer["rows"]
    names = {name: list(dict.fromkeys(row[name] for row in rows)) for name in ("scheme", "optimizer")}
    seeds = "1 seed" if len(answer["seeds"]) == 1 else f"{len(answer['seeds'])} seeds"
    return (
        f"{', '.join(names['scheme'])} under {', '.join(names['optimizer'])}: {config['shape']}, d_model "
        f"{config['d_model']}, {config['num_steps']} steps of {config['batch_size']} x {config['num_tokens']} tokens, "
        f"{seeds}"
    )


def rest(config: Mapping[str, Any]) -> str:
    """What the title does not say."""
    parts = [f"{config['num_heads']} heads", f"FFN {config['ffn_ratio']} d_model", config["activation"]]
    parts += [config["norm_kind"], config["precision"]]
    schedule = config["schedule"]
    if config["warmup_steps"]:
        start = f" from {config['warmup_from']:g}" if config["warmup_from"] else ""
        schedule = f"warmup of {config['warmup_steps']} steps{start}, then {schedule}"
    parts.append(f"learning rate: {schedule}")
    parts += [f"weight decay {config['weight_decay']:g}"] if config["weight_decay"] else []
    parts += [] if config["clip_norm"] is None else [f"gradient clipped at {config['clip_norm']:g}"]
    return "; ".join(parts)


# ---------------------------------------------------------------- tables


def _place(answer: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[str, ...]:
    """The first cells of a line; the optimizer where there are several."""
    optimizer = [row["optimizer"]] if _has_optimizers(answer) else []
    return (row["scheme"], *optimizer, _layers(row), f"{row['learning_rate']:g}")


def _layers(row: Mapping[str, Any]) -> str:
    return "-".join(str(row[name]) for name in ("num_layers", "num_decoder_layers") if name in row)


def _has_optimizers(answer: Mapping[str, Any]) -> bool:
    return len({row["optimizer"] for row in answer["rows"]}) > 1


def _table(answer: Mapping[str, Any], *columns: str) -> Any:
    from rich.table import Table

    table = Table(padding=0)  # 80 columns are few for so many numbers
    names = ["scheme", "optimizer"] if _has_optimizers(answer) else ["scheme"]
    for name in names:
        # Of a fixed width: where a line is too long, numbers are wrapped before names.
        longest = max(len(text) for text in (name, *(row[name] for row in answer["rows"])))
        table.add_column(name, width=longest, overflow="fold")
    for name in ("layers", "rate", *columns):
        table.add_column(name, justify="right", overflow="fold")
    return table


def _outcomes(answer: Mapping[str, Any]) -> Any:
    table = _table(answer, "trained", "stuck", "diverged", "held-out")
    for row in answer["rows"]:
        share = row["trained"]
        trained = "-"
        if share is not None:
            trained = rf"{share['successes']} of {share['num']} \[{share['low']:.2g}, {share['high']:.2g}]"
        others = [str(row["outcomes"][name]) if row["num_runs"] else "-" for name in ("stuck", "diverged")]
        table.add_row(*_place(answer, row), trained, *others, _mean(row["held_out"]))
    return table


def _updates(answer: Mapping[str, Any]) -> Any:
    table = _table(answer, "step", "update", "of its start", "logits moved")
    for row in answer["rows"]:
        for index, one in enumerate(row["updates"]):
            place = _place(answer, row)
            cells = (_mean(one["update"], ends=False), _mean(one["ratio"]), _mean(one["from_start"], ends=False))
            table.add_row(
                *(place if index == 0 else [""] * len(place)),
                str(one["step"]),
                *cells,
                end_section=len(row["updates"]) > 1 and index == len(row["updates"]) - 1,
            )
    return table


def _mean(found: Mapping[str, Any] | None, *, ends: bool = True) -> str:
    if found is None:
        return "-"
    has_ends = ends and found["low"] is not None and found["low"] < found["high"]
    return f"{found['mean']:.3g}" + (rf" \[{found['low']:.2g}, {found['high']:.2g}]" if has_ends else "")


# ---------------------------------------------------------------- words

_UPDATES = (
    "update: what a step of the branch matrices changes a logit of held-out data by, to first order, per unit "
    "learning rate, in the unit of `depthlaw measure`; then its ratio to that at step 0, and how far (rms) the logits "
    "have moved. Means over seeds."
)


def _meaning(answer: Mapping[str, Any]) -> Iterator[str]:
    data, patience = answer["data"], answer["config"]["patience"]
    yield (
        f"Losses in nats a label: {data['guess']:.4g} without looking at the input, {data['uniform']:.4g} by a uniform "
        f"guess of {data['num_classes']}. Held-out: means of the runs that did not diverge. [ ]: 95 % intervals, of "
        "shares the exact one."
    )
    yield (
        f"trained: the held-out loss ends below {data['guess']:.4g}. diverged: the training loss is not finite, or "
        f"stands above the held-out loss at the start for {patience} steps running (the first {patience} not counted), "
        "or the held-out loss ends above it. stuck: neither."
    )


def _diverged(answer: Mapping[str, Any]) -> Iterator[str]:
    lines = [
        f"{row['scheme']} under {row['optimizer']} at {row['learning_rate']:g}, {_layers(row)} layers, seed "
        f"{one['seed']}, diverged after {one['num_steps']} steps: {one['reason']}."
        for row in answer["rows"]
        for one in row["diverged"]
    ]
    yield from lines[:_SHOWN_DIVERGED]
    if len(lines) > _SHOWN_DIVERGED:
        yield f"{len(lines) - _SHOWN_DIVERGED} more diverged: --json has them."


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    found = answer["sweep"]
    text = f"Runs: {found['done']} done now, {found['found']} found."
    if found["failed"]:
        text += f" Failed: {len(found['failed'])}, which the same command tries again."
    if found["left"]:
        text += f" Left when the budget was spent: {found['left']}; the same command goes on with them."
    yield text
