"""What is built: residual streams, sublayers, norms and the role of each parameter, read from one forward pass.

Nothing goes by names. A residual stream is the chain of values that every way from the data to the output passes. A
sublayer is a stretch of it with a way round: x' = a x + b F(x). ``branch`` reads F: what writes to the stream is an
output matrix, and what is multiplied with what in an attention says which matrices are queries, keys and values.
It is one module, since it is one look: its class says why that is one thing.
"""

from __future__ import annotations

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from depthlaw.auditing.inputs import Inputs, first_output
from depthlaw.auditing.reading.branch import Branch, Part
from depthlaw.auditing.reading.functions import name_functions
from depthlaw.auditing.reading.graph import (
    ADDS,
    CONVOLUTION,
    GATES,
    MULTIPLES,
    Flow,
    Node,
    NoDerivativeError,
    Values,
    is_a,
    node_of,
    shape_of,
    tensors_in,
)
from depthlaw.auditing.reading.norms import Norms
from depthlaw.auditing.reading.rest import LOOK_UPS, Rest
from depthlaw.auditing.reading.sides import Owners, Side
from depthlaw.auditing.reading.stream import Streams, Stretch, Term
from depthlaw.auditing.reading.sublayer import Sublayer, num_in_front, with_factors, with_layers, with_post
from depthlaw.auditing.reading.weights import Weight, gates_completed, without_role

__all__ = ["Built", "Sublayer", "Weight", "look"]


