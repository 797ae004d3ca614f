"""``depthlaw watch``: what the steps of a training run moved, role by role, and beside a run at another depth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from depthlaw.cli.shared import options
from depthlaw.cli.shared.options import MORE, REQUIRED, BadInputError, argument, option, refusing
from depthlaw.cli.shared.output import number_of, print_json, say
from depthlaw.system.files import document
from depthlaw.system.page import Page, grid

if TYPE_CHECKING:
    from depthlaw.watching.compare import By, Comparison
    from depthlaw.watching.record import Run

EXAMPLES = (
    "watch run12.jsonl",
    "watch run12.jsonl run48.jsonl",
    "watch run12.jsonl run48.jsonl --by tokens --plot both.svg",
    "watch run12.jsonl run48.jsonl --follow",
)
_POLLED = 1.0
"""Seconds between two looks at files that are followed."""


def run(
    first: str = argument(
        "The file of a run, which `depthlaw.watch` has written.", "RUN", REQUIRED, complete=lambda incomplete: []
    ),
    second: str | None = argument(
        "The file of another run, of more layers for instance, which is held beside the first.",
        "[OTHER]",
        complete=lambda incomplete: [],
    ),
    by: str = option("What the runs are compared at equal numbers of", "steps", known=options.WATCHED_BY),
    plot: Path | None = option(
        "Draw what each step moved, by role, to a .png, .svg or .pdf file.", None, MORE, suffixes=options.FIGURES
    ),
    follow: bool = option(
        "Go on as long as the runs are being written, and show each new look; wait for a file that is not there yet.",
        None,
        MORE,
    ),
    as_json: bool = options.JSON,
) -> None:
    """Show what each step of a training run moved, by role; of two runs, which roles of the second move further.

    A file is written by your own training loop: `depthlaw.watch(model,
    optimizer, probe=batch, to="run12.jsonl")`, and `watch.step()` behind each
    step. Of one run the answer says what its last step moved in the logits, and
    how that has changed since the first look. Of two runs it says how many
    times as far a step of the second one moves them, role by role, and in which
    steps. The JSON document has all looks of the runs and, of two, each role's
    pairs of looks and the parts of the run in which they say the same.
    """
    if follow and as_json:
        raise BadInputError("--follow and --json do not go together: the JSON document is of the runs as they are")

    from depthlaw.watching.compare import compare, described, document_of
    from depthlaw.watching.record import NothingYetError, Run

    paths = [path for path in (first, second) if path is not None]

    def answer(is_waiting: bool) -> bool:
        """Whether there was something to show."""
        try:
            with refusing():
                runs = [Run.read(path) for path in paths]
                comparison = compare(runs[0], runs[1], cast("By", by)) if len(runs) > 1 else None
                verdict = comparison.verdict if comparison else described(runs[0])
        except BadInputError as error:
            if is_waiting and isinstance(error.__cause__, NothingYetError):
                return False
            raise
        if plot is not None:
            from depthlaw.paper_checks.pages.watch_plots import draw

            draw(runs, comparison.names if comparison else [runs[0].header.layers], plot, cast("By", by))
        if as_json:
            print_json(document(**(comparison.document() if comparison else document_of(runs[0]))))
            return True
        page = Page()
        if follow:
            page.console.clear()
        _show(page, runs, comparison, verdict)
        page.wrote(plot)
        return True

    if follow:
        _follow(paths, answer)
    else:
        answer(False)


def _follow(paths: Sequence[str], answer: Callable[[bool], bool]) -> None:
    """Answer for each new look, until nobody writes the files any more; before, until all of them are there."""
    from depthlaw.watching.record import is_being_written

    if missing := [path for path in paths if not Path(path).exists()]:
        say(f"no file {' and '.join(missing)} yet; waiting for it, until Ctrl-C")
        while not all(Path(path).exists() for path in paths):
            time.sleep(_POLLED)
    sizes: list[int] = []
    has_told = False
    while True:
        goes_on = any([is_being_written(path) for path in paths])  # before the files are read: what comes last is seen
        now = [Path(path).stat().st_size for path in paths]
        if now != sizes and not answer(goes_on) and not has_told:
            say("no look yet; waiting for the first")
            has_told = True
        if not goes_on:
            return
        sizes = now
        time.sleep(_POLLED)


# ---------------------------------------------------------------- for people


def _show(page: Page, runs: Sequence[Run], comparison: Comparison | None, verdict: Sequence[str]) -> None:
    for run in runs:
        header, last = run.header, run.looks[-1].step
        optimizers = header.trained_by + "".join(
            f" (from step {new.start:,} {new.trained_by})"
            for old, new in pairwise((header, *run.later))
            if new.trained_by != old.trained_by
        )
        page.say_where(
            f"{run.path}: {header.module} of {header.layers}, d_model {header.d_model}, {optimizers}; "
            f"{number_of(len(run.looks), 'look')}, the last at step {last:,}",
            "dim",
        )
    from depthlaw.watching.compare import ALIKE, WHOLE, predicted_of

    for line in verdict:
        page.say(line, "bold" if line == verdict[0] else None)
    page.show_whole([_beside_table(comparison) if comparison else _alone_table(runs[0])])
    if any(predicted_of(run, WHOLE) for run in runs):
        page.say(
            "First predicted: of the first step, from a batch whose labels have nothing in common up to one whose "
            "tokens all pull alike; embeddings are not predicted.",
            "dim",
        )
    if comparison:
        page.say(
            f"Cells: how many times as far one step of {comparison.names[1]} moves the logits of its probe as one of "
            f"{comparison.names[0]} (root mean square; a role: by its part of the step). Alike: within {ALIKE} times. "
            "share: of the change in the second run.",
            "dim",
        )
        if any(pair.is_between for pair in comparison.whole.pairs):
            page.say("Between two looks of the first run: the line through them, the change being logarithmic.", "dim")
        if comparison.has_other_probe:
            page.say("The runs were watched on different probes: only large ratios mean something.")
        if losses := comparison.losses:
            page.say(losses)
    else:
        page.say(
            "Cells: what one step moves the logits of the probe by (root mean square; a role: by its part of the "
            "step). share: of that, over all looks.",
            "dim",
        )


def _beside_table(comparison: Comparison) -> Any:
    from depthlaw.watching.compare import columns

    rows = [comparison.whole, *(role for role in comparison.roles if role.matters)]
    places = columns([pair.at for pair in comparison.whole.pairs])
    times = [{pair.at: pair.times for pair in row.pairs} for row in rows]
    return _table(
        comparison.by,
        places,
        [
            (row.role, row.share[1], row.predicted, [by_place.get(place) for place in places])
            for row, by_place in zip(rows, times, strict=True)
        ],
    )


def _alone_table(run: Run) -> Any:
    from depthlaw.watching.compare import MATTERS, WHOLE, change_of, columns, predicted_of, roles_of, share_of

    share = {role: share_of(run, role) for role in roles_of(run)}
    roles = [WHOLE, *sorted((role for role in share if share[role] >= MATTERS), key=lambda role: -share[role])]
    looks = {look.step: look for look in run.taken}
    places = columns([*looks])
    return _table(
        "steps",
        places,
        [
            (role, share.get(role, 1.0), predicted_of(run, role), [change_of(looks[place], role) for place in places])
            for role in roles
        ],
    )


def _table(
    by: str,
    places: Sequence[int],
    rows: Sequence[tuple[str, float, tuple[float, float] | None, Sequence[float | None]]],
) -> Any:
    """Where something was predicted of the first step, a column has it before what was measured."""
    from depthlaw.watching.compare import between

    is_predicted = any(predicted for _, _, predicted, _ in rows)
    heads = ["role", "share", *["first predicted"] * is_predicted]
    heads += [f"step {at:,}" if by == "steps" else f"{at:,} tokens" for at in places]
    lines = [
        [
            role,
            f"{100 * share:.0f} %",
            *["-" if predicted is None else between(predicted)] * is_predicted,
            *("-" if cell is None else f"{cell:.3g}" for cell in cells),
        ]
        for role, share, predicted, cells in rows
    ]
    return grid(heads, lines, texts=["role"])
