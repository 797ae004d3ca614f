"""Where a module comes from: a factory of the user's own, by MODULE:NAME, or a configuration of Hugging Face's."""

from __future__ import annotations

import hashlib
import importlib
import math
import os
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import nn

from depthlaw.auditing.inputs import line_of
from depthlaw.recipes.catalogue import RECIPES

HF_WIDTH = 256
"""A Hugging Face model is built that narrow: laws of depth do not depend on the width."""
_UNIT = 4
"""Sizes are multiples of it: rotary positions want an even head, and products by expert rows of 16 bytes."""
_VOCABULARY = 512
_LAYERS = (
    *("num_hidden_layers", "num_layers", "num_decoder_layers", "encoder_layers", "decoder_layers"),
    *("n_layer", "n_layers"),
)
_WIDTHS = (
    *("hidden_size", "d_model", "n_embd", "intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim"),
    *("decoder_ffn_dim", "n_inner", "word_embed_proj_dim", "embedding_size", "moe_intermediate_size"),
)
_HEADS = (
    *("num_attention_heads", "num_heads", "n_head", "encoder_attention_heads", "decoder_attention_heads"),
    *("num_key_value_heads", "decoder_num_heads"),
)


def named(text: str, option: str, folder: str | None = None) -> Callable[..., Any]:
    """The function MODULE:NAME, its module imported from a folder (the working directory, if left out) or from where
    Python looks.

    ValueError, in one line, where there is no such module or function, or the module fails.
    """
    module_name, colon, name = text.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        raise ValueError(f"{option} is MODULE:NAME, such as mymodel:build, not {text!r}")
    here = folder or str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        hint = f"; write {module_name.removesuffix('.py')}:{name}" if module_name.endswith(".py") else ""
        raise ValueError(f"{option}: there is no module {error.name} (in {here} or installed){hint}") from None
    except Exception as error:  # whatever a module of somebody else raises
        text = str(error).splitlines()[0] if str(error) else "no message"
        raise ValueError(f"{option}: importing {module_name} failed: {type(error).__name__}: {text}") from error
    for part in name.split("."):
        try:
            target = getattr(target, part)
        except AttributeError:
            members = getattr(target, "__dict__", {})
            there = [key for key, value in members.items() if not key.startswith("_") and callable(value)]
            near = ", ".join((get_close_matches(part, there) or sorted(there))[:8])
            raise ValueError(f"{option}: {module_name} has no {part} (it has {near or 'no function'})") from None
        except Exception as error:  # a module may have a __getattr__ of its own
            raise ValueError(f"{option}: {module_name} has no {part}: {line_of(error)}") from error
    if not callable(target):
        raise ValueError(f"{option}: {text} is no function")
    return target


# ---------------------------------------------------------------- on the workers of a cluster

_importing = threading.Lock()
_audits: set[str] = set()
"""For which a worker has imported."""
_folders: dict[str, bool] = {}
"""That a worker has imported from, and whether Python looks there for that alone."""


@dataclass(frozen=True)
class Sent:
    """A function of the user's own, MODULE:NAME, for workers: code is not sent, they import it from the same folder.

    digests: of the files of the user's own that are loaded here, by module; those of a worker must be the same. audit:
    a name of this audit; a worker imports anew for each, so that an edited file is not run as it was before.
    """

    text: str
    option: str
    folder: str
    digests: tuple[tuple[str, str], ...]
    audit: str

    @classmethod
    def of(cls, text: str, option: str, audit: str) -> Sent:
        """Of a function that ``named`` has imported."""
        file = getattr(sys.modules[text.partition(":")[0].partition(".")[0]], "__file__", None)
        top = Path.cwd() / "any" if file is None else Path(file)  # a folder of modules has no file
        folder = str((top.parent if top.name == "__init__.py" else top).parent)
        return cls(text, option, folder, tuple(sorted(_digests(_own_files(folder)).items())), audit)

    def load(self) -> Callable[..., Any]:
        """In a worker. ValueError, in one line, where it cannot be imported there, or from other files."""
        with _importing:
            try:
                return _imported(self)
            except ValueError as error:
                raise ValueError(f"on the worker {socket.gethostname()}, {error}") from None


@lru_cache(maxsize=2)
def _imported(sent: Sent) -> Callable[..., Any]:
    if sent.audit not in _audits:
        _audits.add(sent.audit)
        _forget()
        _folders.setdefault(sent.folder, sent.folder not in sys.path)
    importlib.invalidate_caches()
    function = named(sent.text, sent.option, sent.folder)
    here = _digests({name: file for name, file in _files().items() if name in dict(sent.digests)})
    if other := [name for name, digest in sent.digests if here.get(name, digest) != digest]:
        raise ValueError(f"{sent.option}: the file of {other[0]} is another one (allowed: the one that is here)")
    return function


def _forget() -> None:
    """What earlier audits imported: an edited file is read anew, and two folders may have modules of one name."""
    for folder, is_added in _folders.items():
        for name in _own_files(folder):
            del sys.modules[name]
        if is_added and folder in sys.path:
            sys.path.remove(folder)


def _files() -> dict[str, str]:
    """The source files of the modules that are loaded."""
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return {name: file for name, file in files.items() if file is not None and file.endswith(".py")}