@dataclass(frozen=True, kw_only=True)
class Built:
    """A module as it is.

    sides: its sublayers, by "encoder" and "decoder" (a module of one stream has an encoder); streams that share their
    attentions, as SD3's of text and image, are side by side, each by the name of what the module is given. final:
    whether a norm stands behind the last sublayer of each side, but of streams that another goes on with. norm_kind:
    layernorm, rmsnorm, dyt or derf, that of most norms of the stream. others: role by name of parameters that are no
    matrix of a branch: embedding, positions, head, norm_gain and norm_bias (of the stack's norms), bias, layer_scale,
    branch_weight, modulation, router or other. biases: by name, the roles of the matrix that each belongs to. unused:
    names of parameters that the pass did not use. tied: names of embeddings that are the head as well. long_skips: a
    line for each kind of skip that goes round more than one sublayer; the sublayers are read without these; joined: a
    line for each that is put beside the later value instead of added to it. unread: what could not be read, a line
    each. start_value: the stream before the first sublayer. starts_normed: sides on whose stream a norm stands before
    the first sublayer. serial: by side, the matrices that stand on the stream itself, with no residual connection round
    them. conditions: names of what the module is given that scales, shifts or gates its branches. visits: how often its
    layers are gone through with the same weights, where that is meant: then the sublayers of all visits are there.
    """

    module: nn.Module
    flow: Flow
    inputs: Inputs
    sides: Mapping[str, Sequence[Sublayer]]
    final: Mapping[str, bool]
    norm_kind: str | None
    others: Mapping[str, str]
    d_model: int
    unread: Sequence[str] = ()
    start_value: Tensor | None = field(default=None, repr=False)
    biases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unused: Sequence[str] = ()
    tied: Sequence[str] = ()
    long_skips: Sequence[str] = ()
    joined: Sequence[str] = ()
    starts_normed: frozenset[str] = frozenset()
    serial: Mapping[str, Sequence[str]] = field(default_factory=dict)
    conditions: Sequence[str] = ()
    is_side_by_side: bool = False
    visits: int = 1

    @property
    def has_decoder(self) -> bool:
        """Whether it has two stacks, of which one reads the other."""
        return len(self.sides) > 1 and not self.is_side_by_side

    @property
    def sublayers(self) -> list[Sublayer]:
        return [sublayer for side in self.sides.values() for sublayer in side]

    @property
    def weights(self) -> list[Weight]:
        return [weight for sublayer in self.sublayers for weight in sublayer.weights]

    @cached_property
    def not_finite(self) -> Sequence[str]:
        """Names of parameters that start at numbers that are not finite."""
        return [name for name, parameter in self.module.named_parameters() if not parameter.isfinite().all()]

    @cached_property
    def final_norms(self) -> frozenset[str]:
        """Names of the gains and biases of the norms behind the last sublayer of a side."""
        ends = [sublayers[-1].end for side, sublayers in self.sides.items() if self.final[side]]
        behind, flow = self.flow.reached(ends), self.flow
        norms = [name for name, role in self.others.items() if role in ("norm_gain", "norm_bias")]
        return frozenset(name for name in norms if behind & {*flow.next(flow.leaves[name], flow.active.__contains__)})

    @property
    def matrices(self) -> list[Weight]:
        """The weights, each matrix once that several sublayers have in one role."""
        firsts: dict[Any, Weight] = {}
        for weight in self.weights:
            firsts.setdefault((weight.side, weight.role, weight.entries), weight)
        return list(firsts.values())

    @property
    def seen_visits(self) -> int:
        """How often one pass goes through all layers of every side, in turn, with the same weights; 1 where it does
        not, or where layers are several times there within one visit."""
        seen = {_visits_of(sublayers) for sublayers in self.sides.values()}
        return seen.pop() if len(seen) == 1 else 1

    @property
    def shared(self) -> list[str]:
        """Names of matrices that several sublayers use."""
        users = Counter(name for sub in self.sublayers for name in {weight.name for weight in sub.weights})
        return [name for name, number in users.items() if number > 1]

    @property
    def has_experts(self) -> bool:
        """Whether FFNs are mixtures: a router chooses, or several matrices have one role."""
        ffns = [
            weight for sub in self.sublayers if sub.kind in ("ffn", "parallel") for weight in sub.roles.get("fc2", ())
        ]
        return "router" in self.others.values() or any(w.expert or w.num_matrices > 1 for w in ffns)

    def unused_in_training(self, names: Sequence[str]) -> list[str]:
        """Those of the unused parameters that a pass in training mode does not use either; none where there is no such
        pass."""
        try:
            module = copy.deepcopy(self.module).train()
            parameters = dict(module.named_parameters())
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                output = first_output(self.inputs.call(module)).sum()
            wanted = [parameters[name].requires_grad_() for name in names]
            gradients = torch.autograd.grad(output, wanted, allow_unused=True)
        except Exception:  # whatever a module of somebody else raises there
            return []
        return [name for name, gradient in zip(names, gradients, strict=True) if gradient is None]

    def of_other_draws(self, module: nn.Module, inputs: Inputs) -> Built:
        """What is read of a module that differs in its draws alone, so that it need not be looked at: ``flow`` stays
        that of the first, and what is told of values is, too. A module of other parameters is looked at."""
        parameters = dict(module.named_parameters())
        mine = dict(self.module.named_parameters())
        if parameters.keys() != mine.keys() or any(parameters[name].shape != mine[name].shape for name in mine):
            return look(module, inputs)
        sides = {
            side: [
                replace(sub, weights=tuple(replace(w, parameter=parameters[w.name]) for w in sub.weights))
                for sub in sublayers
            ]
            for side, sublayers in self.sides.items()
        }
        return replace(self, module=module, inputs=inputs, sides=sides)

    def num_layers(self, side: str) -> int:
        """Blocks of a side; of streams side by side those of the longest, since the last block leaves the others be."""
        sublayers = self.sublayers if self.is_side_by_side else self.sides[side]
        return max(sublayer.layer for sublayer in sublayers)


def _visits_of(sublayers: Sequence[Sublayer]) -> int:
    matrices = [frozenset(weight.entries for weight in sub.weights) for sub in sublayers]
    visits = matrices.count(matrices[0])
    size, rest = divmod(len(matrices), visits)
    first = matrices[:size]
    is_loop = not rest and matrices == first * visits and len(frozenset().union(*first)) == sum(map(len, first))
    return visits if is_loop else 1


