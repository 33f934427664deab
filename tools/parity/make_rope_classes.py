"""Write what the classes of transformers do with positions of a text to `rope_classes.json.gz`.

It needs the newest transformers and torch: see `README.md`.
"""

import argparse
import contextlib
import functools
import gzip
import importlib
import inspect
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, initialization
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES
from transformers.utils import logging

from tools.parity.goldens import HERE, versions, write_compressed
from tools.parity.rope_classes import measure
from tools.parity.rope_classes.groups import groups_of, linear_modules
from tools.parity.rope_classes.variations import CLASSES, cases_of, new

OUT = HERE / "rope_classes.json.gz"
MODELS = Path(transformers.__file__).parent / "models"
LIMIT = 30  # seconds of the processor a case
MEMORY = 8 << 30  # bytes: a pass that needs more fails
VERBOSE = bool(os.environ.get("V"))
DROPPED = re.compile(
    r"label|dropout|token|initializer|pdrop|dtype|transformers_version|architectures|output_|return_dict"
    r"|problem_type|pruned|_cache$|^tie_|loss|aux|_eps$|epsilon|hidden_act|activation|use_return|is_decoder"
    r"|add_cross|chunk_size_feed|_name_or_path|jitter|init_|_std$|prefix|task_|router_bias|gradient"
)
EXPERTS = re.compile(r"(Experts|Mixer|MambaLayer)$")
NETWORKS = re.compile(r"(Experts|MoE|Moe|MLP|MoEBlock|MoeBlock|FeedForward|FFN)$")
BOOKS = ("num_channels", "num_codebooks", "audio_channels", "num_quantizers")  # ids of a token


def config_classes():
    """Each type with its configuration class and the folder of its code."""
    classes = {}
    for file in sorted(MODELS.glob("*/configuration_*.py")):
        module = importlib.import_module(f"transformers.models.{file.parent.name}.{file.stem}")
        for cls in vars(module).values():
            own = inspect.isclass(cls) and issubclass(cls, PreTrainedConfig)
            if own and cls.__module__ == module.__name__ and cls.model_type:
                known = classes.get(cls.model_type)
                registered = CONFIG_MAPPING_NAMES.get(cls.model_type)
                if known is None or cls.__name__ == registered:
                    classes[cls.model_type] = cls
    return classes


def model_modules(cls):
    folder = cls.__module__.split(".")[2]
    names = [f.stem for f in sorted((MODELS / folder).glob("modeling_*.py"))]
    return [importlib.import_module(f"transformers.models.{folder}.{name}") for name in names]


def model_classes(cls):
    """Classes of models with this configuration, the plainest first."""
    modules = model_modules(cls)
    names = MODEL_MAPPING_NAMES.get(cls.model_type, ())
    names = (names,) if isinstance(names, str) else tuple(names)
    found = {}
    with contextlib.suppress(Exception):  # a type with the model of another
        registered = MODEL_MAPPING[cls]
        found = {registered.__name__: registered} if inspect.isclass(registered) else {}
    for module in modules:
        for name, model in vars(module).items():
            own = inspect.isclass(model) and issubclass(model, PreTrainedModel)
            if own and model.__module__ == module.__name__ and model.config_class is cls:
                found[name] = model
    return sorted(
        (m for m in found.values() if not m.__name__.endswith("PreTrainedModel")),
        key=lambda m: (
            m.__name__ not in names,
            "For" in m.__name__,
            not m.__name__.endswith(("Model", "Encoder", "Decoder", "Tower", "Transformer")),
            len(m.__name__),
        ),
    )


def source(cls):
    folder = MODELS / cls.__module__.split(".")[2]
    return "\n".join(f.read_text() for f in sorted(folder.glob("modeling_*.py")))


@functools.cache
def has_rotary_code(cls) -> bool:
    return bool(
        re.search(
            r"inv_freq|def \w*(apply|rotate)\w*(rot|rope|half|pair)|freqs_cis|rotary", source(cls)
        )
    )