def _own_files(folder: str) -> dict[str, str]:
    """Those below a folder that are neither of Python, nor of an installed package, nor of this project."""
    installed = {Path(path) for path in sysconfig.get_paths().values() if path != sys.prefix}
    return {
        name: file
        for name, file in _files().items()
        if Path(file).is_relative_to(folder)
        and name.partition(".")[0] not in ("depthlaw", "__main__")
        and not installed & set(Path(file).parents)
    }


def _digests(files: Mapping[str, str]) -> dict[str, str]:
    return {name: hashlib.sha256(Path(file).read_bytes()).hexdigest() for name, file in files.items()}


def load_there(
    factory: Sent | None, hf: tuple[str, int | None] | None, inputs: Sent | None
) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """In a worker, the builder (a factory, or a Hugging Face model and its width) and what gives its input."""
    build = hugging_face(*hf)[0] if hf is not None else factory.load() if factory is not None else None
    assert build is not None
    return build, None if inputs is None else inputs.load()


# ---------------------------------------------------------------- Hugging Face


def _without_code(value: Any) -> Any:
    """A configuration without the names of code to fetch and run: of classes, and of kernels."""
    if isinstance(value, dict):
        left = {key: part for key, part in value.items() if key != "auto_map" and not key.endswith("_implementation")}
        return {key: _without_code(part) for key, part in left.items()}
    return [_without_code(part) for part in value] if isinstance(value, list) else value


def _narrow(config: Any, built_width: int, width: int) -> None:
    """Give a configuration another width than its own, with FFN and heads in proportion, and a small vocabulary."""
    others = set(config.attribute_map)  # second names of what stands under another one
    heads = [key for key in _HEADS if key not in others and isinstance(getattr(config, key, None), int)]
    fewest = min(getattr(config, key) for key in heads) if heads else 1
    shares = {key: max(1, getattr(config, key) // fewest) for key in heads}  # as many queries to a key as before
    unit = _UNIT * math.lcm(*shares.values())
    wanted = max(1, round(width / unit)) * unit
    factor = wanted / built_width
    for key in (key for key in _WIDTHS if key not in others):
        if isinstance(size := getattr(config, key, None), int):
            setattr(config, key, _UNIT * max(1, round(size * factor / _UNIT)))
    most = min(max(1, round(fewest * factor)), wanted)
    number = next(n for n in range(most, 0, -1) if all(wanted % (_UNIT * share * n) == 0 for share in shares.values()))
    for key, share in shares.items():
        setattr(config, key, share * number)
    if not hasattr(config, "vocab_size"):
        return
    config.vocab_size = min(config.vocab_size or _VOCABULARY, _VOCABULARY)
    for key in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"):
        if isinstance(token := getattr(config, key, None), int) and token >= config.vocab_size:
            setattr(config, key, 0)


def hugging_face(name: str, width: int | None = None) -> tuple[Callable[[int], nn.Module], str | None]:
    """A builder from a model type, such as gpt2, or a config.json; and the recipe that is read from the same code, or
    has the same name.

    Weights are random, nothing is downloaded. width: of the model, ``HF_WIDTH`` or less where nothing is said, with
    FFN and heads in proportion. ValueError, in one line, where transformers is not installed or knows no such model.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # some configurations name weights or kernels to fetch
    try:
        from transformers import AutoConfig, AutoModel
        from transformers.utils import logging
    except ImportError:
        raise ValueError("--hf wants Hugging Face's transformers: pip install transformers") from None
    logging.set_verbosity_error()  # it would remark on tokens that no layer has to do with
    path = Path(name)
    try:
        if path.suffix == ".json":
            import json

            values = _without_code(json.loads(path.read_text(encoding="utf-8")))
            if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
                raise ValueError("it has no model_type")
            config = AutoConfig.for_model(values.pop("model_type"), **values)
        else:
            config = AutoConfig.for_model(name)
    except OSError as error:
        raise ValueError(f"--hf: cannot read {path}: {error.strerror or line_of(error)}") from None
    except Exception as error:  # of many kinds, by what transformers checks
        text, _, known = (str(error) or "it is no configuration").partition(" Should contain one of ")
        near = get_close_matches(name, known.replace("\n", " ").split(", "))
        text = " ".join(text.split())[:160] + (f" Did you mean {' or '.join(near)}?" if near else "")
        raise ValueError(f"--hf: {name} is no model type or configuration of transformers: {text}") from None
    size_there = next(
        (size for key in ("hidden_size", "d_model", "n_embd") if (size := getattr(config, key, None))), None
    )
    if size_there is None:
        raise ValueError(f"--hf: the configuration of {name} has no width")
    if isinstance(getattr(config, "depths", None), (list, tuple)):
        raise ValueError(f"--hf: {name} has its layers in stages (depths): write a factory that says how many each has")
    try:
        _narrow(config, size_there, width or min(size_there, HF_WIDTH))
    except Exception as error:  # of many kinds, by what a configuration refuses to say or to take
        raise ValueError(f"--hf: {name} cannot be made narrower: {line_of(error)}") from None

    def build(num_layers: int) -> nn.Module:
        for key in _LAYERS:
            if isinstance(getattr(config, key, None), int):
                setattr(config, key, num_layers)
        if kinds := vars(config).get("layer_types"):
            config.layer_types = [kinds[index % len(kinds)] for index in range(num_layers)]
        return AutoModel.from_config(config).float()

    kind = config.model_type
    read = [r.name for r in RECIPES.values() if f"models/{kind}/" in r.source and "transformers" in r.source]
    return build, next(iter([*read, *RECIPES.keys() & {kind}]), None)