def look(module: nn.Module, inputs: Inputs) -> Built:
    """Run the module once, in evaluation mode, and read it. Nothing of the module is changed.

    ValueError, in one line, where it has no residual stream, or one whose last dimension is not the width.
    """
    reader = _Look(module, inputs)
    try:
        built = reader.built()
        if not reader.learned:
            return built
        try:
            again = _Look(module, inputs, reader.learned, reads_on=bool(reader.num_read)).built()
        except ValueError:  # no stream begins there either
            return built
        has_cross = any(sub.kind == "cross" for sub in again.sublayers)
        return again if not reader.num_read or (has_cross and again.has_decoder) else built
    except NoDerivativeError as error:
        raise ValueError(reader.without_derivative(error)) from error


class _Look:
    """One look at a module, from its forward pass to what was built.

    It is one class, since what is left out, joined or told at one step of the reading is asked at the next. learned:
    the names of parameters that the stream begins with, where those are no data: the latent tokens of a Perceiver,
    which read the data in cross-attentions, or the queries of a decoder that read its encoder (reads_on). num_read: how
    many sublayers were read before these.
    """

    def __init__(
        self, module: nn.Module, inputs: Inputs, learned: Sequence[str] = (), *, reads_on: bool = False
    ) -> None:
        self.module, self.inputs = module, inputs
        self.starts_normed: set[str] = set()
        self.serial: dict[str, list[str]] = {}
        self.joined: list[str] = []
        self.told: set[str] = set()
        self.left_out: set[Node] = set()
        self.before = ""
        data = {
            name: tensor.detach().clone().requires_grad_(tensor.is_floating_point())
            for name, tensor in inputs.data.items()
        }
        self.made: dict[Node, str] = {}
        """By what a part of the module gave, the innermost part."""
        with _as_it_was(module), self._parts_kept(), torch.enable_grad(), Values() as values:
            module.eval()
            for parameter in module.parameters():
                parameter.requires_grad_(parameter.is_floating_point())
            output = first_output(inputs.call(module, data))
        self.begins_with, self.learned, self.num_read = () if reads_on else learned, list[str](), 0
        self.starts = _starts(output, data) if output.grad_fn is not None else {}
        parameters = dict(module.named_parameters())
        self.starts |= {name: [node_of(parameters[name])] for name in learned}
        self.flow = Flow(module, output, [node for nodes in self.starts.values() for node in nodes], values.by_edge)
        self.conditions = self._conditions() if len(self.starts) > 1 else {}
        if self.conditions:
            self.starts = {name: nodes for name, nodes in self.starts.items() if name not in self.conditions}
            given, others = (
                [n for nodes in by_name.values() for n in nodes] for by_name in (self.starts, self.conditions)
            )
            self.flow = Flow(module, output, given, values.by_edge, others)
        self.owners = Owners(self.flow, self.starts)
        self.norms = Norms(self.flow)
        self.streams = Streams(self.flow, self.norms)
        self.unread = self.streams.unread
        if not self.starts:
            raise ValueError(
                f"the output of {type(module).__name__} does not depend on what it was given "
                f"({', '.join(inputs.data)}) by what autograd sees"
            )

    @contextmanager
    def _parts_kept(self) -> Iterator[None]:
        """Keep which part of the module made what: it gave it, or it handed it to a part of its own."""
        running: list[str] = [""]

        def keep(values: Any) -> None:
            for tensor in tensors_in(values):
                if tensor.grad_fn is not None:
                    self.made.setdefault(tensor.grad_fn, running[-1])

        def enter(name: str, _: nn.Module, given: Any) -> None:
            keep(given)
            running.append(name)

        def leave(_: nn.Module, __: Any, answer: Any) -> None:
            keep(answer)
            running.pop()

        hooks = [
            hook
            for name, part in self.module.named_modules()
            if name
            for hook in (part.register_forward_pre_hook(partial(enter, name)), part.register_forward_hook(leave))
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def without_derivative(self, error: NoDerivativeError) -> str:
        """In words, of which part of the module a function has none."""
        near = [error.node] if error.node in self.made else self.flow.next(error.node, self.made.__contains__)
        name = self.made[near[0]] if near else ""
        part = f"{name} ({type(self.module.get_submodule(name)).__name__})" if name else type(self.module).__name__
        return (
            f"the audit cannot read {part}: a derivative was looked for, as of each function between the input and the "
            f"output, and found was that the backward pass of {error.node.name().removesuffix('Backward')} fails, "
            f"{error.reason}"
        )

    def _conditions(self) -> dict[str, list[Node]]:
        """By name, what the module is given besides its stream, where that is made neither of several of its values, as
        in an attention, nor of sublayers: times of diffusion, classes, the styles of adaLN or FiLM.

        Streams are of what branches are added to that are made of other things, too; where there is none, of what has
        most operations that all ways to the output pass.
        """
        flow, sums = self.flow, Owners(self.flow, self.starts).sums
        reach = {name: flow.reached(nodes) for name, nodes in self.starts.items()}
        main = max(self.starts, key=lambda name: (sums[name], len(flow.chain(self.starts[name], [flow.end]))))
        of_streams = frozenset[Node]().union(*(reach[name] for name in self.starts if sums[name] or name == main))
        conditions = {}
        for name in self.starts:
            only_there = reach[name] - of_streams
            meets = {user for node in only_there for user in flow.users(node) if user in of_streams}
            mixes = any(operand in only_there for node in flow.products for operand in flow.operands(node))
            joins = bool(meets) and all(is_a(node, (*ADDS, *MULTIPLES)) for node in meets)
            if joins and not mixes and len(meets) > 1:
                conditions[name] = self.starts[name]
        return conditions

    # ------------------------------------------------------------ the whole

    def built(self) -> Built:
        name_functions(self.flow)
        sides: dict[str, list[Sublayer]] = {}
        final: dict[str, bool] = {}
        for side in self._sides():
            with side.apart(self.flow):
                sublayers, is_final = self._side(side)
            if sublayers:
                sides[side.name] = sublayers
                final |= {side.name: is_final} if not side.is_joined else {}
        if not sides:
            reason = self.unread[0] if self.unread else "nothing in it is added to what it was made of, as in x + F(x)"
            reason = reason if len(self.starts) > 1 else reason.removeprefix("encoder: ")
            raise ValueError(f"{type(self.module).__name__} has no residual stream that can be read: {reason}")
        has_cross = any(sub.kind == "cross" for sub in sides.get("decoder", ()))
        if len(sides) > 1 and not has_cross and not self.serial and not self.owners.are_side_by_side:
            self.unread.append(
                f"{' and '.join(self.starts)} go through towers that meet at the end: audit each tower by itself"
            )
        if (shape := self._channels_first(sides)) is not None:
            raise ValueError(
                f"matrices write to the second dimension of the stream of {type(self.module).__name__}, which is "
                f"{' x '.join(map(str, shape))}, as in a convolutional network or an MLP-Mixer: the audit reads "
                "streams whose last dimension is the width"
            )
        firsts = [sublayers[0].start for sublayers in sides.values()]
        is_side_by_side = self.owners.are_side_by_side and len(sides) > 1
        starts = {node for nodes in self.starts.values() for node in nodes}
        rest = Rest(self.flow, self.norms, sides, starts, self.left_out)
        self._tell_of_matrices(rest)
        return Built(
            module=self.module,
            flow=self.flow,
            inputs=self.inputs,
            sides=sides,
            final=final,
            norm_kind=self.norms.kind,
            others=rest.roles,
            d_model=shape_of(firsts[0])[-1],
            unread=self.unread,
            start_value=self._values(firsts if is_side_by_side else firsts[:1]),
            biases=rest.biases,
            unused=[name for name, _ in self.module.named_parameters() if name not in self.flow.parameters],
            tied=rest.tied,
            long_skips=list(dict.fromkeys(self.streams.long_skips)),
            joined=self.joined,
            starts_normed=frozenset(self.starts_normed),
            serial=self.serial,
            conditions=tuple(self.conditions),
            is_side_by_side=is_side_by_side,
        )

    def _values(self, nodes: Sequence[Node]) -> Tensor | None:
        """What these gave, the tokens of one behind those of the other."""
        values = [value for node in nodes if (value := self.flow.value((node, 0))) is not None]
        return torch.cat(values, 1) if len(values) > 1 else next(iter(values), None)

    def _channels_first(self, sides: Mapping[str, Sequence[Sublayer]]) -> tuple[int, ...] | None:
        """The shape of a stream to whose second dimension output matrices write, and not to its last; else None."""
        flow = self.flow
        for sub in (sub for sublayers in sides.values() for sub in sublayers):
            shape, names = shape_of(sub.end), {weight.name for weight in sub.weights}
            outs = {weight.shape[0] for weight in sub.weights if weight.role in ("out", "cross_out", "fc2")}
            within = flow.between(sub.start, sub.end)
            convolves = any(is_a(node, (CONVOLUTION,)) and flow.matrices.get(node) in names for node in within)
            if len(shape) > 2 and outs == {shape[1]} and (shape[1] != shape[-1] or convolves):
                return shape
        return None

    def _tell_of_matrices(self, rest: Rest) -> None:
        if names := sorted({pattern_of(name) for name in rest.matrices if name not in self.told}):
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self.unread.append(f"matrices inside branches that have no role of their own: {', '.join(names[:3])}{more}")

    def _sides(self) -> Iterator[Side]:
        """Encoder and decoder, or streams side by side."""
        flow = self.flow
        reach = {name: flow.reached(nodes) for name, nodes in self.starts.items()}
        names = sorted(self.starts, key=lambda name: -len(reach[name]))
        if self.begins_with:
            name = self.begins_with[0]
            yield Side(name="encoder", starts=self.starts[name], ends=[flow.end], nodes=reach[name])
            return
        if len(names) == 1:
            starts = self._entries(self.starts[names[0]])
            yield Side(name="encoder", starts=starts, ends=[flow.end], nodes=reach[names[0]])
            return
        if self.owners.are_side_by_side:
            yield from self.owners.sides()
            return
        decoder = next((name for name in names if self.owners.sums[name]), names[-1])
        encoder = next(name for name in names if name != decoder)
        of_encoder = reach[encoder] - reach[decoder]
        borders = [node for node in of_encoder if any(user in reach[decoder] for user in flow.users(node))]
        if borders:
            yield Side(name="encoder", starts=self.starts[encoder], ends=borders, nodes=of_encoder)
        yield Side(name="decoder", starts=self.starts[decoder], ends=[flow.end], nodes=reach[decoder])

    def _entries(self, starts: Sequence[Node]) -> Sequence[Node]:
        """Where the data come into the stream: of several look-ups of the same tokens one may do so, and the others
        into branches, as tables of values that attentions are given, too. ValueError where sublayers would be lost."""
        flow = self.flow
        if len(starts) == 1:
            return starts
        chains = {
            start: chain
            for start in (tuple(starts), *((n,) for n in starts))
            if (chain := flow.chain(start, [flow.end]))
        }
        lost = {
            start: [node for node in flow.products if flow.between(node, chain[0])] for start, chain in chains.items()
        }
        if not any(lost.values()):
            return starts
        best = max(chains, key=self._num_sums)
        if lost[best]:
            near = flow.nearest(lost[best][0], flow.matrices.__contains__, flow.active)
            what = f"an attention with {flow.matrices[near[0]]}" if near else "an attention"
            raise ValueError(
                f"{type(self.module).__name__} has no residual stream that can be read from its beginning: what it is "
                f"given comes in at {len(starts)} places, and {what} stands before the first value that is made of all"
            )
        return best

    def _num_sums(self, starts: Collection[Node]) -> int:
        """How many sublayers a stream would have that begins there."""
        flow, before = self.flow, set(self.flow.cuts)
        parts = Streams(flow, self.norms).stretches("", starts, [flow.end], flow.reached(starts))
        for cut in flow.cuts - before:
            flow.restore(*cut)
        return sum(bool(part.terms) for part in parts)

    # ------------------------------------------------------------ one side

    def _side(self, of: Side) -> tuple[list[Sublayer], bool]:
        """Its sublayers, and whether a norm stands behind the last of them."""
        side = of.name
        stretches = self.streams.stretches(side, of.starts, of.ends, of.nodes)
        sublayers: list[Sublayer] = []
        num_norms_behind: list[int] = []
        factors: list[float] = []
        gap: list[Stretch] = []
        for stretch in [*stretches, None]:
            if stretch is not None and not stretch.terms:
                gap.append(stretch)
                continue
            self._tell_of_serial(side, gap, len(sublayers), is_last=stretch is None)
            bare = list(takewhile(lambda part: not self.streams.has_matrices(part), gap))
            if stretch is None and self.streams.begins_anew(gap):
                bare = [part for part in gap if not self.streams.has_matrices(part)]
            if len(bare) < len(gap) and stretch is not None and self.streams.changes_width(gap):
                bare = []
            is_norm_here = self.norms.stands_in({node for part in bare for node in part.inside}, counts=True)
            factors.append(self.streams.factor_of(bare, is_behind_norm=not sublayers))
            if not sublayers and is_norm_here:
                self.starts_normed.add(side)
            if sublayers:
                number = sum(self.norms.stands_in(part.inside) for part in bare)
                num_norms_behind.append(max(number, int(is_norm_here)))
            if stretch is not None:
                sublayers.append(self._sublayer(side, len(sublayers) + 1, stretch))
                self.before = sublayers[-1].called
                gap = []
        stem = num_in_front(sublayers)
        if stem and num_norms_behind[stem - 1]:
            self.starts_normed.add(side)
        for sub in sublayers[:stem]:
            names = ", ".join(dict.fromkeys(pattern_of(weight.name) for weight in sub.weights))
            self.unread.append(f"{side}: what {names} adds to the stream stands in front of the layers, and is none")
        sublayers = [replace(sub, index=sub.index - stem) for sub in sublayers[stem:]]
        num_norms_behind, factors = num_norms_behind[stem:], factors[stem:]
        placed, is_final = with_post(with_layers(with_factors(sublayers, factors)), num_norms_behind)
        return [*map(self._with_growth, placed, [*placed[1:], None])], is_final

    def _with_growth(self, sub: Sublayer, following: Sublayer | None) -> Sublayer:
        if following is None or "post" not in sub.norms:
            return sub
        within = self.flow.between(sub.end, following.start)
        growth = self.flow.growth(sub.end, (following.start, 0), within)
        return replace(sub, output_growth=growth, end_moment=mean_square(self.flow.value((sub.end, 0))))

    def _tell_of_serial(self, side: str, serial: Sequence[Stretch], index: int, *, is_last: bool) -> None:
        """Say where matrices stand on the stream itself, with no way round: a layer without residual connection.

        What changes the width is none: an embedding, a head, or the joining of patches.
        """
        inside = {node for stretch in serial for node in stretch.inside}
        names = [self.flow.matrices[node] for node in self.flow.sorted(inside) if node in self.flow.matrices]
        has_attention = any(node in self.flow.products for node in inside)
        where = "at the beginning" if not index else "behind the last sublayer" if is_last else f"behind {self.before}"
        if gates := self._gates_of_stream(serial):
            self.unread.append(
                f"{side}: {where} the stream itself is multiplied by a gate that is made of data ({gates[0]}), as in a "
                "highway network or GTrXL, where the audit reads a x + b F(x)"
            )
            return
        known = {pattern_of(name) for name in self.serial.get(side, ())}
        if is_last and (again := [name for name in names if pattern_of(name) in known]):
            names = again  # without the head
        elif not names or (not has_attention and (len(names) < 2 or index == 0 or self.streams.changes_width(serial))):
            return
        self.told.update(names)
        if has_attention and len(self.starts) == 1 and not self.learned:
            self.learned, self.num_read = self.streams.learned_beginnings(serial), index
        if index and self.streams.begins_anew(serial):
            self.unread.append(f"{side}: {where} a learned token reads the stream; that part is left out")
            attends = [any(node in self.flow.products for node in part.inside) for part in serial]
            parts = [part for place, part in enumerate(serial) if any(attends[place:])]
            self.left_out.update(node for part in parts for node in part.inside)
            return
        if any(self._joins(node, shape_of(serial[0].start)[-1]) for node in inside):
            self.joined.append(
                f"{side}: {where} an earlier value of the stream is put beside a later one, as in a U-Net or in a loop "
                "that is given its input again; what lies between the two is not read"
            )
            return
        what = f"{'an attention' if has_attention else 'matrices'} with {names[0]}"
        if any(map(self.streams.ways_round, serial)):  # sums there are, and none that all else passes
            self.unread.append(
                f"{side}: {where} no single stream goes round {what} (several streams side by side, or skips over many "
                "layers)"
            )
            return
        convolves = any(node in self.flow.matrices and is_a(node, (CONVOLUTION,)) for node in inside)
        if not convolves:  # what comes before a stream, as the backbone of a detector, has its own ways
            self.serial.setdefault(side, []).extend(names)
        self.unread.append(f"{side}: no residual connection round {what}, {where} (or several streams side by side)")

    def _joins(self, node: Node, width: int) -> bool:
        """Whether values as wide as the stream are put side by side."""
        active = [operand for operand, _ in self.flow.active_edges(node) if operand is not None]
        shapes = [shape_of(operand)[-1:] for operand in active]
        return is_a(node, ("CatBackward",)) and shapes == [(width,)] * 2 and shape_of(node)[-1:] == (2 * width,)

    def _gates_of_stream(self, serial: Sequence[Stretch]) -> list[str]:
        """Matrices of the gates of a sum of which one operand is the stream times data, as (1 - z) x + z F(x)."""
        flow, starts = self.flow, {part.start for part in serial}
        for node in flow.sorted(node for part in serial for node in part.inside):
            terms = [operand for operand, _ in flow.active_edges(node)]
            if is_a(node, ADDS) and len(terms) == 2:
                factors = [flow.active_edges(term) if is_a(term, MULTIPLES) else [] for term in terms]
            elif is_a(node, ("LerpBackward",)):
                factors = [flow.active_edges(node)]
            else:
                continue
            if any(len(operands) > 1 and starts & {operand for operand, _ in operands} for operands in factors):
                gates = flow.nearest(node, lambda part: is_a(part, GATES), flow.active)
                nearest = [flow.nearest(gate, flow.matrices.__contains__, flow.active) for gate in gates]
                return [flow.matrices[matrix] for matrices in nearest for matrix in matrices]
        return []

    # ------------------------------------------------------------ one sublayer

    def _sublayer(self, side: str, index: int, stretch: Stretch) -> Sublayer:
        flow, side_of = self.flow, partial(self._side_of, side)
        parts: list[Part] = []
        branches: list[Term] = []
        read: list[tuple[Term, Branch]] = []
        unread: list[str] = []
        for term in stretch.terms:
            if term.edge is None:
                continue
            inside = flow.between(stretch.start, term.edge[0])
            if not any(node in flow.matrices for node in inside):
                unread.append("a way from the stream without a matrix is left out")
                continue
            read.append((term, Branch(flow, self.norms, side_of, stretch.start, term.edge, inside)))
        outs = [out for _, branch in read for out in branch.outs]
        for term, branch in read:
            if branch.outs and all(branch.is_side_path(out, outs) for out in branch.outs):
                continue
            branches.append(term)
            parts.append(branch.read())
            unread += parts[-1].unread
        kinds = sorted({part.kind for part in parts})
        kind = kinds[0] if len(kinds) == 1 else "parallel" if kinds == ["attention", "ffn"] else "other"
        trained, entries = next(((term.trained, term.entries) for term in branches if term.trained), (None, 1))
        is_gated = any(term.is_gated for term in branches)
        value = [flow.value(term.edge) for term in branches[:1] if term.edge is not None]
        factor = branches[0].factor if branches else 0.0
        facts: dict[str, Any] = {}
        for part in parts:
            facts |= {name: fact for name, fact in part.facts.items() if fact is not None}
        weights = gates_completed([weight for part in parts for weight in part.weights])
        unread += without_role(weights)
        sub = Sublayer(
            side=side,
            index=index,
            kind=kind,
            residual_weight=sum(term.factor for term in stretch.terms if term.edge is None),
            branch_weight=factor,
            trained="gate" if is_gated else None if trained is None else "scalar" if entries == 1 else "vector",
            modulated=self._modulated(stretch),
            branch_parameter=trained,
            norms=frozenset().union(*(part.norms for part in parts)),
            weights=tuple(_numbered(weights)),
            second_moment=mean_square(flow.value((stretch.start, 0))),
            branch_rms=abs(factor) * math.sqrt(mean_square(value[0] if value else None)),
            start=stretch.start,
            end=stretch.end,
            **facts,
        )
        self.unread += [f"{side}, {sub.called}: {line}" for line in unread]
        return sub

    def _side_of(self, side: str, matrix: Node) -> str:
        """That of a matrix in a sublayer of a side: of streams side by side, that of what the matrix is given."""
        names = self.owners.of[matrix] if self.owners.are_side_by_side else ()
        return next(iter(names)) if len(names) == 1 else side

    def _modulated(self, stretch: Stretch) -> frozenset[str]:
        """Which of scale and shift conditions make of what the branches of a stretch are given."""
        flow = self.flow
        behind = flow.reached(node for node in stretch.inside if node in flow.matrices)
        ahead = [node for node in stretch.inside - behind if self.streams.is_conditioned(node)]
        kinds = ((MULTIPLES, "scale"), (("AddcmulBackward",), "scale"), (ADDS, "shift"))
        return frozenset(word for names, word in kinds if any(is_a(node, names) for node in ahead))


# ---------------------------------------------------------------- sublayers of one side, together


def _numbered(weights: Sequence[Weight]) -> Iterator[Weight]:
    """Those of one role as experts 0, 1, ..."""
    seen: Counter[str] = Counter()
    for weight in weights:
        yield replace(weight, expert=seen[weight.role])
        seen[weight.role] += 1


# ---------------------------------------------------------------- small things


def pattern_of(name: str) -> str:
    """The name of a parameter without the numbers of layers.

    >>> from depthlaw.auditing.reading.look import pattern_of
    >>> pattern_of("h.11.fc2.weight")
    'h.*.fc2.weight'
    """
    return re.sub(r"(?<![^.])[0-9]+(?![^.])", "*", name)


@contextmanager
def _as_it_was(module: nn.Module) -> Iterator[None]:
    """Put back what trains and which parts are in training mode."""
    trains = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for parameter, is_trained in trains:
            parameter.requires_grad_(is_trained)
        for part, mode in modes:
            part.training = mode


def _starts(output: Tensor, data: Mapping[str, Tensor]) -> dict[str, list[Node]]:
    """By the name of what the module was given, where it comes in; names of what is not used are left out."""
    starts: dict[str, list[Node]] = {name: [] for name in data}
    leaves = {node_of(tensor): name for name, tensor in data.items() if tensor.requires_grad}
    seen: set[Node] = {output.grad_fn}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        if node in leaves:
            starts[leaves[node]].append(node)
        elif is_a(node, LOOK_UPS):
            for name in _read_by(node, data):
                starts[name].append(node)
        for operand, _ in node.next_functions:
            if operand is not None and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return {name: nodes for name, nodes in starts.items() if nodes}


def _read_by(node: Node, data: Mapping[str, Tensor]) -> list[str]:
    """Names of the token ids that a look-up is of: those that it has in their order, or else in any order."""
    saved = getattr(node, "_saved_indices", None)
    read = [part for part in (saved if isinstance(saved, (tuple, list)) else (saved,)) if isinstance(part, Tensor)]

    def names(order: Callable[[Tensor], Tensor]) -> list[str]:
        return [
            name
            for name, ids in data.items()
            if any(part.dtype == ids.dtype and torch.equal(order(part), order(ids)) for part in read)
        ]

    return names(torch.flatten) or names(lambda ids: ids.flatten().sort().values)


def mean_square(value: Tensor | None) -> float:
    """nan where there is no value."""
    return math.nan if value is None else value.double().square().mean().item()
