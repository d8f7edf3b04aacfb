"""How an engine lays out the bytes of one page, by name.

A page of vLLM is a view [heads, tokens, content] of one block. What lies in it is the attention backend's affair and moves from
release to release, so nothing is assumed: each named encoding is a claim that probe() checks by writing a pattern through the
engine's own cache operation. An encoding that fits none of the names is moved whole, under a name of its own, or refused.
"""
from __future__ import annotations

import dataclasses
from typing import Callable

import torch

Views = Callable[[torch.Tensor, int], "tuple[torch.Tensor, torch.Tensor]"]


@dataclasses.dataclass(frozen=True)
class Encoding:
    """`views(pages [blocks, heads, tokens, content], head_size)` gives K and V as [blocks, heads, tokens, head_size], views of
    the same memory; None where only the engine can read a page."""

    name: str
    views: Views | None


def _planes(pages: torch.Tensor, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    blocks, heads, tokens, content = pages.shape
    flat = pages.reshape(blocks, heads, tokens * content) if pages.is_contiguous() else _flat(pages)
    return flat[:, :, :tokens * head_size], flat[:, :, tokens * head_size:2 * tokens * head_size]


def _flat(pages: torch.Tensor) -> torch.Tensor:
    """[blocks, heads, tokens * content] of pages whose blocks have gaps between them."""
    blocks, heads, tokens, content = pages.shape
    if pages.stride(3) != 1 or pages.stride(2) != content:
        raise ValueError("the inside of a page is not contiguous")
    return pages.as_strided((blocks, heads, tokens * content), (pages.stride(0), pages.stride(1), 1))


def _planar_columns(pages: torch.Tensor, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """K transposed over the whole block, then V by rows: vLLM's CPU pages."""
    blocks, heads, tokens, _ = pages.shape
    k, v = _planes(pages, head_size)
    return k.view(blocks, heads, head_size, tokens).transpose(2, 3), v.view(blocks, heads, tokens, head_size)


def _planar_rows(pages: torch.Tensor, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    blocks, heads, tokens, _ = pages.shape
    k, v = _planes(pages, head_size)
    return k.view(blocks, heads, tokens, head_size), v.view(blocks, heads, tokens, head_size)


def _fused_rows(pages: torch.Tensor, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's K and V side by side, head by head (HND) or token by token (NHD): the strides say which."""
    return pages[..., :head_size], pages[..., head_size:]


NAMED = [Encoding("planar-columns", _planar_columns), Encoding("planar-rows", _planar_rows), Encoding("fused-rows", _fused_rows)]


def fits(encoding: Encoding, pages: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether K and V of [tokens, heads, head_size] stand in the first of `pages` as the encoding says, and nowhere else."""
    try:
        k, v = encoding.views(pages, key.shape[-1])
    except (ValueError, RuntimeError):
        return False
    want_k, want_v = key.transpose(0, 1), value.transpose(0, 1)
    if k.shape[1:] != want_k.shape or v.shape[1:] != want_v.shape:
        return False
    return bool(torch.equal(k[0], want_k) and torch.equal(v[0], want_v) and not pages[1:].any())


def pattern(tokens: int, heads: int, head_size: int, dtype: torch.dtype, first: int) -> torch.Tensor:
    """Values that tell position, head and element apart and that every cache dtype holds exactly: no two neighbours alike."""
    index = torch.arange(tokens * heads * head_size, dtype=torch.int64).view(tokens, heads, head_size)
    return ((index * 37 + (index >> 7) * 11 + first) % 251 + 1).to(dtype)


def probe_cpu(dtype: torch.dtype, cache_dtype: str, block_size: int, heads: int, head_size: int, content: int) -> Encoding:
    """The encoding of vLLM's CPU attention, found by writing one block through its own cache operation."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    try:
        isa = _get_attn_isa(dtype, block_size, head_size, cache_dtype)
    except NotImplementedError:  # This CPU has no kernel for it: the engine will say so in its own words.
        isa = "none"
    opaque = Encoding(f"opaque-cpu-{isa}-{vllm_version()}", None)
    if cache_dtype != "auto" or content != 2 * head_size:
        return opaque
    pages = torch.zeros(2, heads, block_size, content, dtype=dtype)
    key_cache, value_cache = pages.view(2, heads, block_size * 2, head_size).chunk(2, dim=2)
    key, value = (pattern(block_size, heads, head_size, dtype, first) for first in (3, 101))
    ops.cpu_attn_reshape_and_cache(key, value, key_cache, value_cache, torch.arange(block_size), isa)
    return next((e for e in NAMED if fits(e, pages, key, value)), opaque)


def vllm_version() -> str:
    import vllm

    return vllm.__version__