def turns(name, classes, seen=()):
    """Whether code of the type, or of the types inside it, rotates."""
    cls = classes.get(name)
    if cls is None or name in seen:
        return False
    inside = [spec.model_type for spec in cls.sub_configs_defaults.values() if spec.model_type]
    return has_rotary_code(cls) or any(turns(sub, classes, (*seen, name)) for sub in inside)


def fields_of(config):
    """What config.json would hold, without what has nothing to do with positions."""

    def kept(tree):
        if isinstance(tree, dict):
            return {
                k: kept(v)
                for k, v in tree.items()
                if not DROPPED.search(str(k)) or k == "model_type"
            }
        return tree

    return kept(json.loads(config.to_json_string(use_diff=False)))


def built(model_class, config):
    config._attn_implementation = "eager"
    with contextlib.suppress(Exception):
        config._experts_implementation = "eager"
    for name in ("chunk_size", "mamba_chunk_size"):  # of state spaces: padding to it takes seconds
        if type(config.__dict__.get(name)) is int:
            setattr(config, name, 8)
    with torch.no_grad(), measure.Ghosts(), initialization.no_init_weights():
        model = model_class(config).eval()
        for module in model.modules():
            if "Sinusoid" in type(module).__name__:
                model._init_weights(module)
        return model


def inputs(model, config):
    """Arguments to try for a text, by the names in the signature."""
    names = inspect.signature(model.forward).parameters
    n = measure.TEXT
    ids = torch.arange(5, 5 + n)[None] % max(int(getattr(config, "vocab_size", 1000) or 1000), 1)
    args = {"input_ids": ids}
    args |= {"use_cache": False} if "use_cache" in names else {}
    args |= {"decoder_input_ids": ids.clone()} if "decoder_input_ids" in names else {}
    yield args
    yield {**args, "attention_mask": torch.ones(1, n, dtype=torch.long)}
    width = getattr(config, "hidden_size", None)
    if "inputs_embeds" in names and isinstance(width, int):
        args = {"inputs_embeds": torch.zeros(1, n, width)}
        yield args
        wide = getattr(config, "hidden_size_global", width)
        for name, shape in (("encoder_hidden_states", (5, width)), ("patch_embeds", (n, wide))):
            if name in names:
                yield {**args, name: torch.zeros(1, *shape)}
    for books in (getattr(config, name, None) for name in BOOKS):
        if isinstance(books, int):
            rows = torch.ones(1, n, books, dtype=torch.long)
            more = {"decoder_input_ids": rows} if "decoder_input_ids" in names else {}
            yield {"input_ids": ids if more else rows, **more}
            yield {"input_ids": rows.transpose(1, 2)}


def zeros(*args, **kwargs):
    return torch.zeros_like(
        next(x for x in measure.flat([args, kwargs]) if isinstance(x, torch.Tensor))
    )


def without(model, names, linear=()):
    """Mixers and networks are most of the time of a pass, and know nothing of positions."""
    for module in model.modules():
        name = type(module).__name__
        mixer = id(module) in linear and not re.search(
            "Layer$|Block$|Model$|Cache|Norm|Conv1d", name
        )
        if names.search(name) or mixer:
            module.forward = zeros
        else:
            vars(module).pop("forward", None)


def tried(model, config):
    """The pass in which most layers ran, and the error that ended it."""
    best = (None, "not tried")
    for names, linear in ((EXPERTS, linear_modules(model)), (EXPERTS, ()), (NETWORKS, ())):
        without(model, names, linear)
        found = passed(model, config)
        if best[0] is None or (found[0] and ran(found[0]) > ran(best[0])) or not found[1]:
            best = found
        if not found[1] or (best[0] is None and not linear):  # done, or failed before its layers
            break
    return best


def ran(watch):
    return sum(v["ran"] for v in watch.layers.values())


