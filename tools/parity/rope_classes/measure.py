"""What a model of transformers does with positions, measured in a forward pass on the CPU.

Weights are ghosts: tensors of one number, expanded to their shape, whose products are zeros. So a
model of any size builds and runs in a second, and only positions are computed. The functions that
rotate are wrapped. Each wrapped call is repeated on basis vectors, which gives its matrix at every
position: which entries mix, by which angles, with which factor. In the pass itself the call returns
marks, and the marks in queries at the product with keys say where rotated entries lie in a head.
"""

import inspect
import math
import re
import sys
from collections import defaultdict

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
LARGE = 1 << 17  # elements of a tensor that becomes a ghost
TEXT = 13  # tokens: a prime, so that no other axis has this size
VECTORS = re.compile(
    r"^(q|k|qk|x|xq|xk|t|query|key|tensor|hidden_states|v|value)$"
    r"|^(query|key|q|k|value)_(states?|layer|rot|pe|embed|proj)$|^(queries|keys)$"
)
ROTATES = re.compile(r"(apply|rotate).*(rot|rope|half|pair|every|quer)|rotate_half|apply_\w*rope")
BIASES = re.compile("alibi", re.IGNORECASE)
MASKS = re.compile(r"^create_\w*mask\w*$")
FACTORIES = {
    aten.empty.memory_format: 0.0,
    aten.zeros.default: 0.0,
    aten.ones.default: 1.0,
    aten.randn.default: 0.0,
    aten.rand.default: 0.0,
}
PRODUCTS = {aten.bmm.default, aten.baddbmm.default}


def is_ghost(x) -> bool:
    return isinstance(x, torch.Tensor) and x.numel() > 1 and x.dim() and not any(x.stride())


def flat(args):
    for arg in args:
        if isinstance(arg, (list, tuple)):
            yield from flat(arg)
        elif isinstance(arg, dict):
            yield from flat(arg.values())
        else:
            yield arg


class Ghosts(TorchDispatchMode):
    """Large new tensors take no memory, and products with them are zeros."""

    def __init__(self, watch=None):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.watch is None and func in FACTORIES and math.prod(args[0]) >= LARGE:
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            return torch.full((), FACTORIES[func], dtype=dtype).expand(tuple(args[0]))
        if func is aten.empty.memory_format and self.watch is None:
            return func(*args, **kwargs).zero_()
        ghosts = [x for x in flat(args) if is_ghost(x)]
        if ghosts:
            if func._schema.is_mutable and is_ghost(args[0]):
                return args[0]
            if self.is_heavy(func):
                return self.zeros(func, args, kwargs)
        elif self.watch is not None:
            self.watch.operation(func, args)
        return func(*args, **kwargs)

    @staticmethod
    def is_heavy(func) -> bool:
        name = str(func)
        return any(
            x in name for x in ("mm.", "convolution", "embedding", "_grouped_mm", "addmv", "mv.")
        )

    @staticmethod
    def zeros(func, args, kwargs):
        def meta(x):
            if isinstance(x, torch.Tensor):
                return torch.empty(x.shape, dtype=x.dtype, device="meta")
            return type(x)(meta(y) for y in x) if isinstance(x, (list, tuple)) else x

        out = func(*map(meta, args), **{k: meta(v) for k, v in kwargs.items()})
        make = lambda x: torch.zeros(x.shape, dtype=x.dtype)  # noqa: E731
        return type(out)(map(make, out)) if isinstance(out, (list, tuple)) else make(out)


