"""The KV cache groups of an engine, and the cistern layout of each. Both sides of the connector work them out for themselves,
from the same configuration."""
from __future__ import annotations

import dataclasses
import logging
from typing import Any

import torch

import cistern

from . import encodings
from .options import Options

log = logging.getLogger("vllm.cistern")
PART_BYTES_MAX = 4 << 20
SPANS_MAX = 64


@dataclasses.dataclass
class Group:
    """Layers that share block ids. A cistern block's bytes are [head][layer][page of that head]; `direct` pages are moved as
    they lie, others through encoding.views, stored as [K rows][V rows] of block_tokens each.

    Of a state group a block holds what the layers remember of all tokens before its end: one is enough for a hit, and only some
    are kept. A cistern block of it is all of one rank's page, under the name of the history that ends there."""

    index: int
    layer_names: list[str]
    block_size: int
    block_tokens: int
    heads: int  # of this rank
    slices: int  # heads of the model
    slice_first: int
    head_size: int
    content: int  # elements a token and head
    dtype: torch.dtype
    window: int | None  # Tokens that the next one can see; None: all.
    encoding: encodings.Encoding
    layout: cistern.Layout
    is_state: bool = False
    shared: bool = False  # Other tensor-parallel ranks have the same heads.

    @property
    def page_shape(self) -> tuple[int, int, int]:
        """Of one block in an engine's tensor of one layer."""
        return (1, 1, self.content) if self.is_state else (self.heads, self.block_size, self.content)

    @property
    def direct(self) -> bool:
        return self.block_tokens == self.block_size

    @property
    def per_page(self) -> int:
        """cistern blocks of one engine block."""
        return self.block_size // self.block_tokens

    def first_needed(self, end: int) -> int:
        """First engine block that the token behind engine block `end` - 1 can see."""
        if self.is_state:
            return end - 1
        return 0 if self.window is None else max(0, (end * self.block_size - self.window + 1) // self.block_size)


def refuse(what: str) -> None:
    raise ValueError(f"CisternConnector: {what}")


def _head_slices(name: str, heads: int, total: int, parallel: Any) -> tuple[int, int]:
    """(slices of the model, the first of this rank). A rank has whole heads, or one that it shares with its neighbours."""
    tp, rank = parallel.tensor_parallel_size, parallel.rank % parallel.tensor_parallel_size
    if heads * tp == total or tp == 1:
        return heads * tp, rank * heads
    if heads == 1 and total < tp and tp % total == 0:
        return total, rank * total // tp
    refuse(f"{name} has {heads} KV heads of {total} on each of {tp} tensor-parallel ranks, which cuts through heads")
    raise AssertionError


def _spans(layers: int, piece_bytes: int, least: int = 1) -> int:
    """Into how many equal ranges of layers a part has to be cut to stay within what cistern takes, and at least `least`."""
    for spans in range(max(1, min(least, layers)), min(layers, SPANS_MAX) + 1):
        if layers % spans == 0 and layers // spans * piece_bytes <= PART_BYTES_MAX:
            return spans
    refuse(f"{layers} layers of {piece_bytes} bytes a head and block do not divide into parts of at most {PART_BYTES_MAX} bytes")
    raise AssertionError


def _window(spec: Any) -> int | None:
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    if isinstance(spec, SlidingWindowSpec):
        return spec.sliding_window + spec.extra_retained_tokens
    return None


def _supported(spec: Any) -> bool:
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, RSWASpec, SlidingWindowMLASpec, SlidingWindowSpec

    if isinstance(spec, (MLAAttentionSpec, RSWASpec, SlidingWindowMLASpec)):
        return False
    return isinstance(spec, (FullAttentionSpec, SlidingWindowSpec)) and spec.tokens_per_state == 1


STATE_TOKENS = 8  # A block's name as token ids.


def make_state_group(index: int, names: list[str], spec: Any, vllm_config: Any, digest: bytes) -> Group:
    name = f"KV cache group {index}"
    if spec.mamba_cache_mode != "align":
        refuse(f"{name} keeps states in mamba_cache_mode {spec.mamba_cache_mode!r}; 'align' is what it can move, with enable_prefix_caching")
    parallel, content = vllm_config.parallel_config, spec.state_content_size_bytes
    tp = parallel.tensor_parallel_size
    spans = _spans(len(names), content)
    shapes = ",".join(f"{'x'.join(map(str, shape))}:{str(dtype).removeprefix('torch.')}" for shape, dtype in zip(spec.shapes, spec.dtypes))
    layout = cistern.Layout(
        model=str(vllm_config.model_config.model)[-200:], block_tokens=STATE_TOKENS, part_bytes=len(names) // spans * content, slices=tp, spans=spans,
        compute_digest=digest, geometry=f"vllm;state;{shapes};layers={len(names)};group={index};block={spec.block_size};tp={tp}")
    return Group(index, list(names), spec.block_size, spec.block_size, 1, tp, parallel.rank % tp, 0, content, torch.int8, None,
                 encodings.Encoding("state", None), layout, is_state=True)


def make_group(index: int, names: list[str], spec: Any, vllm_config: Any, options: Options, digest: bytes) -> Group:
    from vllm.v1.kv_cache_interface import MambaSpec

    name = f"KV cache group {index}"
    if isinstance(spec, MambaSpec):
        return make_state_group(index, names, spec, vllm_config, digest)
    if not _supported(spec):
        refuse(f"{name} is {type(spec).__name__}, which it does not move yet; full attention, sliding windows and states it does")
    model, parallel, cache = vllm_config.model_config, vllm_config.parallel_config, vllm_config.cache_config
    block_tokens = options.block_tokens or spec.block_size
    if spec.block_size % block_tokens:
        refuse(f"block_tokens {block_tokens} does not divide {name}'s block size {spec.block_size}")
    slices, slice_first = _head_slices(name, spec.num_kv_heads, model.get_total_num_kv_heads(), parallel)
    content = spec.head_size + spec.head_size_v
    encoding = encodings.probe_cpu(model.dtype, cache.cache_dtype, spec.block_size, spec.num_kv_heads, spec.head_size, content)
    if encoding.views is None and block_tokens != spec.block_size:
        refuse(f"{name} has pages in the encoding {encoding.name}, which can only be moved whole: block_tokens must be {spec.block_size}")
    piece = block_tokens * content * spec.dtype.itemsize
    spans = _spans(len(names), piece, options.layer_ranges)
    order = encoding.name if block_tokens == spec.block_size else "planar-rows"
    window = _window(spec)
    layout = cistern.Layout(
        model=str(model.model)[-200:], block_tokens=block_tokens, part_bytes=len(names) // spans * piece, slices=slices, spans=spans,
        dtype=str(spec.dtype).removeprefix("torch."), compute_digest=digest,
        geometry=f"vllm;{order};layers={len(names)};head={spec.head_size}+{spec.head_size_v};group={index};window={window}")
    return Group(index, list(names), spec.block_size, block_tokens, spec.num_kv_heads, slices, slice_first, spec.head_size, content,
                 spec.dtype, window, encoding, layout, shared=slices < parallel.tensor_parallel_size)


def refuse_layerwise(vllm_config: Any, groups: list[Group], options: Options) -> None:
    """Loads by layers where they cannot be."""
    if options.load_async:
        refuse("layerwise needs load_async false: an asynchronous load is over before the model sees its request")
    if len(groups) > 1:
        refuse(f"layerwise: the model has {len(groups)} KV cache groups, whose loads vLLM takes between steps only; leave it out")
    if vllm_config.speculative_config is not None:
        refuse("layerwise: the layers of a draft model run after vLLM has asked which blocks failed; leave out one of the two")


def make_groups(vllm_config: Any, kv_cache_config: Any, options: Options, digest: bytes) -> list[Group]:
    parallel = vllm_config.parallel_config
    if parallel.pipeline_parallel_size > 1:
        refuse(f"pipeline_parallel_size is {parallel.pipeline_parallel_size}; it moves pages of one stage only so far")
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) > 1:
            refuse(f"{name} above 1 is not supported")
    if torch.device(vllm_config.device_config.device).type != "cpu":
        refuse(f"pages on {vllm_config.device_config.device} are not supported yet; vLLM on the CPU is")
    groups = [make_group(i, g.layer_names, g.kv_cache_spec, vllm_config, options, digest) for i, g in enumerate(kv_cache_config.kv_cache_groups)]
    if options.layerwise:
        refuse_layerwise(vllm_config, groups, options)
    if all(group.is_state or group.window is not None for group in groups):
        refuse("the model has no layer that sees all tokens: its pages have no history to be named by")
    return groups