def passed(model, config):
    """The pass with the first arguments by which layers run, and the error that ended it."""
    errors, best = [], (0, None)
    for args in inputs(model, config):
        watch = measure.Watch(model)
        try:
            with torch.no_grad(), watch, measure.Ghosts(watch):
                model(**args)
            error = None
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"[:160].replace("\n", " ")
            errors.append(error)
            if VERBOSE:
                traceback.print_exc()
        layers = ran(watch)
        if error is None and layers:
            return watch, None
        if layers > best[0]:
            best = (layers, watch)
        if layers:
            break
    return best[1], "; ".join(dict.fromkeys(errors))[:300] or "no layers ran"


def measured(cls, kwargs):
    """Fields and groups of a configuration, `incomplete` if its pass ended early, or the error."""
    config = new(cls, **kwargs)
    fields, errors = fields_of(config), []
    tries, text = [(m, cls) for m in model_classes(cls)[:2]], None
    with contextlib.suppress(Exception):
        text = config.get_text_config()
    if text is not None and text is not config:
        tries += [(m, type(text)) for m in model_classes(type(text))[:1]]
    for model_class, owner in tries:
        own = new(cls, **kwargs) if owner is cls else text
        try:
            model = built(model_class, own)
        except Exception as problem:
            errors.append(f"{model_class.__name__}: {type(problem).__name__}: {problem}"[:200])
            if VERBOSE:
                traceback.print_exc()
            continue
        if "input_ids" not in inspect.signature(model.forward).parameters:
            errors.append(f"{model_class.__name__}: no text")
            continue
        watch, error = tried(model, own)
        if watch is None or (error and not any(watch.layers[k]["ran"] for k in watch.modules)):
            errors.append(f"{model_class.__name__}: {error}")
            continue
        found = {"input": fields, "groups": groups_of(model, own, watch), "text": True}
        return found | ({"incomplete": error} if error else {})
    return {"error": "; ".join(errors)[:500] or "no model class"}


class LateError(BaseException):
    """Not caught by what tries one input after the other."""


def late(*_):
    raise LateError(f"more than {LIMIT} s")


def measure_type(cls, number):
    """Cases whose passes reached layers; what a class refuses is in `class_rules.json.gz`."""
    cases, counts, rotates = {}, [32], False
    for name, ways in cases_of(cls, number, counts):
        for way in ways:
            signal.setitimer(signal.ITIMER_PROF, LIMIT)
            try:
                case = measured(cls, way())
            except (Exception, LateError) as problem:
                if VERBOSE:
                    traceback.print_exc()
                case = {"error": f"{type(problem).__name__}: {problem}"}
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            problem = case.get("error") or case.get("incomplete")
            if not problem or (name.startswith("scaled") and "'NoneType' and" not in problem):
                break
        groups = case.get("groups") or []
        if groups:
            cases[name] = {k: v for k, v in case.items() if k != "incomplete"}
        if name == "defaults":
            counts[:] = [g["count"] for g in groups if g["kind"] == "rotary"] or counts
            rotates = any(g.get("turning") for g in groups)
        if "groups" in case and not rotates and not has_rotary_code(cls):
            break
    return {"cases": cases}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--lines", type=Path, help="types that are done, to go on after a stop")
    args = parser.parse_args()
    signal.signal(signal.SIGPROF, late)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    CLASSES.update(config_classes())
    types = {}
    if args.lines and args.lines.exists():  # an interrupted run goes on
        types = {k: v for line in args.lines.open() for k, v in json.loads(line).items()}
    elif args.types and args.out.exists():
        types = json.loads(gzip.decompress(args.out.read_bytes()))["types"]
    for number, (name, cls) in enumerate(sorted(CLASSES.items())):
        if name not in args.types if args.types else name in types:
            continue
        start = time.time()
        types[name] = measure_type(cls, number)
        if args.lines:
            with args.lines.open("a") as lines:
                lines.write(json.dumps({name: types[name]}) + "\n")
        took = f"{time.time() - start:.1f}"
        print(name, took, [*types[name]["cases"]], file=sys.stderr, flush=True)
    without_code = [n for n, c in CLASSES.items() if source(c) and not turns(n, CLASSES)]
    result = {"types": types, "no_rotary": sorted(without_code)}
    write_compressed(args.out, versions("transformers") | result)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    main()