class Call:
    """A kind of call that rotates: a function with its angles, and its matrix at each position."""

    def __init__(self, function, args, kwargs, vectors, sequence):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.vectors, self.sequence = vectors, sequence
        self.shape = None  # of the vector
        self._matrices = None

    def with_vector(self, vector, one):
        """Outputs of the function with one vector for the first, zeros for the others."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for n, name in enumerate(self.vectors):
            store = args if isinstance(name, int) else kwargs
            store[name] = vector if n == 0 else torch.zeros_like(self.narrow(store[name], one))
        out = self.function(*args, **kwargs)
        return next(x for x in flat([out]) if isinstance(x, torch.Tensor))

    @property
    def matrices(self):
        """(positions, entries out, entries in)."""
        if self._matrices is None:
            try:
                self._matrices = self.measured(one=True)
            except (RuntimeError, IndexError):  # the function needs all heads
                self._matrices = self.measured(one=False)
        return self._matrices

    def measured(self, one):
        name = self.vectors[0]
        vector = (self.args if isinstance(name, int) else self.kwargs)[name]
        vector = self.narrow(vector, one)
        columns = []
        for i in range(vector.shape[-1]):
            basis = torch.zeros(vector.shape, dtype=torch.float32)
            basis[..., i] = 1
            out = self.with_vector(basis, one).movedim(self.sequence, 0)
            columns.append(out.reshape(out.shape[0], -1, out.shape[-1])[:, 0].double())
        return torch.stack(columns, -1)

    def narrow(self, x, one):
        """One head of one text."""
        for axis in range(x.dim() - 1) if one else ():
            if axis != x.dim() + self.sequence:
                x = x.narrow(axis, 0, 1)
        return x


def sequence_axis(shape, lengths):
    """The axis of positions, from the end. Tokens without position may come before the others."""
    for length in lengths:
        for axis in range(-len(shape), -1):
            if shape[axis] == length and (axis == -2 or list(shape).count(length) == 1):
                return axis
        for axis in range(-len(shape), -1):
            if shape[axis] == length:
                return axis
    return -2


class Watch:
    """What each layer of a model calls in a forward pass."""

    def __init__(self, model):
        self.model = model
        self.calls: list[Call] = []
        self.keys: dict = {}
        self.depth = 0
        self.layer = None
        self.layers = defaultdict(
            lambda: {
                "calls": [],
                "heads": [],
                "softmax": 0,
                "widths": [],
                "masks": set(),
                "ran": False,
            }
        )
        self.modules = {}
        self.masks = {}
        self.alibi = False
        self._undo = []

    # -- hooks
    def __enter__(self):
        for path, module in self.model.named_modules():
            if isinstance(module, torch.nn.ModuleList) and not self.inside_list(path):
                for n, layer in enumerate(module):
                    self.modules[(path, n)] = layer
                    self.hook(layer, (path, n))
        seen = set()
        for module in self.model.modules():
            for cls in type(module).__mro__:
                if not cls.__module__.startswith("transformers.models") or cls in seen:
                    continue
                seen.add(cls)
                self.wrap_all(cls)
                file = sys.modules[cls.__module__]
                if file not in seen:
                    seen.add(file)
                    self.wrap_all(file)
        return self

    def __exit__(self, *error):
        for undo in reversed(self._undo):
            undo()

    def inside_list(self, path):
        parts = path.split(".")
        return any(part.isdigit() for part in parts) and any(
            isinstance(self.model.get_submodule(".".join(parts[:n])), torch.nn.ModuleList)
            for n in range(1, len(parts))
        )

    def hook(self, layer, key):
        def before(module, args, kwargs):
            if self.layer is None:
                self.layer = key
                self.layers[key]["ran"] = False
                for x in flat([args, kwargs]):
                    if id(x) in self.masks:
                        self.layers[key]["masks"].add(id(x))

        def after(module, args, kwargs, out):
            if self.layer == key:
                self.layer = None
                self.layers[key]["ran"] = out is not None  # None where it raised

        handles = [
            layer.register_forward_pre_hook(before, with_kwargs=True),
            layer.register_forward_hook(after, with_kwargs=True, always_call=True),
        ]
        self._undo += [h.remove for h in handles]

    def wrap_all(self, owner):
        for name, function in list(vars(owner).items()):
            static = isinstance(function, staticmethod)
            plain = function.__func__ if static else function
            if not inspect.isfunction(plain):
                continue
            if ROTATES.search(name):
                wrapped = self.rotation(plain)
            elif MASKS.search(name):
                wrapped = self.mask(name, plain)
            elif BIASES.search(name):
                wrapped = self.bias(plain)
            else:
                continue
            setattr(owner, name, staticmethod(wrapped) if static else wrapped)
            self._undo.append(lambda o=owner, n=name, f=function: setattr(o, n, f))

    def mask(self, name, function):
        def call(*args, **kwargs):
            out = function(*args, **kwargs)
            config = kwargs.get("config") or (args[0] if args else None)
            for x in flat([out]):
                if isinstance(x, torch.Tensor):
                    self.masks[id(x)] = (name, config, x)
            return out

        return call

    def bias(self, function):
        def call(*args, **kwargs):
            self.alibi = True
            return function(*args, **kwargs)

        return call

    # -- rotations
    def rotation(self, function):
        names = list(inspect.signature(function).parameters)

        def call(*args, **kwargs):
            vectors = [n for n, x in enumerate(args) if self.is_vector(names, n, x)]
            vectors += [k for k, x in kwargs.items() if self.is_vector([k], 0, x)]
            if self.depth or not vectors:
                return function(*args, **kwargs)
            self.depth += 1
            try:
                out = function(*args, **kwargs)
            finally:
                self.depth -= 1
            return self.marked(function, vectors, args, kwargs, out)

        return call

    def marked(self, function, vectors, args, kwargs, out):
        """What the call returns instead: marks, for a kind of call that is now known."""
        tensors = [x for x in flat([out]) if isinstance(x, torch.Tensor)]
        vectors = vectors[: len(tensors)]
        if not tensors or tensors[0].dim() < 3:
            return out
        rest = [x for n, x in enumerate(args) if n not in vectors]
        rest += [x for k, x in kwargs.items() if k not in vectors]
        angles = [x for x in flat(rest) if isinstance(x, torch.Tensor)]
        lengths = [TEXT]
        lengths += [n for x in angles for n in reversed(x.shape[:-1]) if n > 2]
        sequence = sequence_axis(tensors[0].shape, lengths)
        if tensors[0].shape[sequence] < 3:
            return out
        vector = args[vectors[0]] if isinstance(vectors[0], int) else kwargs[vectors[0]]
        key = (
            function.__qualname__,
            tuple(vector.shape[-1:]),
            tuple(self.digest(x) for x in angles),
        )
        if key not in self.keys:
            self.keys[key] = len(self.calls)
            self.calls.append(Call(function, args, kwargs, vectors, sequence))
        kind = self.keys[key]
        self.layers[self.layer]["calls"].append(kind)
        marks = [self.mark(x, kind, sequence) for x in tensors]
        if isinstance(out, torch.Tensor):
            return marks[0]
        return type(out)(marks) if len(marks) == len(out) else out

    @staticmethod
    def is_vector(names, n, x):
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dim() < 3:
            return False
        return n < len(names) and bool(VECTORS.search(names[n]))

    @staticmethod
    def digest(x):
        x = torch.view_as_real(x) if x.is_complex() else x
        return (
            tuple(x.shape),
            x.double().sum().item(),
            (x.double().flatten() ** 2).sum().item(),
            x.double().flatten()[-3:].sum().item(),
        )

    @staticmethod
    def mark(x, kind, sequence):
        """Ones, then entries counted from 1, then the kind: see `read_marks`."""
        out = torch.ones_like(x).contiguous()
        rows = out.movedim(sequence, 0)
        rows[1] = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
        rows[2] = kind + 2
        rows[2, ..., 0] = 1
        return out

    def operation(self, func, args):
        if self.layer is None or self.depth:
            return
        layer = self.layers[self.layer]
        name = str(func)
        if func in PRODUCTS or "scaled_dot_product" in name:
            tensors = [x for x in flat(args) if isinstance(x, torch.Tensor)]
            tensors = tensors[1:] if func is aten.baddbmm.default else tensors[:2]
            self.product(layer, [tensors[0], tensors[1]])
            if "scaled_dot_product" in name:
                self.attended(layer, args[0].shape[-1])
        elif "_softmax" in name and args[0].dim() >= 3 and args[0].shape[-2] > 1:
            keys = args[0].shape[-1]  # less than the text: a router or a mixture of streams
            if keys >= TEXT:
                self.attended(layer, layer.get("width"))

    def product(self, layer, tensors):
        """Queries at a product with keys: the last before a softmax are of attention."""
        if not tensors[0].numel() or not tensors[1].numel():
            return
        layer["width"] = tensors[0].shape[-1]
        reads = [read_marks(x.reshape(-1, *x.shape[-2:])[0]) for x in tensors]
        layer["last"] = next((x for x in reads if x is not None), None)

    def attended(self, layer, width):
        layer["softmax"] += 1
        head = layer.pop("last", None)
        width = layer.pop("width", width)
        if head is not None and head not in layer["heads"]:
            layer["heads"].append(head)
        if width is not None and width not in layer["widths"]:
            layer["widths"].append(width)


def read_marks(rows):
    """(kind of call, width of the head, place of each marked entry) of queries, or None."""
    if rows.shape[0] < 3:
        return None
    filled = rows[:3].double()
    if not filled.isfinite().all():
        return None
    places = torch.nonzero(filled[1]).flatten()
    if not len(places) or (filled[:, places] == 0).any():
        return None
    start = places[filled[1, places].argmin()]
    entries = filled[1, places] / filled[1, start]
    if len(places) < 2 or (entries - entries.round()).abs().max() > 1e-3:
        return None
    if len(set(entries.round().tolist())) < len(places):
        return None
    kinds = filled[2, places] / filled[2, start]
    kinds = kinds[places != start]
    if (kinds - kinds.round()).abs().max() > 1e-3 or kinds.round().unique().numel() != 1:
        return None
    order = tuple(int(e) - 1 for e in entries.round().tolist())
    return int(kinds[0].round()) - 2, rows.shape[-1], tuple(places.tolist()), order
