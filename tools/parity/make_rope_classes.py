"""Write what the classes of transformers do with positions to `rope_classes.json.gz`.

Run by hand with the newest transformers and torch: see `README.md`.
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
from rope_classes import measure
from rope_classes.groups import groups_of, linear_modules
from rope_classes.inputs import candidates
from rope_classes.positions import evidence
from rope_classes.variations import CLASSES, cases_of, needed, new
from transformers import PreTrainedConfig, PreTrainedModel, initialization
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES
from transformers.utils import logging

HERE = Path(__file__).parents[2] / "tests" / "parity"
OUT = HERE / "rope_classes.json.gz"
MODELS = Path(transformers.__file__).parent / "models"
LIMIT = 30  # seconds a case
MEMORY = 8 << 30  # bytes: a pass that needs more fails
VERBOSE = bool(os.environ.get("V"))
DROPPED = re.compile(
    r"label|dropout|token|initializer|pdrop|dtype|transformers_version|architectures|output_|return_dict"
    r"|problem_type|pruned|_cache$|^tie_|loss|aux|_eps$|epsilon|hidden_act|activation|use_return|is_decoder"
    r"|add_cross|chunk_size_feed|_name_or_path|jitter|init_|_std$|prefix|task_|router_bias|gradient"
)
EXPERTS = re.compile(r"(Experts|Mixer|MambaLayer)$")
NETWORKS = re.compile(r"(Experts|MoE|Moe|MLP|MoEBlock|MoeBlock|FeedForward|FFN)$")


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


def tried(model, config, far=None):
    """The pass in which most layers ran, and the error that ended it."""
    best = (None, "not tried")
    for names, linear in ((EXPERTS, linear_modules(model)), (EXPERTS, ()), (NETWORKS, ())):
        without(model, names, linear)
        found = passed(model, config, far)
        if best[0] is None or (found[0] and ran(found[0]) > ran(best[0])) or not found[1]:
            best = found
        if not found[1] or (best[0] is None and not linear):  # done, or failed before its layers
            break
    return best


def ran(watch):
    return sum(v["ran"] for v in watch.layers.values())


def passed(model, config, far=None):
    """The pass in which most layers ran, and the error that ended it."""
    errors, best = [], (0, None)
    for args, length in candidates(model, config):
        if far is not None:
            if "position_ids" not in inspect.signature(model.forward).parameters:
                return None, "no position_ids"
            positions = torch.arange(measure.TEXT)
            positions[-1] = far
            args = {**args, "position_ids": positions[None]}
        watch = measure.Watch(model, length)
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
        if far is not None or (layers and "input_ids" in args):
            break
    return best[1], "; ".join(dict.fromkeys(errors))[:300] or "no layers ran"


def text_config_of(config):
    text = config.get_text_config()
    return None if text is config else text


def measured(cls, kwargs):
    """Input and groups of a configuration, or the error."""
    config = new(cls, **kwargs)
    fields = fields_of(config)
    errors = []
    tries = [(m, cls, "forward") for m in model_classes(cls)[:2]]
    try:
        text = text_config_of(config)
    except Exception:
        text = None
    if text is not None:
        tries += [(m, type(text), "text_config") for m in model_classes(type(text))[:1]]
    for model_class, owner, how in tries:
        own = new(cls, **kwargs) if owner is cls else text
        try:
            model = built(model_class, own)
        except Exception as problem:
            errors.append(f"{model_class.__name__}: {type(problem).__name__}: {problem}"[:200])
            if VERBOSE:
                traceback.print_exc()
            continue
        watch, error = tried(model, own)
        if watch is None or (error and not any(watch.layers[k]["ran"] for k in watch.modules)):
            errors.append(f"{model_class.__name__}: {error}")
            continue
        groups = groups_of(model, own, watch)
        result = {"input": fields, "how": how, "model": model_class.__name__, "groups": groups}
        result["text"] = "input_ids" in inspect.signature(model.forward).parameters
        result["positions"] = [*evidence(model)]
        total = sum(1 for k in watch.modules)
        if error:
            result["incomplete"] = error
            result["ran"] = [sum(watch.layers[k]["ran"] for k in watch.modules), total]
        far = far_groups(model, own, result)
        return {**result, **({"far": far} if far else {})}
    return {
        "input": fields,
        "how": None,
        "groups": None,
        "error": "; ".join(errors)[:500] or "no model class",
    }


def far_groups(model, config, result):
    """Groups at a length beyond training, where frequencies depend on it."""
    text = json.dumps(result["input"])
    if not re.search(r'"rope_type": "(longrope|dynamic)"', text):
        return None
    longest = getattr(config, "max_position_embeddings", 4096) or 4096
    far = 4 * longest - 1 if '"dynamic"' in text else longest - 1
    watch, error = tried(model, config, far)
    if watch is None or error:
        return None
    return {"last_position": far, "groups": groups_of(model, config, watch, last=-1)}


def sub_types(cls):
    return [spec.model_type for spec in cls.sub_configs_defaults.values() if spec.model_type]


def turns(name, classes, seen=()):
    """Whether code of the type, or of the types inside it, rotates."""
    cls = classes.get(name)
    if cls is None or name in seen:
        return False
    return has_rotary_code(cls) or any(turns(sub, classes, (*seen, name)) for sub in sub_types(cls))


def summarised(result, classes):
    """Types without rotary code, and what could not be built."""
    types = result["types"]
    result["no_rotary"] = {}
    result["failed"] = {}
    for name in sorted(classes):
        cases = types.get(name, {}).get("cases", {})
        default = cases.get("defaults", {})
        rotates = any(g.get("turning") for c in cases.values() for g in c.get("groups") or [])
        if source(classes[name]) and not rotates and not turns(name, classes):
            kinds = sorted({g["kind"] for g in default.get("groups") or [] if g["kind"]})
            result["no_rotary"][name] = kinds or default.get("positions") or None
        errors = {k: v["error"] for k, v in cases.items() if v.get("error")}
        if errors:
            result["failed"][name] = errors
        if name in types:
            types[name]["parents"] = sorted(k for k, v in classes.items() if name in sub_types(v))
    result["unwritten"] = sorted(set(CONFIG_MAPPING_NAMES) - set(classes))


class LateError(BaseException):
    """Not caught by what tries one input after the other."""


def measure_type(cls, number):
    out = {"class": cls.__name__, "folder": cls.__module__.split(".")[2], "cases": {}}
    if fields := needed(cls):
        out["needed"] = fields
    counts = [32]
    for name, ways in cases_of(cls, number, counts):
        refused = []
        for way in ways:
            signal.alarm(LIMIT)
            try:
                case = measured(cls, way())
            except (Exception, LateError) as problem:
                if VERBOSE:
                    traceback.print_exc()
                case = {
                    "how": None,
                    "error": f"{type(problem).__name__}: {problem}"[:300].replace("\n", " "),
                }
            finally:
                signal.alarm(0)
            if case.get("groups") and not case.get("incomplete"):
                break
            refused.append(case.get("error") or case.get("incomplete"))
            if name.startswith("scaled") and "'NoneType' and 'float'" not in refused[-1]:
                break
        if name.startswith("scaled") and case.get("groups") and refused:
            case["refused"] = refused[0]
        out["cases"][name] = case
        if name == "defaults":
            groups = case.get("groups") or []
            counts[:] = [
                g["count"] for g in groups if g.get("count") and g["kind"] == "rotary"
            ] or counts
            out["turns"] = any(g.get("turning") for g in groups)
        if case.get("groups") is not None and not out["turns"] and not has_rotary_code(cls):
            break
    return out


def late(*_):
    raise LateError(f"more than {LIMIT} s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--lines", type=Path, help="types that are done, to go on after a stop")
    parser.add_argument("--print", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGALRM, late)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    CLASSES.update(config_classes())
    classes = CLASSES
    result = {"transformers": transformers.__version__, "types": {}}
    if args.lines and args.lines.exists():  # an interrupted run goes on
        result["types"] = {k: v for line in args.lines.open() for k, v in json.loads(line).items()}
    elif args.types and args.out.exists():
        result = json.loads(gzip.decompress(args.out.read_bytes()))
    rotary_first = sorted(
        enumerate(sorted(classes.items())), key=lambda n: not turns(n[1][0], classes)
    )
    for number, (name, cls) in rotary_first:
        if name not in args.types if args.types else name in result["types"]:
            continue
        start = time.time()
        result["types"][name] = kind = measure_type(cls, number)
        if args.lines:
            with args.lines.open("a") as lines:
                lines.write(json.dumps({name: kind}) + "\n")
        if args.print:
            print(json.dumps({k: {**v, "input": 0} for k, v in kind["cases"].items()}, indent=1))
        print(
            f"{name} {time.time() - start:.1f}",
            {k: v["how"] for k, v in kind["cases"].items()},
            file=sys.stderr,
            flush=True,
        )
    summarised(result, classes)
    data = json.dumps(result, sort_keys=True, separators=(",", ":")).encode()
    args.out.write_bytes(gzip.compress(data, 9, mtime=0))
    print(len(data), args.out.stat().st_size)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    main()
